//! The HTTP API: every route once, as in the table of `wire::api`.

pub mod attach;
mod audit;
mod cages;
pub mod caller;
mod checkpoints;
mod error;
mod events;
mod extract;
mod grants;
mod limits;
mod projects;
mod ptys;
mod resolve;
pub mod room;
mod runs;
mod screens;
mod sessions;
mod system;

use crate::app::App;
use axum::Router;
use axum::routing::{delete, get, post};
use std::sync::Arc;

type Shared = axum::extract::State<Arc<App>>;

/// All routes. Each request brings its [`caller::Caller`] as an extension.
pub fn router(app: Arc<App>) -> Router {
    let routes = Router::new()
        .route("/healthz", get(system::healthz))
        .route("/readyz", get(system::readyz))
        .route("/versions", get(system::versions))
        .route("/shutdown", post(system::shutdown))
        .route("/audit", get(audit::list))
        .route("/resolve", get(resolve::resolve))
        .route("/attach", get(attach::attach_any))
        .route("/projects", get(projects::list).post(projects::create))
        .route("/projects/{p}/sessions", post(sessions::create))
        .route("/sessions", get(sessions::list))
        .route("/sessions/{s}", get(sessions::get).merge(delete(sessions::delete)))
        .route("/sessions/{s}/pause", post(sessions::pause))
        .route("/sessions/{s}/resume", post(sessions::resume))
        .route("/sessions/{s}/checkpoints", get(checkpoints::list).post(checkpoints::take))
        .route("/sessions/{s}/checkpoints/{c}", get(checkpoints::get))
        .route("/sessions/{s}/checkpoints/{c}/diff", get(checkpoints::preview))
        .route("/sessions/{s}/checkpoints/{c}/rollback", post(checkpoints::rollback))
        .route("/sessions/{s}/diff", get(checkpoints::diff))
        .route("/sessions/{s}/apply", post(checkpoints::apply))
        .route("/sessions/{s}/discard", post(checkpoints::discard))
        .route("/sessions/{s}/jobs", post(runs::start))
        .route("/sessions/{s}/grants", post(grants::make))
        .route("/grants", get(grants::list))
        .route("/grants/{n}", delete(grants::revoke))
        .route("/sessions/{s}/runs", get(runs::list))
        .route("/sessions/{s}/runs/{r}", get(runs::get))
        .route("/sessions/{s}/runs/{r}/cancel", post(runs::cancel))
        .route("/sessions/{s}/cages", get(cages::list))
        .route("/sessions/{s}/cages/{g}", get(cages::get))
        .route("/sessions/{s}/cages/{g}/exec", post(cages::exec))
        .route("/sessions/{s}/cages/{g}/signal", post(cages::signal))
        .route("/sessions/{s}/cages/{g}/suspend", post(cages::suspend))
        .route("/sessions/{s}/cages/{g}/resume", post(cages::resume))
        .route("/sessions/{s}/cages/{g}/kill", post(cages::kill))
        .route("/sessions/{s}/cages/{g}/plan", get(cages::plan))
        .route("/sessions/{s}/cages/{g}/stats", get(limits::stats))
        .route("/sessions/{s}/cages/{g}/limits", get(limits::get).patch(limits::change))
        .route("/sessions/{s}/ptys", get(ptys::list))
        .route("/sessions/{s}/events", get(events::list))
        .route("/ptys/{t}", get(ptys::get))
        .route("/ptys/{t}/attach", get(attach::attach))
        .route("/ptys/{t}/input", post(ptys::input))
        .route("/ptys/{t}/type", post(screens::type_keys))
        .route("/ptys/{t}/screen", get(screens::screen))
        .route("/ptys/{t}/resize", post(ptys::resize))
        .route("/ptys/{t}/scrollback", get(ptys::scrollback))
        .route("/ptys/{t}/wait", post(ptys::wait));
    Router::new()
        .nest(wire::api::BASE, routes)
        .fallback(error::no_route)
        .method_not_allowed_fallback(error::wrong_method)
        .layer(axum::middleware::from_fn_with_state(Arc::clone(&app), caller::admit))
        // Behind the key of a grant, not behind who calls.
        .route("/api/v1/grants/{n}/jobs", post(grants::start))
        .method_not_allowed_fallback(error::wrong_method)
        .with_state(app)
}
