//! Sources of a cage whose uid is not the operator's: detached clones of the operator's folders,
//! files and sockets, seen through a user namespace in which the operator's id is the cage's.
//!
//! They are opened and cloned here, in our own mount namespace (a descriptor from another one cannot
//! be cloned), and attached by the broker's child in *its* own namespace, below a tmpfs that covers
//! an empty folder. So a crash leaves nothing to unmount, and bwrap finds them by path.

use crate::files;
use crate::layers::Layer;
use crate::supervisor::Supervisor;
use crate::sys;
use crate::sys::child::{Attach, IdMaps, MountPlan, Overlay, Tree};
use ::cage::plan::{CagePlan, Role, Source, SourceKind};
use nix::fcntl::{OFlag, OpenHow, ResolveFlag, openat2};
use std::ffi::CString;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::rc::Rc;
use wire::WorkspaceMode;

#[derive(Debug, thiserror::Error)]
pub(crate) enum MountError {
    #[error("{path} cannot be opened: {source}")]
    Open { path: String, source: io::Error },
    #[error("{path} cannot be lent: {source}")]
    Clone { path: String, source: io::Error },
    #[error(
        "{path} cannot be lent to another uid: its file system does not support idmapped mounts \
         ({source}). Put it on ext4, xfs or btrfs (tmpfs from Linux 6.3 on), or start mews as an \
         ordinary user"
    )]
    Idmap { path: String, source: io::Error },
    #[error("a user namespace for the cage's uid: {0}")]
    Namespace(io::Error),
    #[error("no folder can be reached by the cage's uid to attach its sources in")]
    NoPlace,
}

/// Where bwrap finds each source, and what is attached there.
#[derive(Debug, Default)]
pub(crate) struct Lent {
    /// By index into [`CagePlan::sources`].
    pub(crate) paths: Vec<PathBuf>,
    pub(crate) mounts: Option<MountPlan>,
    /// Those that bwrap goes to by the plan's own name, as they are now: names can be exchanged while
    /// it does.
    pub(crate) named: Vec<Named>,
}

/// A source, by index into [`CagePlan::sources`], and what its name stands for.
#[derive(Debug)]
pub(crate) struct Named {
    pub(crate) source: usize,
    pub(crate) what: OwnedFd,
}

/// By whose rights a cage reaches what it is lent: another uid's than the operator's, the operator's
/// own under root, or ours.
pub(crate) fn lend(
    supervisor: &Supervisor,
    plan: &CagePlan,
    operator: u32,
    layer: Option<&Layer>,
) -> Result<Lent, MountError> {
    let is_own = plan.user.uid == operator;
    let mut lent = match (supervisor.host.is_root(), is_own) {
        (true, false) => to_another_uid(supervisor, plan, layer),
        (true, true) => own(supervisor, plan, layer),
        (false, _) => in_place(supervisor, plan, layer),
    }?;
    let name = || named(plan, &lent.paths);
    lent.named = if supervisor.host.is_root() && is_own {
        let failed =
            |error| MountError::Open { path: "the operator's files".to_owned(), source: error };
        sys::with_rights_of(plan.user.uid, plan.user.gid, name).map_err(failed)??
    } else {
        name()?
    };
    Ok(lent)
}

fn named(plan: &CagePlan, paths: &[PathBuf]) -> Result<Vec<Named>, MountError> {
    let by_name = plan.sources.iter().zip(paths).enumerate();
    let by_name = by_name.filter(|(_, (source, path))| path.as_os_str() == source.host.as_str());
    by_name.map(|(index, (source, _))| Ok(Named { source: index, what: open(source)? })).collect()
}

