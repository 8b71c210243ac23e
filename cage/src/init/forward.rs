//! Loopback listeners inside, each connection carried to a Unix socket bound into the cage.

use crate::orders::Forwarder;
use std::io;

/// Listens everywhere, then forks one process that carries. Returns its pid, if there is one.
pub(crate) fn start(_forwarders: &[Forwarder]) -> io::Result<Vec<i32>> {
    Ok(Vec::new())
}
