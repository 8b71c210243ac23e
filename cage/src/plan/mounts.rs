//! The cage's root: built up from nothing, one mount for each thing that is lent.
//!
//! A mount costs about 0.2 ms in bwrap, so what can be a link is a link, and what is already there
//! is left alone. Lists are grants: a path that is readable by one line and writable by another is
//! writable.

use super::paths::{self, ancestors, below, joined, within};
use super::{
    HostPaths, Mount, MountKind, PathKind, PlanError, Request, Role, Source, SourceKind, User,
    Workspace,
};
use crate::policy::{Base, Home, Listed, PathRule, Policy, Said, TmpfsRule};
use std::collections::BTreeMap;
use std::path::Path;
use wire::Arg;

/// More mounts than this and a note says what it costs.
pub(super) const MOUNTS_MANY: usize = 24;
/// In which granted sockets are seen inside.
const SOCKETS: &str = "/run/mews";
const HOME_BYTES: u64 = 512 << 20;
const SHM_BYTES: u64 = 256 << 20;
const TMPFS_BYTES: u64 = 256 << 20;

/// The tree while it grows. Keys are the places inside; a parent sorts before its children.
pub(super) struct Tree<'a> {
    pub(super) places: BTreeMap<String, MountKind>,
    pub(super) sources: Vec<Source>,
    pub(super) notes: Vec<String>,
    pub(super) host: &'a dyn HostPaths,
    pub(super) request: &'a Request,
    pub(super) workspace: &'a Workspace,
    user: &'a User,
    said: Vec<Said>,
}

/// One line of `fs.read` or `fs.write`, with its variables replaced.
struct Grant {
    host: String,
    inside: String,
    writable: bool,
    role: Role,
    from: String,
    /// The line's key, or the flag.
    key: &'static str,
    /// In which file; absent for a flag.
    said: Option<Said>,
}

impl<'a> Tree<'a> {
    pub(super) fn new(
        policy: &Policy,
        request: &'a Request,
        workspace: &'a Workspace,
        user: &'a User,
        host: &'a dyn HostPaths,
    ) -> Self {
        let mut places = BTreeMap::new();
        places.insert("/proc".to_owned(), MountKind::Proc);
        places.insert("/dev".to_owned(), MountKind::Dev);
        // The rest of /dev is made read-only, which must not hit shared memory.
        places.insert("/dev/shm".to_owned(), tmpfs(Some(SHM_BYTES), 0o1777));
        for file in paths::SYNTHETIC {
            places.insert((*file).to_owned(), MountKind::Data);
        }
        let said = policy.said.clone();
        let (sources, notes) = (Vec::new(), Vec::new());
        Self { places, sources, notes, host, request, workspace, user, said }
    }

    /// Puts up all that the policy names.
    pub(super) fn grow(&mut self, policy: &Policy) -> Result<(), PlanError> {
        self.put_home(&policy.home)?;
        for rule in &policy.tmpfs {
            self.put_tmpfs(rule)?;
        }
        // Writable ones first: a line of `read` below them takes nothing away.
        for (rules, writable) in [(&policy.write, true), (&policy.read, false)] {
            for rule in rules {
                let grant = self.grant(rule, writable)?;
                self.put(&grant)?;
            }
        }
        self.put_var_tmp();
        self.check_mount_points()
    }

    /// Programs expect it; a link costs no mount.
    fn put_var_tmp(&mut self) {
        let is_free = !self.places.keys().any(|place| within(place, "/var/tmp") || place == "/var");
        if is_free && self.places.contains_key("/tmp") {
            let target = "/tmp".to_owned();
            self.places.insert("/var/tmp".to_owned(), MountKind::Symlink { target });
        }
    }

    pub(super) fn finish(self) -> (Vec<Mount>, Vec<Source>, Vec<String>) {
        let mounts =
            self.places.into_iter().map(|(dest, kind)| Mount { dest, kind }).collect::<Vec<_>>();
        (mounts, self.sources, self.notes)
    }

    fn put_home(&mut self, home: &Home) -> Result<(), PlanError> {
        let kind = match home {
            Home::Private => tmpfs(Some(HOME_BYTES), 0o700),
            Home::Persistent(name) => {
                let path = self.request.homes.join(&name.0);
                let host = utf8(&path, "fs.home")?;
                self.bind(Source {
                    host,
                    kind: SourceKind::Folder,
                    writable: true,
                    role: Role::Home,
                })
            }
        };
        self.places.insert(self.user.home.clone(), kind);
        Ok(())
    }

