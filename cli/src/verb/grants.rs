//! `mews grants`: leave for whoever has a key to start commands in a session, made, listed, revoked and
//! used.

use super::flags::Flags;
use crate::api::{Api, Repeat};
use crate::escape::escape;
use crate::failure::Failure;
use crate::out::{self, Say};
use crate::request::{self, Streams};
use crate::table::render;
use crate::time::{age, now_ms, stamp};
use cage::policy::Millis;
use serde::Deserialize;
use std::collections::BTreeMap;
use std::ffi::OsString;
use std::io::{Read, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use wire::api::{
    CreateProject, CreateSession, GrantMade, GrantView, GrantedJob, MakeGrant, Project,
    SessionView, Started,
};
use wire::{ErrorCode, GrantKey, RunId, SessionId, Standing};

#[derive(Debug, clap::Args)]
#[command(after_help = "\
Without a verb: your grants, and what is left of each.

A grant lets whoever has its key start commands in one session of yours while you are away: a cron
job, a build agent of another account. They choose the command; session, policy, flags and folder are
the grant's, and every cage runs as you. They cannot attach to it, read it or stop it. Keep the key as
you keep a password; `mews grants revoke` ends it.

Examples:
  mews grants make -n nightly -p ci -w ~/src --cages 30 --for 30d --to nightly.key
  mews grants use nightly.key -- make test
  mews grants
  mews grants revoke 7Q2MXK")]
pub(crate) struct Args {
    #[command(subcommand)]
    act: Option<Act>,
}

#[derive(Debug, clap::Subcommand)]
enum Act {
    /// Make one, in a new session or one of yours, and print its key
    Make(Box<Make>),
    /// End one: nothing more can be started by it
    Revoke(Revoke),
    /// Start a command by one
    Use(Use),
}

#[derive(Debug, clap::Args)]
#[command(after_help = "\
The key is printed once, here; mews keeps only a hash of it.

Examples:
  mews grants make --cages 1 --for 2h                 in a new session, policy 'shell', this folder
  mews grants make --in build-1 -p ci --cages 5 --for 1d --to build.key")]
struct Make {
    /// How many cages may be started by it, in all
    #[arg(long, value_name = "N")]
    cages: u32,
    /// How long it lives: 2h, 30d at most
    #[arg(long = "for", value_name = "T")]
    time: String,
    /// A session of yours that has not ended [default: a new one, which lasts until `mews end`]
    #[arg(long = "in", value_name = "ID", conflicts_with = "name")]
    session: Option<String>,
    /// Name of the new session [default: grant-N]
    #[arg(short, long)]
    name: Option<String>,
    /// Write the key to this new file, for you alone to read
    #[arg(long, value_name = "FILE")]
    to: Option<PathBuf>,
    #[command(flatten)]
    flags: Flags,
}

#[derive(Debug, clap::Args)]
#[command(after_help = "\
What was started by it runs on: `mews kill` ends that.

Examples:
  mews grants revoke 7Q2MXK")]
struct Revoke {
    /// Ids, or their beginning or end
    #[arg(required = true, value_name = "ID")]
    ids: Vec<String>,
}

#[derive(Debug, clap::Args)]
#[command(after_help = "\
It runs in the background, in the grant's folder; its name is printed. An environment is taken
along as by `mews run`: the grant's policy picks from it.

Examples:
  mews grants use nightly.key -- make test
  mews --system grants use /etc/ci/mews.key -- ./job.sh     where you are no operator of your own")]
struct Use {
    /// File with the key; - for standard input
    #[arg(value_name = "FILE")]
    key: PathBuf,
    /// The command
    #[arg(required = true, trailing_var_arg = true, value_name = "CMD")]
    command: Vec<OsString>,
}

#[derive(Deserialize)]
struct Listed {
    grants: Vec<GrantView>,
}

pub(crate) async fn run(args: Args, say: &Say) -> Result<u8, Failure> {
    match args.act {
        None => list(say).await,
        Some(Act::Make(args)) => make(&args, say).await,
        Some(Act::Revoke(args)) => revoke(&args, say).await,
        Some(Act::Use(args)) => start(&args, say).await,
    }
}

async fn list(say: &Say) -> Result<u8, Failure> {
    let grants = Api::new().get::<Listed>("/grants").await?.grants;
    if say.json {
        for grant in &grants {
            out::json_line(grant)?;
        }
        return Ok(0);
    }
    if grants.is_empty() {
        say.note("no grants; make one: mews grants make --cages N --for 2h");
        return Ok(0);
    }
    let head = ["ID", "SESSION", "UID", "POLICY", "LEFT", "STATE", "ENDS"];
    out::data(&render(&head, &grants.iter().map(row).collect::<Vec<_>>()))?;
    Ok(0)
}

fn row(grant: &GrantView) -> Vec<String> {
    let state = &grant.state;
    let word = match grant.standing {
        Standing::Good => "good",
        Standing::UsedUp => "used up",
        Standing::Expired => "expired",
        Standing::Revoked => "revoked",
    };
    let left = state.expires_at_ms - now_ms();
    vec![
        state.id.short(),
        grant.name.as_deref().map_or_else(|| state.session.short(), escape),
        state.uid.to_string(),
        escape(&state.policy),
        format!("{}/{}", grant.left, state.cages),
        word.to_owned(),
        if left > 0 { format!("in {}", age(left)) } else { stamp(state.expires_at_ms) },
    ]
}

async fn make(args: &Make, say: &Say) -> Result<u8, Failure> {
    let Millis(for_ms) =
        Millis::parse(&args.time).map_err(|error| Failure::usage(format!("--for: {error}")))?;
    let policy = request::policy(&args.flags.policy)?;
    if args.session.is_some() && args.flags.workspace.is_some() {
        let words = "the folder of a session is its own: leave -w out, or --in";
        return Err(Failure::usage(words).next("mews grants make -w DIR --cages N --for 2h"));
    }
    // Before anything is made: a key that nobody can read afterwards is of no use.
    let mut file = args.to.as_deref().map(new_file).transpose()?;
    let made = async {
        let api = Api::starting();
        let (session, is_new) = session_of(args, &api).await?;
        let overrides = args.flags.overrides()?;
        let body =
            MakeGrant { cages: args.cages, for_ms, policy, overrides, client_request_id: None };
        let path = format!("/sessions/{session}/grants");
        let made: Result<GrantMade, Failure> = api.post(&path, &body, Repeat::Never).await;
        if made.is_err() && is_new {
            // An empty session would keep its name.
            drop(super::end::end(&api, session).await);
        }
        made
    };
    let made = match made.await {
        Ok(made) => made,
        Err(failure) => {
            if let Some(path) = &args.to {
                drop(std::fs::remove_file(path));
            }
            return Err(match failure.is(ErrorCode::SupervisorUnavailable) {
                true => failure.next("mews grants (revoke one there that has no key)"),
                false => failure,
            });
        }
    };
    if let (Some(file), Some(path)) = (&mut file, &args.to) {
        writeln!(file, "{}", made.key).and_then(|()| file.sync_all()).map_err(|error| {
            let words = format!("the key cannot be written to {}: {error}", path.display());
            Failure::new(words).next(format!("mews grants revoke {}", made.grant.state.id))
        })?;
    }
    if say.json {
        out::json_line(&made)?;
        return Ok(0);
    }
    if file.is_none() {
        out::data(&format!("{}\n", made.key))?;
    }
    let name = made.grant.name.as_deref().map(escape).unwrap_or_default();
    say.note(&format!(
        "{} cages in {name} until {}; who has the key starts them: mews grants use FILE -- CMD",
        made.grant.state.cages,
        stamp(made.grant.state.expires_at_ms)
    ));
    Ok(0)
}

fn new_file(path: &Path) -> Result<std::fs::File, Failure> {
    let mut options = std::fs::File::options();
    options.write(true).create_new(true).mode(0o600).open(path).map_err(|error| {
        Failure::usage(format!("{} cannot be made for the key: {error}", path.display()))
            .next("the same with --to of a new file, in a folder that is there")
    })
}

/// The session that it is for, and whether it was made for that.
async fn session_of(args: &Make, api: &Api) -> Result<(SessionId, bool), Failure> {
    if let Some(id) = &args.session {
        return Ok((api.resolve(id).await?.session, false));
    }
    let folder = request::folder(args.flags.workspace.as_deref())?;
    let project: Project = api.post("/projects", &CreateProject { folder }, Repeat::Safe).await?;
    let session = CreateSession {
        name: args.name.clone(),
        name_hint: Some("grant".to_owned()),
        labels: BTreeMap::new(),
        source: Some("cli:grants".to_owned()),
        // It waits for whoever comes.
        end_on_exit: false,
        client_request_id: Some(SessionId::new().to_string()),
    };
    let path = format!("/projects/{}/sessions", project.slug);
    let session: Result<SessionView, Failure> = api.post(&path, &session, Repeat::Safe).await;
    let session = session.map_err(|failure| match failure.is(ErrorCode::Conflict) {
        true => failure.next("the same with another --name, or --in SESSION for one that lasts"),
        false => failure,
    })?;
    Ok((session.id, true))
}

async fn revoke(args: &Revoke, say: &Say) -> Result<u8, Failure> {
    let api = Api::new();
    for id in &args.ids {
        let grants = api.get::<Listed>("/grants").await?.grants;
        let found = choose(&grants, id)?.state.id;
        let reply = api.delete(&format!("/grants/{found}")).await?;
        let view: GrantView = serde_json::from_slice(&reply.body)
            .map_err(|error| Failure::new(format!("the answer is not understood: {error}")))?;
        if say.json {
            out::json_line(&view)?;
        } else {
            let used = view.state.used.len();
            say.note(&format!("revoked {}; {used} cages were started by it", found.short()));
        }
    }
    Ok(0)
}

/// By its id, or four characters or more of the beginning or end of it.
fn choose<'a>(grants: &'a [GrantView], wanted: &str) -> Result<&'a GrantView, Failure> {
    let upper = wanted.to_ascii_uppercase();
    let matches: Vec<&GrantView> = grants
        .iter()
        .filter(|grant| {
            let id = grant.state.id.to_string();
            upper.len() >= 4 && (id.starts_with(&upper) || id.ends_with(&upper))
        })
        .collect();
    let none = |words: String| {
        let error = wire::WireError::new(ErrorCode::NotFound, words);
        Failure::from(error).next("mews grants")
    };
    match matches[..] {
        [one] => Ok(one),
        [] => Err(none(format!("there is no grant '{}'", escape(wanted)))),
        [..] => Err(none(format!("'{}' means more than one grant", escape(wanted)))),
    }
}

