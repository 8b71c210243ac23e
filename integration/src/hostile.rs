//! A sessiond that was taken over: it speaks its side of the supervisor's socket as badly as it can.
//!
//! The supervisor starts it in sessiond's place, under sessiond's uid, and gives it the API's listener,
//! so that it has what a real one has and no more. What it tried and what came of it stands in
//! `<state>/db/report`, one JSON line each; the suite `hostile` holds that against its table.
//! A case named `control …` is the same by right, and must succeed, or the others prove nothing.

mod authorities;
mod frames;
mod grants;
mod link;
mod verbs;

use anyhow::{Context as _, ensure};
use authorities::Authority;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use serde_json::{Value, json};
use std::io::Write;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::net::{UnixListener, UnixStream};
use std::os::unix::process::CommandExt;
use std::path::PathBuf;
use std::process::{Command, ExitCode};
use verbs::{Target, VERBS};
use wire::dirs::Dirs;
use wire::supervisor::Phase;
use wire::{CageId, PtyId, SessionId};

/// The supervisor's way of starting a sessiond. The listener comes as descriptor 3; a shell makes it
/// standard input, where safe code finds it.
pub(crate) fn as_sessiond() -> ExitCode {
    let Ok(me) = std::env::current_exe() else { return ExitCode::FAILURE };
    let error = Command::new("/bin/sh").args(["-c", "exec \"$0\" hostile <&3"]).arg(me).exec();
    eprint(&error);
    ExitCode::FAILURE
}

pub(crate) fn run() -> ExitCode {
    match act() {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprint(&format!("{error:#}"));
            ExitCode::FAILURE
        }
    }
}

#[expect(clippy::print_stderr, reason = "standard error is sessiond's log")]
fn eprint(error: &dyn std::fmt::Display) {
    eprintln!("hostile: {error}");
}

/// `hold SOCKET`: an operator's connection, until standard input ends.
pub(crate) fn hold(socket: &str) -> ExitCode {
    let Ok(_connection) = UnixStream::connect(socket) else { return ExitCode::FAILURE };
    std::io::copy(&mut std::io::stdin(), &mut std::io::sink()).ok();
    ExitCode::SUCCESS
}

pub(crate) struct Hostile {
    dirs: Dirs,
    listener: UnixListener,
    report: PathBuf,
}

impl Hostile {
    fn note(&self, case: &str, outcome: &str) -> anyhow::Result<()> {
        let mut file = std::fs::File::options().create(true).append(true).open(&self.report)?;
        writeln!(file, "{}", json!({ "case": case, "outcome": outcome }))?;
        Ok(())
    }

    /// The next operator.
    fn accept(&self) -> anyhow::Result<(u32, OwnedFd)> {
        let (stream, _address) = self.listener.accept()?;
        let uid = ::link::Peer::of(&stream)?.uid;
        self.note(&format!("accepted {uid}"), "done")?;
        Ok((uid, stream.into()))
    }

    fn link(&self) -> anyhow::Result<link::Link> {
        link::Link::open(&self.dirs.supervisor_socket(), Some(self.listener.as_fd()))
    }
}

fn act() -> anyhow::Result<()> {
    let uid = nix::unistd::geteuid().as_raw();
    ensure!(uid != 0, "sessiond is not root");
    let dirs = Dirs::resolve(uid, |name| std::env::var(name).ok());
    let listener = UnixListener::from(std::io::stdin().as_fd().try_clone_to_owned()?);
    listener.set_nonblocking(false)?;
    let report = dirs.state.join("db/report");
    let again = report.exists();
    let hostile = Hostile { dirs, listener, report };
    let mut link = hostile.link()?;
    if again {
        // Started once more after the script: nothing is left to try.
        loop {
            hostile.listener.accept()?;
        }
    }
    script(&hostile, &mut link)?;
    hostile.note("end", "done")?;
    loop {
        hostile.listener.accept()?;
    }
}

