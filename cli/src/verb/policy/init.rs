//! `mews policy init`: a commented file to begin with. Nothing is overwritten.

use crate::escape::{command, escape};
use crate::failure::Failure;
use crate::out::{self, Say};
use crate::{place, request};
use cage::policy::{PROJECT_FILE, load, preset_names};
use serde_json::json;
use std::fs::OpenOptions;
use std::io::Write as _;
use std::os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use wire::{ErrorCode, PolicySource, WireError};

#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// A name, or a file if it has a '/' or ends in .toml [default: .mews.toml in the workspace]
    target: Option<String>,
    /// The folder whose project file it is [default: this one]
    #[arg(short, long, value_name = "DIR", conflicts_with = "target")]
    workspace: Option<PathBuf>,
    /// What the new policy is laid over
    #[arg(long, value_name = "P", default_value = "shell", requires = "target")]
    extends: String,
}

/// What programs outside the cage run or obey when it lies in a project.
const OBEYED: &[&str] = &[
    ".git/hooks",
    ".git/config",
    ".gitmodules",
    ".husky",
    ".envrc",
    ".vscode",
    ".idea",
    ".devcontainer",
    ".claude",
    ".github/workflows",
];
/// What often holds secrets.
const SECRET: &[&str] =
    &[".env", ".env.local", ".env.production", ".netrc", ".npmrc", ".pypirc", ".aws", "secrets"];

pub(crate) fn run(args: &Args, say: &Say) -> Result<u8, Failure> {
    let (path, text) = match &args.target {
        None => {
            let folder = PathBuf::from(request::folder(args.workspace.as_deref())?);
            (folder.join(PROJECT_FILE), project(&folder))
        }
        Some(target) => {
            let (name, path) = place_of(target)?;
            check_parent(&args.extends)?;
            (path, policy(&name, &args.extends))
        }
    };
    write(&path, &text)?;
    if say.json {
        out::json_line(&json!({ "file": path }))?;
        return Ok(0);
    }
    out::data(&format!("{}\n", escape(&path.display().to_string())))?;
    say.note(match &args.target {
        None => "every run in this folder is tightened by it; see: mews policy explain",
        Some(_) => "change it, then: mews policy check, mews policy explain",
    });
    Ok(0)
}

fn place_of(target: &str) -> Result<(String, PathBuf), Failure> {
    if !target.contains('/') && !target.ends_with(".toml") {
        cage::policy::Name::parse(target).map_err(|bad| Failure::usage(bad.to_string()))?;
        let folder = place::dirs().policies();
        let failed = |error| Failure::new(format!("cannot make {}: {error}", folder.display()));
        std::fs::DirBuilder::new().recursive(true).mode(0o755).create(&folder).map_err(failed)?;
        return Ok((target.to_owned(), folder.join(format!("{target}.toml"))));
    }
    let path = request::absolute(Path::new(target));
    let stem = path.file_stem().map(|stem| stem.to_string_lossy().into_owned());
    Ok((stem.unwrap_or_else(|| "mine".to_owned()), path))
}

fn check_parent(name: &str) -> Result<(), Failure> {
    let source = PolicySource::Name(name.to_owned());
    load(&source, &[place::dirs().policies()]).map(drop).map_err(super::wrong)
}

/// Not through a link, and never over what is there.
fn write(path: &Path, text: &str) -> Result<(), Failure> {
    let mut options = OpenOptions::new();
    options.write(true).create_new(true).mode(0o644);
    let failed = |error: std::io::Error| {
        if error.kind() == std::io::ErrorKind::AlreadyExists {
            let words = format!("{} is there already, and stays as it is", path.display());
            let file = command(&[path.display().to_string()]);
            let next = format!("mews policy explain; or edit {file}");
            return Failure::from(WireError::new(ErrorCode::Conflict, words)).next(next);
        }
        Failure::new(format!("cannot write {}: {error}", path.display()))
    };
    let mut file = options.open(path).map_err(failed)?;
    file.write_all(text.as_bytes()).map_err(failed)
}

/// Whether it can be guarded as it is: there, no link, and under no other name.
fn is_plain(folder: &Path, name: &str) -> bool {
    let facts = std::fs::symlink_metadata(folder.join(name));
    let is_link = |path: &Path| path.symlink_metadata().is_ok_and(|facts| facts.is_symlink());
    let mut above = Path::new(name).ancestors().skip(1).filter(|part| !part.as_os_str().is_empty());
    facts.is_ok_and(|facts| facts.is_dir() || (facts.is_file() && facts.nlink() == 1))
        && !above.any(|part| is_link(&folder.join(part)))
}

