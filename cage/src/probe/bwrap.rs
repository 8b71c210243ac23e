//! The program that makes the namespaces: there, ours to trust, with the options that we use.

use super::{Check, State, kernel, timed};
use std::fs::File;
use std::io;
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::os::unix::process::CommandExt;
use std::path::PathBuf;
use std::process::Command;
use std::time::Duration;

pub const BWRAP: &str = "/usr/bin/bwrap";
const LIMIT: Duration = Duration::from_secs(5);
const OPTIONS: [&str; 8] = [
    "--args",
    "--as-pid-1",
    "--cap-drop",
    "--disable-userns",
    "--info-fd",
    "--json-status-fd",
    "--perms",
    "--ro-bind-data",
];
/// A uid that no account has: the first of the range that cages of root get.
const NOBODY_OF_OURS: u32 = 0x7000_0000;

#[derive(Debug, thiserror::Error)]
pub enum BwrapError {
    #[error("{path} is not there: bubblewrap is not installed")]
    Missing { path: PathBuf },
    #[error("{path} is setuid; mews runs it without any privilege and will not use this one")]
    Setuid { path: PathBuf },
    #[error("{path} belongs to uid {uid} or can be written by others; root will not run it")]
    Untrusted { path: PathBuf, uid: u32 },
    #[error("{path}: {source}")]
    Open { path: PathBuf, source: io::Error },
}

impl BwrapError {
    /// The command that mends it, where there is one.
    #[must_use]
    pub fn mend(&self) -> Option<&'static str> {
        match self {
            Self::Missing { .. } => Some(INSTALL),
            Self::Setuid { .. } => Some("chmod u-s /usr/bin/bwrap"),
            Self::Untrusted { .. } => {
                Some("chown root:root /usr/bin/bwrap; chmod 755 /usr/bin/bwrap")
            }
            Self::Open { .. } => None,
        }
    }
}

const INSTALL: &str =
    "apt-get install bubblewrap (or: dnf install bubblewrap, pacman -S bubblewrap)";

/// Opens bwrap to be exec'ed by descriptor, after the checks of PROTOCOL.md 5.
///
/// # Errors
/// See [`BwrapError`].
pub fn open() -> Result<File, BwrapError> {
    let path = PathBuf::from(BWRAP);
    let opened = File::options().read(true).custom_flags(libc::O_CLOEXEC).open(&path);
    let file = match opened {
        Ok(file) => file,
        Err(source) if source.kind() == io::ErrorKind::NotFound => {
            return Err(BwrapError::Missing { path });
        }
        Err(source) => return Err(BwrapError::Open { path, source }),
    };
    let facts = match file.metadata() {
        Ok(facts) => facts,
        Err(source) => return Err(BwrapError::Open { path, source }),
    };
    if facts.mode() & (libc::S_ISUID | libc::S_ISGID) != 0 {
        return Err(BwrapError::Setuid { path });
    }
    let root = nix::unistd::geteuid().is_root();
    if root && (facts.uid() != 0 || facts.mode() & 0o022 != 0) {
        return Err(BwrapError::Untrusted { path, uid: facts.uid() });
    }
    Ok(file)
}

pub(super) fn checks() -> Vec<Check> {
    if let Err(error) = open() {
        let check = Check::new("bwrap", State::Fail, error.to_string());
        return vec![match error.mend() {
            Some(mend) => check.mend(mend),
            None => check,
        }];
    }
    vec![version_and_options(), namespaces(), apparmor(), fresh_proc(), loopback()]
}

fn version_and_options() -> Check {
    let name = "bwrap";
    let says = |option: &str| timed::run(Command::new(BWRAP).arg(option), LIMIT);
    let (version, help) = match (says("--version"), says("--help")) {
        (Ok(version), Ok(help)) => (version.stdout, [help.stdout, help.stderr].concat()),
        (Err(error), _) | (_, Err(error)) => {
            return Check::new(name, State::Fail, format!("{BWRAP} does not answer: {error}"));
        }
    };
    let version = String::from_utf8_lossy(&version).trim().to_owned();
    let missing = missing_options(&String::from_utf8_lossy(&help));
    if missing.is_empty() {
        return Check::new(name, State::Ok, format!("{BWRAP}, {version}"));
    }
    let what = format!("{version} lacks {}", missing.join(", "));
    Check::new(name, State::Fail, what).mend("install bubblewrap 0.8 or newer")
}

fn missing_options(help: &str) -> Vec<&'static str> {
    let known: Vec<&str> = help.split_whitespace().collect();
    OPTIONS.into_iter().filter(|option| !known.contains(option)).collect()
}