    fn put_tmpfs(&mut self, rule: &TmpfsRule) -> Result<(), PlanError> {
        let dest = self.inside(&rule.path);
        let refused = |why: &str| {
            Err(PlanError::Path {
                key: "fs.tmpfs".to_owned(),
                path: rule.path.to_string(),
                why: why.to_owned(),
            })
        };
        if dest == "/"
            || ["/proc", "/dev"].iter().any(|own| within(&dest, own) && dest != "/dev/shm")
        {
            return refused("the cage has its own there; name another folder");
        }
        if dest == self.workspace.inside {
            return refused("would hide the workspace; name a folder in it");
        }
        let mode = if dest == self.user.home { 0o700 } else { 0o1777 };
        let size = rule.size.map_or(TMPFS_BYTES, |size| size.0);
        self.places.insert(dest, tmpfs(Some(size), mode));
        Ok(())
    }

    fn inside(&self, rule: &PathRule) -> String {
        let base = match rule.base {
            Base::Root => "/",
            Base::Workspace => &self.workspace.inside,
            Base::Home => &self.user.home,
        };
        joined(base, &rule.rest)
    }

    fn grant(&self, rule: &PathRule, writable: bool) -> Result<Grant, PlanError> {
        let key = self.key(rule, writable);
        let base = match rule.base {
            Base::Root => "/".to_owned(),
            Base::Workspace => self.workspace.host.clone(),
            Base::Home => match &self.request.operator.home {
                Some(home) => utf8(home, key)?,
                None => "/nonexistent".to_owned(),
            },
        };
        let is_workspace = rule.base == Base::Workspace;
        let role = match (is_workspace, writable) {
            (true, _) => Role::Workspace,
            (false, true) => Role::Write,
            (false, false) => Role::Read,
        };
        Ok(Grant {
            host: joined(&base, &rule.rest),
            inside: self.inside(rule),
            writable,
            role,
            from: rule.to_string(),
            key,
            said: self.said_at(rule, writable, key),
        })
    }

    fn said_at(&self, rule: &PathRule, writable: bool, key: &str) -> Option<Said> {
        let by_file = !key.starts_with("--");
        let mut told = self.said.iter().rev().filter(|_said| by_file);
        let list = if writable { Listed::Write } else { Listed::Read };
        told.find(|said| said.rule == *rule && said.list == list).cloned()
    }

