//! Plays the supervisor and the viewers: starts the real broker, which starts the real bwrap and
//! the real `mews-cage-init`. As root it drops to a uid of the cages' range first.

#![allow(dead_code, missing_debug_implementations, reason = "each test uses a part of it")]
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    reason = "a test program: what goes wrong is a failed test"
)]
#![allow(clippy::wildcard_enum_match_arm, reason = "a test waits for one kind of message")]

use cage::launch::{Boot, BootFds, Clocks, Terminal};
use cage::orders::{Access, LandlockProgram, LandlockRule, Program};
use link::{Listener, Packets, memfd};
use nix::fcntl::{FcntlArg, FdFlag, fcntl};
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use serde_json::Value;
use std::collections::VecDeque;
use std::io::{ErrorKind, Read, Write};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::os::unix::process::CommandExt;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;
use wire::broker::{BrokerExec, BrokerNotice, BrokerRequest, BrokerState};
use wire::control::{self, Hello, Message};
use wire::frame::{Decoder, Frame};
use wire::{
    Arg, AttachOptions, CageId, Event, EventBody, Exit, PtyId, RunId, SessionId, Size, WireError,
};

/// A uid of the range that cages get under root.
const CAGE_UID: u32 = 1_879_048_201;
/// Nothing that a test waits for takes this long; a hang becomes a failure.
const PATIENCE: Duration = Duration::from_secs(30);

/// Held while descriptors are inheritable, so that no other broker inherits them.
static SPAWNING: Mutex<()> = Mutex::new(());

pub(crate) struct Rig {
    pub(crate) child: Child,
    pub(crate) temp: tempfile::TempDir,
    pub(crate) init_pid: i32,
    pub(crate) events: Vec<Event>,
    pub(crate) exited: Option<Exit>,
    pub(crate) tether: Option<OwnedFd>,
    link: Option<Packets>,
    notices: VecDeque<BrokerNotice>,
    requests: u64,
}

pub(crate) struct Plan {
    pub(crate) clocks: Clocks,
    pub(crate) terminal: Terminal,
    pub(crate) bwrap: Vec<&'static str>,
    pub(crate) ptys_max: u32,
}

impl Default for Plan {
    fn default() -> Self {
        Self {
            clocks: Clocks::default(),
            terminal: Terminal::default(),
            bwrap: vec![
                "--unshare-all",
                "--unshare-user",
                "--disable-userns",
                "--new-session",
                "--cap-drop",
                "ALL",
                "--as-pid-1",
                "--hostname",
                "cage",
                "--ro-bind",
                "/usr",
                "/usr",
                "--symlink",
                "usr/bin",
                "/bin",
                "--symlink",
                "usr/lib",
                "/lib",
                "--symlink",
                "usr/lib64",
                "/lib64",
                "--dir",
                "/etc",
                "--proc",
                "/proc",
                "--dev",
                "/dev",
                "--tmpfs",
                "/tmp",
                "--chdir",
                "/tmp",
            ],
            ptys_max: 4,
        }
    }
}

fn program(name: &str) -> PathBuf {
    let test = std::env::current_exe().unwrap();
    let path = test.parent().unwrap().parent().unwrap().join(name);
    assert!(path.exists(), "{} is missing: cargo xtask build", path.display());
    path
}

fn walls() -> Program {
    let rule = |path: &str, access| LandlockRule { path: path.to_owned(), access };
    let mut rules = vec![
        rule("/usr", Access::ReadExecute),
        rule("/proc", Access::Read),
        rule("/tmp", Access::Write),
    ];
    for device in ["null", "zero", "full", "random", "urandom", "tty", "ptmx", "pts"] {
        rules.push(rule(&format!("/dev/{device}"), Access::Device));
    }
    let landlock = LandlockProgram { abi: 5, required: true, rules, connect_ports: None };
    Program { landlock: Some(landlock), seccomp: true, ..Program::default() }
}

impl Rig {
    /// Attested and told to go.
    pub(crate) fn ready() -> Self {
        Self::with(&Plan::default())
    }

    pub(crate) fn with(plan: &Plan) -> Self {
        let mut rig = Self::boot(plan);
        match rig.notice() {
            BrokerNotice::Attested { init_pid, .. } => rig.init_pid = init_pid,
            other => panic!("no attestation but {other:?}"),
        }
        rig.ask(&BrokerRequest::Go, &[]);
        rig
    }

