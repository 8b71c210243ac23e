//! cage
#[cfg(feature = "policy")]
pub mod bwrap;
#[cfg(feature = "policy")]
pub mod cgroup;
#[cfg(feature = "policy")]
pub mod devpts;
#[cfg(feature = "policy")]
pub mod enforced;
#[cfg(feature = "policy")]
pub mod glob;
#[cfg(feature = "policy")]
pub mod hash;
#[cfg(feature = "policy")]
pub mod host_policy;
pub mod launch;
pub mod orders;
#[cfg(feature = "policy")]
pub mod plan;
#[cfg(feature = "policy")]
pub mod policy;
#[cfg(feature = "policy")]
pub mod probe;
#[cfg(feature = "policy")]
pub mod seccomp;
#[cfg(feature = "policy")]
pub mod spawnenv;

#[cfg(feature = "init")]
mod attest;
#[cfg(feature = "init")]
pub mod init;
#[cfg(feature = "init")]
mod landlock;
#[expect(unsafe_code, reason = "system calls that nix does not wrap safely")]
mod sys;