fn script(hostile: &Hostile, link: &mut link::Link) -> anyhow::Result<()> {
    let (ann, anns) = hostile.accept()?;
    let (bob, bobs) = hostile.accept()?;
    let cage =
        Target { session: SessionId::new(), cage: CageId::new(), pty: PtyId::new(), uid: ann };
    let project = |uid: u32| {
        let user = nix::unistd::User::from_uid(uid.into())?.context("an account")?;
        anyhow::Ok(user.dir.join("project"))
    };
    let overlay = json!({ "overrides": { "workspace_mode": "overlay" } });
    let spawned = verbs::spawn(link, Some(&anns), &cage, &project(ann)?, overlay.clone())?;
    hostile.note("control spawn", &spawned)?;
    hostile.note("control layer", &verbs::ask(link, "layer", Some(&anns), &cage)?)?;
    let own = Target { cage: CageId::new(), pty: PtyId::new(), uid: bob, ..cage };
    let shared = verbs::spawn(link, Some(&bobs), &own, &project(bob)?, overlay)?;
    hostile.note("bob in the layer of ann's session", &shared)?;
    hostile.note("control signal", &verbs::ask(link, "signal", Some(&anns), &cage)?)?;
    let given = grants::minted(hostile, link, (ann, &anns), &project(ann)?)?;
    let before = link.state_of(cage.cage)?.context("ann's cage")?;

    for verb in VERBS.iter().filter(|verb| verb.names_a_cage()) {
        let outcome = verbs::ask(link, verb.name, Some(&bobs), &cage)?;
        hostile.note(&format!("bob's connection: {}", verb.name), &outcome)?;
    }
    claims(hostile, link, &bobs, (bob, &cage), &project(bob)?)?;
    host_paths(hostile, link, &bobs, (&project(ann)?, &project(bob)?))?;
    let hers = hostile.dirs.run.with_file_name("of-root");
    ensure!(std::fs::read(hers.join("secret")).is_err(), "sessiond itself can read it");

    ended(&anns)?;
    grants::used(hostile, link, &given, (&anns, &bobs), &project(bob)?)?;
    for authority in authorities::all(hostile, &anns)? {
        let Authority { name, connection } = &authority;
        for verb in VERBS.iter().filter(|verb| verb.wants_an_operator()) {
            let outcome = verbs::ask(link, verb.name, connection.as_ref(), &cage)?;
            hostile.note(&format!("{name}: {}", verb.name), &outcome)?;
        }
        let target =
            Target { session: SessionId::new(), cage: CageId::new(), pty: PtyId::new(), uid: ann };
        let outcome = verbs::spawn(link, connection.as_ref(), &target, &project(ann)?, json!({}))?;
        hostile.note(&format!("{name}: spawn"), &outcome)?;
    }
    frames::malformed(hostile, (&bobs, &cage))?;
    frames::mutated(hostile, (&bobs, &cage))?;

    let after = link.state_of(cage.cage)?.context("ann's cage after all that")?;
    let same = (before.pid, before.phase) == (after.pid, after.phase) && after.uid == ann;
    hostile.note("control ann's cage lives", if same { "done" } else { "changed" })?;
    let living = link.states()?.into_iter().filter(|state| state.phase != Phase::Gone);
    let of_ann = living.filter(|state| state.uid == ann).count();
    hostile.note("control ann has one cage", if of_ann == 1 { "done" } else { "more" })?;
    let (again, anns) = hostile.accept()?;
    ensure!(again == ann, "ann comes back");
    hostile.note("control kill", &verbs::ask(link, "kill", Some(&anns), &cage)?)?;
    for state in link.states()? {
        let told = link.ask(&json!({ "verb": "forget", "cage": state.cage }), &[])?;
        hostile.note("control forget what has ended", &told.word())?;
    }
    Ok(())
}

