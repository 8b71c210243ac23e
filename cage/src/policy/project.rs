//! The project file: `.mews.toml` in the workspace. Whoever writes the project's files writes it, the
//! caged program's like among them, so that it can only tighten: a meet with what policy and flags give.
//!
//! A key that lends, sets or chooses something is refused by its name and line, and so is a value that
//! would give more than policy and flags do. Nothing of it is left out silently.

use super::error::{PolicyError, Problem};
use super::file::{Leaf, Missing, PolicyFile};
use super::values::Home;
use super::{GUARDS_MAX, PathRule, Policy, limit_words, parse};
use crate::hash::sha256;
use nix::errno::Errno;
use nix::fcntl::{AT_FDCWD, OFlag, OpenHow, ResolveFlag, openat2};
use serde::{Deserialize, Serialize};
use std::fs::File;
use std::io::Read;
use std::path::Path;
use wire::WorkspaceMode;

pub const PROJECT_FILE: &str = ".mews.toml";

/// One that was read, and holds nothing but what can tighten.
#[derive(Clone, Debug)]
pub struct Project {
    /// Its path, for people.
    pub file: String,
    hash: String,
    content: PolicyFile,
}

/// What a project file has changed.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Tightened {
    /// Dotted: `limits.memory`.
    pub key: String,
    pub value: String,
    pub line: usize,
}

/// Those that can only tighten, or whose value says whether they do.
const KEYS: &[&str] = &[
    "version",
    "require",
    "fs.hide",
    "fs.protect",
    "fs.missing",
    "fs.workspace",
    "fs.home",
    "net.mode",
    "process.seccomp",
    "process.landlock",
    "process.user",
    "terminal.enabled",
];

/// The project file of a workspace, read with the caller's rights. Absent: there is none.
///
/// # Errors
/// It cannot be read, is no plain file, or holds what a project file may not say.
pub fn read_project(workspace: &Path) -> Result<Option<Project>, PolicyError> {
    let file = workspace.join(PROJECT_FILE).to_string_lossy().into_owned();
    let Some(text) = read(workspace, &file)? else { return Ok(None) };
    Project::parse(&file, &text).map(Some)
}

/// A link would lead to what its writer cannot read and the caller can; a FIFO would hold us up.
fn read(workspace: &Path, file: &str) -> Result<Option<String>, PolicyError> {
    let refused = |message: String| PolicyError {
        problem: Problem::NotFound,
        file: file.to_owned(),
        line: None,
        key: None,
        message,
    };
    let folder = OpenHow::new().flags(OFlag::O_PATH | OFlag::O_DIRECTORY | OFlag::O_CLOEXEC);
    let folder = match openat2(AT_FDCWD, workspace, folder) {
        Ok(folder) => folder,
        // A workspace that is none is refused with words of its own.
        Err(Errno::ENOENT | Errno::ENOTDIR | Errno::EACCES | Errno::ELOOP) => return Ok(None),
        Err(errno) => return Err(refused(format!("cannot be looked for: {errno}"))),
    };
    let how = OpenHow::new()
        .flags(OFlag::O_RDONLY | OFlag::O_NONBLOCK | OFlag::O_NOCTTY | OFlag::O_CLOEXEC)
        .resolve(ResolveFlag::RESOLVE_BENEATH | ResolveFlag::RESOLVE_NO_SYMLINKS);
    let opened = match openat2(&folder, PROJECT_FILE, how) {
        Ok(opened) => File::from(opened),
        Err(Errno::ENOENT) => return Ok(None),
        Err(Errno::ELOOP) => {
            let words = "is a link; a project file is a plain file in the workspace itself";
            return Err(refused(words.to_owned()));
        }
        Err(errno) => return Err(refused(format!("cannot be read: {errno}"))),
    };
    let unreadable = |error: std::io::Error| refused(format!("cannot be read: {error}"));
    let facts = opened.metadata().map_err(unreadable)?;
    if !facts.is_file() {
        return Err(refused("is not a plain file; a project file is one".to_owned()));
    }
    // One byte more than there may be, so that the parser says so.
    let most = u64::try_from(parse::FILE_BYTES_MAX).unwrap_or(u64::MAX) + 1;
    let mut bytes = Vec::new();
    opened.take(most).read_to_end(&mut bytes).map_err(unreadable)?;
    let text = String::from_utf8(bytes);
    text.map(Some).map_err(|_other| refused("is not UTF-8".to_owned()))
}

