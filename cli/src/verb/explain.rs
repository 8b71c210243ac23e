//! What a cage would be: `policy explain` and `run --dry-run`. Daemons that are there are asked, as it is
//! they that would build it; where there are none, a supervisor that makes nothing and goes at once.

use crate::api::{Api, Repeat};
use crate::connect;
use crate::escape::escape;
use crate::failure::Failure;
use crate::oneshot::OneShot;
use crate::out::{self, Say};
use crate::place;
use crate::table::render;
use cage::plan::{CagePlan, Explained, Mount, MountKind};
use serde_json::Value;
use wire::WallState;
use wire::api::PlanRequest;

/// Longest hash that people compare.
const HASH_CHARS: usize = 12;

pub(super) async fn show(asked: PlanRequest, alone: bool, say: &Say) -> Result<(), Failure> {
    let found = plan(asked, alone).await?;
    if say.json {
        return out::json_line(&found);
    }
    let unread = |error| Failure::new(format!("the plan of another version of mews: {error}"));
    let explained: Explained = serde_json::from_value(found).map_err(unread)?;
    out::data(&page(&explained))
}

async fn plan(asked: PlanRequest, alone: bool) -> Result<Value, Failure> {
    let dirs = place::dirs();
    if !alone && (place::is_foreign(&dirs) || connect::connect(&dirs)?.is_some()) {
        return Api::without_start().post("/plan", &asked, Repeat::Safe).await;
    }
    let mut oneshot = OneShot::start()?;
    let answer = oneshot.dry_run(&asked.spec()).await;
    oneshot.finish().await;
    serde_json::from_slice(&answer?).map_err(|error| Failure::new(error.to_string()))
}

/// For people: head, walls, values, what is seen inside.
fn page(explained: &Explained) -> String {
    let Explained { plan_hash, enforced, values, plan } = explained;
    let hash: String = plan_hash.chars().take(HASH_CHARS).collect();
    let (policy, folder) = (escape(&plan.policy), escape(&plan.workspace.host));
    let mut text = format!("policy {policy} in {folder}, plan {hash}\n\n");
    let walls: Vec<Vec<String>> = enforced
        .walls
        .iter()
        .filter(|wall| wall.state != WallState::Off)
        .map(|wall| vec![escape(&wall.name), state(wall.state).to_owned(), escape(&wall.how)])
        .collect();
    text += &render(&["WALL", "STATE", "HOW"], &walls);
    let values: Vec<Vec<String>> = values
        .iter()
        .map(|said| vec![escape(&said.key), escape(&said.value), escape(&said.by)])
        .collect();
    text += "\n";
    text += &render(&["KEY", "VALUE", "SAID BY"], &values);
    let mounts: Vec<Vec<String>> = plan.mounts.iter().map(|mount| seen(plan, mount)).collect();
    text += "\n";
    text += &render(&["INSIDE", "WHAT IT IS"], &mounts);
    for note in &plan.notes {
        text += &format!("\nnote: {}\n", escape(note));
    }
    text
}

fn state(state: WallState) -> &'static str {
    match state {
        WallState::Enforced => "enforced",
        WallState::Emulated => "weaker",
        WallState::Absent => "ABSENT",
        WallState::Off => "off",
    }
}

fn seen(plan: &CagePlan, mount: &Mount) -> Vec<String> {
    let what = match &mount.kind {
        MountKind::Proc | MountKind::Dev => "the cage's own".to_owned(),
        MountKind::Dir => "an empty folder".to_owned(),
        MountKind::Symlink { target } => format!("a link to {target}"),
        MountKind::Tmpfs { size_bytes: Some(bytes), .. } => {
            format!("empty, in memory, {} at most", cage::policy::Bytes(*bytes))
        }
        MountKind::Tmpfs { size_bytes: None, .. } => "empty, in memory".to_owned(),
        MountKind::Hidden { folder: true } => "hidden: an empty folder".to_owned(),
        MountKind::Hidden { folder: false } => "hidden: an empty file".to_owned(),
        MountKind::Data => "made for the cage".to_owned(),
        MountKind::Bind { source, writable } => {
            let right = if *writable { "write" } else { "read" };
            let host = plan.sources.get(*source).map_or("", |source| source.host.as_str());
            format!("{right} {host}")
        }
    };
    vec![escape(&mount.dest), escape(&what)]
}
