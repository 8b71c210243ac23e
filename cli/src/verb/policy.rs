//! `mews policy`: what there is, what it says, whether it is right. Needs no daemon.

use crate::failure::Failure;
use crate::out::{self, Say};
use crate::table::render;
use crate::{place, request};
use cage::policy::{Policy, PolicyError, load, preset_names, preset_text};
use serde_json::json;
use std::collections::BTreeMap;
use std::path::PathBuf;
use wire::PolicySource;

#[derive(Debug, clap::Subcommand)]
pub(crate) enum Args {
    /// Names, and where each comes from
    #[command(
        after_help = "Examples:\n  mews policy list\n  mews policy list --json | jq -r .name"
    )]
    List,
    /// The text of one
    #[command(after_help = "Examples:\n  mews policy show shell\n  mews policy show ci > my.toml")]
    Show {
        /// A name, or a file
        policy: String,
    },
    /// Whether policies are right, and can be enforced by this build
    #[command(after_help = "Examples:\n  mews policy check ./agent.toml\n  mews policy check ci")]
    Check {
        /// Names or files
        #[arg(required = true)]
        policies: Vec<String>,
    },
}

pub(crate) fn run(args: &Args, say: &Say) -> Result<u8, Failure> {
    match args {
        Args::List => list(say),
        Args::Show { policy } => show(policy, say),
        Args::Check { policies } => check(policies, say),
    }
}

fn list(say: &Say) -> Result<u8, Failure> {
    let mut found: BTreeMap<String, String> = BTreeMap::new();
    for name in preset_names() {
        found.insert(name.to_owned(), "preset".to_owned());
    }
    for (name, path) in files() {
        found.insert(name, path.display().to_string());
    }
    if say.json {
        for (name, from) in &found {
            out::json_line(&json!({ "name": name, "from": from }))?;
        }
        return Ok(0);
    }
    let rows: Vec<Vec<String>> = found
        .iter()
        .map(|(name, from)| vec![crate::escape::escape(name), crate::escape::escape(from)])
        .collect();
    out::data(&render(&["NAME", "FROM"], &rows))?;
    Ok(0)
}

/// What `--policy` takes, files apart.
pub(crate) fn names() -> Vec<String> {
    let presets = preset_names().into_iter().map(str::to_owned);
    let mut names: Vec<String> = presets.chain(files().into_iter().map(|(name, _)| name)).collect();
    names.sort();
    names.dedup();
    names
}

/// Policies that people wrote; they go before presets of the same name.
fn files() -> Vec<(String, PathBuf)> {
    let Ok(entries) = std::fs::read_dir(place::dirs().policies()) else { return Vec::new() };
    let paths = entries.filter_map(|entry| Some(entry.ok()?.path()));
    let named = paths.filter(|path| path.extension().is_some_and(|end| end == "toml"));
    named.filter_map(|path| Some((path.file_stem()?.to_str()?.to_owned(), path.clone()))).collect()
}

fn show(policy: &str, say: &Say) -> Result<u8, Failure> {
    let source = request::policy(policy)?;
    let (from, text) = match source {
        PolicySource::File { path, text } => (path, text),
        PolicySource::Name(name) => text_of(&name)?,
    };
    if say.json {
        out::json_line(&json!({ "name": policy, "from": from, "text": text }))?;
    } else {
        out::data(&text)?;
    }
    Ok(0)
}

fn text_of(name: &str) -> Result<(String, String), Failure> {
    if let Some((_name, path)) = files().into_iter().find(|(file, _)| file == name) {
        let text = std::fs::read_to_string(&path)
            .map_err(|error| Failure::new(format!("cannot read {}: {error}", path.display())))?;
        return Ok((path.display().to_string(), text));
    }
    let text = preset_text(name).ok_or_else(|| {
        let what = format!("no policy is called '{name}'");
        Failure::from(wire::WireError::new(wire::ErrorCode::NotFound, what))
            .next("mews policy list")
    })?;
    Ok(("preset".to_owned(), text.to_owned()))
}

fn check(policies: &[String], say: &Say) -> Result<u8, Failure> {
    let mut wrong = 0_usize;
    for name in policies {
        match check_one(name) {
            Ok(policy) if say.json => {
                out::json_line(&json!({ "policy": name, "ok": true, "files": policy.files }))?;
            }
            Ok(policy) => out::data(&format!("{name}: good ({})\n", policy.files.join(" > ")))?,
            Err(failure) if say.json => {
                wrong += 1;
                out::json_line(&json!({ "policy": name, "ok": false, "error": failure.error }))?;
            }
            Err(failure) => {
                wrong += 1;
                out::data(&format!("{}\n", crate::escape::escape(&failure.error.message)))?;
            }
        }
    }
    Ok(u8::from(wrong > 0))
}

fn check_one(name: &str) -> Result<Policy, Failure> {
    let source = request::policy(name)?;
    load(&source, &[place::dirs().policies()]).map_err(wrong)
}

fn wrong(error: PolicyError) -> Failure {
    Failure::from(wire::WireError::from(error))
}
