//! Named steps at which a test kills a daemon or holds it. A release build has none of it.
//!
//! `MEWS_FAILPOINTS` names a folder. A process that reaches a step looks for a file of the step's
//! name in it: one that says `kill` is the process's death, as by kill -9; one that says `stop` holds
//! it there until SIGCONT, so that others can be killed meanwhile. The file becomes `STEP.met` before
//! that: each is met once, also by a daemon that is started again, and the test can tell that it was.

use std::ffi::OsString;

/// The environment variable that names the folder.
pub const VARIABLE: &str = "MEWS_FAILPOINTS";

/// Nothing, unless a test wants something to happen here.
pub fn reach(step: &str) {
    #[cfg(debug_assertions)]
    armed::reach(step);
    #[cfg(not(debug_assertions))]
    let _ = step;
}

/// The same where one place serves several things.
pub fn reach_in(what: &str, step: &str) {
    #[cfg(debug_assertions)]
    armed::reach(&format!("{what}.{step}"));
    #[cfg(not(debug_assertions))]
    let _ = (what, step);
}

/// What a daemon that gives its child an environment of its own must pass on.
#[must_use]
pub fn folder() -> Option<OsString> {
    if cfg!(debug_assertions) { std::env::var_os(VARIABLE) } else { None }
}

/// A variable of the environment that is only there for tests, and that only a debug build reads.
#[must_use]
pub fn variable(name: &str) -> Option<String> {
    if cfg!(debug_assertions) { std::env::var(name).ok() } else { None }
}

#[cfg(debug_assertions)]
mod armed {
    use nix::sys::signal::{Signal, raise};
    use std::fs;
    use std::path::{Path, PathBuf};
    use std::sync::LazyLock;

    static FOLDER: LazyLock<Option<PathBuf>> = LazyLock::new(|| super::folder().map(PathBuf::from));

    pub(super) fn reach(step: &str) {
        if let Some(signal) = FOLDER.as_deref().and_then(|folder| meet(folder, step)) {
            // A signal that did not come is a test that fails: the step is met and nobody died.
            let _sent = raise(signal);
        }
    }

    /// The signal that waits at this step; nobody else gets it after that.
    pub(super) fn meet(folder: &Path, step: &str) -> Option<Signal> {
        let armed = folder.join(step);
        let order = fs::read(&armed).ok()?;
        fs::rename(&armed, folder.join(format!("{step}.met"))).ok()?;
        match order.as_slice() {
            b"kill" => Some(Signal::SIGKILL),
            b"stop" => Some(Signal::SIGSTOP),
            _unknown => None,
        }
    }
}

#[cfg(all(test, debug_assertions))]
mod tests {
    use super::armed::meet;
    use nix::sys::signal::Signal;

    #[test]
    fn a_step_is_met_once_and_by_its_name() {
        let folder = std::env::temp_dir().join(format!("mews-failpoint-{}", std::process::id()));
        std::fs::create_dir(&folder).unwrap();
        std::fs::write(folder.join("a.step"), "kill").unwrap();
        std::fs::write(folder.join("b.step"), "stop").unwrap();
        assert_eq!(meet(&folder, "a.ste"), None);
        assert_eq!(meet(&folder, "b.step"), Some(Signal::SIGSTOP));
        assert_eq!(meet(&folder, "a.step"), Some(Signal::SIGKILL));
        assert_eq!(meet(&folder, "a.step"), None);
        assert!(folder.join("a.step.met").exists());
        std::fs::remove_dir_all(&folder).unwrap();
    }
}
