//! Every route of the API as its owner, as another operator, as an admin, and as somebody who is not
//! let in.

use super::people::{Person, host, need_accounts};
use crate::talk::text;
use anyhow::{Context as _, ensure};
use serde_json::Value;
use std::path::Path;
use testkit::process::{self, LIMIT};
use testkit::{Finished, Sandbox};

/// `{s}`, `{r}`, `{g}`, `{t}`, `{c}`, `{p}`, `{n}`: the owner's session, run, cage, terminal, checkpoint,
/// project, grant. What ends
/// things stands last.
const OBJECTS: &[(&str, &str, &str)] = &[
    ("GET", "/sessions/{s}", ""),
    ("PATCH", "/sessions/{s}", r#"{"labels":{"team":"blue"}}"#),
    ("GET", "/sessions/{s}/runs", ""),
    ("GET", "/sessions/{s}/runs/{r}", ""),
    ("GET", "/sessions/{s}/cages", ""),
    ("GET", "/sessions/{s}/cages/{g}", ""),
    ("GET", "/sessions/{s}/cages/{g}/plan", ""),
    ("GET", "/sessions/{s}/cages/{g}/stats", ""),
    ("GET", "/sessions/{s}/cages/{g}/limits", ""),
    ("PATCH", "/sessions/{s}/cages/{g}/limits", r#"{"walltime":"1h"}"#),
    ("GET", "/sessions/{s}/checkpoints", ""),
    ("GET", "/sessions/{s}/checkpoints/{c}", ""),
    ("GET", "/sessions/{s}/checkpoints/{c}/diff", ""),
    ("GET", "/sessions/{s}/diff", ""),
    ("POST", "/sessions/{s}/apply", "{}"),
    ("POST", "/sessions/{s}/discard", "{}"),
    ("POST", "/sessions/{s}/checkpoints", r#"{"resume":true}"#),
    ("POST", "/sessions/{s}/checkpoints/{c}/rollback", "{}"),
    ("GET", "/sessions/{s}/ptys", ""),
    ("GET", "/sessions/{s}/events", ""),
    ("GET", "/sessions/{s}/events/stream", ""),
    ("GET", "/ptys/{t}", ""),
    ("GET", "/ptys/{t}/scrollback", ""),
    ("GET", "/resolve?id={s}", ""),
    ("GET", "/resolve?id=the-name", ""),
    ("GET", "/attach?id={t}", ""),
    ("GET", "/ptys/{t}/attach", ""),
    ("POST", "/ptys/{t}/wait?timeout_ms=1", "{}"),
    ("POST", "/ptys/{t}/wait?idle_ms=1&timeout_ms=1", "{}"),
    ("GET", "/ptys/{t}/screen", ""),
    ("POST", "/ptys/{t}/type", r#"{"pieces":[{"text":"x"},{"key":"enter"}]}"#),
    ("POST", "/ptys/{t}/resize", r#"{"cols":80,"rows":24}"#),
    ("POST", "/ptys/{t}/input", "x"),
    ("POST", "/sessions/{s}/cages/{g}/signal", r#"{"signal":18}"#),
    ("POST", "/sessions/{s}/cages/{g}/exec", r#"{"argv":["true"]}"#),
    ("POST", "/sessions/{s}/cages/{g}/suspend", "{}"),
    ("POST", "/sessions/{s}/cages/{g}/resume", "{}"),
    ("POST", "/sessions/{s}/pause", "{}"),
    ("POST", "/sessions/{s}/resume", "{}"),
    ("DELETE", "/grants/{n}", ""),
    ("POST", "/sessions/{s}/runs/{r}/cancel", "{}"),
    ("POST", "/sessions/{s}/cages/{g}/kill", "{}"),
    ("DELETE", "/sessions/{s}?confirm=true", ""),
    ("DELETE", "/sessions/{s}?confirm=true&purge=true", ""),
];

/// Only the owner starts something in a session or project, or lets others do so.
const OWN: [(&str, &str, &str); 3] = [
    ("POST", "/projects/{p}/sessions", "{}"),
    ("POST", "/sessions/{s}/grants", r#"{"cages":1,"for_ms":60000,"policy":{"name":"shell"}}"#),
    (
        "POST",
        "/sessions/{s}/jobs",
        r#"{"kind":"job","policy":{"name":"shell"},"exec":{"argv":["true"]}}"#,
    ),
];

struct Objects {
    places: [(&'static str, String); 7],
}

impl Objects {
    fn in_path(&self, path: &str) -> String {
        self.places.iter().fold(path.to_owned(), |path, (key, id)| path.replace(key, id))
    }
}

pub(in crate::suite) fn every_route(sandbox: &Sandbox) -> anyhow::Result<()> {
    need_accounts()?;
    let known = described()?;
    for (method, path) in &known {
        let shape = |path: &str| path.split('?').next().unwrap_or_default().to_owned();
        let tried = OBJECTS.iter().chain(&OWN).any(|(m, p, _)| m == method && shape(p) == *path);
        ensure!(tried || OPEN.contains(&path.as_str()), "no row for {method} {path}");
    }
    let people = [(); 4].map(|()| Person::make(sandbox, &[]));
    let [ann, bob, boss, eve] = people;
    let (ann, bob, boss, eve) = (ann?, bob?, boss?, eve?);
    let policy = format!("{}[admins]\nusers = [{:?}]\n", super::allow(&[&ann, &bob]), boss.name);
    let ask = Asker::new(sandbox)?;
    host(sandbox, &policy, || {
        let objects = start(&ann, &ask)?;
        for (method, path, body) in OBJECTS.iter().chain(&OWN) {
            let path = objects.in_path(path);
            let (status, answer) = ask.ask(&bob, method, &path, body)?;
            ensure!(status == 404, "another operator: {method} {path}: {status} {answer}");
            let told = answer.to_string();
            ensure!(!told.contains(&ann.name) && !told.contains("the-name'; "), "{told}");
            let (status, answer) = ask.ask(&eve, method, &path, body)?;
            ensure!(status == 403, "a stranger: {method} {path}: {status} {answer}");
        }
        for person in [&ann, &boss] {
            let objects = start(&ann, &ask)?;
            for (method, path, body) in OBJECTS {
                let path = objects.in_path(path);
                let (status, answer) = ask.ask(person, method, &path, body)?;
                // Whom it is shown to may be told that the moment is wrong, or that it is no upgrade.
                let shown = status != 404 && status != 403 && status < 500;
                ensure!(shown, "{}: {method} {path}: {status} {answer}", person.name);
            }
        }
        let objects = start(&ann, &ask)?;
        let [_session, rest @ ..] = OWN;
        for (method, path, body) in rest {
            let (status, answer) = ask.ask(&boss, method, &objects.in_path(path), body)?;
            ensure!(status == 403, "an admin in another's session: {path}: {status} {answer}");
        }
        // Lists hold what is one's own; an admin's all.
        for list in ["/sessions?all=true", "/grants", "/audit?limit=10000"] {
            for (person, holds) in [(&ann, true), (&bob, false), (&boss, true)] {
                let (_status, answer) = ask.ask(person, "GET", list, "")?;
                let found = answer.to_string().contains(&objects.in_path("{s}"));
                ensure!(found == holds, "{}: {answer}", person.name);
            }
        }
        // By a key alone, whoever has it: what is none opens nothing for anybody.
        for person in [&ann, &bob, &boss, &eve] {
            let key = format!("mews-grant.{}.{}", objects.in_path("{n}"), "0".repeat(64));
            let path = objects.in_path("/grants/{n}/jobs");
            for (key, wanted) in [(key.as_str(), 404), ("", 401)] {
                let body = r#"{"exec":{"argv":["true"]}}"#;
                let (status, answer) = ask.by_key(person, ("POST", &path), key, body)?;
                ensure!(status == wanted, "{}: {status} {answer}", person.name);
            }
        }
        let (_status, answer) = ask.ask(&bob, "GET", "/projects", "")?;
        ensure!(!answer.to_string().contains(&ann.name), "{answer}");
        Ok(())
    })
}

/// Routes without an object of anybody.
const OPEN: &[&str] = &[
    "/healthz",
    "/readyz",
    "/versions",
    "/openapi.json",
    "/shutdown",
    "/plan",
    "/projects",
    "/sessions",
    "/audit",
    "/grants",
    "/grants/{n}/jobs",
];

/// All that there is, so that a route that is added is tried: sessiond's tests see to it that the
/// description has them all.
fn described() -> anyhow::Result<Vec<(String, String)>> {
    const DOCUMENT: &str = include_str!("../../../../docs/openapi.json");
    let document: Value = serde_json::from_str(DOCUMENT)?;
    let paths = document.get("paths").and_then(Value::as_object).context("paths")?;
    let mut found = Vec::new();
    for (path, operations) in paths {
        let methods = operations.as_object().context("operations")?.keys();
        found.extend(methods.map(|method| (method.to_uppercase(), path.clone())));
    }
    ensure!(found.len() > 50, "only {} routes", found.len());
    Ok(found)
}

fn start(ann: &Person, ask: &Asker<'_>) -> anyhow::Result<Objects> {
    ann.mews(&["end", "the-name"])?;
    ann.mews(&["rm", "the-name"])?;
    let words = ["run", "--overlay", "-d", "--name", "the-name", "--", "sleep", "1000"];
    let started = ann.json(&words)?;
    let taken = ann.json(&["checkpoint", "the-name", "--resume"])?;
    let grant = ann.json(&["grants", "make", "--in", "the-name", "--cages", "1", "--for", "1h"])?;
    let session = text(&started, "/session")?;
    let (_status, view) = ask.ask(ann, "GET", &format!("/sessions/{session}"), "")?;
    let id = |at| text(&started, at);
    Ok(Objects {
        places: [
            ("{r}", id("/run")?),
            ("{g}", id("/cage")?),
            ("{t}", id("/pty")?),
            ("{p}", text(&view, "/project")?),
            ("{c}", text(&taken, "/id")?),
            ("{n}", text(&grant, "/grant/id")?),
            ("{s}", session),
        ],
    })
}

/// Requests as somebody: this program again, under their uid.
struct Asker<'a> {
    sandbox: &'a Sandbox,
    program: String,
}

impl<'a> Asker<'a> {
    fn new(sandbox: &'a Sandbox) -> anyhow::Result<Self> {
        let program = copy_of_this_program(sandbox)?;
        Ok(Self { sandbox, program })
    }

    fn ask(
        &self,
        person: &Person,
        method: &str,
        path: &str,
        body: &str,
    ) -> anyhow::Result<(u16, Value)> {
        self.by_key(person, (method, path), "", body)
    }

    fn by_key(
        &self,
        person: &Person,
        (method, path): (&str, &str),
        key: &str,
        body: &str,
    ) -> anyhow::Result<(u16, Value)> {
        let mut command = person.command(&self.program);
        let path = format!("{}{path}", wire::api::BASE);
        command.arg("ask").arg(self.sandbox.api_socket()).args([method, &path, body, key]);
        let told: Finished = process::run(&mut command, b"", LIMIT)?.expect(0)?;
        let told = told.out();
        let (status, body) = told.split_once('\n').context("a status line")?;
        Ok((status.parse()?, serde_json::from_str(body).unwrap_or_default()))
    }
}

/// Where every user may run it.
pub(in crate::suite) fn copy_of_this_program(sandbox: &Sandbox) -> anyhow::Result<String> {
    let path: std::path::PathBuf = sandbox.root().join("bin/mews-integration");
    std::fs::create_dir_all(path.parent().unwrap_or(Path::new("/")))?;
    std::fs::copy(std::env::current_exe()?, &path)?;
    Ok(path.to_string_lossy().into_owned())
}
