//! `fs.hide` and `fs.protect`: what lies in a lent folder and is not to be seen, or not to be changed.
//!
//! Each is a mount over the thing itself, wherever it is seen inside. In the cage a mount cannot be renamed,
//! exchanged or removed (outside, who replaces the thing takes the mount with it: the kernel keeps no
//! mount on a name that is gone), but a folder above it can, and whatever is made under the old name is free:
//! so every folder between a guarded thing and the writable mount that it lies in is mounted on itself.
//! What takes away goes over what lends: the order of lines says nothing.
//!
//! A name that is not there cannot be mounted on, and a link can be exchanged beside the mount: with
//! `missing = "error"` nothing starts, else the plan lists such names as not guarded. A pattern means what
//! has such a name now, and is listed for what comes later.

use super::mounts::{Tree, utf8};
use super::paths::{ancestors, below, joined, within};
use super::patterns;
use super::{Guard, Guards, MountKind, PathKind, PlanError, Role, Source, SourceKind, Unguarded};
use crate::glob::Glob;
use crate::policy::{Base, GUARDS_MAX, Listed, PathRule, Policy, Said};
use std::path::Path;

/// One line of `fs.hide` or `fs.protect`.
struct Line<'a> {
    list: Listed,
    rule: &'a PathRule,
    said: Option<&'a Said>,
    /// On the host, by its letters; of a pattern, the folder that all it means lies in.
    host: String,
    /// One thing that a pattern means.
    is_found: bool,
}

/// Lays both lists over what is lent.
pub(super) fn lay(policy: &Policy, tree: &mut Tree<'_>) -> Result<Guards, PlanError> {
    let mut guards = Guards::default();
    let lent = tree.places.len();
    let mut walked = 0;
    for (list, rules) in [(Listed::Hide, &policy.hide), (Listed::Protect, &policy.protect)] {
        let mut lines = Vec::new();
        // One more than there may be is refused below, and no more are looked at.
        for rule in rules.iter().take(GUARDS_MAX + 1) {
            match rule.pattern() {
                None => lines.push(Line::of(list, rule, rule, policy, tree)?),
                Some((folder, glob)) => {
                    let line = Line::of(list, rule, &folder, policy, tree)?;
                    lines.extend(line.meant(&glob, tree, &mut guards, &mut walked)?);
                }
            }
        }
        // Folders before what is in them: that is then guarded already.
        lines.sort_by(|one, other| one.host.cmp(&other.host));
        for line in lines {
            line.lay(tree, &mut guards)?;
            if rules.len() > GUARDS_MAX || tree.places.len() > lent + GUARDS_MAX {
                let words = format!(
                    "is one too many: {GUARDS_MAX} mounts at most guard something; name the folders \
                     above"
                );
                return Err(line.refused(&words));
            }
        }
    }
    Ok(guards)
}

impl<'a> Line<'a> {
    fn of(
        list: Listed,
        rule: &'a PathRule,
        place: &PathRule,
        policy: &'a Policy,
        tree: &Tree<'_>,
    ) -> Result<Self, PlanError> {
        let base = tree.base(place.base, list.key())?;
        let mut told = policy.said.iter().rev();
        let said = told.find(|said| said.list == list && said.rule == *rule);
        Ok(Self { list, rule, said, host: joined(&base, &place.rest), is_found: false })
    }

    /// One line for each thing that the pattern means now.
    fn meant(
        &self,
        glob: &Glob,
        tree: &Tree<'_>,
        guards: &mut Guards,
        walked: &mut usize,
    ) -> Result<Vec<Self>, PlanError> {
        let meant =
            patterns::meant(glob, &self.host, tree, walked).map_err(|why| self.refused(&why))?;
        for why in &meant.unread {
            self.unguarded(why, guards)?;
        }
        if meant.things.is_empty() && self.said.is_some_and(|said| said.required) {
            return Err(self.refused("means nothing that exists; make it, or take it out"));
        }
        if self.is_open(tree) {
            let why = "is a pattern for what exists now";
            guards.open.push(Unguarded::of(self.list.key(), self.rule, why));
        }
        let line = |host| Self { host, is_found: true, ..*self };
        Ok(meant.things.into_iter().map(line).collect())
    }

