//! What integration tests stand on: a sandbox of folders and cgroups for one test, the programs, a
//! terminal with a screen, and the search for anything that a test left behind.
//!
//! Nothing here knows how mews works inside: it is driven by its command line and looked at through
//! `/proc`, its files and its API.
#![forbid(unsafe_code)]

pub mod api;
pub mod caller;
pub mod leftovers;
pub mod pace;
pub mod pause;
pub mod process;
pub mod programs;
pub mod sandbox;
pub mod skip;
pub mod terminal;

pub use caller::Caller;
pub use process::Finished;
pub use sandbox::{Act, Sandbox};
pub use skip::Skip;
pub use terminal::Terminal;
