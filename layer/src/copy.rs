//! Copy of a tree: kinds, modes, times, links, holes, attributes, whiteouts; sharing blocks where
//! the file system can.

use crate::content::Contents;
use crate::entry::{Entry, Kind, bits, look, set_mtime};
use crate::path::{join, open_folder, reach, split};
use crate::problem::{At, Problem};
use crate::tree::{Tree, names};
use crate::xattr::{self, Keep};
use nix::errno::Errno;
use nix::fcntl::{AtFlags, OFlag, openat, readlinkat};
use nix::sys::stat::{SFlag, fchmod, mkdirat, mknodat};
use nix::unistd::{linkat, mkfifoat, symlinkat};
use std::collections::HashMap;
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::ffi::OsStrExt;
use wire::Copied;

/// What was seen of an entry of the original, for a manifest.
pub(crate) type Seen<'a> = &'a mut dyn FnMut(&[u8], &Entry);

pub(crate) struct Copy<'a> {
    from: &'a Tree<'a>,
    to: BorrowedFd<'a>,
    keep: Keep,
    seen: Seen<'a>,
    contents: Contents,
    done: Copied,
    /// Where the first name of a file with several is, by device and inode.
    links: HashMap<(u64, u64), Vec<u8>>,
    /// Folders in the order of their making; modes and times are set when all is in them.
    folders: Vec<(Vec<u8>, Entry)>,
}

/// Makes `name` in `holder` a copy of the whole tree. It must not be there yet.
pub(crate) fn copy(
    from: &Tree<'_>,
    holder: BorrowedFd<'_>,
    name: &[u8],
    keep: Keep,
    seen: Seen<'_>,
) -> Result<Copied, Problem> {
    let source = from.folder(b"")?;
    let mut top = crate::entry::of(&source).at("look at", b"")?;
    top.mode = from.own_mode(&top);
    mkdirat(holder, name, bits(0o700)).at("make", name)?;
    let to = open_folder(holder, name).at("open", name)?;
    let mut copy = Copy::new(from, to.as_fd(), keep, seen);
    copy.folders.push((Vec::new(), top));
    copy.tree(b"")?;
    copy.finish_folders()?;
    Ok(copy.done)
}

/// Copies one entry, with what is below it, to the same path below `to`. One that has gone is not
/// copied.
pub(crate) fn copy_one(
    from: &Tree<'_>,
    to: BorrowedFd<'_>,
    path: &[u8],
    keep: Keep,
    seen: Seen<'_>,
) -> Result<(), Problem> {
    let (above, name) = split(path);
    let source = from.reach(above).at("open", above)?;
    let target = reach(to, above).at("open the copy of", above)?;
    let Some(entry) = look(source.as_fd(), name).at("look at", path)? else { return Ok(()) };
    let mut copy = Copy::new(from, to, keep, seen);
    let made = copy.entry(source.as_fd(), target.as_fd(), name, path, &entry)?;
    if made && entry.kind == Kind::Folder {
        copy.folders.push((path.to_vec(), entry));
        copy.tree(path)?;
        copy.finish_folders()?;
    }
    Ok(())
}

impl<'a> Copy<'a> {
    fn new(from: &'a Tree<'a>, to: BorrowedFd<'a>, keep: Keep, seen: Seen<'a>) -> Self {
        Self {
            from,
            to,
            keep,
            seen,
            contents: Contents::default(),
            done: Copied::default(),
            links: HashMap::new(),
            folders: Vec::new(),
        }
    }

    fn tree(&mut self, top: &[u8]) -> Result<(), Problem> {
        let mut next = vec![top.to_vec()];
        while let Some(path) = next.pop() {
            let source = self.from.folder(&path)?;
            let target = open_folder(self.to, &path).at("open the copy of", &path)?;
            xattr::copy(source.as_fd(), target.as_fd(), self.keep)
                .at("copy the attributes of", &path)?;
            for name in names(source.as_fd(), &path)? {
                let below = join(&path, &name);
                let found = look(source.as_fd(), &name).at("look at", &below)?;
                // What has gone meanwhile was not there.
                let Some(entry) = found else { continue };
                let made = self.entry(source.as_fd(), target.as_fd(), &name, &below, &entry)?;
                if made && entry.kind == Kind::Folder {
                    self.folders.push((below.clone(), entry));
                    next.push(below);
                }
            }
        }
        Ok(())
    }

