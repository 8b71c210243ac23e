//! The status file: what a CI job reads instead of guessing from an exit status.

use crate::failure::Failure;
use crate::sys;
use serde_json::{Value, json};
use std::fs::File;
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use wire::{Cause, Enforced, ErrorCode, Exit};

/// Where it is to be written.
#[derive(Clone, Debug, Default)]
pub(crate) struct StatusTarget {
    pub(crate) file: Option<PathBuf>,
    pub(crate) fd: Option<i32>,
}

/// The names under which a run is known; absent where it did not come so far.
#[derive(Clone, Debug, Default)]
pub(crate) struct RunNames {
    pub(crate) session: Option<String>,
    pub(crate) run: Option<String>,
    pub(crate) cage: Option<String>,
}

impl StatusTarget {
    /// What cannot be written in the end is better known before anything runs.
    pub(crate) fn check(&self) -> Result<(), Failure> {
        let refused = |what: String, next: &str| Err(Failure::usage(what).next(next));
        if let Some(path) = &self.file {
            let folder = path.parent().unwrap_or(Path::new("/"));
            let writable = nix::unistd::access(folder, nix::unistd::AccessFlags::W_OK);
            if let Err(errno) = writable {
                let why = io::Error::from(errno);
                let what = format!("the status file {} cannot be made: {why}", path.display());
                return refused(what, "the same with a file in a folder that you may write to");
            }
            if path.is_dir() {
                let what = format!("the status file {} is a folder", path.display());
                return refused(what, "the same with the name of a file");
            }
        }
        match self.fd {
            Some(fd) if sys::duplicate_number(fd).is_err() => {
                let what = format!("--status-fd {fd}: no such descriptor is open");
                refused(what, &format!("the same with {fd}>FILE behind it, or --status-file FILE"))
            }
            Some(_) | None => Ok(()),
        }
    }

    pub(crate) fn write(&self, status: &Value) -> Result<(), Failure> {
        let text = format!("{status}\n");
        if let Some(path) = &self.file {
            whole(path, text.as_bytes()).map_err(|error| {
                Failure::new(format!("cannot write the status file {}: {error}", path.display()))
            })?;
        }
        if let Some(fd) = self.fd {
            to_fd(fd, text.as_bytes()).map_err(|error| {
                Failure::new(format!("cannot write to descriptor {fd}: {error}"))
            })?;
        }
        Ok(())
    }
}

/// The status of a run that came to its end.
pub(crate) fn ended(names: &RunNames, enforced: &Enforced, exit: Option<&Exit>) -> Value {
    json!({
        "exit": exit.map(exit_json),
        "session": names.session,
        "run": names.run,
        "cage": names.cage,
        "enforced": enforced,
        "usage": exit.map(|exit| &exit.usage),
    })
}

/// The status of a run that could not start: nothing ran.
pub(crate) fn failed(names: &RunNames, failure: &Failure) -> Value {
    let cause = if failure.is(ErrorCode::PolicyInvalid) || failure.is(ErrorCode::Forbidden) {
        Cause::PolicyDenied
    } else if failure.is(ErrorCode::ProviderUnreachable) {
        Cause::ProviderUnreachable
    } else {
        Cause::CageSetup
    };
    let message = match failure.error.details.get("wall").and_then(Value::as_str) {
        Some(wall) => format!("{wall}: {}", failure.error.message),
        None => failure.error.message.clone(),
    };
    let exit = Exit::not_started(125, cause, message);
    let mut status = ended(names, &Enforced::default(), Some(&exit));
    if let Some(map) = status.as_object_mut() {
        map.insert("error".to_owned(), json!(failure.error));
    }
    status
}

fn exit_json(exit: &Exit) -> Value {
    let mut value = json!({
        "code": exit.code,
        "signal": exit.signal,
        "core": exit.core,
        "cause": exit.cause,
    });
    if let (Some(message), Some(map)) = (&exit.message, value.as_object_mut()) {
        map.insert("message".to_owned(), json!(message));
    }
    value
}

/// A temporary name in the same folder, then a rename: readers see all of it or nothing.
fn whole(path: &Path, bytes: &[u8]) -> io::Result<()> {
    let mut name = path.file_name().unwrap_or_default().to_owned();
    name.push(format!(".{}.tmp", std::process::id()));
    let temporary = path.with_file_name(name);
    let mut file = File::create(&temporary)?;
    file.write_all(bytes)?;
    file.sync_data()?;
    std::fs::rename(&temporary, path).inspect_err(|_failed| {
        drop(std::fs::remove_file(&temporary));
    })
}

/// Through a copy, so that the caller's descriptor stays the caller's.
fn to_fd(fd: i32, bytes: &[u8]) -> io::Result<()> {
    File::from(sys::duplicate_number(fd)?).write_all(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;
    use wire::WireError;

    #[test]
    fn a_run_that_did_not_start_names_the_wall() {
        let failure = Failure::from(WireError::wall("landlock", "the kernel is too old"));
        let status = failed(&RunNames::default(), &failure);
        assert_eq!(status["exit"]["code"], 125);
        assert_eq!(status["exit"]["cause"], "cage_setup");
        assert_eq!(status["exit"]["message"], "landlock: the kernel is too old");
        assert_eq!(status["error"]["details"]["wall"], "landlock");
    }

    #[test]
    fn the_file_is_replaced_as_a_whole() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("s.json");
        std::fs::write(&path, "old and longer than what comes").unwrap();
        let target = StatusTarget { file: Some(path.clone()), fd: None };
        target.write(&json!({"a": 1})).unwrap();
        assert_eq!(std::fs::read_to_string(&path).unwrap(), "{\"a\":1}\n");
        assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 1);
    }
}