impl Project {
    /// # Errors
    /// As [`read_project`].
    pub fn parse(file: &str, text: &str) -> Result<Self, PolicyError> {
        let mut content = parse::parse(file, text)?;
        for leaf in content.leaves.iter().flat_map(|leaves| leaves.iter()) {
            if !KEYS.contains(&leaf.key.as_str()) && !leaf.key.starts_with("limits.") {
                let words = "a project file can only tighten, and this key lends, sets or chooses \
                             something; say it on the command line or in a policy of your own";
                return Err(widens(leaf, words.to_owned()));
            }
        }
        if let Some(said) = content.fs.said.get(GUARDS_MAX) {
            let (key, message) = (said.list.key(), format!("{GUARDS_MAX} lines at most"));
            return Err(PolicyError {
                problem: Problem::BadValue,
                file: file.to_owned(),
                line: Some(said.line),
                key: Some(key.to_owned()),
                message,
            });
        }
        let required = content.fs.missing == Some(Missing::Error);
        for said in &mut content.fs.said {
            said.required = required;
        }
        Ok(Self { file: file.to_owned(), hash: sha256(&[text.as_bytes()]), content })
    }

    /// The line of a key that the file has.
    fn leaf(&self, key: &str) -> Leaf {
        let leaves = self.content.leaves.iter().flat_map(|leaves| leaves.iter());
        let found = leaves.rev().find(|leaf| leaf.key == key).cloned();
        let (key, file) = (key.to_owned(), self.file.clone());
        found.unwrap_or_else(|| Leaf { key, value: String::new(), file, line: 1 })
    }

    fn tightened(&self, key: &str) -> Tightened {
        let Leaf { key, value, line, .. } = self.leaf(key);
        Tightened { key, value, line }
    }
}

fn widens(leaf: &Leaf, message: String) -> PolicyError {
    PolicyError {
        problem: Problem::Widens,
        file: leaf.file.clone(),
        line: Some(leaf.line),
        key: Some(leaf.key.clone()),
        message,
    }
}

impl Policy {
    /// What both allow. `plain` is the policy without its flags: what is below that is no attempt to
    /// widen, though a flag has tightened further.
    ///
    /// # Errors
    /// A value that would give more, with its key and line.
    pub fn tightened(
        mut self,
        project: &Project,
        plain: &Self,
    ) -> Result<(Self, Vec<Tightened>), PolicyError> {
        let mut done = Vec::new();
        self.tighten_limits(project, plain, &mut done)?;
        self.tighten_choices(project, &mut done)?;
        let content = &project.content;
        for requirement in &content.require {
            if !self.require.contains(requirement) {
                self.require.push(*requirement);
                let leaf =
                    Tightened { value: requirement.to_string(), ..project.tightened("require") };
                done.push(leaf);
            }
        }
        for said in &content.fs.said {
            let list = match said.list {
                super::Listed::Hide => &mut self.hide,
                super::Listed::Protect => &mut self.protect,
                super::Listed::Read | super::Listed::Write => continue,
            };
            let is_new = add(list, &said.rule);
            // Of what the policy lists already, only that it must be there is tighter.
            if is_new || said.required {
                self.said.push(said.clone());
            }
            if is_new {
                let (key, value) = (said.list.key().to_owned(), said.rule.to_string());
                done.push(Tightened { key, value, line: said.line });
            }
        }
        self.files.insert(0, project.file.clone());
        self.hash = sha256(&[self.hash.as_bytes(), project.hash.as_bytes()]);
        Ok((self, done))
    }