    /// Whether it was copied: sockets and devices are not.
    fn entry(
        &mut self,
        source: BorrowedFd<'_>,
        target: BorrowedFd<'_>,
        name: &[u8],
        path: &[u8],
        entry: &Entry,
    ) -> Result<bool, Problem> {
        if entry.kind == Kind::Other || (entry.kind == Kind::Whiteout && self.keep != Keep::All) {
            return Ok(false);
        }
        if entry.kind != Kind::Folder && entry.links > 1 && self.linked(target, name, entry)? {
            self.count(path, entry);
            return Ok(true);
        }
        let mut exact = *entry;
        match entry.kind {
            Kind::Folder => mkdirat(target, name, bits(0o700)).at("make the copy of", path)?,
            Kind::File => match self.file(source, target, name, path)? {
                Some(read) => exact = read,
                None => return Ok(false),
            },
            Kind::Symlink => {
                let to = readlinkat(source, name).at("read the link", path)?;
                symlinkat(to.as_bytes(), target, name).at("make the copy of", path)?;
            }
            Kind::Fifo => {
                mkfifoat(target, name, bits(0o600)).at("make the copy of", path)?;
                self.set_mode(target, name, path, entry)?;
            }
            Kind::Whiteout => {
                mknodat(target, name, SFlag::S_IFCHR, bits(entry.mode), 0)
                    .at("make the copy of", path)?;
            }
            Kind::Other => return Ok(false),
        }
        if !matches!(entry.kind, Kind::File | Kind::Folder) {
            set_mtime(target, name, entry.mtime).at("set the time of the copy of", path)?;
        }
        if entry.kind != Kind::Folder && entry.links > 1 {
            self.links.insert((entry.device, entry.inode), path.to_vec());
        }
        self.count(path, &exact);
        Ok(true)
    }

    fn count(&mut self, path: &[u8], entry: &Entry) {
        self.done.entries = self.done.entries.saturating_add(1);
        if entry.kind == Kind::File {
            self.done.bytes = self.done.bytes.saturating_add(entry.size);
        }
        (self.seen)(path, entry);
    }

    /// One more name of a file that is copied already.
    fn linked(
        &mut self,
        target: BorrowedFd<'_>,
        name: &[u8],
        entry: &Entry,
    ) -> Result<bool, Problem> {
        let Some(first) = self.links.get(&(entry.device, entry.inode)) else { return Ok(false) };
        let (above, first_name) = split(first);
        let above = reach(self.to, above).at("open the copy of", first)?;
        match linkat(&above, first_name, target, name, AtFlags::empty()) {
            Ok(()) => Ok(true),
            // The next name begins a new file.
            Err(Errno::EMLINK) => Ok(false),
            Err(errno) => Err(errno).at("link the copy of", first),
        }
    }

    /// The file as it was when it was opened; `None` where it has gone or become something else.
    fn file(
        &mut self,
        source: BorrowedFd<'_>,
        target: BorrowedFd<'_>,
        name: &[u8],
        path: &[u8],
    ) -> Result<Option<Entry>, Problem> {
        let from = match self.from.file(source, name, path) {
            Ok(from) => from,
            Err(Errno::ENOENT | Errno::EINVAL | Errno::ELOOP | Errno::ENXIO) => return Ok(None),
            Err(errno) => return Err(errno).at("read", path),
        };
        let mut entry = crate::entry::of(&from).at("look at", path)?;
        entry.mode = self.from.own_mode(&entry);
        let flags = OFlag::O_WRONLY | OFlag::O_CREAT | OFlag::O_EXCL | OFlag::O_CLOEXEC;
        let to = openat(target, name, flags, bits(0o600)).at("make the copy of", path)?;
        let shared = self.contents.copy(&from, &to, entry.size).at("copy", path)?;
        self.done.shared = self.done.shared.saturating_add(u64::from(shared));
        xattr::copy(from.as_fd(), to.as_fd(), self.keep).at("copy the attributes of", path)?;
        fchmod(&to, bits(entry.mode)).at("set the mode of the copy of", path)?;
        crate::content::set_mtime(&to, entry.mtime).at("set the time of the copy of", path)?;
        Ok(Some(entry))
    }

    fn set_mode(
        &self,
        target: BorrowedFd<'_>,
        name: &[u8],
        path: &[u8],
        entry: &Entry,
    ) -> Result<(), Problem> {
        let made = look(target, name).at("look at the copy of", path)?;
        let Some(made) = made else { return Ok(()) };
        crate::entry::set_mode(target, name, &made, entry.mode)
            .at("set the mode of the copy of", path)
    }

    fn finish_folders(&mut self) -> Result<(), Problem> {
        for (path, entry) in self.folders.iter().rev() {
            let folder = open_folder(self.to, path).at("open the copy of", path)?;
            let mode = self.from.own_mode(entry);
            fchmod(&folder, bits(mode)).at("set the mode of the copy of", path)?;
            crate::content::set_mtime(&folder, entry.mtime)
                .at("set the time of the copy of", path)?;
        }
        Ok(())
    }
}
