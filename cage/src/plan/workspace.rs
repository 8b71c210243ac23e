//! The folder that the operator works in: may it be lent, and where is it inside?

use super::paths::{self, within};
use super::{HostPaths, PathKind, PlanError, Request, Workspace};
use wire::WorkspaceMode;

/// Where a workspace is that the cage's own folders leave no room for.
const ELSEWHERE: &str = "/workspace";

/// These folders are not a place to work in; folders below them are.
const SYSTEM: &[&str] = &[
    "/",
    "/bin",
    "/boot",
    "/dev",
    "/etc",
    "/home",
    "/lib",
    "/lib32",
    "/lib64",
    "/libx32",
    "/media",
    "/mnt",
    "/opt",
    "/proc",
    "/run",
    "/sbin",
    "/srv",
    "/sys",
    "/tmp",
    "/usr",
    "/usr/bin",
    "/usr/lib",
    "/usr/local",
    "/usr/sbin",
    "/usr/share",
    "/var",
    "/var/lib",
    "/var/tmp",
];
/// Nothing of these is lent, whatever it is for.
const CLOSED: &[&str] = &["/proc", "/sys", "/dev"];
/// The cage has its own here, so that a workspace from there is seen at [`ELSEWHERE`].
const OWN: &[&str] = &[
    "/usr", "/etc", "/bin", "/sbin", "/lib", "/lib32", "/lib64", "/libx32", "/run", "/boot",
    ELSEWHERE,
];

pub(super) fn resolve(
    request: &Request,
    home: &str,
    mode: WorkspaceMode,
    tree: &dyn HostPaths,
) -> Result<Workspace, PlanError> {
    let path = &request.workspace;
    let refused = |why: String| PlanError::Workspace { path: path.clone(), why };
    if !path.is_absolute() {
        return Err(refused("is not an absolute path".into()));
    }
    let Some(canonical) = tree.canonical(path) else {
        return Err(refused("does not exist; make it, or name another with -w".into()));
    };
    if tree.kind(&canonical) != Some(PathKind::Folder) {
        return Err(refused("is not a folder; name one with -w".into()));
    }
    let Some(host) = canonical.to_str() else {
        return Err(refused("has a name that is not UTF-8; rename it".into()));
    };
    if let Some(why) = refusal(host, request, tree) {
        return Err(refused(why));
    }
    let inside = if seen_in_place(host, home) { host } else { ELSEWHERE };
    Ok(Workspace { host: host.to_owned(), inside: inside.to_owned(), mode })
}

fn refusal(host: &str, request: &Request, tree: &dyn HostPaths) -> Option<String> {
    if SYSTEM.contains(&host) || CLOSED.iter().any(|folder| within(host, folder)) {
        return Some("is a folder of the system; name a folder of your own with -w".into());
    }
    if is_foreign_home(host, request, tree) {
        return Some("is another user's home; name a folder of your own with -w".into());
    }
    let never = [&request.never[..], &request.never_write[..]].concat();
    let ours = paths::meets(host, &never)?;
    let relation = if within(host, ours.to_str().unwrap_or("/")) { "is in" } else { "holds" };
    Some(format!(
        "{relation} {}, which is mews's own and never lent; cd into a project folder, or name one \
         with -w",
        ours.display()
    ))
}

/// `/root` and `/home/NAME` belong to whom they name.
fn is_foreign_home(host: &str, request: &Request, tree: &dyn HostPaths) -> bool {
    let path = std::path::Path::new(host);
    let is_home =
        host == "/root" || paths::below(host, "/home").is_some_and(|rest| !rest.contains('/'));
    let is_own = request.operator.home.as_deref() == Some(path)
        || tree.owner(path) == Some(request.operator.uid);
    is_home && !is_own
}

/// The cage's home must not disappear behind the workspace.
fn seen_in_place(host: &str, home: &str) -> bool {
    !OWN.iter().any(|folder| within(host, folder)) && !within(home, host)
}