    /// Started and connected to, nothing more.
    pub(crate) fn boot(plan: &Plan) -> Self {
        occupy_low_descriptors();
        let temp = tempfile::Builder::new().prefix("mews-broker-test-").tempdir().unwrap();
        let root = nix::unistd::geteuid().is_root();
        if root {
            std::os::unix::fs::chown(temp.path(), Some(CAGE_UID), Some(CAGE_UID)).unwrap();
        }
        let listener = Listener::bind(&temp.path().join("sup.sock"), 0o600).unwrap();
        let (tether, its_tether) = Packets::pair().unwrap();
        let state_dir = std::fs::File::open(temp.path()).unwrap();
        let bwrap = std::fs::File::open("/usr/bin/bwrap").expect("bubblewrap is installed");
        let args: Vec<u8> =
            plan.bwrap.iter().flat_map(|arg| [arg.as_bytes(), b"\0"].concat()).collect();
        let args = memfd::sealed("args", &args).unwrap();
        let read = |name: &str| std::fs::read(program(name)).unwrap();
        let init = memfd::sealed_program("init", &read("mews-cage-init"), 0o555).unwrap();
        let broker = memfd::sealed_program("broker", &read("mews-ptybroker"), 0o555).unwrap();
        let filter = cage::seccomp::compile(cage::seccomp::Profile::Default);
        let seccomp = memfd::sealed("filter", &filter).unwrap();
        let boot = Boot {
            proto: wire::PROTO,
            cage: CageId::new(),
            session: SessionId::new(),
            run: RunId::new(),
            fds: BootFds {
                listener: listener.as_raw_fd(),
                tether: its_tether.as_raw_fd(),
                state_dir: state_dir.as_raw_fd(),
                bwrap: bwrap.as_raw_fd(),
                args: args.as_raw_fd(),
                init: init.as_raw_fd(),
                seccomp: Some(seccomp.as_raw_fd()),
                inherited: Vec::new(),
                cgroup_procs: Vec::new(),
                memory_events: None,
                pids_events: None,
                oom_event: None,
                oom_group: false,
                cgroup_events: None,
                memory_peak: None,
                cpu_usage: None,
                pids_peak: None,
                io_usage: None,
            },
            program: walls(),
            clocks: plan.clocks.clone(),
            terminal: plan.terminal.clone(),
            ptys_max: plan.ptys_max,
            supervisor_uid: nix::unistd::geteuid().as_raw(),
        };
        let boot = memfd::sealed("boot", &serde_json::to_vec(&boot).unwrap()).unwrap();
        let inherited: Vec<BorrowedFd<'_>> = vec![
            listener.as_fd(),
            its_tether.as_fd(),
            state_dir.as_fd(),
            bwrap.as_fd(),
            args.as_fd(),
            init.as_fd(),
            seccomp.as_fd(),
            boot.as_fd(),
            broker.as_fd(),
        ];
        let mut command = Command::new("bash");
        command.args(["-c", "exec 3<&\"$0\"; exec \"/proc/self/fd/$1\""]);
        command.args([boot.as_raw_fd().to_string(), broker.as_raw_fd().to_string()]);
        command.env_clear().stdin(Stdio::null()).stdout(Stdio::null());
        if root {
            command.uid(CAGE_UID).gid(CAGE_UID);
        }
        let child = {
            let _guard = SPAWNING.lock().unwrap_or_else(PoisonError::into_inner);
            inherited.iter().for_each(|fd| set_inheritable(*fd, true));
            let child = command.spawn().unwrap();
            inherited.iter().for_each(|fd| set_inheritable(*fd, false));
            child
        };
        let mut rig = Self {
            child,
            temp,
            init_pid: 0,
            events: Vec::new(),
            exited: None,
            tether: Some(tether.into()),
            link: None,
            notices: VecDeque::new(),
            requests: 0,
        };
        rig.connect();
        rig
    }

    /// A new connection, in place of the one there is.
    pub(crate) fn connect(&mut self) {
        let link = Packets::connect(&self.temp.path().join("sup.sock")).unwrap();
        link.send(&Message::Hello(Hello::ours()).to_bytes(), &[]).unwrap();
        self.link = Some(link);
    }

    pub(crate) fn disconnect(&mut self) {
        self.link = None;
    }

    fn receive(&mut self) -> (Message, Vec<OwnedFd>) {
        let link = self.link.as_ref().unwrap();
        wait_readable(link.as_fd());
        let packet = link.recv().unwrap().expect("the broker is there");
        (Message::parse(&packet.bytes).unwrap(), packet.fds)
    }

    fn file(&mut self, body: Value) {
        match control::typed(body).unwrap() {
            BrokerNotice::Event { event } => self.events.push(event),
            BrokerNotice::Exited { exit } => {
                self.exited = Some(exit.clone());
                self.notices.push_back(BrokerNotice::Exited { exit });
            }
            notice => self.notices.push_back(notice),
        }
    }

    /// The next notice that is not an event.
    pub(crate) fn notice(&mut self) -> BrokerNotice {
        loop {
            if let Some(notice) = self.notices.pop_front() {
                return notice;
            }
            match self.receive() {
                (Message::Notify(body), _) => self.file(body),
                (Message::Hello(_), _) => {}
                (other, _) => panic!("unexpected {other:?}"),
            }
        }
    }

    pub(crate) fn event(&mut self, wanted: impl Fn(&EventBody) -> bool) -> EventBody {
        loop {
            if let Some(body) = self.events.iter().filter_map(Event::body).find(&wanted) {
                return body;
            }
            match self.receive() {
                (Message::Notify(body), _) => self.file(body),
                (Message::Hello(_), _) => {}
                (other, _) => panic!("unexpected {other:?}"),
            }
        }
    }

    pub(crate) fn try_ask(
        &mut self,
        request: &BrokerRequest,
        fds: &[BorrowedFd<'_>],
    ) -> Result<(Value, Vec<OwnedFd>), WireError> {
        self.requests += 1;
        let message = Message::request(self.requests, request).unwrap();
        self.link.as_ref().unwrap().send(&message.to_bytes(), fds).unwrap();
        loop {
            match self.receive() {
                (Message::Answer(answer), fds) if answer.id == self.requests => {
                    return Result::from(answer.result).map(|value| (value, fds));
                }
                (Message::Notify(body), _) => self.file(body),
                (Message::Hello(_), _) => {}
                (other, _) => panic!("unexpected {other:?}"),
            }
        }
    }

    pub(crate) fn ask(&mut self, request: &BrokerRequest, fds: &[BorrowedFd<'_>]) -> Value {
        self.try_ask(request, fds).unwrap_or_else(|error| panic!("{request:?}: {error}")).0
    }

    pub(crate) fn exec(&mut self, main: bool, exec: &BrokerExec) -> PtyId {
        let pty = PtyId::new();
        let memfd = memfd::sealed("exec", &serde_json::to_vec(exec).unwrap()).unwrap();
        self.ask(&BrokerRequest::Exec { pty, main }, &[memfd.as_fd()]);
        pty
    }

    pub(crate) fn attach(&mut self, pty: PtyId, options: AttachOptions) -> Client {
        let (ours, theirs) = UnixStream::pair().unwrap();
        self.ask(&BrokerRequest::Attach { pty, options }, &[theirs.as_fd()]);
        Client::new(ours)
    }

    pub(crate) fn state(&mut self) -> BrokerState {
        let value = self.ask(&BrokerRequest::State, &[]);
        control::typed(value).unwrap()
    }

    pub(crate) fn bytes_of(&mut self, request: &BrokerRequest) -> Vec<u8> {
        let (_, fds) = self.try_ask(request, &[]).unwrap();
        memfd::read(fds.into_iter().next().unwrap(), 1 << 30).unwrap()
    }

    /// Waits for the end and acknowledges it; the broker must go, too, when its viewers are.
    pub(crate) fn end(&mut self) -> Exit {
        let exit = self.wait_exit();
        let seq = self.events.last().unwrap().seq;
        self.ask(&BrokerRequest::Ack { seq }, &[]);
        exit
    }

    pub(crate) fn wait_exit(&mut self) -> Exit {
        while self.exited.is_none() {
            match self.receive() {
                (Message::Notify(body), _) => self.file(body),
                (Message::Hello(_), _) => {}
                (other, _) => panic!("unexpected {other:?}"),
            }
        }
        let file = std::fs::read(self.temp.path().join("exit.json")).expect("before it is told");
        let exit: Exit = serde_json::from_slice(&file).unwrap();
        assert_eq!(Some(&exit), self.exited.as_ref());
        exit
    }

    /// The exit that a new connection is told again.
    pub(crate) fn wait_exit_again(&mut self) {
        self.exited = None;
        self.wait_exit();
    }

    /// Waits until the broker's process has ended by itself.
    pub(crate) fn gone(mut self) -> bool {
        self.child.wait().unwrap().success()
    }
}

impl Drop for Rig {
    fn drop(&mut self) {
        // The broker's end closes the order socket, which ends the cage.
        drop(self.child.kill());
        drop(self.child.wait());
    }
}

pub(crate) struct Client {
    pub(crate) stream: UnixStream,
    decoder: Decoder,
}

impl Client {
    pub(crate) fn new(stream: UnixStream) -> Self {
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        stream.set_write_timeout(Some(PATIENCE)).unwrap();
        Self { stream, decoder: Decoder::default() }
    }

    pub(crate) fn next(&mut self) -> Option<Frame> {
        loop {
            if let Some(frame) = self.decoder.next_frame().unwrap() {
                return Some(frame);
            }
            let mut bytes = [0; 65536];
            match self.stream.read(&mut bytes) {
                Ok(0) => return None,
                Ok(count) => self.decoder.feed(&bytes[..count]),
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) => panic!("nothing came for {PATIENCE:?}: {error}"),
            }
        }
    }

    pub(crate) fn send(&mut self, frame: &Frame) {
        self.stream.write_all(&frame.to_bytes()).unwrap();
    }

    pub(crate) fn keys(&mut self, keys: &str) {
        self.send(&Frame::Input(keys.as_bytes().to_vec()));
    }

    /// The first frame of this kind; the others are lost.
    pub(crate) fn until<T>(&mut self, wanted: impl Fn(&Frame) -> Option<T>) -> T {
        loop {
            let frame = self.next().expect("the stream goes on");
            if let Some(found) = wanted(&frame) {
                return found;
            }
        }
    }

    /// Reads lines until this text was in them; everything up to there.
    pub(crate) fn until_line(&mut self, text: &str) -> String {
        let mut seen = String::new();
        while !seen.contains(text) {
            match self.next() {
                Some(Frame::History(bytes)) => seen.push_str(&String::from_utf8_lossy(&bytes)),
                Some(Frame::Close(close)) => panic!("closed ({close:?}) after {seen:?}"),
                None => panic!("ended after {seen:?}"),
                Some(_) => {}
            }
        }
        seen
    }

    /// Reads output until this text was in it; everything up to there.
    pub(crate) fn until_text(&mut self, text: &str) -> String {
        let mut seen = String::new();
        while !seen.contains(text) {
            match self.next() {
                Some(
                    Frame::Output { bytes, .. } | Frame::Snapshot { bytes, .. } | Frame::Out(bytes),
                ) => {
                    seen.push_str(&String::from_utf8_lossy(&bytes));
                }
                Some(Frame::Close(close)) => panic!("closed ({close:?}) after {seen:?}"),
                None => panic!("ended after {seen:?}"),
                Some(_) => {}
            }
        }
        seen
    }
}