/// As an ordinary user everything is used where it is, but for a workspace with a layer over it.
fn in_place(
    supervisor: &Supervisor,
    plan: &CagePlan,
    layer: Option<&Layer>,
) -> Result<Lent, MountError> {
    let host = &supervisor.host;
    let (workspace, mounts) = match layer.map(|layer| (layer, layer.mode())) {
        Some((layer, WorkspaceMode::Overlay)) => {
            let mut growing = Growing::new(place(&host.dirs.mnt())?);
            let folder = Tree::Path(cstring(Path::new(&plan.workspace.host))?);
            let merged = growing.lay_over(folder, Tree::Path(cstring(&layer.live())?))?;
            let one = |id: u32| CString::new(format!("{id} {id} 1")).unwrap_or_default();
            let ids = IdMaps { uids: one(host.uid), gids: one(host.gid) };
            (merged, Some(growing.finish(Some(ids), Vec::new())?))
        }
        Some((layer, WorkspaceMode::Copy)) => (layer.tree(), None),
        Some((_, WorkspaceMode::Direct)) | None => (PathBuf::from(&plan.workspace.host), None),
    };
    let paths = plan.sources.iter().map(|source| below(plan, source, &workspace)).collect();
    Ok(Lent { paths, mounts, named: Vec::new() })
}

/// A cage of the operator's own uid finds what is lent where it is, by the operator's own rights, but
/// for a workspace with a layer: that lies behind a folder of ours.
fn own(
    supervisor: &Supervisor,
    plan: &CagePlan,
    layer: Option<&Layer>,
) -> Result<Lent, MountError> {
    let Some(layer) = layer else { return in_place(supervisor, plan, None) };
    let mut growing = Growing::new(place(&supervisor.host.dirs.mnt())?);
    let workspace = if layer.mode() == WorkspaceMode::Copy {
        growing.add(Tree::Detached(clone_own(&layer.tree())?), true)?
    } else {
        let folder =
            open_as(&whole_workspace(&plan.workspace.host), (plan.user.uid, plan.user.gid))?;
        let failed = |source| MountError::Clone { path: plan.workspace.host.clone(), source };
        let folder = sys::clone_tree(folder.as_fd(), false).map_err(failed)?;
        growing.lay_over(Tree::Detached(folder), Tree::Detached(clone_own(&layer.live())?))?
    };
    let paths = plan.sources.iter().map(|source| below(plan, source, &workspace)).collect();
    let mounts = Some(growing.finish(None, Vec::new())?);
    Ok(Lent { paths, mounts, named: Vec::new() })
}

/// Clones what the cage's uid could not reach or write by itself.
fn to_another_uid(
    supervisor: &Supervisor,
    plan: &CagePlan,
    layer: Option<&Layer>,
) -> Result<Lent, MountError> {
    let uid = plan.user.uid;
    let mut growing = Growing::new(place(&supervisor.host.dirs.mnt())?);
    let mut paths = Vec::new();
    let mut workspace = None;
    for source in &plan.sources {
        if is_everybodys(source) {
            paths.push(PathBuf::from(&source.host));
            continue;
        }
        if let Some(layer) = layer.filter(|_layer| source.role == Role::Workspace) {
            let at = match &workspace {
                Some(at) => at,
                None => workspace.insert(lend_layer(supervisor, plan, layer, &mut growing)?),
            };
            paths.push(below(plan, source, at));
            continue;
        }
        let userns = userns(supervisor, uid).map_err(MountError::Namespace)?;
        let tree = Tree::Detached(clone(source, userns.as_fd())?);
        paths.push(growing.add(tree, source.kind == SourceKind::Folder)?);
    }
    let hidden = if plan.sources.iter().any(is_of_sys) { Vec::new() } else { vec![c"/sys".into()] };
    let mounts = if growing.attach.is_empty() { None } else { Some(growing.finish(None, hidden)?) };
    Ok(Lent { paths, mounts, named: Vec::new() })
}

