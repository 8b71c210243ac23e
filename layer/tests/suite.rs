//! Orders carried out on real trees, among them those that the kernel's overlay leaves.
//!
//! Where no overlay can be mounted (neither as root nor in a user namespace), the tests that need one
//! say so and pass.

#![expect(
    clippy::unwrap_used,
    clippy::panic,
    clippy::print_stderr,
    clippy::wildcard_enum_match_arm,
    reason = "a test says what it expects by failing"
)]

#[path = "suite/copy.rs"]
mod copy;
#[path = "suite/hostile.rs"]
mod hostile;
#[path = "suite/kit.rs"]
mod kit;
#[path = "suite/overlay.rs"]
mod overlay;
#[path = "suite/program.rs"]
mod program;
#[path = "suite/random.rs"]
mod random;