fn namespaces() -> Check {
    attempt("userns", "an ordinary user can make all namespaces", &ALL_OF_THEM).unwrap_or_else(
        |why| {
            let what = format!("an ordinary user cannot make namespaces: {why}");
            Check::new("userns", State::Fail, what).mend(mend_namespaces(kernel::apparmor()))
        },
    )
}

const ALL_OF_THEM: [&str; 3] = ["--unshare-all", "--unshare-user", "--disable-userns"];

/// What Ubuntu and others let AppArmor allow, program by program.
const PROFILE: &str =
    "abi <abi/4.0>,\\nprofile bwrap /usr/bin/bwrap flags=(unconfined) { userns, }\\n";

fn mend_namespaces(apparmor: kernel::AppArmor) -> String {
    match apparmor {
        kernel::AppArmor::Restricts => format!(
            "AppArmor lets only programs with a profile make them: \
             printf '{PROFILE}' > /etc/apparmor.d/bwrap; apparmor_parser -r /etc/apparmor.d/bwrap"
        ),
        kernel::AppArmor::Lets => match kernel::userns_allowed() {
            Err(file) if file.starts_with("/proc/sys/") => {
                let name = file.trim_start_matches("/proc/sys/").replace('/', ".");
                let value = if name.ends_with("clone") { "1" } else { "15000" };
                format!("sysctl {name}={value}")
            }
            Err(why) => format!("a kernel with CONFIG_USER_NS ({why})"),
            Ok(()) => {
                "in a container: it must be allowed to make user namespaces, and its seccomp \
                       filter too; or run mews outside of it"
                    .to_owned()
            }
        },
    }
}

/// Whether AppArmor holds bwrap back, whom everything here depends on.
fn apparmor() -> Check {
    match kernel::apparmor() {
        kernel::AppArmor::Lets => {
            Check::new("apparmor", State::Ok, "does not restrict user namespaces")
        }
        kernel::AppArmor::Restricts => {
            let good = "restricts user namespaces, and lets bwrap make them";
            attempt("apparmor", good, &ALL_OF_THEM).unwrap_or_else(|why| {
                let what =
                    format!("restricts user namespaces, and has no profile for bwrap: {why}");
                let mend = mend_namespaces(kernel::AppArmor::Restricts);
                Check::new("apparmor", State::Fail, what).mend(mend)
            })
        }
    }
}

/// bwrap sets it up itself, and fails where it cannot.
fn loopback() -> Check {
    let good = "a new network namespace has a loopback that works";
    attempt("loopback", good, &["--unshare-user", "--unshare-net"]).unwrap_or_else(|why| {
        let what = format!("a new network namespace gets no loopback: {why}");
        let mend = "in a container: it must be allowed to use netlink; or run mews outside of it";
        Check::new("loopback", State::Fail, what).mend(mend)
    })
}

fn fresh_proc() -> Check {
    let options = [&ALL_OF_THEM[..2], &["--proc", "/proc"]].concat();
    attempt("proc", "a cage gets a /proc of its own", &options).unwrap_or_else(|why| {
        let what = format!("a cage cannot have a /proc of its own: {why}");
        let mend = "something mounted over parts of /proc (a container?): run mews outside of it, \
                    or start the container with an unmasked /proc";
        Check::new("proc", State::Fail, what).mend(mend)
    })
}

/// `true` in the barest cage, as somebody who is not root.
fn attempt(name: &str, good: &str, options: &[&str]) -> Result<Check, String> {
    let mut command = Command::new(BWRAP);
    // What is mounted over the root comes behind it.
    command.args(["--cap-drop", "ALL", "--ro-bind", "/", "/"]).args(options);
    command.args(["--", "/bin/true"]).current_dir("/");
    if nix::unistd::geteuid().is_root() {
        command.uid(NOBODY_OF_OURS).gid(NOBODY_OF_OURS);
    }
    let output = timed::run(&mut command, LIMIT).map_err(|error| error.to_string())?;
    if output.status.success() {
        return Ok(Check::new(name, State::Ok, good));
    }
    Err(String::from_utf8_lossy(&output.stderr).trim().to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn where_apparmor_restricts_the_profile_is_said() {
        let mend = mend_namespaces(kernel::AppArmor::Restricts);
        assert!(
            mend.contains("profile bwrap /usr/bin/bwrap") && mend.contains("userns,"),
            "{mend}"
        );
        assert!(mend.contains("apparmor_parser -r"), "{mend}");
        assert!(!mend_namespaces(kernel::AppArmor::Lets).contains("apparmor"));
    }

    #[test]
    fn options_are_looked_for_as_words() {
        assert_eq!(missing_options(&OPTIONS.join(" X\n    ")), Vec::<&str>::new());
        let missing = missing_options("--args --argsy --as-pid-1 --cap-drop --disable-userns-x");
        assert!(missing.contains(&"--disable-userns") && !missing.contains(&"--args"));
    }
}
