//! A program that runs to its end, or is killed at the end of its time.

use crate::pace::stretched;
use link::PidFd;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use std::io::{Read, Write};
use std::os::fd::AsFd;
use std::os::unix::process::ExitStatusExt;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::thread::JoinHandle;
use std::time::Duration;

/// Long enough for a loaded machine of two cores; a test that needs it all has failed.
pub const LIMIT: Duration = Duration::from_secs(60);

#[derive(Clone, Debug, Default)]
pub struct Finished {
    /// 128 + n for a signal, as a shell says it.
    pub code: i32,
    pub stdout: Vec<u8>,
    pub stderr: Vec<u8>,
}

impl Finished {
    #[must_use]
    pub fn out(&self) -> String {
        String::from_utf8_lossy(&self.stdout).into_owned()
    }

    #[must_use]
    pub fn err(&self) -> String {
        String::from_utf8_lossy(&self.stderr).into_owned()
    }

    /// # Errors
    /// Another status; what it printed is in the message.
    pub fn expect(self, code: i32) -> anyhow::Result<Self> {
        anyhow::ensure!(
            self.code == code,
            "exit status {}, not {code}\n--- stdout\n{}\n--- stderr\n{}",
            self.code,
            tail(&self.out()),
            tail(&self.err())
        );
        Ok(self)
    }

    /// Standard output as one JSON document.
    ///
    /// # Errors
    /// It is none.
    pub fn json(&self) -> anyhow::Result<serde_json::Value> {
        serde_json::from_slice(&self.stdout)
            .map_err(|error| anyhow::anyhow!("not JSON ({error}): {}", tail(&self.out())))
    }

    /// Standard output as JSON lines.
    ///
    /// # Errors
    /// A line that is none.
    pub fn json_lines(&self) -> anyhow::Result<Vec<serde_json::Value>> {
        let lines = self.out();
        lines
            .lines()
            .map(|line| {
                serde_json::from_str(line).map_err(|error| anyhow::anyhow!("{error}: {line}"))
            })
            .collect()
    }
}

/// # Errors
/// It could not be started, or did not end in time.
pub fn run(command: &mut Command, stdin: &[u8], limit: Duration) -> anyhow::Result<Finished> {
    command.stdout(Stdio::piped()).stderr(Stdio::piped());
    command.stdin(if stdin.is_empty() { Stdio::null() } else { Stdio::piped() });
    let mut child = command.spawn()?;
    let feeder = child.stdin.take().map(|mut to| {
        let bytes = stdin.to_vec();
        std::thread::spawn(move || to.write_all(&bytes).ok())
    });
    let stdout = child.stdout.take().map(collect);
    let stderr = child.stderr.take().map(collect);
    let ended = wait(&mut child, limit);
    let take = |thread: Option<JoinHandle<Vec<u8>>>| {
        thread.and_then(|thread| thread.join().ok()).unwrap_or_default()
    };
    let (stdout, stderr) = (take(stdout), take(stderr));
    drop(feeder);
    let status = ended.map_err(|error| {
        let shown = [&stdout, &stderr].map(|bytes| tail(&String::from_utf8_lossy(bytes)));
        anyhow::anyhow!("{command:?}: {error}\n{}\n{}", shown[0], shown[1])
    })?;
    Ok(Finished { code: code_of(status), stdout, stderr })
}

/// Waits for the end of a child; kills it after `limit`, [`stretched`].
///
/// # Errors
/// It had to be killed.
pub fn wait(child: &mut Child, limit: Duration) -> anyhow::Result<ExitStatus> {
    // Whoever looked before may have reaped it.
    if let Some(status) = child.try_wait()? {
        return Ok(status);
    }
    let handle = PidFd::open(i32::try_from(child.id())?)?;
    let mut fds = [PollFd::new(handle.as_fd(), PollFlags::POLLIN)];
    let limit = stretched(limit);
    let timeout = PollTimeout::try_from(limit).unwrap_or(PollTimeout::MAX);
    let ended = loop {
        match poll(&mut fds, timeout) {
            Err(nix::errno::Errno::EINTR) => {}
            done => break done?,
        }
    };
    if ended == 0 {
        child.kill()?;
        child.wait()?;
        anyhow::bail!("killed: did not end within {limit:?}");
    }
    Ok(child.wait()?)
}

#[must_use]
pub fn code_of(status: ExitStatus) -> i32 {
    status.code().unwrap_or_else(|| 128 + status.signal().unwrap_or(0))
}

fn collect(mut from: impl Read + Send + 'static) -> JoinHandle<Vec<u8>> {
    std::thread::spawn(move || {
        let mut bytes = Vec::new();
        // What was read before an error is what there is.
        from.read_to_end(&mut bytes).ok();
        bytes
    })
}

/// The last lines, for messages.
#[must_use]
pub fn tail(text: &str) -> String {
    let lines: Vec<&str> = text.lines().collect();
    let from = lines.len().saturating_sub(30);
    let last: Vec<String> =
        lines.iter().skip(from).map(|line| line.chars().take(400).collect()).collect();
    last.join("\n")
}
