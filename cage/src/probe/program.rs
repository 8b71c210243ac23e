//! The cage's pid 1 must need nothing of the cage: a static program (PROTOCOL.md 5).

use super::{Check, State};
use std::fs::File;
use std::io::{self, Read};
use std::os::unix::fs::FileExt;
use std::path::Path;

const PT_INTERP: u32 = 3;
/// More program headers than any linker makes.
const HEADERS_MAX: u16 = 64;

pub(super) fn check(path: Option<&Path>) -> Check {
    let name = "cage-init";
    let mend = "build it with `cargo xtask build`, or install mews again";
    let Some(path) = path else {
        return Check::new(name, State::Fail, "mews-cage-init is not beside mews").mend(mend);
    };
    match File::open(path).and_then(|file| is_static(&file)) {
        Ok(true) => Check::new(name, State::Ok, format!("{}, static", path.display())),
        Ok(false) => {
            let what = format!("{} needs a dynamic linker, which a cage lacks", path.display());
            Check::new(name, State::Fail, what).mend(mend)
        }
        Err(error) => {
            Check::new(name, State::Fail, format!("{}: {error}", path.display())).mend(mend)
        }
    }
}

/// Whether this ELF program has no PT_INTERP.
///
/// # Errors
/// It cannot be read, or is no 64-bit little-endian ELF file.
pub fn is_static(mut file: &File) -> io::Result<bool> {
    let bad = || io::Error::new(io::ErrorKind::InvalidData, "not a 64-bit ELF program");
    let mut header = [0_u8; 64];
    file.read_exact(&mut header)?;
    if !header.starts_with(b"\x7fELF\x02\x01") {
        return Err(bad());
    }
    let half = |at: usize| header.get(at..at + 2).and_then(|b| b.try_into().ok());
    let start = header.get(32..40).and_then(|b| b.try_into().ok()).map(u64::from_le_bytes);
    let size = half(54).map(u16::from_le_bytes).ok_or_else(bad)?;
    let count = half(56).map(u16::from_le_bytes).ok_or_else(bad)?;
    let start = start.ok_or_else(bad)?;
    if count > HEADERS_MAX {
        return Err(bad());
    }
    for index in 0..u64::from(count) {
        let mut kind = [0_u8; 4];
        file.read_exact_at(&mut kind, start.saturating_add(index * u64::from(size)))?;
        if u32::from_le_bytes(kind) == PT_INTERP {
            return Ok(false);
        }
    }
    Ok(true)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_dynamic_program_is_told_from_what_is_none() {
        let sleep = File::open("/bin/sleep").unwrap();
        assert!(!is_static(&sleep).unwrap());
        let text = File::open("/etc/passwd").unwrap();
        assert!(is_static(&text).is_err());
    }
}
