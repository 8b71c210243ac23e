//! What carries the protocol: SEQPACKET sockets with descriptors, sealed memfds, pidfds.
//!
//! Knows nothing of what the packets say. Blocking by default; feature `tokio` adds
//! [`nonblocking::AsyncPackets`].

#[cfg(feature = "tokio")]
mod duplex;
pub mod failpoint;
pub mod memfd;
#[cfg(feature = "tokio")]
pub mod nonblocking;
pub mod owner;
pub mod packet;
pub mod peer;
pub mod pidfd;
#[expect(unsafe_code, reason = "system calls that nix does not wrap safely")]
mod sys;

#[cfg(feature = "tokio")]
pub use duplex::{Duplex, Outlet};
pub use packet::{LinkError, Listener, Packet, Packets};
pub use peer::Peer;
pub use pidfd::PidFd;
