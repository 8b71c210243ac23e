//! The lock that says which process is the one: of the whole file, held until the process ends.
//!
//! A record lock (fcntl(2)), as the kernel tells who has it. It is the process's own: a fork has it
//! not, and closing any descriptor of the file lets go of it.

use crate::PidFd;
use nix::errno::Errno;
use nix::fcntl::{FcntlArg, fcntl};
use std::io;
use std::os::fd::AsFd;

/// Whether it is ours from now on; false: another process has it.
///
/// # Errors
/// The file is not open for writing, or cannot be locked.
pub fn take(file: impl AsFd) -> io::Result<bool> {
    match fcntl(file, FcntlArg::F_SETLK(&whole()?)) {
        Ok(_zero) => Ok(true),
        Err(Errno::EAGAIN | Errno::EACCES) => Ok(false),
        Err(errno) => Err(errno.into()),
    }
}

/// The other process that has it, with its pid.
///
/// # Errors
/// The file cannot be asked about.
pub fn holder(file: impl AsFd) -> io::Result<Option<(PidFd, i32)>> {
    let Some(pid) = holding(&file)? else { return Ok(None) };
    let Ok(handle) = PidFd::open(pid) else { return Ok(None) };
    // It had the lock when the handle was there, so the handle is its own.
    Ok((holding(&file)? == Some(pid)).then_some((handle, pid)))
}

fn holding(file: impl AsFd) -> io::Result<Option<i32>> {
    let mut asked = whole()?;
    fcntl(file, FcntlArg::F_GETLK(&mut asked))?;
    let is_held = i32::from(asked.l_type) != libc::F_UNLCK;
    // 0 or less: a process of another PID namespace.
    Ok((is_held && asked.l_pid > 1).then_some(asked.l_pid))
}

fn whole() -> io::Result<libc::flock> {
    let narrow = |number: i32| i16::try_from(number).map_err(io::Error::other);
    Ok(libc::flock {
        l_type: narrow(libc::F_WRLCK)?,
        l_whence: narrow(libc::SEEK_SET)?,
        l_start: 0,
        l_len: 0,
        l_pid: 0,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::{BufRead, BufReader};
    use std::process::{Command, Stdio};

    /// Holds the lock of the file that it is told of until its input ends.
    const OTHER: &str = "import fcntl,sys; f=open(sys.argv[1],'r+'); fcntl.lockf(f, fcntl.LOCK_EX)\n\
                         print('held', flush=True); sys.stdin.read()";

    #[test]
    fn another_process_is_named_and_nobody_takes_it_from_it() {
        let file = tempfile::NamedTempFile::new().unwrap();
        assert!(holder(&file).unwrap().is_none());
        let mut other = Command::new("python3")
            .args(["-c", OTHER])
            .arg(file.path())
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let mut said = String::new();
        BufReader::new(other.stdout.take().unwrap()).read_line(&mut said).unwrap();
        assert_eq!(said, "held\n");
        let (handle, pid) = holder(&file).unwrap().unwrap();
        assert_eq!(u32::try_from(pid).unwrap(), other.id());
        assert!(handle.is_alive() && !take(&file).unwrap());
        drop(other.stdin.take());
        other.wait().unwrap();
        assert!(holder(&file).unwrap().is_none() && take(&file).unwrap());
    }
}