pub(crate) fn shell(script: &str) -> BrokerExec {
    BrokerExec {
        argv: ["sh", "-c", script].into_iter().map(Arg::from).collect(),
        env: vec![("PATH".into(), "/usr/bin:/bin".into()), ("TERM".into(), "xterm".into())],
        cwd: "/tmp".into(),
        umask: 0o022,
        tty: None,
        hold: false,
        stdin: false,
    }
}

pub(crate) fn on_terminal(script: &str) -> BrokerExec {
    BrokerExec { tty: Some(Size::DEFAULT), ..shell(script) }
}

/// Takes the low numbers for ever: descriptor 3 of a broker is for the boot text.
fn occupy_low_descriptors() {
    static LOW: std::sync::OnceLock<Vec<std::fs::File>> = std::sync::OnceLock::new();
    LOW.get_or_init(|| {
        let open = || std::fs::File::open("/dev/null").unwrap();
        std::iter::repeat_with(open).take_while(|file| file.as_raw_fd() < 10).collect()
    });
}

fn set_inheritable(fd: BorrowedFd<'_>, inheritable: bool) {
    let flags = if inheritable { FdFlag::empty() } else { FdFlag::FD_CLOEXEC };
    fcntl(fd, FcntlArg::F_SETFD(flags)).unwrap();
}

fn wait_readable(fd: BorrowedFd<'_>) {
    let patience = PollTimeout::try_from(PATIENCE).unwrap();
    let mut fds = [PollFd::new(fd, PollFlags::POLLIN)];
    assert_ne!(poll(&mut fds, patience), Ok(0), "nothing came for {PATIENCE:?}");
}
