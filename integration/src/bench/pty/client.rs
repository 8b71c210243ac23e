//! The outermost terminal: a PTY of ours that a client (or the job itself) runs on, read in a tight
//! loop.

use anyhow::Context as _;
use portable_pty::{Child, CommandBuilder, MasterPty, PtySize};
use std::io::{Read, Write};
use std::path::Path;
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::time::{Duration, SystemTime};

/// One read; the kernel gives at most 4,095 bytes anyway.
const READ_BYTES: usize = 64 * 1024;
/// What is looked for stands in the last bytes of what was read, escape sequences behind it.
const TAIL_BYTES: usize = 1024;
/// Whatever is measured, it takes less, or has hung.
const LIMIT: Duration = Duration::from_secs(120);

/// A program to be started on a terminal.
#[derive(Clone, Debug)]
pub(crate) struct Program {
    pub(crate) argv: Vec<String>,
    pub(crate) env: Vec<(String, String)>,
}

pub(crate) struct Client {
    _master: Box<dyn MasterPty + Send>,
    child: Box<dyn Child + Send + Sync>,
    reader: Box<dyn Read + Send>,
    writer: Option<Box<dyn Write + Send>>,
    buffer: Vec<u8>,
    tail: Vec<u8>,
    bytes: u64,
    /// Dropped when the client is done in time.
    _watchdog: Sender<()>,
}

impl Client {
    pub(crate) fn start(
        program: &Program,
        folder: &Path,
        (cols, rows): (u16, u16),
    ) -> anyhow::Result<Self> {
        let size = PtySize { rows, cols, pixel_width: 0, pixel_height: 0 };
        let pair = portable_pty::native_pty_system().openpty(size)?;
        let argv = program.argv.iter().map(Into::into).collect();
        let mut command = CommandBuilder::from_argv(argv);
        command.env_clear();
        program.env.iter().for_each(|(name, value)| command.env(name, value));
        command.cwd(folder);
        let child = pair.slave.spawn_command(command)?;
        let (done, watched) = channel();
        watch(watched, child.clone_killer());
        Ok(Self {
            reader: pair.master.try_clone_reader()?,
            writer: Some(pair.master.take_writer()?),
            _master: pair.master,
            child,
            buffer: vec![0; READ_BYTES],
            tail: Vec::new(),
            bytes: 0,
            _watchdog: done,
        })
    }

    /// Output so far.
    pub(crate) fn bytes(&self) -> u64 {
        self.bytes
    }

    pub(crate) fn type_keys(&mut self, keys: &[u8]) -> anyhow::Result<()> {
        let writer = self.writer.as_mut().context("the keyboard was lent")?;
        Ok(writer.write_all(keys)?)
    }

    /// The keyboard, for another thread.
    pub(crate) fn lend_keyboard(&mut self) -> anyhow::Result<Box<dyn Write + Send>> {
        self.writer.take().context("the keyboard was lent")
    }

    pub(crate) fn return_keyboard(&mut self, keyboard: Box<dyn Write + Send>) {
        self.writer = Some(keyboard);
    }

    /// Reads until `text` has come; when that was.
    pub(crate) fn read_until(&mut self, text: &str) -> anyhow::Result<SystemTime> {
        loop {
            let count = self.reader.read(&mut self.buffer).unwrap_or(0);
            let now = SystemTime::now();
            anyhow::ensure!(count > 0, "the terminal ended before {text:?}: {}", self.last_words());
            self.bytes += count as u64;
            let new = self.buffer.get(..count).unwrap_or_default();
            let new = new.get(count.saturating_sub(TAIL_BYTES)..).unwrap_or_default();
            self.tail.extend_from_slice(new);
            let excess = self.tail.len().saturating_sub(TAIL_BYTES);
            self.tail.drain(..excess);
            if self.tail.windows(text.len()).any(|part| part == text.as_bytes()) {
                self.tail.clear();
                return Ok(now);
            }
        }
    }

    /// Reads until `key` has come.
    pub(crate) fn read_key(&mut self, key: u8) -> anyhow::Result<()> {
        loop {
            let count = self.reader.read(&mut self.buffer)?;
            anyhow::ensure!(count > 0, "the terminal ended");
            if self.buffer.get(..count).is_some_and(|new| new.contains(&key)) {
                return Ok(());
            }
        }
    }

    /// Closes the terminal; the client gets a hangup.
    pub(crate) fn hang_up(self) -> anyhow::Result<()> {
        let Self { _master, mut child, reader, writer, .. } = self;
        drop((_master, reader, writer));
        let gone = testkit::pause::until("the client leaves", Duration::from_secs(5), || {
            child.try_wait().ok().flatten()
        });
        if gone.is_err() {
            child.kill()?;
            child.wait()?;
        }
        Ok(())
    }

    fn last_words(&self) -> String {
        String::from_utf8_lossy(&self.tail).escape_debug().collect()
    }
}

/// Reads are not timed; a client that hangs is killed, and they end.
fn watch(done: Receiver<()>, mut killer: Box<dyn portable_pty::ChildKiller + Send + Sync>) {
    std::thread::spawn(move || {
        if done.recv_timeout(LIMIT) == Err(RecvTimeoutError::Timeout) {
            killer.kill().ok();
        }
    });
}