    fn lay(&self, tree: &mut Tree<'_>, guards: &mut Guards) -> Result<(), PlanError> {
        let Some(found) = tree.host.canonical(Path::new(&self.host)) else {
            return self.missing(tree, guards);
        };
        let host = utf8(&found, self.list.key())?;
        let places = match self.list {
            Listed::Hide => self.hide(&host, tree)?,
            Listed::Protect => {
                let is_odd = matches!(
                    tree.host.kind(&found),
                    Some(PathKind::Socket | PathKind::Other) | None
                );
                if is_odd {
                    let why = "is neither a file nor a folder and cannot be protected";
                    return self.unguarded(why, guards);
                }
                if host != self.host && self.is_open(tree) {
                    let why = "leads through a link, which a program could exchange; name the place \
                               it leads to";
                    return self.unguarded(why, guards);
                }
                self.protect(&host, tree)
            }
            Listed::Read | Listed::Write => return Ok(()),
        };
        if !places.is_empty() && tree.host.names(&found) > 1 {
            let why = "is a file with another name beside this one (a hard link), by which it is \
                       reached all the same; make it a file of its own";
            self.unguarded(why, guards)?;
        }
        let guard = Guard { rule: self.rule.to_string(), host, places };
        match self.list {
            Listed::Hide => guards.hidden.push(guard),
            Listed::Protect | Listed::Read | Listed::Write => guards.protected.push(guard),
        }
        Ok(())
    }

    fn missing(&self, tree: &Tree<'_>, guards: &mut Guards) -> Result<(), PlanError> {
        if self.said.is_some_and(|said| said.required) {
            return Err(self.refused("does not exist; make it, or take it out"));
        }
        if self.is_open(tree) {
            let why = self.named("does not exist");
            guards.open.push(Unguarded::of(self.list.key(), self.rule, &why));
        }
        Ok(())
    }

    /// Cannot be guarded as it is: an error where somebody asked for this very path, told where a
    /// shipped policy lists it for many folders.
    fn unguarded(&self, why: &str, guards: &mut Guards) -> Result<(), PlanError> {
        let of_preset = self.said.is_some_and(|said| said.is_preset() && !said.required);
        if !of_preset {
            return Err(self.refused(why));
        }
        let why = self.named(why);
        guards.open.push(Unguarded::of(self.list.key(), self.rule, &why));
        Ok(())
    }

    /// Could a program of the cage make something under this name (or, of what is hidden, see it)?
    fn is_open(&self, tree: &Tree<'_>) -> bool {
        // Of a folder that holds what is lent, the spots are not the folder itself.
        let counts = |spot: &Spot| !spot.is_part && (spot.writable || self.list == Listed::Hide);
        // What a pattern means lies in the folder itself.
        let is_folder = self.rule.is_pattern && !self.is_found;
        let folder = Some(self.host.as_str()).filter(|_| is_folder);
        for folder in folder.into_iter().chain(ancestors(&self.host)) {
            let real = tree.host.canonical(Path::new(folder));
            let Some(real) = real.as_ref().and_then(|path| path.to_str()) else { continue };
            if tree.spots(real).iter().any(counts) {
                return true;
            }
            // Behind a link the folders above the link count too.
            if real == folder {
                return false;
            }
        }
        false
    }

    fn hide(&self, host: &str, tree: &mut Tree<'_>) -> Result<Vec<String>, PlanError> {
        if within(&tree.workspace.host, host) {
            return Err(self.refused("holds the workspace; name what is in it"));
        }
        let mut places = Vec::new();
        for spot in tree.spots(host) {
            let folder = match spot.is_part {
                true => tree.is_folder(&spot.lent),
                false => tree.host.kind(Path::new(host)) == Some(PathKind::Folder),
            };
            self.clear_below(&spot.dest, host, tree)?;
            tree.pin(&spot);
            tree.places.insert(spot.dest.clone(), MountKind::Hidden { folder });
            places.push(spot.dest);
        }
        Ok(places)
    }

    /// What was lent on its own within a hidden folder is hidden with it.
    fn clear_below(&self, dest: &str, host: &str, tree: &mut Tree<'_>) -> Result<(), PlanError> {
        let inner = |place: &&String| *place != dest && within(place, dest);
        let inner: Vec<String> = tree.places.keys().filter(inner).cloned().collect();
        for place in inner {
            let is_of_it = match tree.places.get(&place) {
                Some(MountKind::Bind { source, .. }) => {
                    tree.sources.get(*source).is_some_and(|source| within(&source.host, host))
                }
                Some(MountKind::Hidden { .. } | MountKind::Symlink { .. }) => true,
                _ => false,
            };
            if !is_of_it {
                return Err(self.refused(&format!(
                    "holds {place}, which the cage needs; name what \
                                                  is to be hidden in it"
                )));
            }
            tree.places.remove(&place);
        }
        Ok(())
    }

