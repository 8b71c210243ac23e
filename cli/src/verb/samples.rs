//! What the tests of several verbs show.

use wire::SessionId;
use wire::api::{SessionState, SessionView};

/// One in which nothing has run.
pub(crate) fn session(name: &str, state: SessionState) -> SessionView {
    SessionView {
        id: SessionId::new(),
        name: name.into(),
        project: "p".into(),
        folder: "/p".into(),
        state,
        archived: false,
        labels: Default::default(),
        source: "cli:run".into(),
        end_on_exit: true,
        uid: nix::unistd::geteuid().as_raw(),
        created_at_ms: 0,
        ended_at_ms: None,
        seq: 1,
        runs: Vec::new(),
        cages: Vec::new(),
    }
}