    fn tighten_limits(
        &mut self,
        project: &Project,
        plain: &Self,
        done: &mut Vec<Tightened>,
    ) -> Result<(), PolicyError> {
        let mut given = std::collections::BTreeMap::new();
        plain.limits.clone().each(|key, _unit, value| {
            given.insert(key, *value);
        });
        let mut refused = None;
        self.limits.each(|key, unit, own| {
            let Some(asked) = project.content.limits.amount(key) else { return };
            let before = given.get(key).copied().flatten();
            let most = own.unwrap_or(u64::MAX).max(before.unwrap_or(u64::MAX));
            let dotted = format!("limits.{key}");
            if asked > most {
                let words = format!(
                    "{} is more than the {} that the policy gives, and a project file can only \
                     tighten; say it on the command line or in a policy of your own",
                    limit_words(unit, Some(asked)),
                    limit_words(unit, Some(most))
                );
                refused.get_or_insert_with(|| widens(&project.leaf(&dotted), words));
            } else if own.is_none_or(|own| asked < own) {
                *own = Some(asked);
                done.push(project.tightened(&dotted));
            }
        });
        if project.content.limits.oom.is_some() && !self.limits.oom_group {
            self.limits.oom_group = true;
            done.push(project.tightened("limits.oom"));
        }
        refused.map_or(Ok(()), Err)
    }

    fn tighten_choices(
        &mut self,
        project: &Project,
        done: &mut Vec<Tightened>,
    ) -> Result<(), PolicyError> {
        let content = &project.content;
        let refused = |key: &str, gives: &str| {
            let words = format!(
                "the policy says {gives}, which is tighter, and a project file can only tighten"
            );
            Err(widens(&project.leaf(key), words))
        };
        match (self.workspace, content.fs.workspace) {
            (WorkspaceMode::Overlay, Some(WorkspaceMode::Direct)) => {
                return refused("fs.workspace", "overlay");
            }
            (WorkspaceMode::Copy, Some(WorkspaceMode::Direct)) => {
                return refused("fs.workspace", "copy");
            }
            // Both keep the folder as it is: neither is tighter.
            (WorkspaceMode::Overlay | WorkspaceMode::Copy, _)
            | (WorkspaceMode::Direct, None | Some(WorkspaceMode::Direct)) => {}
            (WorkspaceMode::Direct, Some(mode)) => {
                self.workspace = mode;
                done.push(project.tightened("fs.workspace"));
            }
        }
        match (&self.home, &content.fs.home) {
            (_, None) | (Home::Private, Some(Home::Private)) => {}
            (Home::Persistent(_), Some(Home::Private)) => {
                self.home = Home::Private;
                done.push(project.tightened("fs.home"));
            }
            (own, Some(asked)) if own == asked => {}
            (_, Some(Home::Persistent(_))) => return refused("fs.home", "another home"),
        }
        match (self.terminal.enabled, content.terminal.enabled) {
            (true, Some(false)) => {
                self.terminal.enabled = false;
                done.push(project.tightened("terminal.enabled"));
            }
            (false, Some(true)) => return refused("terminal.enabled", "false"),
            (true, None | Some(true)) | (false, None | Some(false)) => {}
        }
        Ok(())
    }

    /// A caged program shall not write what the next run is tightened by: it is guarded, or nothing runs.
    pub(crate) fn protect_project(&mut self, project: &Project) {
        let rest = PROJECT_FILE.to_owned();
        let rule = PathRule { base: super::Base::Workspace, rest, is_pattern: false };
        add(&mut self.protect, &rule);
        let (list, file) = (super::Listed::Protect, project.file.clone());
        self.said.push(super::Said { rule, list, file, line: 1, required: true });
    }
}

