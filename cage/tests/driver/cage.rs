//! Plays the broker: starts bwrap with the real `mews-cage-init` and speaks its orders.
//! As root it drops to a uid of the cages' range; otherwise the cage is the user's own.

#![allow(
    dead_code,
    missing_debug_implementations,
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    clippy::wildcard_enum_match_arm,
    reason = "each test program uses a part of it, and a surprise is a failed test"
)]

use cage::orders::{
    Access, Attestation, ExecExit, LandlockProgram, LandlockRule, Order, Program, Report, Target,
    pack_order,
};
use link::{Packets, memfd};
use nix::fcntl::{FcntlArg, FdFlag, fcntl};
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use std::fs::File;
use std::io::{Read, Write};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::os::unix::process::CommandExt;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::sync::{Mutex, PoisonError};
use wire::{Arg, Size};

/// A uid of the range that cages get under root.
pub(crate) const CAGE_UID: u32 = 1_879_048_200;
/// Nothing that a test waits for takes this long; a hang becomes a failure.
const PATIENCE_MS: u16 = 20_000;

/// Held while descriptors are inheritable, so that no other cage inherits them.
static SPAWNING: Mutex<()> = Mutex::new(());

pub(crate) struct Cage {
    pub(crate) orders: Option<Packets>,
    bwrap: Child,
    /// Of pid 1, seen from here.
    pub(crate) pid: i32,
    next_id: u64,
}

pub(crate) struct Started {
    pub(crate) id: u64,
    /// Inside.
    pub(crate) pid: i32,
    pub(crate) master: Option<OwnedFd>,
}

#[derive(Debug)]
pub(crate) struct Output {
    pub(crate) exit: ExecExit,
    pub(crate) stdout: String,
    pub(crate) stderr: String,
}

/// The walls that most tests want.
pub(crate) fn program() -> Program {
    let rule = |path: &str, access| LandlockRule { path: path.to_owned(), access };
    let mut rules = vec![
        rule("/usr", Access::ReadExecute),
        rule("/proc", Access::Read),
        rule("/tmp", Access::Write),
    ];
    for device in ["null", "zero", "full", "random", "urandom", "tty", "ptmx", "pts"] {
        rules.push(rule(&format!("/dev/{device}"), Access::Device));
    }
    let landlock =
        LandlockProgram { abi: landlock_abi(), required: true, rules, connect_ports: None };
    Program {
        rlimits: Vec::new(),
        landlock: Some(landlock),
        seccomp: false,
        forwarders: Vec::new(),
    }
}

/// What this kernel has: asked from the oldest program that knows, the probe of the tests.
fn landlock_abi() -> u32 {
    7
}

/// A cage with all walls, told to go.
pub(crate) fn ready() -> Cage {
    ready_with(program())
}

/// With the filter added.
pub(crate) fn ready_with(mut program: Program) -> Cage {
    program.seccomp = true;
    let filter = cage::seccomp::compile(cage::seccomp::Profile::Default);
    Cage::ready(program, Some(&filter)).0
}

impl Cage {
    /// A cage that has said what it is, and was told to go.
    pub(crate) fn ready(program: Program, filter: Option<&[u8]>) -> (Self, Attestation) {
        let cage = Self::start(program, filter);
        let attestation = match cage.report() {
            (Report::Attested(attestation), None) => attestation,
            other => panic!("no attestation but {other:?}"),
        };
        cage.order(&Order::Go, &[]);
        (cage, attestation)
    }

    /// A cage that has its program.
    pub(crate) fn start(program: Program, filter: Option<&[u8]>) -> Self {
        let cage = Self::empty();
        let filter = filter.map(|bytes| memfd::sealed("filter", bytes).unwrap());
        let fds: Vec<_> = filter.iter().map(AsFd::as_fd).collect();
        cage.order(&Order::Program(program), &fds);
        cage
    }

