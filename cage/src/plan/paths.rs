//! Paths as text, and which of them are never lent.

use std::path::{Path, PathBuf};

/// Is `path` the folder itself or something in it?
pub(super) fn within(path: &str, folder: &str) -> bool {
    match path.strip_prefix(folder) {
        Some(rest) => rest.is_empty() || rest.starts_with('/') || folder == "/",
        None => false,
    }
}

/// `path` seen from `folder`: without a slash at the beginning; empty for the folder itself.
pub(super) fn below<'a>(path: &'a str, folder: &str) -> Option<&'a str> {
    within(path, folder).then(|| path.get(folder.len()..).unwrap_or("").trim_start_matches('/'))
}

pub(super) fn joined(folder: &str, rest: &str) -> String {
    match (folder.trim_end_matches('/'), rest) {
        ("", "") => "/".to_owned(),
        (folder, "") => folder.to_owned(),
        (folder, rest) => format!("{folder}/{rest}"),
    }
}

/// The folders above, nearest first, without the path itself and without `/`.
pub(super) fn ancestors(path: &str) -> impl Iterator<Item = &str> {
    let mut rest = path;
    std::iter::from_fn(move || {
        rest = rest.rsplit_once('/').map_or("", |(parent, _)| parent);
        (!rest.is_empty()).then_some(rest)
    })
}

/// Where a link at `at` with this target leads, by text alone.
pub(super) fn link_target(at: &str, target: &Path) -> Option<String> {
    let parent = at.rsplit_once('/').map_or("", |(parent, _)| parent);
    let whole = Path::new(if parent.is_empty() { "/" } else { parent }).join(target);
    let mut parts: Vec<&str> = Vec::new();
    for part in whole.to_str()?.split('/') {
        match part {
            "" | "." => {}
            ".." => {
                parts.pop();
            }
            part => parts.push(part),
        }
    }
    Some(format!("/{}", parts.join("/")))
}

/// Nothing in these is ever lent: they are views of the kernel or doors to daemons.
const CLOSED: &[&str] = &["/proc", "/sys", "/dev", "/run"];
/// These are not lent as a whole.
const TOO_WIDE: &[&str] = &["/", "/etc", "/home", "/var", "/tmp", "/var/tmp", "/var/run"];
/// These are not lent for writing as a whole.
const SYSTEM: &[&str] =
    &["/usr", "/bin", "/sbin", "/lib", "/lib32", "/lib64", "/libx32", "/boot", "/opt", "/srv"];
/// The cage has its own.
pub(super) const SYNTHETIC: &[&str] =
    &["/etc/passwd", "/etc/group", "/etc/nsswitch.conf", "/etc/hosts", "/etc/resolv.conf"];

/// Why this path may not be lent; words that follow the path.
pub(super) fn closed(path: &str, writable: bool) -> Option<String> {
    if let Some(folder) = CLOSED.iter().find(|folder| within(path, folder)) {
        return Some(format!("nothing of {folder} is lent to a cage; it has its own or none"));
    }
    if TOO_WIDE.contains(&path) {
        return Some(
            "is too wide to lend as a whole; name the folders in it that are needed".into(),
        );
    }
    if writable && SYSTEM.contains(&path) {
        return Some("is a system folder and is not lent for writing; name a folder in it".into());
    }
    SYNTHETIC.contains(&path).then(|| "the cage has its own file there; leave it out".into())
}

/// The first of these folders that the path lies in or contains.
pub(super) fn meets<'a>(path: &str, folders: &'a [PathBuf]) -> Option<&'a Path> {
    folders.iter().map(PathBuf::as_path).find(|folder| {
        folder.to_str().is_some_and(|folder| within(path, folder) || within(folder, path))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn within_is_by_component() {
        for (path, folder, wanted) in [
            ("/a/b", "/a", true),
            ("/a", "/a", true),
            ("/ab", "/a", false),
            ("/a", "/a/b", false),
            ("/a", "/", true),
        ] {
            assert_eq!(within(path, folder), wanted, "{path} {folder}");
        }
    }

    #[test]
    fn links_by_text() {
        for (at, target, wanted) in [
            ("/bin", "usr/bin", "/usr/bin"),
            ("/etc/localtime", "/usr/share/zoneinfo/UTC", "/usr/share/zoneinfo/UTC"),
            ("/etc/x", "../usr/./x", "/usr/x"),
        ] {
            assert_eq!(link_target(at, Path::new(target)).as_deref(), Some(wanted));
        }
    }

    #[test]
    fn folders_above() {
        assert_eq!(ancestors("/a/b/c").collect::<Vec<_>>(), ["/a/b", "/a"]);
        assert_eq!(ancestors("/a").count(), 0);
    }
}
