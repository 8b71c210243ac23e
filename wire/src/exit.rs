//! How a payload, and with it a cage, came to its end.

use serde::{Deserialize, Serialize};

/// Why it ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
pub enum Cause {
    /// By itself, with a status.
    Exited,
    /// By a signal that no part of mews sent.
    Signaled,
    Walltime,
    Idle,
    Oom,
    /// Another limit: output bytes, pids where the policy says so.
    Limit,
    /// An operator asked for it.
    Cancelled,
    Budget,
    /// The cage could not be built; nothing ran.
    CageSetup,
    PolicyDenied,
    ProviderUnreachable,
    /// The broker died and its cage with it.
    BrokerLost,
    /// The cage is gone and nobody kept its status.
    StatusLost,
    DaemonCrash,
    NoProgress,
    /// One that a newer build tells.
    #[serde(other)]
    Unknown,
}

impl Cause {
    /// The word used in JSON, events and the status file.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Exited => "exited",
            Self::Signaled => "signaled",
            Self::Walltime => "walltime",
            Self::Idle => "idle",
            Self::Oom => "oom",
            Self::Limit => "limit",
            Self::Cancelled => "cancelled",
            Self::Budget => "budget",
            Self::CageSetup => "cage_setup",
            Self::PolicyDenied => "policy_denied",
            Self::ProviderUnreachable => "provider_unreachable",
            Self::BrokerLost => "broker_lost",
            Self::StatusLost => "status_lost",
            Self::DaemonCrash => "daemon_crash",
            Self::NoProgress => "no_progress",
            Self::Unknown => "unknown",
        }
    }
}

/// What it used, as far as it is known.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(default)]
pub struct Usage {
    pub wall_ms: u64,
    pub user_us: u64,
    pub system_us: u64,
    /// Largest resident set of one process, KiB.
    pub max_rss_kib: u64,
    /// Peak of the whole cage's memory, bytes, where a cgroup counted it.
    pub memory_peak_bytes: Option<u64>,
    /// Of the whole cage so far, microseconds, where a cgroup counted it.
    pub cpu_us: Option<u64>,
    /// Most processes and threads at once, where a cgroup counted them (v2).
    pub pids_peak: Option<u64>,
    /// Of the whole cage so far, bytes, where a cgroup counted them.
    pub read_bytes: Option<u64>,
    pub write_bytes: Option<u64>,
    /// Bytes written to the terminal or to the pipes.
    pub output_bytes: u64,
}

/// The end of a payload. Exactly one of `code` and `signal` says how the process itself ended.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Exit {
    /// Its status, 0 to 255; absent if a signal ended it.
    pub code: Option<u8>,
    pub signal: Option<u8>,
    pub core: bool,
    pub cause: Cause,
    /// For people, where there is more to say: the program that was not found, the wall that failed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub message: Option<String>,
    #[serde(default)]
    pub usage: Usage,
}

impl Exit {
    /// A payload that never started, with the status that a shell would give.
    #[must_use]
    pub fn not_started(code: u8, cause: Cause, message: String) -> Self {
        Self {
            code: Some(code),
            signal: None,
            core: false,
            cause,
            message: Some(message),
            usage: Usage::default(),
        }
    }

    /// The exit status of `mews run`, `exec` and `attach`.
    #[must_use]
    pub fn status(&self) -> u8 {
        match self.cause {
            Cause::Walltime | Cause::Idle => 124,
            Cause::Oom => 137,
            Cause::CageSetup
            | Cause::PolicyDenied
            | Cause::ProviderUnreachable
            | Cause::BrokerLost
            | Cause::StatusLost
            | Cause::DaemonCrash => 125,
            Cause::Exited
            | Cause::Signaled
            | Cause::Limit
            | Cause::Cancelled
            | Cause::Budget
            | Cause::NoProgress
            | Cause::Unknown => match (self.code, self.signal) {
                (Some(code), _) => code,
                (None, Some(signal)) => 128_u8.saturating_add(signal),
                (None, None) => 125,
            },
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn status_follows_the_table_of_exit_codes() {
        let exit = |code, signal, cause| Exit {
            code,
            signal,
            core: false,
            cause,
            message: None,
            usage: Usage::default(),
        };
        for (exit, want) in [
            (exit(Some(7), None, Cause::Exited), 7),
            (exit(None, Some(15), Cause::Signaled), 143),
            (exit(None, Some(9), Cause::Walltime), 124),
            (exit(None, Some(9), Cause::Oom), 137),
            (exit(None, Some(2), Cause::Cancelled), 130),
            (exit(Some(125), None, Cause::CageSetup), 125),
            (exit(None, None, Cause::StatusLost), 125),
        ] {
            assert_eq!(exit.status(), want, "{exit:?}");
        }
    }
}
