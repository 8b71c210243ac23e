//! Does what the recorder says, in a folder that was opened before the broker locked itself up.

use super::{Action, Part};
use nix::fcntl::{OFlag, openat};
use nix::sys::stat::Mode;
use nix::unistd::{UnlinkatFlags, unlinkat};
use std::fs::File;
use std::io::{self, Seek, Write};
use std::os::fd::{AsFd, OwnedFd};
use wire::PtyId;
use wire::recording::part_names;

/// The files of one recording.
#[derive(Debug)]
pub struct Writer {
    dir: OwnedFd,
    names: [String; 3],
    head: File,
    tails: [Option<File>; 2],
}

impl Writer {
    /// Creates `<pty>.rec` in the folder.
    ///
    /// # Errors
    /// The file cannot be created.
    pub fn create(dir: impl AsFd, pty: PtyId) -> io::Result<Self> {
        let dir = dir.as_fd().try_clone_to_owned()?;
        let names = part_names(pty);
        let [head, ..] = &names;
        let head = create(&dir, head)?;
        Ok(Self { dir, names, head, tails: [None, None] })
    }

    /// Does what the recorder says.
    ///
    /// # Errors
    /// The disk is full or gone; stop recording.
    pub fn perform(&mut self, actions: Vec<Action>) -> io::Result<()> {
        for action in actions {
            match action {
                Action::Append(part, bytes) => self.file(part)?.write_all(&bytes)?,
                Action::Truncate(part) => self.truncate(part)?,
                Action::Join { record, tails } => self.join(&record, &tails)?,
            }
        }
        Ok(())
    }

    fn truncate(&mut self, part: Part) -> io::Result<()> {
        let [_, a, b] = &self.names;
        let [tail_a, tail_b] = &mut self.tails;
        let (name, tail) = match part {
            Part::Head => return Err(io::Error::other("the head is never emptied")),
            Part::TailA => (a, tail_a),
            Part::TailB => (b, tail_b),
        };
        *tail = Some(create(&self.dir, name)?);
        Ok(())
    }

    fn join(&mut self, record: &[u8], tails: &[Part]) -> io::Result<()> {
        self.head.write_all(record)?;
        for part in tails {
            let mut tail = self.file(*part)?.try_clone()?;
            tail.rewind()?;
            io::copy(&mut tail, &mut self.head)?;
        }
        let [_, names @ ..] = &self.names;
        for (name, tail) in names.iter().zip(&mut self.tails) {
            if tail.take().is_some() {
                unlinkat(&self.dir, name.as_str(), UnlinkatFlags::NoRemoveDir)?;
            }
        }
        Ok(())
    }

    fn file(&mut self, part: Part) -> io::Result<&mut File> {
        let [a, b] = &mut self.tails;
        let file = match part {
            Part::Head => Some(&mut self.head),
            Part::TailA => a.as_mut(),
            Part::TailB => b.as_mut(),
        };
        file.ok_or_else(|| io::Error::other("the file was not begun"))
    }
}

fn create(dir: &OwnedFd, name: &str) -> io::Result<File> {
    let flags =
        OFlag::O_RDWR | OFlag::O_CREAT | OFlag::O_TRUNC | OFlag::O_CLOEXEC | OFlag::O_NOFOLLOW;
    let file = openat(dir, name, flags, Mode::S_IRUSR | Mode::S_IWUSR)?;
    Ok(File::from(file))
}