    /// A cage whose pid 1 waits for its first order.
    pub(crate) fn empty() -> Self {
        let (orders, its) = Packets::pair().unwrap();
        let init = std::fs::read(init_path()).unwrap();
        let init = memfd::sealed_program("mews-cage-init", &init, 0o555).unwrap();
        let (mut info, info_writer) = std::io::pipe().unwrap();
        let mut command = Command::new("bwrap");
        command.args(["--unshare-all", "--unshare-user", "--disable-userns", "--new-session"]);
        command.args(["--cap-drop", "ALL", "--as-pid-1", "--hostname", "cage"]);
        command.args(["--ro-bind", "/usr", "/usr", "--symlink", "usr/bin", "/bin"]);
        command.args(["--symlink", "usr/lib", "/lib", "--symlink", "usr/lib64", "/lib64"]);
        command.args(["--symlink", "usr/sbin", "/sbin", "--dir", "/etc", "--proc", "/proc"]);
        command.args(["--dev", "/dev", "--tmpfs", "/tmp", "--chdir", "/tmp"]);
        command.args(["--info-fd", &info_writer.as_raw_fd().to_string(), "--"]);
        command.arg(format!("/proc/self/fd/{}", init.as_raw_fd()));
        command.arg(its.as_raw_fd().to_string());
        command.env_clear().stdin(Stdio::null()).stdout(Stdio::null());
        if nix::unistd::geteuid().is_root() {
            command.uid(CAGE_UID).gid(CAGE_UID);
        }
        let bwrap = {
            let _guard = SPAWNING.lock().unwrap_or_else(PoisonError::into_inner);
            let inherited = [its.as_fd(), init.as_fd(), info_writer.as_fd()];
            inherited.iter().for_each(|fd| set_inheritable(*fd, true));
            let bwrap = command.spawn().expect("bubblewrap is installed");
            inherited.iter().for_each(|fd| set_inheritable(*fd, false));
            bwrap
        };
        drop((its, init, info_writer));
        let mut text = String::new();
        info.read_to_string(&mut text).unwrap();
        let info: serde_json::Value = serde_json::from_str(&text).expect("bwrap's info");
        let pid = i32::try_from(info["child-pid"].as_i64().unwrap()).unwrap();
        Self { orders: Some(orders), bwrap, pid, next_id: 1 }
    }