    /// Where the rule was said.
    fn key(&self, rule: &PathRule, writable: bool) -> &'static str {
        let said = &self.request.overrides;
        let (flags, flag, key) = match writable {
            true => (&said.write, "--write", "fs.write"),
            false => (&said.read, "--read", "fs.read"),
        };
        let is_flag = |text: &Arg| {
            std::str::from_utf8(text.as_bytes())
                .is_ok_and(|text| PathRule::literal(text).as_ref() == Ok(rule))
        };
        if flags.iter().any(is_flag) { flag } else { key }
    }

    fn put(&mut self, grant: &Grant) -> Result<(), PlanError> {
        grant.check_named()?;
        let Some(canonical) = self.host.canonical(Path::new(&grant.host)) else {
            return self.put_missing(grant);
        };
        let canonical = utf8(&canonical, grant.key)?;
        self.check(grant, &canonical)?;
        if self.is_there(&grant.inside, &canonical, grant.writable) {
            return Ok(());
        }
        if self.put_link(grant, &canonical) {
            return Ok(());
        }
        let kind = match self.host.kind(Path::new(&canonical)) {
            Some(PathKind::Folder) => SourceKind::Folder,
            Some(PathKind::File) => SourceKind::File,
            Some(PathKind::Socket) => {
                return Err(grant.refused("is a socket; lend it with [[net.socket]]"));
            }
            Some(PathKind::Other) | None => {
                return Err(grant.refused("is neither a file nor a folder and is not lent"));
            }
        };
        let (writable, role) = (grant.writable, grant.role);
        let bind = self.bind(Source { host: canonical, kind, writable, role });
        self.places.insert(grant.inside.clone(), bind);
        Ok(())
    }

    fn put_missing(&mut self, grant: &Grant) -> Result<(), PlanError> {
        // A writable path that is missing is an error in any case: the program would fail later,
        // with words that do not lead here.
        let required = grant.said.as_ref().is_some_and(|said| said.required);
        if required || grant.writable {
            return Err(grant.refused("does not exist; make it or take it out"));
        }
        // On the command line it was meant.
        if grant.key == "--read" {
            return Err(grant.refused("does not exist; check the path"));
        }
        Ok(())
    }

    fn check(&self, grant: &Grant, canonical: &str) -> Result<(), PlanError> {
        if grant.role == Role::Workspace {
            // The workspace itself was checked; what is named below it must not lead out of it.
            return match within(canonical, &self.workspace.host) {
                true => Ok(()),
                false => Err(grant.refused("is a link that leads out of the workspace")),
            };
        }
        if let Some(why) = paths::closed(canonical, grant.writable) {
            return Err(grant.refused(&why));
        }
        let never = if grant.writable {
            [&self.request.never[..], &self.request.never_write[..]].concat()
        } else {
            self.request.never.clone()
        };
        match paths::meets(canonical, &never) {
            Some(ours) => {
                Err(grant.refused(&format!("meets mews's own folder {}", ours.display())))
            }
            None => Ok(()),
        }
    }

    /// Is this thing of the host already seen at this place, with at least these rights?
    fn is_there(&self, inside: &str, canonical: &str, writable: bool) -> bool {
        let above = std::iter::once(inside).chain(ancestors(inside));
        let nearest = above.filter_map(|place| Some((place, self.places.get(place)?))).next();
        match nearest {
            Some((place, MountKind::Bind { source, writable: given })) => {
                let seen = self.sources.get(*source).zip(below(inside, place));
                seen.is_some_and(|(source, rest)| joined(&source.host, rest) == canonical)
                    && (*given || !writable)
            }
            // Behind a link: `/bin/x` where `/bin` leads to `usr/bin`.
            Some((place, MountKind::Symlink { target })) => {
                let to = paths::link_target(place, Path::new(target)).zip(below(inside, place));
                to.is_some_and(|(to, rest)| self.is_there(&joined(&to, rest), canonical, writable))
            }
            _ => false,
        }
    }

    /// A link on the host whose target is already here becomes a link.
    fn put_link(&mut self, grant: &Grant, canonical: &str) -> bool {
        if !self.is_there(canonical, canonical, grant.writable) {
            return false;
        }
        let target = match self.host.link(Path::new(&grant.host)) {
            Some(link) if self.leads_to(&grant.inside, &link, canonical) => {
                link.to_string_lossy().into_owned()
            }
            _ => canonical.to_owned(),
        };
        self.places.insert(grant.inside.clone(), MountKind::Symlink { target });
        true
    }

    fn leads_to(&self, at: &str, link: &Path, canonical: &str) -> bool {
        let to = link.to_str().and_then(|_utf8| paths::link_target(at, link));
        to.is_some_and(|to| self.is_there(&to, canonical, false))
    }

    pub(super) fn bind(&mut self, source: Source) -> MountKind {
        let writable = source.writable;
        let known = self.sources.iter().position(|old| *old == source);
        let source = known.unwrap_or_else(|| {
            self.sources.push(source);
            self.sources.len() - 1
        });
        MountKind::Bind { source, writable }
    }

    /// A Unix socket of the host; the answer is where it is seen.
    pub(super) fn put_socket(&mut self, host: String, number: usize) -> String {
        let inside = format!("{SOCKETS}/socket-{number}");
        let source = Source { host, kind: SourceKind::Socket, writable: false, role: Role::Socket };
        let bind = self.bind(source);
        self.places.insert(inside.clone(), bind);
        inside
    }

    /// bwrap makes the place that it mounts on. In a folder of the operator's that would leave an
    /// empty folder behind, and in a read-only one it fails: such a place must be there already.
    fn check_mount_points(&self) -> Result<(), PlanError> {
        for place in self.places.keys() {
            let above =
                ancestors(place).find_map(|parent| Some((parent, self.places.get(parent)?)));
            let why = match above {
                Some((parent, MountKind::Bind { source, .. })) => {
                    let Some(lent) = self.sources.get(*source) else { continue };
                    let host = joined(&lent.host, below(place, parent).unwrap_or(""));
                    if lent.role == Role::Home || self.host.kind(Path::new(&host)).is_some() {
                        continue;
                    }
                    format!("lies in {}, where it does not exist; make it there first", lent.host)
                }
                Some((parent, MountKind::Symlink { target })) => {
                    format!("lies behind the link {parent} → {target}; name the place it leads to")
                }
                _ => continue,
            };
            return Err(PlanError::Path { key: "fs".to_owned(), path: place.clone(), why });
        }
        Ok(())
    }
}

impl Grant {
    /// By its name alone, whether or not it is there.
    fn check_named(&self) -> Result<(), PlanError> {
        let why = match self.role {
            Role::Read | Role::Write => paths::closed(&self.host, self.writable),
            Role::Workspace | Role::Home | Role::Socket => None,
        };
        why.map_or(Ok(()), |why| Err(self.refused(&why)))
    }

    fn refused(&self, why: &str) -> PlanError {
        PlanError::of_path(self.said.as_ref(), self.key, &self.from, why)
    }
}

const fn tmpfs(size_bytes: Option<u64>, mode: u32) -> MountKind {
    MountKind::Tmpfs { size_bytes, mode }
}

pub(super) fn utf8(path: &Path, key: &str) -> Result<String, PlanError> {
    path.to_str().map(str::to_owned).ok_or_else(|| PlanError::Path {
        key: key.to_owned(),
        path: path.to_string_lossy().into_owned(),
        why: "is not UTF-8; rename it to lend it".to_owned(),
    })
}
