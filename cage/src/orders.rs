//! What the broker tells the cage's pid 1, and what comes back: one JSON message a packet on the
//! inherited order socket.
//!
//! ```text
//! broker → init   program {…} + [seccomp filter]      walls, forwarders
//! init → broker   attested {…}                        the zygote stands behind its walls
//! broker → init   go                                  (or EOF: exit 125, nothing ran)
//! broker → init   exec {…} + [stdin, stdout, stderr]  pipes only
//! init → broker   started {…} + [pty master]          terminal only
//!                 or exec_failed {…}
//! init → broker   exited {…}
//! broker → init   signal {…}
//! broker → init   suspend {…}
//! init → broker   stilled + [what stands how]
//! broker → init   resume
//! init → broker   resumed
//! ```
//! The end of the order socket ends the cage.

use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::os::fd::OwnedFd;
use wire::{Arg, Size};

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Order {
    /// First, once. Beside it, if `seccomp`: a memfd with the filter as `struct sock_filter`s.
    Program(Program),
    /// The attestation matched.
    Go,
    /// One command. `id` is the caller's and comes back in every report about it.
    Exec { id: u64, argv: Vec<Arg>, env: Vec<(Arg, Arg)>, cwd: Arg, umask: u32, tty: Option<Size> },
    /// From pid 1, which stands outside the payloads' Landlock domain.
    Signal { target: Target, signal: i32 },
    /// Parents by SIGSTOP, then leaves by SIGTSTP with `grace_ms` to obey; with `all`, SIGSTOP for
    /// whatever then still runs. Answered by `stilled`.
    Suspend { grace_ms: u64, all: bool },
    /// What `suspend` stopped goes on. Answered by `resumed`.
    Resume,
    /// The order itself, as JSON, is in the first descriptor beside this packet; its own descriptors
    /// follow. For orders larger than a packet: see [`pack_order`].
    InMemfd,
}

/// Largest order in a memfd. The kernel takes 2 MiB of arguments and environment by default, and JSON
/// may need several bytes for one.
pub const ORDER_BYTES_MAX: usize = 16 << 20;

/// The bytes of a packet for this order and, if they did not fit, the memfd that goes first beside it.
///
/// # Errors
/// No memfd can be made.
pub fn pack_order(order: &Order) -> std::io::Result<(Vec<u8>, Option<OwnedFd>)> {
    let bytes = serde_json::to_vec(order)?;
    if bytes.len() <= link::packet::PACKET_BYTES_MAX {
        return Ok((bytes, None));
    }
    Ok((serde_json::to_vec(&Order::InMemfd)?, Some(link::memfd::sealed("mews-order", &bytes)?)))
}

/// The other side of [`pack_order`]: the order and its own descriptors.
///
/// # Errors
/// Not an order, or its memfd is missing or too large.
pub fn open_order(packet: link::Packet) -> std::io::Result<(Order, Vec<OwnedFd>)> {
    let mut fds = packet.fds;
    let mut order = serde_json::from_slice(&packet.bytes)?;
    if order == Order::InMemfd && !fds.is_empty() {
        let bytes = link::memfd::read(fds.remove(0), ORDER_BYTES_MAX)?;
        order = serde_json::from_slice(&bytes)?;
    }
    Ok((order, fds))
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Target {
    /// The payload of this command itself.
    Payload(u64),
    /// Its process group.
    Group(u64),
    /// Every process in the cage but pid 1, the zygote, leaders and forwarders.
    Everything,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Report {
    Attested(Attestation),
    /// A wall could not be put up; the cage ends with status 125.
    Failed {
        wall: String,
        message: String,
    },
    /// The payload was exec'ed. `pid` in the cage's numbering. Beside it for a terminal: the master.
    Started {
        id: u64,
        pid: i32,
    },
    /// exec(2) (or chdir(2) to `cwd`) failed; no `exited` follows. `what` names the file.
    ExecFailed {
        id: u64,
        errno: i32,
        what: String,
    },
    Exited(ExecExit),
    /// Beside it a memfd: JSON array of [`wire::Stilled`].
    Stilled,
    Resumed,
    /// The zygote was killed; pid 1 made and attested a new one.
    ZygoteReplaced(Attestation),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ExecExit {
    pub id: u64,
    pub code: Option<u8>,
    pub signal: Option<u8>,
    pub core: bool,
    pub user_us: u64,
    pub system_us: u64,
    pub max_rss_kib: u64,
}

/// The inner walls. Compiled outside; pid 1 has no TOML and no compiler.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Program {
    pub rlimits: Vec<Rlimit>,
    pub landlock: Option<LandlockProgram>,
    /// A filter comes beside the packet.
    pub seccomp: bool,
    /// Ready before the first payload.
    pub forwarders: Vec<Forwarder>,
}

/// setrlimit(2). `resource` is the kernel's number; `u64::MAX` is no limit.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Rlimit {
    pub resource: u32,
    pub soft: u64,
    pub hard: u64,
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct LandlockProgram {
    /// The ABI of the running kernel that the supervisor measured: all its rights are handled.
    pub abi: u32,
    /// A wall that does not go up ends the cage; otherwise it is reported as absent.
    pub required: bool,
    /// Paths as seen inside. A path that is not there is an error.
    pub rules: Vec<LandlockRule>,
    /// TCP ports that may be connected to; all others are denied where the ABI knows TCP (4).
    /// Absent: TCP is not handled (the network namespace has only loopback).
    pub connect_ports: Option<Vec<u16>>,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct LandlockRule {
    pub path: String,
    pub access: Access,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Access {
    /// List folders. Files stay closed.
    List,
    /// Read files, list folders.
    Read,
    /// And execute.
    ReadExecute,
    /// All but making devices.
    Write,
    /// Read and write what is there, and ioctl: `/dev/null`, `/dev/pts`, …
    Device,
}

/// A loopback listener inside, each connection carried to a Unix socket bound into the cage.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Forwarder {
    pub listen: SocketAddr,
    /// As seen inside.
    pub connect: String,
}

/// The zygote's own word about its walls, read from `/proc/self` after the last one.
/// The supervisor compares it with the plan before it says go.
#[expect(clippy::struct_excessive_bools, reason = "each is one fact, compared one by one")]
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Attestation {
    pub uid: u32,
    pub gid: u32,
    pub groups: Vec<u32>,
    /// `/proc/self/status`: 0 none, 2 filter.
    pub seccomp: u32,
    pub seccomp_filters: u32,
    pub no_new_privs: bool,
    /// The five sets as one: any bit in inheritable, permitted, effective, bounding or ambient.
    pub capabilities: u64,
    /// 0: no Landlock domain.
    pub landlock_abi: u32,
    /// Whether every right that the program asked for is enforced.
    pub landlock_full: bool,
    /// Whether a forbidden act really failed: making a device, which no rule grants.
    pub landlock_probed: bool,
    /// Inode of each namespace: `user`, `mnt`, `pid`, `net`, `ipc`, `uts`, `cgroup`.
    pub namespaces: BTreeMap<String, u64>,
    /// Open descriptors of the zygote, by number.
    pub fds: Vec<i32>,
    pub rlimits: Vec<Rlimit>,
    /// PR_GET_DUMPABLE of pid 1 and of the zygote; both must be 0.
    pub init_dumpable: bool,
    pub zygote_dumpable: bool,
}
