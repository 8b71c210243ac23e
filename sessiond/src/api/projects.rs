//! Projects: a folder of one operator, made on first use.

use super::Shared;
use super::caller::Caller;
use super::error::Answer;
use super::extract::Small;
use crate::clock::now_ms;
use crate::names;
use crate::store::{Result, projects};
use axum::Json;
use axum::extract::State;
use rusqlite::Connection;
use std::path::{Component, Path, PathBuf};
use wire::api::{CreateProject, Project, Projects};
use wire::{ErrorCode, WireError};

const FOLDER_BYTES_MAX: usize = 4096;

pub(super) async fn list(State(app): Shared, caller: Caller) -> Answer<Json<Projects>> {
    let uid = caller.operator.uid;
    let projects = app.store.read(move |db| projects::list(db, uid)).await?;
    Ok(Json(Projects { projects }))
}

pub(super) async fn create(
    State(app): Shared,
    caller: Caller,
    Small(body): Small<CreateProject>,
) -> Answer<Json<Project>> {
    let uid = caller.operator.uid;
    let folder = normal(&body.folder)?;
    let project = app.store.write(move |db| of_folder(db, uid, folder)).await?;
    Ok(Json(project))
}

fn of_folder(db: &Connection, uid: u32, folder: String) -> Result<Project> {
    if let Some(row) = projects::by_folder(db, uid, &folder)? {
        return Ok(row.project);
    }
    let stem = names::slug(&folder);
    let mut slug = stem.clone();
    let mut number = 2;
    while projects::by_slug(db, uid, &slug)?.is_some() {
        slug = format!("{stem}-{number}");
        number += 1;
    }
    let project = Project { slug, folder, created_at_ms: now_ms() };
    projects::insert(db, uid, &project)?;
    Ok(project)
}

/// Absolute, without `.` and double slashes. `..` would mean something else after a link.
fn normal(folder: &str) -> Result<String, WireError> {
    let path = Path::new(folder);
    let fits = folder.len() <= FOLDER_BYTES_MAX
        && path.is_absolute()
        && !folder.contains('\0')
        && !path.components().any(|part| part == Component::ParentDir);
    let normal: PathBuf = path.components().collect();
    match normal.to_str() {
        Some(text) if fits => Ok(text.to_owned()),
        Some(_) | None => Err(WireError::new(
            ErrorCode::ValidationFailed,
            "'folder' must be an absolute path without '..'.",
        )),
    }
}