    fn protect(&self, host: &str, tree: &mut Tree<'_>) -> Vec<String> {
        let kind = match tree.is_folder(host) {
            true => SourceKind::Folder,
            false => SourceKind::File,
        };
        let mut places = Vec::new();
        for spot in tree.spots(host).into_iter().filter(|spot| spot.writable) {
            if let Some(MountKind::Bind { writable, .. }) = tree.places.get_mut(&spot.dest) {
                *writable = false;
            } else {
                tree.pin(&spot);
                let role = spot.role;
                let source = Source { host: host.to_owned(), kind, writable: false, role };
                let bind = tree.bind(source);
                tree.places.insert(spot.dest.clone(), bind);
            }
            places.push(spot.dest);
        }
        places
    }

    fn refused(&self, why: &str) -> PlanError {
        let (rule, why) = (self.rule.to_string(), self.named(why));
        PlanError::of_path(self.said, self.list.key(), &rule, &why)
    }

    /// Of one thing that a pattern means: with its name.
    fn named(&self, why: &str) -> String {
        match self.is_found {
            true => format!("means {}, which {why}", self.host),
            false => why.to_owned(),
        }
    }
}

impl Unguarded {
    fn of(key: &str, rule: &PathRule, why: &str) -> Self {
        Self { key: key.to_owned(), path: rule.to_string(), why: why.to_owned() }
    }
}

/// Where something of the host, or a part of it, is seen inside.
pub(super) struct Spot {
    dest: String,
    /// The mount that it is seen by, and what is lent there.
    place: String,
    lent: String,
    writable: bool,
    role: Role,
    /// What is seen here is only a part of what was asked for.
    is_part: bool,
}

impl Tree<'_> {
    /// Where a line's paths begin, on the host.
    pub(super) fn base(&self, base: Base, key: &str) -> Result<String, PlanError> {
        Ok(match base {
            Base::Root => "/".to_owned(),
            Base::Workspace => self.workspace.host.clone(),
            Base::Home => match &self.request.operator.home {
                // By its real name: a link above it is nobody's to exchange.
                Some(home) => {
                    utf8(&self.host.canonical(home).unwrap_or_else(|| home.clone()), key)?
                }
                None => "/nonexistent".to_owned(),
            },
        })
    }

    fn is_folder(&self, host: &str) -> bool {
        self.host.kind(Path::new(host)) == Some(PathKind::Folder)
    }

    /// By every mount that shows it; what lies under another mount is not seen.
    pub(super) fn spots(&self, host: &str) -> Vec<Spot> {
        let mut spots = Vec::new();
        for (place, kind) in &self.places {
            let MountKind::Bind { source, writable } = kind else { continue };
            let Some(lent) = self.sources.get(*source) else { continue };
            if lent.role == Role::Socket {
                continue;
            }
            let (dest, is_part) = match below(host, &lent.host) {
                Some(rest) => (joined(place, rest), false),
                None if within(&lent.host, host) => (place.clone(), true),
                None => continue,
            };
            let is_mount = |at: &str| self.places.contains_key(at);
            let nearest = Some(dest.as_str()).filter(|at| is_mount(at));
            let nearest = nearest.or_else(|| ancestors(&dest).find(|at| is_mount(at)));
            if nearest != Some(place.as_str()) {
                continue;
            }
            // A home is made by its role; a part of it is not one.
            let role = if lent.role == Role::Home { Role::Write } else { lent.role };
            let (place, lent, writable) = (place.clone(), lent.host.clone(), *writable);
            spots.push(Spot { dest, place, lent, writable, role, is_part });
        }
        spots
    }

    /// Mounts the folders between the spot and its mount on themselves.
    fn pin(&mut self, spot: &Spot) {
        if !spot.writable {
            return;
        }
        let between = |folder: &&str| *folder != spot.place && within(folder, &spot.place);
        for folder in ancestors(&spot.dest).take_while(between) {
            let host = joined(&spot.lent, below(folder, &spot.place).unwrap_or_default());
            let (kind, role) = (SourceKind::Folder, spot.role);
            let bind = self.bind(Source { host, kind, writable: true, role });
            self.places.insert(folder.to_owned(), bind);
        }
    }
}
