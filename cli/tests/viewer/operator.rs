//! The operator: a terminal with somebody at the keys, or a pipe.

use crate::fake::Fake;
use portable_pty::{Child, CommandBuilder, MasterPty, PtySize, native_pty_system};
use std::io::{Read, Write};
use std::process::{Command, Output, Stdio};
use std::sync::{Arc, Condvar, Mutex};
use std::time::{Duration, Instant};
use wire::Size;

const PATIENCE: Duration = Duration::from_secs(20);
const MEWS: &str = env!("CARGO_BIN_EXE_mews");

/// What has come to the terminal so far, and whether it is closed.
type Seen = Arc<(Mutex<Vec<u8>>, Condvar)>;

pub(crate) struct Operator {
    master: Box<dyn MasterPty + Send>,
    keyboard: Box<dyn Write + Send>,
    child: Box<dyn Child + Send + Sync>,
    seen: Seen,
    before: String,
    /// Held so that the terminal outlives its program and can be looked at.
    _slave: Box<dyn portable_pty::SlavePty + Send>,
}

impl Operator {
    pub(crate) fn types(fake: &Fake, arguments: &[&str]) -> Self {
        let size = PtySize { rows: 24, cols: 80, pixel_width: 0, pixel_height: 0 };
        let pair = native_pty_system().openpty(size).unwrap();
        let mut command = CommandBuilder::new(MEWS);
        command.args(arguments);
        command.env_clear();
        command.env("MEWS_RUN_DIR", fake.path("run"));
        command.env("MEWS_STATE_DIR", fake.path("state"));
        command.env("MEWS_CONFIG_DIR", fake.path("config"));
        let before = termios(&*pair.master);
        let mut reader = pair.master.try_clone_reader().unwrap();
        let keyboard = pair.master.take_writer().unwrap();
        let child = pair.slave.spawn_command(command).unwrap();
        let seen: Seen = Arc::default();
        let store = Arc::clone(&seen);
        std::thread::spawn(move || {
            let mut buffer = [0_u8; 4096];
            while let Ok(count @ 1..) = reader.read(&mut buffer) {
                store.0.lock().unwrap().extend_from_slice(&buffer[..count]);
                store.1.notify_all();
            }
        });
        Self { master: pair.master, keyboard, child, seen, before, _slave: pair.slave }
    }

    pub(crate) fn keys(&mut self, bytes: &[u8]) {
        self.keyboard.write_all(bytes).unwrap();
        self.keyboard.flush().unwrap();
    }

    pub(crate) fn resize(&self, size: Size) {
        let Size { cols, rows } = size;
        self.master.resize(PtySize { rows, cols, pixel_width: 0, pixel_height: 0 }).unwrap();
    }

    pub(crate) fn signal(&self, signal: i32) {
        let pid = i32::try_from(self.child.process_id().unwrap()).unwrap();
        send_signal(pid, signal);
    }

    /// Waits until the terminal has been sent this.
    pub(crate) fn sees(&self, text: &str) {
        let deadline = Instant::now() + PATIENCE;
        let mut seen = self.seen.0.lock().unwrap();
        while !seen.windows(text.len()).any(|part| part == text.as_bytes()) {
            let left = deadline.saturating_duration_since(Instant::now());
            assert!(!left.is_zero(), "{text:?} is not in {:?}", String::from_utf8_lossy(&seen));
            seen = self.seen.1.wait_timeout(seen, left).unwrap().0;
        }
    }

    pub(crate) fn exit_status(&mut self) -> u32 {
        self.child.wait().unwrap().exit_code()
    }

    pub(crate) fn terminal_is_sane(&self) -> bool {
        termios(&*self.master) == self.before
    }
}

fn termios(master: &dyn MasterPty) -> String {
    format!("{:?}", master.get_termios().unwrap())
}

pub(crate) struct Piped {
    child: Option<std::process::Child>,
    pid: i32,
    reader: Option<std::thread::JoinHandle<Vec<u8>>>,
}

impl Piped {
    pub(crate) fn runs(fake: &Fake, arguments: &[&str], input: Vec<u8>) -> Self {
        let mut child = Command::new(MEWS)
            .args(arguments)
            .env_clear()
            .env("MEWS_RUN_DIR", fake.path("run"))
            .env("MEWS_STATE_DIR", fake.path("state"))
            .env("MEWS_CONFIG_DIR", fake.path("config"))
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        let mut stdin = child.stdin.take().unwrap();
        // The program may end before it has read all: no failure here.
        std::thread::spawn(move || drop(stdin.write_all(&input)));
        let pid = i32::try_from(child.id()).unwrap();
        Self { child: Some(child), pid, reader: None }
    }

    pub(crate) fn signal(&self, signal: i32) {
        send_signal(self.pid, signal);
    }

    pub(crate) fn close_stdout(&mut self) {
        drop(self.child.as_mut().unwrap().stdout.take());
    }

    /// Reads standard output from now on.
    pub(crate) fn reads(&mut self) {
        let mut stdout = self.child.as_mut().unwrap().stdout.take().unwrap();
        self.reader = Some(std::thread::spawn(move || {
            let mut bytes = Vec::new();
            stdout.read_to_end(&mut bytes).unwrap();
            bytes
        }));
    }

    pub(crate) fn output(&mut self) -> Output {
        let mut output = self.child.take().unwrap().wait_with_output().unwrap();
        if let Some(reader) = self.reader.take() {
            output.stdout = reader.join().unwrap();
        }
        output
    }
}

fn send_signal(pid: i32, signal: i32) {
    let signal = nix::sys::signal::Signal::try_from(signal).unwrap();
    nix::sys::signal::kill(nix::unistd::Pid::from_raw(pid), signal).unwrap();
}
