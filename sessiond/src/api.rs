//! The HTTP API: the table of [`routes`] is all of it, and `docs/openapi.json` describes it.

pub mod attach;
mod audit;
mod cages;
pub mod caller;
mod checkpoints;
mod describe;
pub mod document;
mod error;
mod events;
mod extract;
mod follow;
mod grants;
mod limits;
mod listing;
mod projects;
mod ptys;
mod repeats;
mod resolve;
pub mod room;
mod routes;
mod runs;
mod screens;
mod sessions;
mod system;

use crate::app::App;
use std::sync::Arc;

pub use routes::router;

type Shared = axum::extract::State<Arc<App>>;
