//! The inner walls, each with its reason for standing where it stands.
//!
//! 1. rlimits — NPROC here counts per cage (user namespace); set outside it would break bwrap.
//! 2. capabilities, all five sets — while prctl(2) may still drop the bounding set.
//! 3. no_new_privs — both following walls demand it.
//! 4. Landlock — needs to open the rules' paths, so it comes before the filter.
//! 5. seccomp — last: nothing above needs to be on the allow list.
//!
//! The attestation is read from descriptors of /proc that were opened before 4, since the rules need
//! not grant /proc, and is complete only after 5.

use crate::attest::{self, Witness};
use crate::landlock;
use crate::orders::{Attestation, Program};
use crate::sys::inside as sys;
use caps::CapSet;

#[derive(Debug, thiserror::Error)]
#[error("{wall}: {message}")]
pub(crate) struct WallError {
    pub(crate) wall: &'static str,
    pub(crate) message: String,
}

fn failed(wall: &'static str) -> impl Fn(&dyn std::fmt::Display) -> WallError {
    move |error| WallError { wall, message: error.to_string() }
}

/// Puts the walls up around the calling process, which must have one thread.
pub(crate) fn raise(program: &Program, filter: Option<&[u8]>) -> Result<Attestation, WallError> {
    for limit in &program.rlimits {
        let wanted = Some((limit.soft, limit.hard));
        sys::rlimit(limit.resource, wanted).map_err(|e| WallError {
            wall: "rlimits",
            message: format!("limit {} cannot be set: {e}", limit.resource),
        })?;
    }
    drop_capabilities();
    nix::sys::prctl::set_no_new_privs().map_err(|e| failed("no_new_privs")(&e))?;
    let witness = Witness::new().map_err(|e| failed("attestation")(&e))?;
    let domain = match &program.landlock {
        Some(rules) => landlock::restrict(rules, &program.forwarders)
            .map_err(|e| failed("landlock")(&chain(&e)))?,
        None => landlock::Domain::default(),
    };
    let probed = attest::probe(domain);
    if let Some(filter) = filter {
        sys::load_filter(filter).map_err(|e| failed("seccomp")(&e))?;
    }
    let attestation =
        witness.attest(&program.rlimits, domain, probed).map_err(|e| failed("attestation")(&e))?;
    if attestation.capabilities != 0 {
        let message = format!("{:#x} remain", attestation.capabilities);
        return Err(WallError { wall: "capabilities", message });
    }
    Ok(attestation)
}

/// Whatever is still held. That nothing remains is checked afterwards, from /proc.
fn drop_capabilities() {
    // The bounding set first: dropping from it needs CAP_SETPCAP, which goes with the others.
    for set in [CapSet::Bounding, CapSet::Ambient, CapSet::Effective, CapSet::Permitted] {
        caps::clear(None, set).ok();
    }
    caps::clear(None, CapSet::Inheritable).ok();
}

/// An error and its sources in one line: the crates of others keep the cause in `source`.
fn chain(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut source = error.source();
    while let Some(cause) = source {
        let cause_text = cause.to_string();
        if !text.contains(&cause_text) {
            text.push_str(": ");
            text.push_str(&cause_text);
        }
        source = cause.source();
    }
    text
}
