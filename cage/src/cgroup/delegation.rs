//! Whether the inside of a group with processes is ours: what systemd says of it.

use std::ffi::CString;
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::process::{Command, Stdio};

/// A manager that does not answer must not hold up a start.
const PATIENCE: &str = "2s";

/// Of our own unit, or of a group that an admin has marked like one.
pub(super) fn is_ours(group: &Path) -> bool {
    is_marked(group) || is_delegated_by_own_manager(group)
}

fn is_marked(group: &Path) -> bool {
    let path = CString::new(group.as_os_str().as_encoded_bytes());
    path.ok()
        .and_then(|path| crate::sys::attribute(&path, c"user.delegate"))
        .is_some_and(|value| value == b"1")
}

/// A user's own manager may mark nothing (of systemd 252, say), and owns the groups that it has not given away
/// just like those that it has: so it is asked.
fn is_delegated_by_own_manager(group: &Path) -> bool {
    let uid = nix::unistd::geteuid().as_raw();
    let is_owned = std::fs::metadata(group).is_ok_and(|meta| meta.uid() == uid);
    let Some(unit) = unit(group).filter(|_| uid != 0 && is_owned) else { return false };
    let told = Command::new("systemctl")
        .args(["--user", "show", "--property=Delegate", "--value", "--", unit])
        .env("XDG_RUNTIME_DIR", format!("/run/user/{uid}"))
        .env("SYSTEMD_BUS_TIMEOUT", PATIENCE)
        .stdin(Stdio::null())
        .stderr(Stdio::null())
        .output();
    told.is_ok_and(|told| told.stdout == b"yes\n")
}

/// The unit whose group this is.
fn unit(group: &Path) -> Option<&str> {
    let name = group.file_name()?.to_str()?;
    (name.ends_with(".scope") || name.ends_with(".service")).then_some(name)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn units_are_known_by_their_names() {
        assert_eq!(unit(Path::new("/cg/app.slice/run-r1.scope")), Some("run-r1.scope"));
        assert_eq!(unit(Path::new("/cg/a.service")), Some("a.service"));
        for other in ["/cg/app.slice", "/cg/a.service/mews", "/"] {
            assert_eq!(unit(Path::new(other)), None, "{other}");
        }
    }
}
