//! The API over a real Unix socket, against a supervisor that speaks the real protocol.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    reason = "a test that fails panics"
)]

mod admission;
mod amend;
mod attach;
mod bodies;
mod checkpoints;
mod client;
mod errors;
mod fake;
mod follow;
mod jobs;
mod listing;
mod matrix;
mod process;
mod repeats;
mod restart;
mod sessions;

/// Runs a test's future on one thread, as the daemon does, with a bound on its time.
pub(crate) fn run(test: impl Future<Output = ()>) {
    tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap().block_on(async {
        let bounded = tokio::time::timeout(std::time::Duration::from_secs(60), test);
        bounded.await.expect("the test hangs");
    });
}