/// Where the workspace is found: its folder with the layer over it, or the copy.
fn lend_layer(
    supervisor: &Supervisor,
    plan: &CagePlan,
    layer: &Layer,
    growing: &mut Growing,
) -> Result<PathBuf, MountError> {
    if layer.mode() == WorkspaceMode::Copy {
        return growing.add(Tree::Detached(clone_own(&layer.tree())?), true);
    }
    let userns = userns(supervisor, layer.uid()).map_err(MountError::Namespace)?;
    let folder = clone(&whole_workspace(&plan.workspace.host), userns.as_fd())?;
    growing.lay_over(Tree::Detached(folder), Tree::Detached(clone_own(&layer.live())?))
}

/// The operator's folder as a worker on a layer reaches it: a descriptor, seen as the cage's own.
pub(crate) fn origin(
    supervisor: &Supervisor,
    workspace: &str,
    (uid, gid): (u32, u32),
    operator: u32,
) -> Result<OwnedFd, MountError> {
    let source = whole_workspace(workspace);
    if supervisor.host.is_root() && uid == operator {
        return open_as(&source, (uid, gid));
    }
    if supervisor.host.is_root() {
        let userns = userns(supervisor, uid).map_err(MountError::Namespace)?;
        return clone(&source, userns.as_fd());
    }
    open(&source)
}

/// The place of a source of the plan, when the workspace is found at `workspace`.
fn below(plan: &CagePlan, source: &Source, workspace: &Path) -> PathBuf {
    let path = Path::new(&source.host);
    match path.strip_prefix(&plan.workspace.host) {
        Ok(rest) if source.role == Role::Workspace && rest.as_os_str().is_empty() => {
            workspace.to_owned()
        }
        Ok(rest) if source.role == Role::Workspace => workspace.join(rest),
        Ok(_) | Err(_) => path.to_owned(),
    }
}

fn whole_workspace(host: &str) -> Source {
    Source {
        host: host.to_owned(),
        kind: SourceKind::Folder,
        writable: true,
        role: Role::Workspace,
    }
}

/// What will be attached, while it grows.
#[derive(Debug)]
struct Growing {
    folder: PathBuf,
    attach: Vec<Attach>,
    overlay: Option<Overlay>,
}

impl Growing {
    fn new(folder: PathBuf) -> Self {
        Self { folder, attach: Vec::new(), overlay: None }
    }

    fn add(&mut self, tree: Tree, is_folder: bool) -> Result<PathBuf, MountError> {
        let path = self.folder.join(self.attach.len().to_string());
        self.attach.push(Attach { tree, target: cstring(&path)?, is_folder });
        Ok(path)
    }

    /// The numbers as names hold nothing that the options of a mount would have to escape.
    fn lay_over(&mut self, folder: Tree, layer: Tree) -> Result<PathBuf, MountError> {
        let target = self.folder.join("workspace");
        let folder = self.add(folder, true)?;
        let layer = self.add(layer, true)?;
        let (lower, layer_path) = (folder.display(), layer.display());
        // What other systems would do with a layer (redirect, metacopy) our own readers do not follow.
        let options = format!(
            "userxattr,index=off,redirect_dir=nofollow,metacopy=off,xino=off,\
             lowerdir={lower},upperdir={layer_path}/upper,workdir={layer_path}/work"
        );
        self.overlay = Some(Overlay {
            target: cstring(&target)?,
            options: CString::new(options).map_err(|_nul| MountError::NoPlace)?,
            layer: cstring(&layer)?,
        });
        Ok(target)
    }

    fn finish(self, ids: Option<IdMaps>, hidden: Vec<CString>) -> Result<MountPlan, MountError> {
        let folder = cstring(&self.folder)?;
        Ok(MountPlan { ids, folder, attach: self.attach, hidden, overlay: self.overlay })
    }
}

/// Whether it lies below /sys, or /sys below it. With its cgroups that is often the greater half of
/// all mounts of a host.
fn is_of_sys(source: &Source) -> bool {
    let path = Path::new(&source.host);
    path.starts_with("/sys") || Path::new("/sys").starts_with(path)
}

