//! Every route once: the router and its description are both made from this table.

use super::describe::{Described, Operation};
use super::repeats::{self, Again};
use super::{
    attach, audit, cages, caller, checkpoints, document, error, events, follow, grants, limits,
    projects, ptys, resolve, runs, screens, sessions, system,
};
use crate::app::App;
use axum::Router;
use axum::handler::Handler;
use axum::middleware::from_fn_with_state;
use axum::routing::{MethodFilter, MethodRouter, on};
use schemars::SchemaGenerator;
use std::sync::Arc;

/// Whom a route answers. What it answers them is decided by [`crate::access`], object by object.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Who {
    /// Everybody who is served here, about what is theirs.
    Operator,
    /// Whose object it is, and admins; it is there for nobody else.
    Object,
    /// Only whose object it is; admins see it, and are refused.
    Owner,
    /// Whoever has a grant's key, let in or not.
    Keyed,
}

impl Who {
    pub(super) fn word(self) -> &'static str {
        match self {
            Self::Operator => "operator",
            Self::Object => "object",
            Self::Owner => "owner",
            Self::Keyed => "key",
        }
    }
}

pub(super) struct Route {
    pub(super) method: &'static str,
    pub(super) path: &'static str,
    pub(super) who: Who,
    pub(super) again: Again,
    pub(super) summary: &'static str,
    /// The handler's place, for a name.
    pub(super) name: &'static str,
    pub(super) describe: fn(&mut Operation, &mut SchemaGenerator),
    /// What the signature does not say: status, words, kind.
    pub(super) gives: Vec<(u16, &'static str, Option<&'static str>)>,
    handler: MethodRouter<Arc<App>>,
}

impl Route {
    fn gives(mut self, status: u16, words: &'static str, kind: Option<&'static str>) -> Self {
        self.gives.push((status, words, kind));
        self
    }
}

/// All routes. Each request brings its [`caller::Caller`] as an extension.
pub fn router(app: Arc<App>) -> Router {
    let (mut inside, mut keyed) = (Router::new(), Router::new());
    for route in table() {
        let handler = match route.again {
            Again::Never | Again::Made => route.handler,
            Again::Same | Again::Once | Again::Bytes => {
                let state = (Arc::clone(&app), route.again);
                route.handler.layer(from_fn_with_state(state, repeats::once))
            }
        };
        let router = if route.who == Who::Keyed { &mut keyed } else { &mut inside };
        *router = std::mem::take(router).route(route.path, handler);
    }
    Router::new()
        .nest(wire::api::BASE, inside)
        .fallback(error::no_route)
        .method_not_allowed_fallback(error::wrong_method)
        .layer(from_fn_with_state(Arc::clone(&app), caller::admit))
        // Behind the key of a grant, not behind who calls.
        .nest(wire::api::BASE, keyed)
        .method_not_allowed_fallback(error::wrong_method)
        .with_state(app)
}

const VIEWER: &str = "The connection is the viewer stream `mews.v1.viewer`.";

