//! An operator's terminal: a PTY that `mews` runs on, and the screen that its operator sees.

mod screen;

use crate::pace::stretched;
use crate::sandbox::Sandbox;
use crate::{caller::Caller, process};
use anyhow::Context as _;
use portable_pty::{Child, CommandBuilder, MasterPty, PtySize, SlavePty};
use screen::{Drawing, Shown};
use std::io::{Read, Write};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

pub const PATIENCE: Duration = Duration::from_secs(20);

/// What the reader thread fills.
struct Seen {
    shown: Mutex<Shown>,
    changed: Condvar,
}

pub struct Terminal {
    master: Box<dyn MasterPty + Send>,
    slave: Option<Box<dyn SlavePty + Send>>,
    child: Box<dyn Child + Send + Sync>,
    writer: Arc<Mutex<Box<dyn Write + Send>>>,
    seen: Arc<Seen>,
    discipline_before: Option<[u32; 3]>,
}

impl std::fmt::Debug for Terminal {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Terminal").field("screen", &self.screen()).finish_non_exhaustive()
    }
}

impl Terminal {
    /// `mews ARGS` on a terminal of 80 by 24.
    ///
    /// # Errors
    /// No PTY, or the program could not be started.
    pub fn mews(sandbox: &Sandbox, args: &[&str]) -> anyhow::Result<Self> {
        Self::sized(sandbox, args, 80, 24)
    }

    /// # Errors
    /// As [`Self::mews`].
    pub fn sized(sandbox: &Sandbox, args: &[&str], cols: u16, rows: u16) -> anyhow::Result<Self> {
        Self::start(Self::command(sandbox, args)?, cols, rows, Drawing::On)
    }

    /// Any program of the host, as the operator, with `mews` in its `PATH`.
    ///
    /// # Errors
    /// As [`Self::mews`].
    pub fn program(sandbox: &Sandbox, words: &[&str]) -> anyhow::Result<Self> {
        let words = words.iter().map(|word| (*word).to_owned()).collect();
        Self::start(Self::command_of(sandbox, words)?, 80, 24, Drawing::On)
    }

    fn command(sandbox: &Sandbox, args: &[&str]) -> anyhow::Result<CommandBuilder> {
        let mut words = vec![sandbox.programs()?.join("mews").to_string_lossy().into_owned()];
        words.extend(args.iter().map(|arg| (*arg).to_owned()));
        Self::command_of(sandbox, words)
    }

    fn command_of(sandbox: &Sandbox, program: Vec<String>) -> anyhow::Result<CommandBuilder> {
        let mut words = Vec::new();
        // portable-pty starts a program as whoever we are; setpriv changes that.
        if let Caller::Uid(uid) = sandbox.caller() {
            let id = uid.to_string();
            words.extend(
                ["setpriv", "--reuid", &id, "--regid", &id, "--clear-groups"].map(str::to_owned),
            );
        }
        words.extend(program);
        let mut command = CommandBuilder::from_argv(words.into_iter().map(Into::into).collect());
        command.env_clear();
        for (name, value) in sandbox.env()? {
            command.env(name, value);
        }
        command.cwd(sandbox.workspace());
        Ok(command)
    }

    /// Like [`Self::mews`], but its bytes are only kept, not drawn: as fast as a viewer can be.
    ///
    /// # Errors
    /// As [`Self::mews`].
    pub fn undrawn(sandbox: &Sandbox, args: &[&str]) -> anyhow::Result<Self> {
        let terminal = Self::command(sandbox, args)?;
        Self::start(terminal, 80, 24, Drawing::Off)
    }

