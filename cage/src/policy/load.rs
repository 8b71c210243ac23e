//! Finding a policy and what it extends.

use super::error::{PolicyError, Problem};
use super::file::{Missing, PRESET, PolicyFile};
use super::values::Name;
use super::{Policy, parse, preset};
use crate::hash::sha256;
use std::path::{Path, PathBuf};
use std::sync::OnceLock;
use wire::PolicySource;

/// Longest chain of `extends`.
const DEPTH_MAX: usize = 8;

/// One file of a chain, with what people call it.
struct Link {
    name: String,
    file: String,
    /// Of its text.
    hash: String,
    content: PolicyFile,
}

/// Reads a policy, follows `extends`, merges, checks. `folders` are searched before the presets.
///
/// A file of the same name as a preset that extends that name gets the preset: so an admin can
/// tighten `shell` for a host under its own name.
pub fn load(source: &PolicySource, folders: &[PathBuf]) -> Result<Policy, PolicyError> {
    let first = match source {
        PolicySource::Name(name) => by_name(name, folders, &[])?,
        PolicySource::File { path, text } => Link {
            name: Path::new(path)
                .file_stem()
                .map_or_else(|| path.clone(), |stem| stem.to_string_lossy().into_owned()),
            file: path.clone(),
            hash: sha256(&[text.as_bytes()]),
            content: parse::parse(path, text)?,
        },
    };
    let mut chain = vec![first];
    while let Some(parent) = chain.last().and_then(|link| link.content.extends.clone()) {
        let link = next_link(&parent, folders, &chain)?;
        chain.push(link);
    }
    let name = chain.first().map_or_else(String::new, |link| {
        link.content.name.as_ref().map_or_else(|| link.name.clone(), |Name(name)| name.clone())
    });
    let files = chain.iter().map(|link| link.file.clone()).collect();
    let hashes: Vec<&[u8]> = chain.iter().map(|link| link.hash.as_bytes()).collect();
    let hash = sha256(&hashes);
    require_paths(&mut chain);
    let merged = chain.into_iter().rev().map(|link| link.content).reduce(PolicyFile::under);
    Ok(Policy::from_file(name, files, hash, merged.unwrap_or_default()))
}

/// `fs.missing` of a file, or of what it extends, governs the paths that this file says itself; the
/// lists of the presets are for many hosts, and no host has all of them.
fn require_paths(chain: &mut [Link]) {
    let mut missing = Missing::default();
    for link in chain.iter_mut().rev() {
        missing = link.content.fs.missing.unwrap_or(missing);
        for said in &mut link.content.fs.said {
            said.required = missing == Missing::Error && !said.is_preset();
        }
    }
}

fn next_link(parent: &Name, folders: &[PathBuf], chain: &[Link]) -> Result<Link, PolicyError> {
    let Name(name) = parent;
    let seen: Vec<&str> = chain.iter().map(|link| link.file.as_str()).collect();
    let refused = |message: String| PolicyError {
        problem: Problem::Extends,
        file: seen.last().map_or_else(String::new, |file| (*file).to_owned()),
        line: chain.last().and_then(|link| link.content.extends_line),
        key: Some("extends".to_owned()),
        message,
    };
    if chain.len() >= DEPTH_MAX {
        return Err(refused(format!("more than {DEPTH_MAX} policies extend each other")));
    }
    let link = by_name(name, folders, &seen).map_err(|error| {
        let is_missing = error.problem == Problem::NotFound;
        if is_missing { refused(error.message) } else { error }
    })?;
    if seen.contains(&link.file.as_str()) {
        let round = [&seen[..], &[link.file.as_str()]].concat().join(" → ");
        return Err(refused(format!("the policies extend each other in a circle: {round}")));
    }
    Ok(link)
}

/// The file `NAME.toml` of the first folder that has it, unless it is in `seen`; else the preset.
fn by_name(name: &str, folders: &[PathBuf], seen: &[&str]) -> Result<Link, PolicyError> {
    let not_found = |message: String| PolicyError {
        problem: Problem::NotFound,
        file: name.to_owned(),
        line: None,
        key: None,
        message,
    };
    Name::parse(name).map_err(|error| not_found(error.to_string()))?;
    for folder in folders {
        let path = folder.join(format!("{name}.toml"));
        let file = path.to_string_lossy().into_owned();
        let hides_preset = seen.contains(&file.as_str()) && preset::preset_text(name).is_some();
        if hides_preset {
            continue;
        }
        match std::fs::read_to_string(&path) {
            Ok(text) => {
                let content = parse::parse(&file, &text)?;
                let hash = sha256(&[text.as_bytes()]);
                return Ok(Link { name: name.to_owned(), file, hash, content });
            }
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => {}
            Err(error) => return Err(not_found(format!("cannot read {file}: {error}"))),
        }
    }
    let Some(parsed) = shipped(name) else {
        return Err(not_found(format!(
            "there is no policy of this name; shipped are {}; list yours with: mews policy list",
            preset::preset_names().join(", ")
        )));
    };
    let content = parsed.clone()?;
    let hash = sha256(&[preset::preset_text(name).unwrap_or_default().as_bytes()]);
    Ok(Link { name: name.to_owned(), file: format!("{PRESET}{name}"), hash, content })
}

/// A shipped policy. They are part of the program, so each is parsed once at most.
fn shipped(name: &str) -> Option<&'static Result<PolicyFile, PolicyError>> {
    static PARSED: [OnceLock<Result<PolicyFile, PolicyError>>; preset::COUNT] =
        [const { OnceLock::new() }; preset::COUNT];
    let text = preset::preset_text(name)?;
    let number = preset::preset_names().iter().position(|known| *known == name)?;
    let parse = || parse::parse(&format!("{PRESET}{name}"), text);
    Some(PARSED.get(number)?.get_or_init(parse))
}
