//! The machines of sessions and runs: pure tables, shown whole in `tests/golden/`.

pub mod run_state;
pub mod state;

use wire::ErrorCode;

/// The machine says no: the caller's fault, in words.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Denied {
    pub code: ErrorCode,
    pub why: &'static str,
}

impl Denied {
    pub(crate) const fn new(code: ErrorCode, why: &'static str) -> Self {
        Self { code, why }
    }
}

impl From<Denied> for wire::WireError {
    fn from(denied: Denied) -> Self {
        Self::new(denied.code, denied.why)
    }
}

#[cfg(test)]
mod golden;
