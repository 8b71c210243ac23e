//! `mews policy`: what there is, what it says, whether it is right, what it would be here. Needs no
//! daemon.

mod init;

use super::explain;
use super::flags::Flags;
use crate::failure::Failure;
use crate::out::{self, Say};
use crate::place;
use crate::request::{self, Streams};
use crate::table::render;
use cage::policy::{PROJECT_FILE, PolicyError, Project, load, preset_names, preset_text};
use serde_json::json;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use wire::PolicySource;
use wire::api::PlanRequest;

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
    /// What a policy would be here: every wall, and who said each value
    #[command(after_help = "\
The plan is the one that `mews run` with the same flags would be built from; nothing is started.

Examples:
  mews policy explain                         'shell' in this folder, with its .mews.toml
  mews policy explain strict -w ~/code/app
  mews policy explain pi --provider unix:/run/user/1000/provider.sock --json")]
    Explain {
        /// A name, or a file
        #[arg(conflicts_with = "policy")]
        name: Option<String>,
        #[command(flatten)]
        flags: Box<Flags>,
    },
    /// Write a commented file to begin with: .mews.toml of this folder, or a policy
    #[command(after_help = "\
Without a name it is the project file of this folder, from what is found in it; every run here is
tightened by it. A name makes a policy in your policy folder, a path one at that place. What is there
already is never overwritten.

Examples:
  mews policy init                            ./.mews.toml
  mews policy init mine --extends strict      a policy for: mews run -p mine
  mews policy init ./ci.toml --extends ci")]
    Init(init::Args),
    /// Whether policies are right, and can be enforced by this build
    #[command(after_help = "Examples:\n  mews policy check ./agent.toml\n  mews policy check ci")]
    Check {
        /// Names or files
        #[arg(required = true)]
        policies: Vec<String>,
    },
}

pub(crate) async fn run(args: Args, say: &Say) -> Result<u8, Failure> {
    match args {
        Args::List => list(say),
        Args::Show { policy } => show(&policy, say),
        Args::Check { policies } => check(&policies, say),
        Args::Explain { name, flags } => {
            let name = name.as_deref().unwrap_or(&flags.policy);
            let asked = PlanRequest {
                folder: request::folder(flags.workspace.as_deref())?,
                policy: request::policy(name)?,
                overrides: flags.overrides()?,
                exec: request::exec_spec(&[], Streams::Pipes, false),
            };
            explain::show(asked, false, say).await?;
            Ok(0)
        }
        Args::Init(args) => init::run(&args, say),
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
            Ok(files) if say.json => {
                out::json_line(&json!({ "policy": name, "ok": true, "files": files }))?;
            }
            Ok(files) => out::data(&format!("{name}: good ({})\n", files.join(" > ")))?,
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

/// The files that it is made of. A project file is looked at as one: what it tightens is not known here.
fn check_one(name: &str) -> Result<Vec<String>, Failure> {
    let source = request::policy(name)?;
    if let PolicySource::File { path, text } = &source
        && Path::new(path).file_name().is_some_and(|name| name == PROJECT_FILE)
    {
        return Project::parse(path, text).map(|project| vec![project.file]).map_err(wrong);
    }
    load(&source, &[place::dirs().policies()]).map(|policy| policy.files).map_err(wrong)
}

fn wrong(error: PolicyError) -> Failure {
    Failure::from(wire::WireError::from(error))
}