/// What everybody on this host can read anyway, and the cage is only to read: no clone is needed.
fn is_everybodys(source: &Source) -> bool {
    !source.writable
        && source.role == Role::Read
        && source.kind != SourceKind::Socket
        && is_reachable(Path::new(&source.host))
        && std::fs::metadata(&source.host).is_ok_and(|meta| {
            let wanted = if meta.is_dir() { 0o005 } else { 0o004 };
            meta.mode() & wanted == wanted
        })
}

/// Whether a stranger's uid can walk to this path.
fn is_reachable(path: &Path) -> bool {
    let mut above = path.ancestors().skip(1);
    above.all(|folder| std::fs::metadata(folder).is_ok_and(|meta| meta.mode() & 0o001 != 0))
}

/// An existing folder that the cage's uid can walk to; what it holds is covered in the broker's own
/// mount namespace alone. `<run>/mnt` is made for that, but `<run>` may lie in a private folder.
fn place(mnt: &Path) -> Result<PathBuf, MountError> {
    let candidates = [mnt, Path::new("/mnt"), Path::new("/media"), Path::new("/srv")];
    let found = candidates.into_iter().find(|path| path.is_dir() && is_reachable(path));
    found.map(Path::to_owned).ok_or(MountError::NoPlace)
}

/// The plan's paths are canonical: a link in one of them has come since, and is refused.
fn open(source: &Source) -> Result<OwnedFd, MountError> {
    let how = OpenHow::new()
        .flags(OFlag::O_PATH | OFlag::O_CLOEXEC)
        .resolve(ResolveFlag::RESOLVE_NO_SYMLINKS | ResolveFlag::RESOLVE_NO_MAGICLINKS);
    openat2(nix::fcntl::AT_FDCWD, source.host.as_str(), how)
        .map_err(|errno| MountError::Open { path: source.host.clone(), source: errno.into() })
}

/// With the rights of an operator, who must be able to walk there.
fn open_as(source: &Source, (uid, gid): (u32, u32)) -> Result<OwnedFd, MountError> {
    let failed = |error| MountError::Open { path: source.host.clone(), source: error };
    sys::with_rights_of(uid, gid, || open(source)).map_err(failed)?
}

/// A folder of ours that belongs to the cage's uid already.
fn clone_own(path: &Path) -> Result<OwnedFd, MountError> {
    let name = || path.display().to_string();
    let fd =
        files::open_folder(path).map_err(|source| MountError::Open { path: name(), source })?;
    sys::clone_tree(fd.as_fd(), false).map_err(|source| MountError::Clone { path: name(), source })
}

fn clone(source: &Source, userns: BorrowedFd<'_>) -> Result<OwnedFd, MountError> {
    let path = || source.host.clone();
    let fd = open(source)?;
    let clone_failed = |source| MountError::Clone { path: path(), source };
    let whole = sys::clone_tree(fd.as_fd(), true).map_err(clone_failed)?;
    if sys::idmap(whole.as_fd(), userns).is_ok() {
        return Ok(whole);
    }
    // Something mounted below it may not support it: lend the file system alone.
    let alone = sys::clone_tree(fd.as_fd(), false).map_err(clone_failed)?;
    match sys::idmap(alone.as_fd(), userns) {
        Ok(()) => Ok(alone),
        Err(_read_as_a_stranger) if !source.writable => Ok(whole),
        Err(error) => Err(MountError::Idmap { path: path(), source: error }),
    }
}

/// Made once for each uid: it is used again with the uid.
fn userns(supervisor: &Supervisor, uid: u32) -> io::Result<Rc<OwnedFd>> {
    if let Some(known) = supervisor.userns.borrow().get(&uid) {
        return Ok(Rc::clone(known));
    }
    let made = Rc::new(sys::helper::userns_for(uid)?);
    supervisor.userns.borrow_mut().insert(uid, Rc::clone(&made));
    Ok(made)
}

fn cstring(path: &Path) -> Result<CString, MountError> {
    CString::new(path.as_os_str().as_bytes()).map_err(|_nul| MountError::NoPlace)
}
