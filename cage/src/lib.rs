//! cage
#[cfg(feature = "policy")]
pub mod cgroup;
pub mod launch;
pub mod orders;
