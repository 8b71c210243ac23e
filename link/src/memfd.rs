//! Sealed memory files: how anything larger than a packet travels.

use nix::fcntl::{FcntlArg, SealFlag, fcntl};
use nix::sys::memfd::{MFdFlags, memfd_create};
use std::fs::File;
use std::io::{self, Read, Seek, Write};
use std::os::fd::{AsFd, OwnedFd};

/// The kernel may hold a page for a moment itself (reclaim, migration): EBUSY, after it has waited.
const SEAL_TRIES: u32 = 8;

/// A memfd with these bytes that nobody can change any more.
///
/// # Errors
/// EMFILE, ENOMEM.
pub fn sealed(name: &str, bytes: &[u8]) -> io::Result<OwnedFd> {
    seal(filled(name, bytes, MFdFlags::MFD_CLOEXEC | MFdFlags::MFD_ALLOW_SEALING)?)
}

/// The same, executable, with these permissions. With `vm.memfd_noexec=2` the kernel refuses: EACCES.
///
/// # Errors
/// EACCES, EMFILE, ENOMEM.
pub fn sealed_program(name: &str, bytes: &[u8], mode: u32) -> io::Result<OwnedFd> {
    let flags = MFdFlags::MFD_CLOEXEC | MFdFlags::MFD_ALLOW_SEALING;
    // MFD_EXEC is younger (6.3) than some kernels that we run on: EINVAL there.
    let file = match filled(name, bytes, flags | MFdFlags::from_bits_retain(0x10)) {
        Err(error) if error.raw_os_error() == Some(libc::EINVAL) => filled(name, bytes, flags)?,
        other => other?,
    };
    nix::sys::stat::fchmod(file.as_fd(), nix::sys::stat::Mode::from_bits_truncate(mode))?;
    seal(file)
}

/// All bytes of a memfd or file from its start, wherever its offset stands.
///
/// # Errors
/// Larger than `bytes_max`, or it cannot be read.
pub fn read(fd: OwnedFd, bytes_max: usize) -> io::Result<Vec<u8>> {
    let mut file = File::from(fd);
    file.rewind()?;
    let limit = u64::try_from(bytes_max).unwrap_or(u64::MAX).saturating_add(1);
    // Room for all of it and one byte, so that one call reads it and the next sees its end.
    let length = file.metadata()?.len().min(limit);
    let mut bytes = Vec::with_capacity(usize::try_from(length).unwrap_or(0).saturating_add(1));
    file.take(limit).read_to_end(&mut bytes)?;
    if bytes.len() > bytes_max {
        return Err(io::Error::new(
            io::ErrorKind::InvalidData,
            format!("larger than {bytes_max} bytes"),
        ));
    }
    Ok(bytes)
}

fn filled(name: &str, bytes: &[u8], flags: MFdFlags) -> io::Result<OwnedFd> {
    let mut file = File::from(memfd_create(name, flags)?);
    file.write_all(bytes)?;
    file.rewind()?;
    Ok(file.into())
}

fn seal(fd: OwnedFd) -> io::Result<OwnedFd> {
    let seals = SealFlag::F_SEAL_SEAL
        | SealFlag::F_SEAL_SHRINK
        | SealFlag::F_SEAL_GROW
        | SealFlag::F_SEAL_WRITE;
    for _try in 1..SEAL_TRIES {
        match fcntl(&fd, FcntlArg::F_ADD_SEALS(seals)) {
            Ok(_zero) => return Ok(fd),
            Err(nix::Error::EBUSY) => {}
            Err(errno) => return Err(errno.into()),
        }
    }
    fcntl(&fd, FcntlArg::F_ADD_SEALS(seals))?;
    Ok(fd)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sealed_bytes_are_read_back_and_cannot_change() {
        let fd = sealed("t", b"hello").unwrap();
        let mut file = File::from(fd.try_clone().unwrap());
        assert!(file.write_all(b"x").is_err());
        assert!(read(fd.try_clone().unwrap(), 4).is_err());
        assert_eq!(read(fd, 5).unwrap(), b"hello");
    }
}
