//! Whose daemons: an operator's own, or the system's, which root started for many.
//!
//! `MEWS_RUN_DIR` decides where it is set, then `--user` or `--system`. Without any of them an ordinary
//! user is the system's operator if that listens and lets them in, else has daemons of their own.

use std::io::{Read, Write};
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::sync::OnceLock;
use std::time::Duration;
use wire::dirs::Dirs;

/// How long the system may take to say that it does not let us in.
const ANSWER_DUE: Duration = Duration::from_secs(2);

/// What the command line says about it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Wanted {
    #[default]
    Any,
    User,
    System,
}

static WANTED: OnceLock<Wanted> = OnceLock::new();
static PLACE: OnceLock<Dirs> = OnceLock::new();

/// Said once, before anybody asks.
pub(crate) fn want(wanted: Wanted) {
    WANTED.get_or_init(|| wanted);
}

/// The folders of the daemons that this command is about.
pub(crate) fn dirs() -> Dirs {
    PLACE.get_or_init(find).clone()
}

/// Whether they are somebody else's to start and stop.
pub(crate) fn is_foreign(dirs: &Dirs) -> bool {
    let own = nix::unistd::geteuid().as_raw();
    own != 0
        && match std::fs::metadata(&dirs.run) {
            Ok(meta) => meta.uid() == 0,
            // A system that never ran is nothing that one of its operators could start.
            Err(_none) => {
                WANTED.get() == Some(&Wanted::System) && std::env::var("MEWS_RUN_DIR").is_err()
            }
        }
}

fn find() -> Dirs {
    let uid = nix::unistd::geteuid().as_raw();
    let env = |name: &str| std::env::var(name).ok();
    let own = Dirs::resolve(uid, env);
    if uid == 0 || env("MEWS_RUN_DIR").is_some_and(|dir| dir.starts_with('/')) {
        return own;
    }
    let mut system = Dirs::system();
    // Where tests have a system of their own.
    if let Some(run) = env("MEWS_SYSTEM_RUN_DIR").filter(|dir| dir.starts_with('/')) {
        system.run = run.into();
    }
    match WANTED.get().copied().unwrap_or_default() {
        Wanted::User => own,
        Wanted::System => system,
        Wanted::Any if lets_us_in(&system.api_socket()) => system,
        Wanted::Any => own,
    }
}

/// Whether root's daemons listen there and do not refuse us. What they cannot say yet (503, or nothing
/// in time: systemd listens while they are started) is theirs to say to the command itself: daemons of
/// one's own would not know the cages that one has.
fn lets_us_in(socket: &Path) -> bool {
    let Ok(mut stream) = link::packet::connect_stream(socket) else { return false };
    if !link::Peer::of(&stream).is_ok_and(|peer| peer.uid == 0) {
        return false;
    }
    let path = format!("{}/healthz", wire::api::BASE);
    let request = format!("GET {path} HTTP/1.1\r\nhost: mews\r\nconnection: close\r\n\r\n");
    let mut head = [0; 12];
    let asked = stream
        .set_read_timeout(Some(ANSWER_DUE))
        .and_then(|()| stream.write_all(request.as_bytes()))
        .and_then(|()| stream.read_exact(&mut head));
    asked.is_err() || !head.ends_with(b"403")
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::net::UnixListener;

    #[test]
    fn only_a_system_of_root_that_lets_us_in_is_used() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("api.sock");
        assert!(!lets_us_in(&path), "nobody listens");
        let root = nix::unistd::geteuid().is_root();
        for (answer, wanted) in [
            ("HTTP/1.1 200 OK\r\n\r\n", true),
            ("HTTP/1.1 403 Forbidden\r\n\r\n", false),
            ("HTTP/1.1 503 x\r\n\r\n", true),
            ("", true),
        ] {
            let listener = UnixListener::bind(&path).unwrap();
            std::thread::scope(|scope| {
                scope.spawn(|| {
                    let (mut stream, _address) = listener.accept().unwrap();
                    let mut request = [0; 16];
                    // Who is not root's is hung up on without a word.
                    if stream.read(&mut request).is_ok_and(|count| count > 0) {
                        stream.write_all(answer.as_bytes()).unwrap();
                    }
                });
                assert_eq!(lets_us_in(&path), wanted && root, "{answer}");
            });
            std::fs::remove_file(&path).unwrap();
        }
    }
}