fn add(list: &mut Vec<PathRule>, rule: &PathRule) -> bool {
    let is_new = !list.contains(rule);
    if is_new {
        list.push(rule.clone());
    }
    is_new
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::policy::load;
    use proptest::prelude::*;
    use std::os::unix::fs::symlink;
    use wire::{Overrides, PolicySource};

    fn shell() -> Policy {
        load(&PolicySource::Name("shell".into()), &[]).unwrap()
    }

    fn meet(flags: &Overrides, text: &str) -> Result<(Policy, Vec<Tightened>), PolicyError> {
        let project = Project::parse("/ws/.mews.toml", &format!("version = 1\n{text}"))?;
        shell().with_overrides(flags).unwrap().tightened(&project, &shell())
    }

    #[test]
    fn what_would_widen_is_refused_by_key_and_line() {
        for (text, line, key) in [
            ("name = \"x\"", 2, "name"),
            ("extends = \"base\"", 2, "extends"),
            ("[fs]\nread = [\"/opt\"]", 3, "fs.read"),
            ("[fs]\nread = []", 3, "fs.read"),
            ("[fs]\nwrite = [\n\"/opt\"]", 4, "fs.write"),
            ("[[fs.tmpfs]]\npath = \"/x\"", 2, "fs.tmpfs"),
            ("[[net.socket]]\nlisten = \"127.0.0.1:1\"\nconnect = \"unix:/s\"", 2, "net.socket"),
            ("[env]\npass = [\"SECRET\"]", 3, "env.pass"),
            ("[env]\nset = { LD_PRELOAD = \"x\" }", 3, "env.set.LD_PRELOAD"),
            ("[process]\nhostname = \"x\"", 3, "process.hostname"),
            ("[terminal]\nrecord = false", 3, "terminal.record"),
            ("[suspend]\ngrace = \"1s\"", 3, "suspend.grace"),
            ("[limits]\nmemory = \"5G\"", 3, "limits.memory"),
            ("[limits]\nptys = 17", 3, "limits.ptys"),
            ("[limits]\n\ncore = 1", 4, "limits.core"),
            ("[fs]\nhome = \"persistent:x\"", 3, "fs.home"),
        ] {
            let error = meet(&Overrides::default(), text).unwrap_err();
            assert_eq!((error.line, error.key.as_deref()), (Some(line), Some(key)), "{error}");
            assert_eq!(error.problem, Problem::Widens, "{error}");
            assert!(error.to_string().starts_with("/ws/.mews.toml:"), "{error}");
        }
    }

    #[test]
    fn what_a_policy_demands_is_demanded_still() {
        let text =
            "version = 1\nextends = \"shell\"\n[fs]\nmissing = \"error\"\nhide = [\".env\"]\n";
        let source = PolicySource::File { path: "x.toml".to_owned(), text: text.to_owned() };
        let policy = load(&source, &[]).unwrap();
        let demanded = |missing: &str, policy: &Policy| {
            let text = format!("version = 1\n[fs]\n{missing}hide = [\".env\", \".key\"]\n");
            let project = Project::parse("/ws/.mews.toml", &text).unwrap();
            let (met, _) = policy.clone().tightened(&project, policy).unwrap();
            let of = |path: &str| {
                let last = met.said.iter().rev().find(|said| said.rule.to_string().ends_with(path));
                last.map(|said| said.required)
            };
            (of(".env"), of(".key"))
        };
        assert_eq!(demanded("", &policy), (Some(true), Some(false)));
        assert_eq!(demanded("missing = \"error\"\n", &policy), (Some(true), Some(true)));
        let lax = policy.clone();
        let lax = Policy {
            said: lax
                .said
                .into_iter()
                .map(|said| super::super::Said { required: false, ..said })
                .collect(),
            ..lax
        };
        assert_eq!(demanded("missing = \"error\"\n", &lax), (Some(true), Some(true)));
    }

    #[test]
    fn a_file_of_many_lines_is_refused_by_its_line() {
        let items = |count: usize| "\"a\",\n".repeat(count);
        let text = |count| format!("version = 1\n[fs]\nhide = [\n{}]\n", items(count));
        assert!(Project::parse("p", &text(GUARDS_MAX)).is_ok());
        let error = Project::parse("p", &text(GUARDS_MAX + 1)).unwrap_err().to_string();
        assert!(error.contains("p:260: fs.hide: 256 lines at most"), "{error}");
    }

    #[test]
    fn what_tightens_is_told_with_its_line() {
        let text = "require = [\"cgroup.pids\"]\n[fs]\nhide = [\".env\"]\nprotect = [\".git\"]\n\
                    workspace = \"overlay\"\n[limits]\nmemory = \"1G\"\npids = 512\nidle = \"5m\"\n\
                    [terminal]\nenabled = false\n";
        let (policy, done) = meet(&Overrides::default(), text).unwrap();
        let done: Vec<_> =
            done.iter().map(|t| (t.key.as_str(), t.value.as_str(), t.line)).collect();
        let wanted = [
            ("limits.memory", "1G", 8),
            ("limits.idle", "5m", 10),
            ("fs.workspace", "overlay", 6),
            ("terminal.enabled", "false", 12),
            ("require", "cgroup.pids", 2),
            ("fs.hide", "$WORKSPACE/.env", 4),
            ("fs.protect", "$WORKSPACE/.git", 5),
        ];
        assert_eq!(done, wanted);
        assert_eq!(policy.limits.memory_bytes, Some(1 << 30));
        assert_eq!(policy.workspace, WorkspaceMode::Overlay);
        assert_ne!(policy.hash, shell().hash);
    }

    #[test]
    fn flags_may_be_tighter_and_wider_than_the_project() {
        let memory =
            |flag: &str| Overrides { memory: Some(flag.to_owned()), ..Overrides::default() };
        for (flag, project, result) in
            [("1G", "2G", Some(1 << 30)), ("8G", "6G", Some(6 << 30)), ("8G", "9G", None)]
        {
            let met = meet(&memory(flag), &format!("[limits]\nmemory = \"{project}\""));
            assert_eq!(met.ok().and_then(|(policy, _)| policy.limits.memory_bytes), result);
        }
        let apart = Overrides { workspace_mode: Some(WorkspaceMode::Copy), ..Overrides::default() };
        assert!(meet(&apart, "[fs]\nworkspace = \"direct\"").is_err());
        let (policy, _) = meet(&apart, "[fs]\nworkspace = \"overlay\"").unwrap();
        assert_eq!(policy.workspace, WorkspaceMode::Copy);
    }

    #[test]
    fn only_a_plain_file_of_some_size_is_read() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join(PROJECT_FILE);
        let said = || read_project(folder.path()).map(|found| found.is_some());
        let error = || said().unwrap_err().to_string();
        assert_eq!(said(), Ok(false));
        std::fs::write(&path, "version = 1\n").unwrap();
        assert_eq!(said(), Ok(true));
        std::fs::write(&path, "version = 1\n#".to_owned() + &"x".repeat(300_000)).unwrap();
        assert!(error().contains("larger than"), "{}", error());
        std::fs::write(&path, [0xff, 0xfe]).unwrap();
        assert!(error().contains("UTF-8"), "{}", error());
        std::fs::remove_file(&path).unwrap();
        symlink("/etc/passwd", &path).unwrap();
        assert!(error().contains("is a link"), "{}", error());
        std::fs::remove_file(&path).unwrap();
        symlink("nowhere", &path).unwrap();
        assert!(error().contains("is a link"), "{}", error());
        std::fs::remove_file(&path).unwrap();
        nix::unistd::mkfifo(&path, nix::sys::stat::Mode::S_IRWXU).unwrap();
        assert!(error().contains("plain file"), "{}", error());
        std::fs::remove_file(&path).unwrap();
        std::fs::create_dir(&path).unwrap();
        assert!(error().contains("plain file"), "{}", error());
    }

    proptest! {
        /// Whatever a project file says: it is refused, or nothing is wider than without it, and twice
        /// is the same as once.
        #[test]
        fn a_meet(
            pids in proptest::option::of(8_u64..2000),
            flag in proptest::option::of(8_u64..2000),
            idle in proptest::option::of(1_u64..9),
            mode in proptest::option::of(prop_oneof!["direct", "overlay", "copy"]),
            paths in proptest::collection::vec("[a-c]{1,2}(/[a-c])?", 0..4),
        ) {
            let paths: Vec<String> = paths.into_iter().map(|path| format!("{path:?}")).collect();
            let mut text = format!("[fs]\nhide = [{}]\n", paths.join(", "));
            text += &mode.map(|mode| format!("workspace = {mode:?}\n")).unwrap_or_default();
            text += "[limits]\n";
            text += &pids.map(|pids| format!("pids = {pids}\n")).unwrap_or_default();
            text += &idle.map(|idle| format!("idle = \"{idle}s\"\n")).unwrap_or_default();
            let flags = Overrides { pids: flag, ..Overrides::default() };
            let own = shell().with_overrides(&flags).unwrap();
            if let Ok((met, _)) = meet(&flags, &text) {
                prop_assert!(met.limits.pids <= own.limits.pids);
                prop_assert!(met.limits.idle_ms.is_some() || idle.is_none());
                prop_assert!(own.hide.iter().all(|rule| met.hide.contains(rule)));
                prop_assert_eq!(&met.read, &own.read);
                prop_assert_eq!(&met.write, &own.write);
                let project = Project::parse("/ws/.mews.toml", &format!("version = 1\n{text}"));
                let (twice, done) = met.clone().tightened(&project.unwrap(), &shell()).unwrap();
                prop_assert_eq!(twice.limits, met.limits);
                prop_assert!(done.is_empty());
            }
        }
    }
}