async fn start(args: &Use, say: &Say) -> Result<u8, Failure> {
    let key = read_key(&args.key)?;
    let mut exec = request::exec_spec(&args.command, Streams::choose(false, true), false);
    // The caller's folder means nothing in another's workspace.
    exec.cwd = None;
    let path = format!("/grants/{}/jobs", key.id);
    let client_request_id = Some(RunId::new().to_string());
    let job = GrantedJob { exec, client_request_id };
    let started: Started = Api::by_key(key).post(&path, &job, Repeat::Safe).await?;
    if say.json {
        out::json_line(&started)?;
        return Ok(0);
    }
    out::data(&format!("{}\n", escape(&started.name)))?;
    say.note("it runs, as whose grant it is");
    Ok(0)
}

fn read_key(path: &Path) -> Result<GrantKey, Failure> {
    let mut text = String::new();
    let read = match path.to_str() {
        Some("-") => std::io::stdin().take(4096).read_to_string(&mut text).map(drop),
        Some(_) | None => std::fs::File::open(path)
            .and_then(|file| file.take(4096).read_to_string(&mut text))
            .map(drop),
    };
    read.map_err(|error| {
        Failure::usage(format!("the key in {} cannot be read: {error}", path.display()))
            .next("mews grants use FILE -- CMD, with the file that make --to has written")
    })?;
    text.parse().map_err(|error| Failure::usage(format!("{}: {error}", path.display())))
}
