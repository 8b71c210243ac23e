//! supervisor → broker: requests, and what comes back unasked.
//!
//! The broker listens on `<run>/sup/<id>.sock`; a second connection replaces the first.

use crate::supervisor::PtyState;
use crate::watch::Watch;
use crate::{AttachOptions, Cause, Event, Exit, PtyId, ScrollbackForm, Size};
use serde::{Deserialize, Serialize};
use serde_json::Value;

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "verb", rename_all = "snake_case")]
pub enum BrokerRequest {
    /// The attestation matched: orders may go in. Ok: null. Until then nothing starts.
    Go,
    /// fds: memfd with a [`BrokerExec`]. `main`: the cage ends with this one. Ok: null when the
    /// payload runs, or is held for its viewer; error `cage_unavailable` if the cage can't.
    Exec {
        pty: PtyId,
        main: bool,
    },
    /// fds: the viewer's stream, memfd with bytes already read from it.
    Attach {
        pty: PtyId,
        options: AttachOptions,
    },
    /// Ok: [`Came`]: who has attached to what is still known here.
    Came,
    /// This uid's viewers have no more to look for here. Ok: null, when they are gone.
    Dismiss {
        uid: u32,
    },
    /// fds: memfd with the bytes.
    Input {
        pty: PtyId,
    },
    /// fds: memfd with a [`crate::typing::Typing`]. Ok: [`crate::typing::Typed`]; error `conflict` with
    /// `writer` if somebody has the keyboard.
    Type {
        pty: PtyId,
    },
    /// fds: a stream. When what is waited for is there, it gets a JSON [`crate::watch::Watched`] and
    /// its end; its hangup ends the wait. Ok: null.
    Watch {
        pty: PtyId,
        watch: Watch,
    },
    Resize {
        pty: PtyId,
        size: Size,
    },
    Signal {
        pty: Option<PtyId>,
        signal: i32,
    },
    /// Keys and sizes wait, clocks stand, no command starts; pid 1 stops what it can by signals, and
    /// with `all` whatever then still runs. Ok: null, with a memfd: JSON array of
    /// [`crate::Stilled`].
    Suspend {
        grace_ms: u64,
        all: bool,
    },
    /// Undoes that. Ok: null.
    Resume,
    /// From now on these limits. Ok: null; error `conflict` if one of them is passed already, and
    /// then nothing is changed.
    Clocks(Clocks),
    /// The cage is about to be killed or ended, and this is why. Ok: null.
    Ending {
        cause: Cause,
    },
    /// A limit that the supervisor keeps is passed: the cage ends for it. Ok: null.
    OverLimit {
        limit: String,
        message: String,
    },
    /// SIGKILL to pid 1 of the cage.
    Kill,
    /// Ok: null, with a memfd or file.
    Scrollback {
        pty: PtyId,
        form: ScrollbackForm,
    },
    /// Ok: [`BrokerState`].
    State,
    /// Events up to `seq` are stored by sessiond.
    Ack {
        seq: u64,
    },
}

/// The limits that must hold without a supervisor.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Clocks {
    pub walltime_ms: Option<u64>,
    pub idle_ms: Option<u64>,
    pub output_bytes: Option<u64>,
}

/// A command as the plan allows it: environment picked, folder resolved, as seen inside.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct BrokerExec {
    pub argv: Vec<crate::Arg>,
    pub env: Vec<(crate::Arg, crate::Arg)>,
    pub cwd: crate::Arg,
    pub umask: u32,
    pub tty: Option<Size>,
    pub hold: bool,
    pub stdin: bool,
}

/// Whose stream a viewer is, as the kernel tells.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct CameFrom {
    pub uid: u32,
    pub gid: u32,
    pub groups: Vec<u32>,
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Came {
    /// Each once, however often they came.
    pub from: Vec<CameFrom>,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct BrokerState {
    /// Pid 1 of the cage and bwrap's monitor, host numbering.
    pub init_pid: Option<i32>,
    pub monitor_pid: Option<i32>,
    pub ptys: Vec<PtyState>,
    /// Between a suspend and its resume.
    pub suspended: bool,
    /// How long the first command ran, pauses left out.
    #[serde(default)]
    pub ran_ms: u64,
    /// Printed by all commands.
    #[serde(default)]
    pub output_bytes: u64,
    /// The end of the first payload.
    pub exit: Option<Exit>,
    /// Newest event sequence.
    pub seq: u64,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "what", rename_all = "snake_case")]
pub enum BrokerNotice {
    /// The zygote stands behind its walls and says so. `attestation` is cage's own type, as JSON.
    Attested { init_pid: i32, monitor_pid: i32, attestation: Value },
    /// The cage could not be built; the broker ends. Nothing ran.
    Failed { wall: String, message: String },
    /// Appended to the broker's file before it was sent.
    Event { event: Event },
    /// exit.json is written. The broker lives on until it is acknowledged and drained.
    Exited { exit: Exit },
}
