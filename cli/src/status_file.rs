//! The status file: what a CI job reads instead of guessing from an exit status.

use crate::failure::Failure;
use crate::request;
use crate::sys;
use crate::whole::Whole;
use serde_json::{Value, json};
use std::fs::File;
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use wire::{Cause, Enforced, ErrorCode, Exit};

/// Where it is to be written: opened before anything runs.
#[derive(Debug, Default)]
pub(crate) struct StatusTarget {
    file: Option<(PathBuf, Whole)>,
    fd: Option<i32>,
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
    pub(crate) fn open(
        file: Option<&Path>,
        fd: Option<i32>,
        workspace: Option<&Path>,
    ) -> Result<Self, Failure> {
        let open = |path: &Path| {
            let path = request::absolute(path);
            let whole = Whole::open(&path, workspace).map_err(|error| not_made(&path, &error))?;
            Ok::<_, Failure>((path, whole))
        };
        match fd {
            Some(fd) if sys::duplicate_number(fd).is_err() => {
                let what = format!("--status-fd {fd}: no such descriptor is open");
                let next = format!("the same with {fd}>FILE behind it, or --status-file FILE");
                Err(Failure::usage(what).next(next))
            }
            Some(_) | None => Ok(Self { file: file.map(open).transpose()?, fd }),
        }
    }

    pub(crate) fn write(&self, status: &Value) -> Result<(), Failure> {
        let text = format!("{status}\n");
        if let Some((path, whole)) = &self.file {
            whole.write(text.as_bytes()).map_err(|error| failed_to_write(path, &error))?;
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
    let cause = cause(failure);
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

/// Why nothing ran.
pub(crate) fn cause(failure: &Failure) -> Cause {
    if failure.is(ErrorCode::PolicyInvalid) || failure.is(ErrorCode::Forbidden) {
        Cause::PolicyDenied
    } else if failure.is(ErrorCode::ProviderUnreachable) {
        Cause::ProviderUnreachable
    } else {
        Cause::CageSetup
    }
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

fn not_made(path: &Path, error: &io::Error) -> Failure {
    let path = path.display();
    if error.kind() == io::ErrorKind::IsADirectory {
        return Failure::usage(format!("the status file {path} is a folder"))
            .next("the same with the name of a file");
    }
    Failure::usage(format!("the status file {path} cannot be made: {error}"))
        .next("the same with a file in a folder that you may write to")
}

fn failed_to_write(path: &Path, error: &io::Error) -> Failure {
    Failure::new(format!("cannot write the status file {}: {error}", path.display()))
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
        let target = StatusTarget::open(Some(&path), None, None).unwrap();
        target.write(&json!({"a": 1})).unwrap();
        assert_eq!(std::fs::read_to_string(&path).unwrap(), "{\"a\":1}\n");
        assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 1);
    }
}
