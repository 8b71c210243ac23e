//! What the probes look for on the host, and what becomes of it: made before, removed after.

use super::probes::Probes;
use anyhow::{Context as _, ensure};
use portable_pty::{PtyPair, PtySize, native_pty_system};
use std::fs;
use std::io::Write;
use std::net::TcpListener;
use std::os::linux::net::SocketAddrExt;
use std::os::unix::fs::{PermissionsExt, chown, symlink};
use std::os::unix::net::{SocketAddr, UnixListener, UnixStream};
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Child, Command};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use testkit::process::{self, LIMIT};

pub(super) const SECRET: (&str, &str) = ("MEWS_BAIT_SECRET", "hunter2");
pub(super) const SOCKET: &str = "/var/tmp/mews-bait.sock";
/// Open on the launcher's descriptor 40.
pub(super) const OPEN_FOLDER: &str = "/root/mews-dirfd";
const SUID: &str = "/usr/local/bin/mews-suid-bait";
const ROOT_FOLDER: &str = "/var/tmp/mews-rootdir";
const FILES: [&str; 6] = [
    "/var/tmp/mews-bait.lock",
    "/var/tmp/mews-bait.db",
    "/var/tmp/mews-group-bait",
    "/dev/shm/mews-host-bait",
    SUID,
    SOCKET,
];

pub(super) struct Baits {
    pub(super) uid: u32,
    /// Its file is readable for members of this group alone.
    pub(super) group: u32,
    tcp: TcpListener,
    host_process: Child,
    stop: Arc<AtomicBool>,
    _abstract: UnixListener,
    _terminal: PtyPair,
    _cleaner: Cleaner,
}

/// First to be made, last to go: half a bait must not stay either.
struct Cleaner;

impl Drop for Cleaner {
    fn drop(&mut self) {
        clean();
    }
}

fn clean() {
    for file in FILES {
        fs::remove_file(file).ok();
    }
    for folder in [OPEN_FOLDER, ROOT_FOLDER] {
        fs::remove_dir_all(folder).ok();
    }
    for user in ["mewsprobe", "mewsvictim"] {
        Command::new("userdel").args(["--force", "--remove", user]).output().ok();
    }
    Command::new("groupdel").arg("mewsgrp").output().ok();
}

impl Baits {
    pub(super) fn make(probes: &Probes) -> anyhow::Result<Self> {
        clean();
        let cleaner = Cleaner;
        must("groupadd", &["mewsgrp"])?;
        must("useradd", &["--create-home", "--groups", "mewsgrp", "mewsprobe"])?;
        must("useradd", &["--create-home", "mewsvictim"])?;
        let (uid, group) = (id(&["-u", "mewsprobe"])?, group("mewsgrp")?);
        fs::set_permissions("/home/mewsvictim", fs::Permissions::from_mode(0o755))?;
        file("/home/mewsvictim/readable", 0o644, id(&["-u", "mewsvictim"])?, None)?;
        fs::set_permissions("/home/mewsprobe", fs::Permissions::from_mode(0o755))?;
        file("/home/mewsprobe/mine", 0o644, uid, None)?;
        file("/var/tmp/mews-bait.lock", 0o644, 0, None)?;
        file("/var/tmp/mews-bait.db", 0o644, 0, None)?;
        file("/var/tmp/mews-group-bait", 0o640, 0, Some(group))?;
        file("/dev/shm/mews-host-bait", 0o644, 0, None)?;
        fs::create_dir(ROOT_FOLDER)?;
        fs::create_dir(OPEN_FOLDER)?;
        fs::set_permissions(OPEN_FOLDER, fs::Permissions::from_mode(0o777))?;
        file(&format!("{OPEN_FOLDER}/mews-dirfd-bait"), 0o644, 0, None)?;
        fs::copy(probes.folder().join("suid-bait"), SUID)?;
        fs::set_permissions(SUID, fs::Permissions::from_mode(0o4755))?;
        let stop = Arc::new(AtomicBool::new(false));
        answer(UnixListener::bind(SOCKET)?, Arc::clone(&stop));
        fs::set_permissions(SOCKET, fs::Permissions::from_mode(0o666))?;
        let name = SocketAddr::from_abstract_name("mews-bait")?;
        Ok(Self {
            uid,
            group,
            tcp: TcpListener::bind("127.0.0.1:0")?,
            host_process: sleeper(probes.folder(), uid)?,
            stop,
            _abstract: UnixListener::bind_addr(&name)?,
            _terminal: native_pty_system().openpty(PtySize::default())?,
            _cleaner: cleaner,
        })
    }

    /// What the probes are told, as `NAME=VALUE`.
    pub(super) fn words(&self, workspace: &Path) -> anyhow::Result<Vec<String>> {
        Ok(vec![
            format!("MEWS_WS={}", workspace.display()),
            format!("MEWS_PORT={}", self.tcp.local_addr()?.port()),
            format!("MEWS_HOST_PID={}", self.host_process.id()),
            "MEWS_DIRFD=40".to_owned(),
            "MEWS_INCAGE=1".to_owned(),
        ])
    }

    /// The attacks left the host as it was.
    pub(super) fn unharmed(&mut self) -> anyhow::Result<()> {
        ensure!(self.host_process.try_wait()?.is_none(), "the host's process was killed");
        Ok(())
    }
}

impl Drop for Baits {
    fn drop(&mut self) {
        self.host_process.kill().ok();
        self.host_process.wait().ok();
        self.stop.store(true, Ordering::Release);
        UnixStream::connect(SOCKET).ok();
    }
}

/// A process that probes can tell by its name from one of their cage.
fn sleeper(folder: &Path, uid: u32) -> anyhow::Result<Child> {
    let program = folder.join("mews-sleeper");
    symlink("/bin/sleep", &program)?;
    Ok(Command::new(program).arg("1000").uid(uid).env_clear().spawn()?)
}

/// Says something to everybody who comes.
fn answer(listener: UnixListener, stop: Arc<AtomicBool>) {
    std::thread::spawn(move || {
        for stream in listener.incoming().flatten() {
            if stop.load(Ordering::Acquire) {
                return;
            }
            let mut stream = stream;
            stream.write_all(b"bait\n").ok();
        }
    });
}

fn file(path: &str, mode: u32, uid: u32, gid: Option<u32>) -> anyhow::Result<()> {
    fs::write(path, "bait\n").with_context(|| path.to_owned())?;
    chown(path, Some(uid), gid)?;
    fs::set_permissions(path, fs::Permissions::from_mode(mode))?;
    Ok(())
}

fn must(program: &str, args: &[&str]) -> anyhow::Result<String> {
    let done = process::run(Command::new(program).args(args), b"", LIMIT)?;
    Ok(done.expect(0).with_context(|| program.to_owned())?.out())
}

fn id(args: &[&str]) -> anyhow::Result<u32> {
    Ok(must("id", args)?.trim().parse()?)
}

fn group(name: &str) -> anyhow::Result<u32> {
    let line = must("getent", &["group", name])?;
    Ok(line.split(':').nth(2).context("a group has an id")?.parse()?)
}
