//! What comes to pid 1 from behind the walls.
//!
//! [`Word`]s travel on the zygote's socket, which its leaders share; [`Record`]s on the report pipe
//! of one command, written by the payload-to-be before it execs.

use crate::orders::{Attestation, ExecExit};
use serde::{Deserialize, Serialize};

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) enum Word {
    Attested(Attestation),
    Failed {
        wall: String,
        message: String,
    },
    /// The forwarders' pids.
    Forwarding(Vec<i32>),
    Exited(ExecExit),
}

/// Twelve bytes, so that a pipe keeps them whole: kind, and two numbers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Record {
    /// First. If the pipe then ends, the payload runs.
    Pid { payload: i32, leader: i32 },
    /// The payload does not run.
    Failed { step: Step, errno: i32 },
}

/// Which step towards the payload failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Step {
    Fork,
    Session,
    Folder,
    Exec,
}

impl Record {
    pub(crate) const BYTES: usize = 12;

    pub(crate) fn to_bytes(self) -> [u8; Self::BYTES] {
        let (kind, first, second) = match self {
            Self::Pid { payload, leader } => (0, payload, leader),
            Self::Failed { step: Step::Fork, errno } => (1, errno, 0),
            Self::Failed { step: Step::Session, errno } => (2, errno, 0),
            Self::Failed { step: Step::Folder, errno } => (3, errno, 0),
            Self::Failed { step: Step::Exec, errno } => (4, errno, 0),
        };
        let mut bytes = [0; Self::BYTES];
        for (place, number) in bytes.chunks_exact_mut(4).zip([kind, first, second]) {
            place.copy_from_slice(&number.to_le_bytes());
        }
        bytes
    }

    pub(crate) fn from_bytes(bytes: [u8; Self::BYTES]) -> Self {
        let [a, b, c, d, e, f, g, h, i, j, k, l] = bytes;
        let kind = i32::from_le_bytes([a, b, c, d]);
        let first = i32::from_le_bytes([e, f, g, h]);
        let second = i32::from_le_bytes([i, j, k, l]);
        let failed = |step| Self::Failed { step, errno: first };
        match kind {
            0 => Self::Pid { payload: first, leader: second },
            1 => failed(Step::Fork),
            2 => failed(Step::Session),
            3 => failed(Step::Folder),
            _ => failed(Step::Exec),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn records_survive_the_pipe() {
        let failed = |step| Record::Failed { step, errno: libc::ENOENT };
        for record in [
            Record::Pid { payload: 7, leader: 6 },
            failed(Step::Fork),
            failed(Step::Session),
            failed(Step::Folder),
            failed(Step::Exec),
        ] {
            assert_eq!(Record::from_bytes(record.to_bytes()), record);
        }
    }
}