#[expect(clippy::too_many_lines, reason = "a table")]
pub(super) fn table() -> Vec<Route> {
    use Again::{Bytes, Made, Never, Once, Same};
    use Who::{Keyed, Object, Operator, Owner};
    vec![
        get("/healthz", Operator, "The process answers", system::healthz),
        get("/readyz", Operator, "Whether all is there; 503 where not", system::readyz).gives(
            503,
            "Something is missing.",
            None,
        ),
        get(
            "/versions",
            Operator,
            "Builds, protocol, processes; cages of other builds",
            system::versions,
        ),
        get("/openapi.json", Operator, "This description", document::get).gives(
            200,
            "OpenAPI 3.1.",
            Some("application/json"),
        ),
        post(
            "/shutdown",
            Operator,
            Never,
            "Stop the daemons; only root those of many",
            system::shutdown,
        ),
        get("/audit", Operator, "Who asked for what: one's own, an admin's all", audit::list),
        get("/resolve", Object, "What a name or a part of an id means", resolve::resolve),
        get(
            "/attach",
            Object,
            "Attach to whatever a name or a part of an id means",
            attach::attach_any,
        )
        .gives(101, VIEWER, None),
        get("/projects", Operator, "One's own projects", projects::list),
        post(
            "/projects",
            Operator,
            Same,
            "The project of a folder, made on first use",
            projects::create,
        ),
        post("/projects/{p}/sessions", Owner, Made, "Make a session", sessions::create),
        post("/plan", Operator, Never, "What a run would be; nothing is made", runs::plan).gives(
            200,
            "The plan, what would be enforced here, and who said each value.",
            Some("application/json"),
        ),
        get("/sessions", Operator, "Sessions, oldest first, a page at a time", sessions::list),
        get("/sessions/{s}", Object, "A session with runs, cages and terminals", sessions::get),
        patch("/sessions/{s}", Object, "Rename, label, archive", sessions::amend),
        delete(
            "/sessions/{s}",
            Object,
            "End a session; with `purge` remove an ended one",
            sessions::delete,
        )
        .gives(200, "The session, when nothing of it is left.", Some("application/json"))
        .gives(204, "It is removed.", None),
        post(
            "/sessions/{s}/pause",
            Object,
            Same,
            "All its cages stand still, or none",
            sessions::pause,
        ),
        post("/sessions/{s}/resume", Object, Once, "All its cages go on", sessions::resume),
        get(
            "/sessions/{s}/checkpoints",
            Object,
            "Its checkpoints, oldest first",
            checkpoints::list,
        ),
        post("/sessions/{s}/checkpoints", Object, Once, "Keep its state", checkpoints::take),
        get("/sessions/{s}/checkpoints/{c}", Object, "One checkpoint, whole", checkpoints::get),
        get(
            "/sessions/{s}/checkpoints/{c}/diff",
            Object,
            "What a rollback would do",
            checkpoints::preview,
        ),
        post(
            "/sessions/{s}/checkpoints/{c}/rollback",
            Object,
            Once,
            "Go back to it",
            checkpoints::rollback,
        ),
        get("/sessions/{s}/diff", Object, "The layer against the folder", checkpoints::diff),
        post("/sessions/{s}/apply", Object, Once, "Changes go to the folder", checkpoints::apply),
        post("/sessions/{s}/discard", Object, Once, "Changes are taken back", checkpoints::discard),
        post("/sessions/{s}/jobs", Owner, Made, "Start a run", runs::start),
        post("/sessions/{s}/grants", Owner, Made, "Let whoever has a key start runs", grants::make),
        get("/grants", Operator, "One's own grants, an admin's all", grants::list),
        delete("/grants/{n}", Object, "Revoke a grant", grants::revoke),
        post("/grants/{n}/jobs", Keyed, Made, "Start a run by a grant", grants::start),
        get("/sessions/{s}/runs", Object, "Its runs", runs::list),
        get("/sessions/{s}/runs/{r}", Object, "One run", runs::get),
        post("/sessions/{s}/runs/{r}/cancel", Object, Once, "End a run's cages", runs::cancel),
        get("/sessions/{s}/cages", Object, "Its cages", cages::list),
        get("/sessions/{s}/cages/{g}", Object, "One cage, with its walls", cages::get),
        post("/sessions/{s}/cages/{g}/exec", Object, Made, "One more command", cages::exec),
        post(
            "/sessions/{s}/cages/{g}/signal",
            Object,
            Once,
            "Signal it or a command",
            cages::signal,
        ),
        post("/sessions/{s}/cages/{g}/suspend", Object, Same, "It stands still", cages::suspend),
        post("/sessions/{s}/cages/{g}/resume", Object, Same, "It goes on", cages::resume),
        post("/sessions/{s}/cages/{g}/kill", Object, Same, "Kill it", cages::kill),
        get("/sessions/{s}/cages/{g}/plan", Object, "All that it was built from", cages::plan)
            .gives(200, "The plan.", Some("application/json")),
        get("/sessions/{s}/cages/{g}/stats", Object, "What it uses now", limits::stats),
        get("/sessions/{s}/cages/{g}/limits", Object, "Its limits", limits::get),
        patch("/sessions/{s}/cages/{g}/limits", Object, "Change its limits", limits::change),
        get("/sessions/{s}/ptys", Object, "Its terminals and pipe streams", ptys::list),
        get("/sessions/{s}/events", Object, "Events after a number", events::list),
        get("/sessions/{s}/events/stream", Object, "Events as they come", follow::stream).gives(
            200,
            "Server-sent events; ids are sequences.",
            Some("text/event-stream"),
        ),
        get("/ptys/{t}", Object, "One terminal", ptys::get),
        get("/ptys/{t}/attach", Object, "Attach to it", attach::attach).gives(101, VIEWER, None),
        post("/ptys/{t}/input", Object, Bytes, "Type into it", ptys::input),
        post("/ptys/{t}/type", Object, Once, "Type text and keys by name", screens::type_keys),
        get("/ptys/{t}/screen", Object, "What is on it", screens::screen),
        post("/ptys/{t}/resize", Object, Same, "Give it a size", ptys::resize),
        get("/ptys/{t}/scrollback", Object, "What it has printed", ptys::scrollback).gives(
            200,
            "Its bytes.",
            Some("application/octet-stream"),
        ),
        post(
            "/ptys/{t}/wait",
            Object,
            Never,
            "Wait for its end, or for something on it",
            ptys::wait,
        ),
    ]
}

fn get<H, T, D>(path: &'static str, who: Who, summary: &'static str, handler: H) -> Route
where
    H: Handler<T, Arc<App>> + Described<D>,
    T: 'static,
{
    route(("GET", MethodFilter::GET), (path, who, Again::Never), summary, handler)
}

/// Whoever adds one says what becomes of it when it is sent twice.
fn post<H, T, D>(
    path: &'static str,
    who: Who,
    again: Again,
    summary: &'static str,
    handler: H,
) -> Route
where
    H: Handler<T, Arc<App>> + Described<D>,
    T: 'static,
{
    route(("POST", MethodFilter::POST), (path, who, again), summary, handler)
}

fn patch<H, T, D>(path: &'static str, who: Who, summary: &'static str, handler: H) -> Route
where
    H: Handler<T, Arc<App>> + Described<D>,
    T: 'static,
{
    route(("PATCH", MethodFilter::PATCH), (path, who, Again::Never), summary, handler)
}

fn delete<H, T, D>(path: &'static str, who: Who, summary: &'static str, handler: H) -> Route
where
    H: Handler<T, Arc<App>> + Described<D>,
    T: 'static,
{
    route(("DELETE", MethodFilter::DELETE), (path, who, Again::Never), summary, handler)
}

fn route<H, T, D>(
    (method, filter): (&'static str, MethodFilter),
    (path, who, again): (&'static str, Who, Again),
    summary: &'static str,
    handler: H,
) -> Route
where
    H: Handler<T, Arc<App>> + Described<D>,
    T: 'static,
{
    Route {
        method,
        path,
        who,
        again,
        summary,
        name: std::any::type_name::<H>(),
        describe: H::describe,
        gives: Vec::new(),
        handler: on(filter, handler),
    }
}