/// A list with those that are there, and the others in a comment.
fn list(key: &str, folder: &Path, names: &[&str]) -> String {
    let (there, not): (Vec<&str>, Vec<&str>) =
        names.iter().copied().partition(|name| is_plain(folder, name));
    let quoted = |names: &[&str]| {
        names.iter().map(|name| format!("{name:?}")).collect::<Vec<_>>().join(", ")
    };
    let rest = match not.is_empty() {
        true => String::new(),
        false => format!("# Not here: {}\n", quoted(&not)),
    };
    format!("{key} = [{}]\n{rest}", quoted(&there))
}

fn project(folder: &Path) -> String {
    format!(
        "\
# The project file of this folder: mews lays it over whatever policy a run here has.
# It can only tighten. What would lend or set something is refused, with its line.
# A caged program cannot change this file. See what comes of it: mews policy explain
version = 1

# Refuse to start where the host cannot hold these:
# require = [\"cgroup.memory\", \"cgroup.pids\"]

[fs]
# Seen as empty files and folders. Relative paths lie in this folder.
{hide}
# Cannot be changed by a caged program, but are obeyed by others outside: git, editors, direnv, CI.
{protect}
# A name that does not exist can be neither hidden nor protected: such names are listed by explain
# and inspect. To start nothing then:
# missing = \"error\"

# Keep what a program changes apart: mews diff, apply, discard.
# workspace = \"overlay\"

[limits]
# The smaller of these and the policy's holds.
# memory = \"2G\"
# pids = 256
# walltime = \"1h\"
# idle = \"30m\"
# output_bytes = \"1G\"
",
        hide = list("hide", folder, SECRET),
        protect = list("protect", folder, OBEYED),
    )
}

fn policy(name: &str, extends: &str) -> String {
    format!(
        "\
# {name}: for whom it is, what it gives, and what it does not stop.
# Laid over {extends}: lists are appended, everything else is replaced.
# Shipped are: {shipped}. Read one with: mews policy show {extends}
version = 1
extends = \"{extends}\"

[fs]
# More that can be read and executed: absolute, or below ~ (your home).
# read = [\"~/.gitconfig\", \"/opt/toolchain\"]
# write = [\"~/.cache/pip\"]
# Seen as empty; cannot be changed. Relative paths lie in the workspace; **/ is any number of folders.
# hide = [\"**/.env\"]
# protect = [\".git/hooks\", \".git/config\"]
# missing = \"error\"
# workspace = \"overlay\"
# home = \"persistent:{name}\"

[limits]
# memory = \"2G\"
# pids = 256
# walltime = \"1h\"

[env]
# pass = [\"CI\"]
# set = {{ EDITOR = \"vi\" }}
",
        shipped = preset_names().join(", "),
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use cage::policy::Project;

    #[test]
    fn what_is_written_is_right_and_never_over_what_is_there() {
        let folder = tempfile::tempdir().unwrap();
        let at = |name: &str| folder.path().join(name);
        std::fs::create_dir_all(at(".git/hooks")).unwrap();
        std::fs::write(at(".git/config"), "").unwrap();
        std::fs::write(at(".env"), "secret").unwrap();
        std::fs::write(at("one"), "").unwrap();
        std::fs::hard_link(at("one"), at(".envrc")).unwrap();
        std::os::unix::fs::symlink("one", at(".npmrc")).unwrap();
        let text = project(folder.path());
        assert!(text.contains("hide = [\".env\"]\n"), "{text}");
        assert!(text.contains("protect = [\".git/hooks\", \".git/config\"]\n"), "{text}");
        Project::parse("x", &text).unwrap();
        // With every comment that is a key uncommented, too.
        let is_key = |line: &&str| {
            line.strip_prefix("# ").is_some_and(|rest| {
                rest.split_once(" = ")
                    .is_some_and(|(key, _)| key.chars().all(|c| c.is_ascii_lowercase() || c == '_'))
            })
        };
        let all = |text: &str| {
            let lines = text
                .lines()
                .map(|line| if is_key(&line) { line.trim_start_matches("# ") } else { line });
            lines.collect::<Vec<_>>().join("\n")
        };
        Project::parse("x", &all(&text)).unwrap();
        for text in [policy("mine", "strict"), all(&policy("mine", "ci"))] {
            let source = PolicySource::File { path: "mine.toml".to_owned(), text };
            load(&source, &[]).unwrap();
        }
        let path = at(PROJECT_FILE);
        write(&path, "first").unwrap();
        assert_eq!(write(&path, "second").unwrap_err().error.code, ErrorCode::Conflict);
        assert_eq!(std::fs::read_to_string(&path).unwrap(), "first");
        std::os::unix::fs::symlink("elsewhere", at("link.toml")).unwrap();
        assert!(write(&at("link.toml"), "x").is_err() && !at("elsewhere").exists());
    }
}