    pub(crate) fn order(&self, order: &Order, fds: &[BorrowedFd<'_>]) {
        let (bytes, memfd) = pack_order(order).unwrap();
        let mut all: Vec<_> = memfd.iter().map(AsFd::as_fd).collect();
        all.extend_from_slice(fds);
        self.orders.as_ref().unwrap().send(&bytes, &all).unwrap();
    }

    pub(crate) fn report(&self) -> (Report, Option<OwnedFd>) {
        let orders = self.orders.as_ref().unwrap();
        assert!(is_readable(orders.as_fd()), "no report came");
        let packet = orders.recv().unwrap().expect("pid 1 is gone");
        let report = serde_json::from_slice(&packet.bytes).unwrap();
        (report, packet.fds.into_iter().next())
    }

    /// Orders a command; reports come later.
    pub(crate) fn send_exec(
        &mut self,
        argv: &[&str],
        env: &[(&str, &str)],
        tty: Option<Size>,
        fds: &[BorrowedFd<'_>],
    ) -> u64 {
        let id = self.next_id;
        self.next_id += 1;
        let argv = argv.iter().map(|arg| Arg::from(*arg)).collect();
        let mut all = vec![("PATH", "/usr/bin:/bin"), ("HOME", "/tmp"), ("TERM", "xterm")];
        all.extend_from_slice(env);
        let env = all.iter().map(|(name, value)| (Arg::from(*name), Arg::from(*value))).collect();
        self.order(&Order::Exec { id, argv, env, cwd: "/tmp".into(), umask: 0o022, tty }, fds);
        id
    }

    pub(crate) fn started(&self, id: u64) -> Started {
        match self.report() {
            (Report::Started { id: other, pid }, master) if other == id => {
                Started { id, pid, master }
            }
            other => panic!("not started but {other:?}"),
        }
    }

    pub(crate) fn exited(&self, id: u64) -> ExecExit {
        match self.report() {
            (Report::Exited(exit), None) if exit.id == id => exit,
            other => panic!("not exited but {other:?}"),
        }
    }

    /// A command on pipes, to its end.
    pub(crate) fn run(&mut self, argv: &[&str]) -> Output {
        let (mut running, id) = self.spawn(argv);
        self.started(id);
        let (stdout, stderr) = running.read_all();
        Output { exit: self.exited(id), stdout, stderr }
    }

    pub(crate) fn sh(&mut self, script: &str) -> Output {
        self.run(&["sh", "-c", script])
    }

    /// A command on pipes; reports come later.
    pub(crate) fn spawn(&mut self, argv: &[&str]) -> (Piped, u64) {
        let (in_reader, stdin) = std::io::pipe().unwrap();
        let (stdout, out_writer) = std::io::pipe().unwrap();
        let (stderr, err_writer) = std::io::pipe().unwrap();
        let fds = [in_reader.as_fd(), out_writer.as_fd(), err_writer.as_fd()];
        let id = self.send_exec(argv, &[], None, &fds);
        (Piped { stdin: Some(stdin), stdout, stderr }, id)
    }

    /// A command at a terminal.
    pub(crate) fn terminal(&mut self, argv: &[&str]) -> (Screen, Started) {
        let id = self.send_exec(argv, &[], Some(Size::DEFAULT), &[]);
        let mut started = self.started(id);
        let master = started.master.take().expect("the master comes beside `started`");
        (Screen { master: File::from(master), seen: String::new() }, started)
    }

    /// Lets a command kill the zygote, and returns what the next one says of itself.
    pub(crate) fn kill_zygote(&mut self) -> Attestation {
        // It waits for the end of its input, so that its start is reported first.
        let script = "read line; kill -9 $(ps -o ppid= -p $PPID)";
        let (mut pipes, killer) = self.spawn(&["sh", "-c", script]);
        self.started(killer);
        drop(pipes.stdin.take());
        let mut reports = [self.report().0, self.report().0];
        reports.sort_by_key(|report| matches!(report, Report::Exited(_)));
        match reports {
            [Report::ZygoteReplaced(word), Report::Exited(exit)] if exit.id == killer => word,
            other => panic!("{other:?}"),
        }
    }

    pub(crate) fn signal(&self, target: Target, signal: i32) {
        self.order(&Order::Signal { target, signal }, &[]);
    }

    /// Waits for bwrap, which ends with the status of pid 1.
    pub(crate) fn wait(&mut self) -> Option<i32> {
        self.bwrap.wait().unwrap().code()
    }

    /// The cage's processes, seen from here: pid and name.
    pub(crate) fn processes(&self) -> Vec<(i32, String)> {
        let namespace = std::fs::read_link(format!("/proc/{}/ns/pid", self.pid)).unwrap();
        let mut all = Vec::new();
        for entry in std::fs::read_dir("/proc").unwrap() {
            let name = entry.unwrap().file_name();
            let Some(pid) = name.to_str().and_then(|name| name.parse().ok()) else { continue };
            let same =
                std::fs::read_link(format!("/proc/{pid}/ns/pid")).is_ok_and(|n| n == namespace);
            let Ok(name) = std::fs::read_to_string(format!("/proc/{pid}/comm")) else { continue };
            if same {
                all.push((pid, name.trim().to_owned()));
            }
        }
        all
    }
}

impl Drop for Cage {
    fn drop(&mut self) {
        // The end of the order socket ends the cage, also when a test fails.
        self.orders = None;
        let _status = self.bwrap.wait();
    }
}

pub(crate) struct Piped {
    pub(crate) stdin: Option<std::io::PipeWriter>,
    pub(crate) stdout: std::io::PipeReader,
    pub(crate) stderr: std::io::PipeReader,
}

impl Piped {
    /// Closes the input and reads both outputs to their ends.
    pub(crate) fn read_all(&mut self) -> (String, String) {
        self.stdin = None;
        (read_to_end(&mut self.stdout), read_to_end(&mut self.stderr))
    }

    pub(crate) fn line(&mut self) -> String {
        let mut line = Vec::new();
        let mut byte = [0];
        while line.last() != Some(&b'\n') {
            assert!(is_readable(self.stdout.as_fd()), "no line came");
            if self.stdout.read(&mut byte).unwrap() == 0 {
                break;
            }
            line.push(byte[0]);
        }
        String::from_utf8_lossy(&line).trim_end().to_owned()
    }
}

/// The master's side of a terminal.
pub(crate) struct Screen {
    pub(crate) master: File,
    pub(crate) seen: String,
}

impl Screen {
    pub(crate) fn type_text(&mut self, text: &str) {
        self.master.write_all(text.as_bytes()).unwrap();
    }

    /// Reads until `text` has appeared since the last call, and forgets what was read.
    pub(crate) fn expect(&mut self, text: &str) -> String {
        while !self.seen.contains(text) {
            assert!(self.read_some(), "the terminal ended before {text:?}: {:?}", self.seen);
        }
        let end = self.seen.find(text).unwrap() + text.len();
        let rest = self.seen.split_off(end);
        std::mem::replace(&mut self.seen, rest)
    }

    pub(crate) fn resize(&self, size: Size) {
        let size =
            libc::winsize { ws_row: size.rows, ws_col: size.cols, ws_xpixel: 0, ws_ypixel: 0 };
        // SAFETY: the pointer is to a local of the type that the call reads.
        unsafe { set_window_size(self.master.as_raw_fd(), &raw const size) }.unwrap();
    }

    /// Reads until the last holder is gone.
    pub(crate) fn rest(&mut self) -> String {
        while self.read_some() {}
        std::mem::take(&mut self.seen)
    }

    fn read_some(&mut self) -> bool {
        assert!(is_readable(self.master.as_fd()), "the terminal is silent after {:?}", self.seen);
        let mut bytes = [0; 4096];
        // EIO: nobody holds the other side.
        match self.master.read(&mut bytes) {
            Ok(0) | Err(_) => false,
            Ok(count) => {
                self.seen.push_str(&String::from_utf8_lossy(&bytes[..count]));
                true
            }
        }
    }
}

fn read_to_end(reader: &mut std::io::PipeReader) -> String {
    let mut text = Vec::new();
    let mut bytes = [0; 4096];
    loop {
        assert!(is_readable(reader.as_fd()), "the output does not end: {text:?}");
        match reader.read(&mut bytes).unwrap() {
            0 => return String::from_utf8_lossy(&text).into_owned(),
            count => text.extend_from_slice(&bytes[..count]),
        }
    }
}

pub(crate) fn is_readable(fd: BorrowedFd<'_>) -> bool {
    let mut fds = [PollFd::new(fd, PollFlags::POLLIN)];
    poll(&mut fds, PollTimeout::from(PATIENCE_MS)).unwrap() == 1
}

nix::ioctl_write_ptr_bad!(
    /// TIOCSWINSZ.
    set_window_size,
    libc::TIOCSWINSZ,
    libc::winsize
);

fn set_inheritable(fd: BorrowedFd<'_>, inheritable: bool) {
    let flags = if inheritable { FdFlag::empty() } else { FdFlag::FD_CLOEXEC };
    fcntl(fd, FcntlArg::F_SETFD(flags)).unwrap();
}

/// Beside the test program's folder, where the build puts it.
fn init_path() -> PathBuf {
    let test = std::env::current_exe().unwrap();
    let path = test.parent().unwrap().parent().unwrap().join("mews-cage-init");
    assert!(
        path.exists(),
        "{} is missing; build it: cargo build -p cage --bin mews-cage-init --no-default-features \
         --features init --target x86_64-unknown-linux-musl && cp \
         target/x86_64-unknown-linux-musl/debug/mews-cage-init target/debug/",
        path.display()
    );
    path
}
