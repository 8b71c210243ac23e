//! Pid 1 of a cage.
//!
//! It takes orders from the broker on one socket, keeps the **zygote** (which stands behind the
//! walls and forks every payload's leader), opens terminals, reaps, and reports. It stands outside
//! the payloads' Landlock domain, so that they cannot signal it, and is not dumpable, so that they
//! cannot look into it. It deliberately knows no policy: what the walls are comes as a `Program`.
//!
//! ```text
//! order socket ─ pid 1 ──── zygote ──┬─ leader ─ payload
//!                  ▲  socket pair    ├─ leader ─ payload
//!                  └─ report pipes ──┘ forwarder
//! ```
//! A payload reports its own pid, or why exec(2) failed, on a close-on-exec pipe; its leader reports
//! the exit on the zygote's socket. If the leader is killed the payload falls to pid 1, which then
//! reports for it.

mod commands;
mod forward;
mod kill;
mod leader;
mod payload;
mod pid1;
mod processes;
mod report;
mod still;
mod terminal;
mod walls;
mod zygote;

pub use pid1::run;

/// The cage did not stand: no payload ran.
pub const EXIT_NO_CAGE: u8 = 125;