/// Says who it is in every way but by the connection.
fn claims(
    hostile: &Hostile,
    link: &mut link::Link,
    bobs: &OwnedFd,
    (bob, anns): (u32, &Target),
    project: &std::path::Path,
) -> anyhow::Result<()> {
    let own =
        Target { session: SessionId::new(), cage: CageId::new(), pty: PtyId::new(), uid: bob };
    let claims = json!({ "uid": anns.uid, "operator": anns.uid, "gid": 0, "is_admin": true });
    let outcome = verbs::spawn(link, Some(bobs), &own, project, claims)?;
    hostile.note("control claims", &outcome)?;
    let state = link.state_of(own.cage)?.context("bob's cage")?;
    let told = if state.uid == bob { "done" } else { "another uid" };
    hostile.note("control claims are not believed", told)?;
    hostile.note("control kill bob's", &verbs::ask(link, "kill", Some(bobs), &own)?)?;
    let taken = verbs::spawn(link, Some(bobs), anns, project, json!({}))?;
    hostile.note("bob spawns under ann's id", &taken)
}

/// What the connected operator has no right to, asked for in their name.
fn host_paths(
    hostile: &Hostile,
    link: &mut link::Link,
    bobs: &OwnedFd,
    (anns, own): (&std::path::Path, &std::path::Path),
) -> anyhow::Result<()> {
    let closed = hostile.dirs.run.with_file_name("of-root");
    for (name, path) in [("of root", closed.as_path()), ("of ann", anns)] {
        let secret = path.join("secret");
        let target =
            || Target { session: SessionId::new(), cage: CageId::new(), pty: PtyId::new(), uid: 0 };
        for flag in ["read", "write"] {
            let overrides = json!({ "overrides": { flag: [secret] } });
            let outcome = verbs::spawn(link, Some(bobs), &target(), own, overrides)?;
            hostile.note(&format!("--{flag} {name}"), &outcome)?;
        }
        // A folder that can be seen but not entered may be lent: with the operator's rights, so that
        // the cage cannot enter it either. A path of fs.read that is not seen is left out.
        for (what, workspace, key) in
            [("workspace", path, "read"), ("fs.write", own, "write"), ("fs.read", own, "read")]
        {
            let text = format!("version = 1\nextends = \"shell\"\n[fs]\n{key} = [{path:?}]\n");
            let script = format!("cat {0} || cat /workspace/secret", secret.display());
            let asked = json!({
                "policy": { "file": { "path": "x.toml", "text": text } },
                "exec": { "argv": ["sh", "-c", script], "tty": null },
            });
            let cage = target();
            let mut outcome = verbs::spawn(link, Some(bobs), &cage, workspace, asked)?;
            if outcome == "done" {
                let exit = link.exit_of(cage.cage)?;
                outcome = if exit == Some(0) { "read it" } else { "refused inside" }.to_owned();
            }
            hostile.note(&format!("{what} {name}"), &outcome)?;
        }
    }
    // The same with what is the operator's own.
    let cage = Target { session: SessionId::new(), cage: CageId::new(), pty: PtyId::new(), uid: 0 };
    let asked = json!({ "exec": { "argv": ["cat", own.join("mine")], "tty": null } });
    hostile.note("control read", &verbs::spawn(link, Some(bobs), &cage, own, asked)?)?;
    let told = if link.exit_of(cage.cage)? == Some(0) { "done" } else { "unread" };
    hostile.note("control its own file is read", told)?;
    Ok(())
}

/// Waits until the operator has gone.
fn ended(connection: &OwnedFd) -> anyhow::Result<()> {
    let mut fds = [PollFd::new(connection.as_fd(), PollFlags::POLLIN)];
    loop {
        poll(&mut fds, PollTimeout::NONE)?;
        let gone = fds[0].revents().is_some_and(|events| events.contains(PollFlags::POLLHUP));
        if gone {
            return Ok(());
        }
    }
}

pub(crate) fn object(value: &Value, laid_over: &Value) -> Value {
    let mut whole = value.clone();
    if let (Some(whole), Some(more)) = (whole.as_object_mut(), laid_over.as_object()) {
        whole.extend(more.clone());
    }
    whole
}