    fn start(
        command: CommandBuilder,
        cols: u16,
        rows: u16,
        drawing: Drawing,
    ) -> anyhow::Result<Self> {
        let size = PtySize { rows, cols, pixel_width: 0, pixel_height: 0 };
        let pair = portable_pty::native_pty_system().openpty(size)?;
        let discipline_before = discipline(pair.master.as_ref());
        let child = pair.slave.spawn_command(command)?;
        let writer = Arc::new(Mutex::new(pair.master.take_writer()?));
        let shown = Mutex::new(Shown::new(cols, rows, drawing));
        let seen = Arc::new(Seen { shown, changed: Condvar::new() });
        read_on(pair.master.try_clone_reader()?, &seen, &writer);
        let (master, slave) = (pair.master, Some(pair.slave));
        Ok(Self { master, slave, child, writer, seen, discipline_before })
    }

    /// Types.
    ///
    /// # Errors
    /// The terminal is gone.
    pub fn send(&self, keys: impl AsRef<[u8]>) -> anyhow::Result<()> {
        let mut writer = locked(&self.writer);
        writer.write_all(keys.as_ref())?;
        Ok(writer.flush()?)
    }

    /// Types without waiting for the terminal to take it.
    pub fn send_all(&self, keys: Vec<u8>) {
        let writer = Arc::clone(&self.writer);
        std::thread::spawn(move || locked(&writer).write_all(&keys).ok());
    }

    /// Waits until the screen, as lines without trailing blanks, satisfies `good`.
    ///
    /// # Errors
    /// It does not within [`PATIENCE`]; the screen is in the message.
    pub fn wait_until(
        &self,
        what: &str,
        good: impl Fn(&[String]) -> bool,
    ) -> anyhow::Result<Vec<String>> {
        self.wait_shown(what, PATIENCE, |shown| good(&shown.lines()).then(|| shown.lines()))
    }

    /// Waits until a line of the screen contains `text`.
    ///
    /// # Errors
    /// As [`Self::wait_until`].
    pub fn wait_for(&self, text: &str) -> anyhow::Result<Vec<String>> {
        self.wait_until(text, |lines| lines.iter().any(|line| line.contains(text)))
    }

    /// Waits until the raw output contains `text`.
    ///
    /// # Errors
    /// As [`Self::wait_until`].
    pub fn wait_raw(&self, text: &[u8]) -> anyhow::Result<()> {
        let what = String::from_utf8_lossy(text).into_owned();
        let holds = |shown: &Shown| shown.raw().windows(text.len()).any(|part| part == text);
        self.wait_shown(&what, PATIENCE, |shown| holds(shown).then_some(()))
    }

    /// Waits until this many bytes of output have come.
    ///
    /// # Errors
    /// As [`Self::wait_until`].
    pub fn wait_bytes(&self, count: usize) -> anyhow::Result<()> {
        let enough = |shown: &Shown| (shown.raw().len() >= count).then_some(());
        self.wait_shown(&format!("{count} bytes"), process::LIMIT, enough)
    }

    fn wait_shown<T>(
        &self,
        what: &str,
        limit: Duration,
        look: impl Fn(&Shown) -> Option<T>,
    ) -> anyhow::Result<T> {
        let deadline = Instant::now() + stretched(limit);
        let mut shown = locked(&self.seen.shown);
        loop {
            if let Some(found) = look(&shown) {
                return Ok(found);
            }
            let left = deadline.saturating_duration_since(Instant::now());
            if left.is_zero() || shown.ended() {
                let why = if shown.ended() { "the terminal ended" } else { "not in time" };
                anyhow::bail!(
                    "waited for {what:?}: {why}; the screen:\n{}",
                    shown.lines().join("\n")
                );
            }
            let waited = self.seen.changed.wait_timeout(shown, left);
            shown = waited.unwrap_or_else(PoisonError::into_inner).0;
        }
    }

    /// The lines of the screen, without trailing blanks.
    #[must_use]
    pub fn screen(&self) -> Vec<String> {
        locked(&self.seen.shown).lines()
    }

    /// The lines above the screen and those on it.
    #[must_use]
    pub fn history_and_screen(&self) -> Vec<String> {
        locked(&self.seen.shown).history_and_lines()
    }

    /// Every byte that came.
    #[must_use]
    pub fn raw(&self) -> Vec<u8> {
        locked(&self.seen.shown).raw().to_vec()
    }

