//! The last steps of a payload before it is one: from a fork of its leader to execve(2).

use crate::init::leader::Command;
use crate::init::report::{Record, Step};
use crate::sys::{self, inside};
use nix::errno::Errno;
use nix::sys::signal::{SigSet, SigmaskHow, sigprocmask};
use nix::sys::stat::{Mode, umask};
use nix::unistd::{Pid, getpid, getppid, setpgid, tcsetpgrp, write};
use std::convert::Infallible;
use std::ffi::{CString, OsStr};
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;

/// Where execvp(3) looks when the payload has no PATH.
const PATH_DEFAULT: &[u8] = b"/usr/local/bin:/usr/bin:/bin";

/// With these execvp(3) goes on to the next folder.
const NOT_HERE: [Errno; 5] =
    [Errno::ENOENT, Errno::ENOTDIR, Errno::ENODEV, Errno::ESTALE, Errno::ETIMEDOUT];

/// What the payload has as 0, 1 and 2.
#[derive(Debug)]
pub(crate) enum Stdio {
    Terminal(OwnedFd),
    Pipes([OwnedFd; 3]),
}

/// Becomes the payload, or tells why not and ends.
pub(crate) fn become_payload(command: &Command, stdio: &Stdio, report: &OwnedFd) -> ! {
    // Pid 1 must know this number before anything of the payload's can run.
    let record = Record::Pid { payload: getpid().as_raw(), leader: getppid().as_raw() };
    tell(report, record);
    let (step, errno) = match prepare_and_exec(command, stdio) {
        Ok(never) => match never {},
        Err(failure) => failure,
    };
    tell(report, Record::Failed { step, errno: errno as i32 });
    sys::exit_now(127)
}

pub(crate) fn tell(report: &OwnedFd, record: Record) {
    // Pid 1 reads; if it is gone, so are we.
    write(report, &record.to_bytes()).ok();
}

fn prepare_and_exec(command: &Command, stdio: &Stdio) -> Result<Infallible, (Step, Errno)> {
    let at = |step| move |errno| (step, errno);
    // A group of its own in the leader's session: in the leader's group or as session leader the
    // default stops (^Z) would be discarded, since the group would count as orphaned.
    setpgid(Pid::from_raw(0), Pid::from_raw(0)).map_err(at(Step::Session))?;
    if let Stdio::Terminal(slave) = stdio {
        // All signals are blocked, so the SIGTTOU that a background group gets here does not stop it.
        tcsetpgrp(slave, getpid()).map_err(at(Step::Session))?;
    }
    let [stdin, stdout, stderr] = match stdio {
        Stdio::Terminal(slave) => [slave, slave, slave],
        Stdio::Pipes([stdin, stdout, stderr]) => [stdin, stdout, stderr],
    };
    for (number, fd) in [(0, stdin), (1, stdout), (2, stderr)] {
        inside::put_at(fd.as_fd(), number, false)
            .map_err(|e| (Step::Session, Errno::from_raw(e.raw_os_error().unwrap_or(0))))?;
    }
    umask(Mode::from_bits_truncate(command.umask & 0o777));
    nix::unistd::chdir(command.cwd.as_os_str()).map_err(at(Step::Folder))?;
    // Pid 1 has set all to default at its start but what it, the zygote and std ignore.
    for signal in [libc::SIGPIPE, libc::SIGCHLD] {
        inside::set_disposition(signal, false);
    }
    let strings = |e| (Step::Exec, e);
    let argv = c_strings(command.argv.iter().map(|arg| arg.0.clone())).map_err(strings)?;
    let env = c_strings(
        command.env.iter().map(|(name, value)| [name.as_bytes(), b"=", value.as_bytes()].concat()),
    )
    .map_err(strings)?;
    sigprocmask(SigmaskHow::SIG_SETMASK, Some(&SigSet::empty()), None).map_err(at(Step::Exec))?;
    Err((Step::Exec, exec(command, &argv, &env)))
}

/// An embedded NUL cannot be passed: EINVAL.
fn c_strings(texts: impl Iterator<Item = Vec<u8>>) -> Result<Vec<CString>, Errno> {
    texts.map(|text| CString::new(text).map_err(|_nul| Errno::EINVAL)).collect()
}

/// execvp(3) with the payload's own PATH, and without its fallback to a shell on ENOEXEC.
fn exec(command: &Command, argv: &[CString], env: &[CString]) -> Errno {
    let Some(name) = command.argv.first().map(|arg| arg.as_bytes()).filter(|name| !name.is_empty())
    else {
        return Errno::ENOENT;
    };
    if name.contains(&b'/') {
        return try_exec(name, argv, env);
    }
    let path = command.env.iter().rev().find(|(name, _value)| name.as_bytes() == b"PATH");
    let path = path.map_or(PATH_DEFAULT, |(_name, value)| value.as_bytes());
    let mut worst = Errno::ENOENT;
    for folder in path.split(|byte| *byte == b':') {
        let file = match folder {
            b"" => name.to_vec(),
            folder => [folder, b"/", name].concat(),
        };
        let errno = try_exec(&file, argv, env);
        let path = OsStr::from_bytes(&file);
        if errno == Errno::EACCES {
            // Another folder may have one that we may run. A folder of that name is no program.
            if std::fs::metadata(path).is_ok_and(|meta| meta.is_file()) {
                worst = Errno::EACCES;
            }
        } else if !NOT_HERE.contains(&errno) {
            return errno;
        }
    }
    worst
}

fn try_exec(file: &[u8], argv: &[CString], env: &[CString]) -> Errno {
    let Ok(file) = CString::new(file) else { return Errno::EINVAL };
    match nix::unistd::execve(&file, argv, env) {
        Ok(never) => match never {},
        Err(errno) => errno,
    }
}