    /// Modes of the terminal itself that a program switched on and nobody undid: `alt-screen`,
    /// `mouse`, `paste`, `hidden-cursor`, …
    #[must_use]
    pub fn modes_left_on(&self) -> Vec<&'static str> {
        locked(&self.seen.shown).modes_left_on()
    }

    /// # Errors
    /// The terminal is gone.
    pub fn resize(&self, cols: u16, rows: u16) -> anyhow::Result<()> {
        locked(&self.seen.shown).resize(cols, rows);
        self.master.resize(PtySize { rows, cols, pixel_width: 0, pixel_height: 0 })
    }

    #[must_use]
    pub fn pid(&self) -> Option<u32> {
        self.child.process_id()
    }

    /// Waits for the end of `mews` itself: its exit status.
    ///
    /// # Errors
    /// It does not end in time.
    pub fn wait_exit(&mut self) -> anyhow::Result<u32> {
        let pid = i32::try_from(self.child.process_id().context("a pid")?)?;
        if let Ok(handle) = link::PidFd::open(pid) {
            let mut fds = [nix::poll::PollFd::new(
                std::os::fd::AsFd::as_fd(&handle),
                nix::poll::PollFlags::POLLIN,
            )];
            let limit = nix::poll::PollTimeout::try_from(stretched(process::LIMIT))?;
            let ended = nix::poll::poll(&mut fds, limit)?;
            anyhow::ensure!(
                ended > 0,
                "mews did not end; the screen:\n{}",
                self.screen().join("\n")
            );
        }
        let status = self.child.wait()?;
        self.drain();
        Ok(status.exit_code())
    }

    /// Everything that was written before the end is in the screen after this.
    fn drain(&mut self) {
        self.slave = None;
        let deadline = Instant::now() + stretched(PATIENCE);
        let mut shown = locked(&self.seen.shown);
        while !shown.ended() && Instant::now() < deadline {
            let waited = self.seen.changed.wait_timeout(shown, Duration::from_millis(50));
            shown = waited.unwrap_or_else(PoisonError::into_inner).0;
        }
    }

    /// Whether the line discipline is as it was before `mews` ran, and no mode was left on.
    ///
    /// # Errors
    /// What is different.
    pub fn check_sane(&self) -> anyhow::Result<()> {
        let now = discipline(self.master.as_ref());
        anyhow::ensure!(
            self.discipline_before == now,
            "the line discipline was not restored: {:?} became {now:?}",
            self.discipline_before
        );
        let left = self.modes_left_on();
        anyhow::ensure!(left.is_empty(), "modes left on: {}", left.join(", "));
        Ok(())
    }
}

impl Drop for Terminal {
    /// As if the window was closed.
    fn drop(&mut self) {
        if matches!(self.child.try_wait(), Ok(None)) {
            self.child.kill().ok();
            self.child.wait().ok();
        }
    }
}

/// Until the last holder of the terminal is gone. Answers what programs ask of a terminal.
fn read_on(
    mut reader: Box<dyn Read + Send>,
    seen: &Arc<Seen>,
    writer: &Arc<Mutex<Box<dyn Write + Send>>>,
) {
    let (seen, writer) = (Arc::clone(seen), Arc::clone(writer));
    std::thread::spawn(move || {
        let mut buffer = vec![0_u8; 64 * 1024];
        loop {
            let count = reader.read(&mut buffer).unwrap_or(0);
            let mut shown = locked(&seen.shown);
            let answer = shown.feed(buffer.get(..count).unwrap_or_default());
            let ended = shown.ended();
            drop(shown);
            seen.changed.notify_all();
            if ended {
                return;
            }
            if !answer.is_empty() {
                locked(&writer).write_all(&answer).ok();
            }
        }
    });
}

/// Input, output and local flags of the line discipline.
fn discipline(master: &(dyn MasterPty + Send)) -> Option<[u32; 3]> {
    let modes = master.get_termios()?;
    Some([modes.input_flags.bits(), modes.output_flags.bits(), modes.local_flags.bits()])
}

fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
