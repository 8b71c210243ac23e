//! What goes where: data on standard output, talk on standard error.

pub(crate) mod colour;
pub(crate) mod progress;

use crate::escape::escape;
use crate::failure::Failure;
use progress::Progress;
use serde::Serialize;
use serde_json::json;
use std::borrow::Cow;
use std::io::{self, Write};
use std::os::fd::AsFd;
use std::sync::atomic::{AtomicBool, Ordering};

#[derive(Clone, Copy, Debug)]
pub(crate) struct Say {
    pub(crate) json: bool,
    /// Escape sequences may be written to standard error.
    colour: bool,
}

impl Say {
    pub(crate) fn new(json: bool) -> Self {
        progress::want(!json);
        Self { json, colour: colour::on_stderr() }
    }

    /// One line for people.
    pub(crate) fn note(&self, text: &str) {
        if !self.json {
            talk(&format!("mews: {text}\n"));
        }
    }

    /// One line that steps back behind the program's own output.
    pub(crate) fn dim(&self, text: &str) {
        if self.json {
            return;
        }
        if self.colour {
            talk(&format!("\x1b[2m{text}\x1b[0m\n"));
        } else {
            talk(&format!("{text}\n"));
        }
    }

    /// A sign of life for as long as it lives; nothing else may be said meanwhile.
    pub(crate) fn progress(&self, text: &str) -> Progress {
        Progress::new(text)
    }

    /// The same while some work is done.
    pub(crate) async fn during<T>(&self, text: &str, work: impl Future<Output = T>) -> T {
        let _progress = self.progress(text);
        work.await
    }

    pub(crate) fn failure(&self, failure: &Failure) {
        if self.json {
            talk(&format!("{}\n", json!({ "error": failure.error, "next": failure.next })));
            return;
        }
        let lines: Vec<String> = failure.error.message.lines().map(escape).collect();
        let head = if self.colour { colour::Paint::Bad.on("mews:") } else { "mews:".to_owned() };
        talk(&format!("{head} {}\n", lines.join("\n")));
        if let Some(similar) = failure.error.details.get(crate::similar::DETAIL) {
            talk(&format!("  did you mean: {}\n", names(similar)));
        }
        if let Some(candidates) = failure.error.details.get("candidates") {
            talk(&format!("  candidates: {}\n", names(candidates)));
        }
        if let Some(next) = &failure.next {
            self.next(next);
        }
    }

    /// The next thing to type, below what went wrong.
    pub(crate) fn next(&self, next: &str) {
        if !self.json {
            talk(&format!("  try: {}\n", escape(next)));
        }
    }
}

fn names(candidates: &serde_json::Value) -> String {
    let list = candidates.as_array().map(Vec::as_slice).unwrap_or_default();
    let name = |entry: &serde_json::Value| {
        let named = entry.get("name").unwrap_or(entry).as_str().map(escape);
        named.unwrap_or_else(|| escape(&entry.to_string()))
    };
    let mut words: Vec<String> = list.iter().map(name).collect();
    // A session, its run, its cage and its terminal are one name.
    words.dedup();
    words.join(", ")
}

/// The beginning of a line that a person ends.
pub(crate) fn ask(question: &str) {
    talk(question);
}

/// Colours on standard output.
pub(crate) fn colours() -> bool {
    colour::on_stdout()
}

/// From here on an engine reads our talk that takes some lines for commands.
pub(crate) fn is_read_by_github() {
    OBEYED.store(true, Ordering::Relaxed);
}

static OBEYED: AtomicBool = AtomicBool::new(false);

fn talk(text: &str) {
    let text = match OBEYED.load(Ordering::Relaxed) {
        true => Cow::Owned(disobeyed(text)),
        false => Cow::Borrowed(text),
    };
    // Nobody is left to tell if standard error is closed.
    drop(io::stderr().lock().write_all(text.as_bytes()));
}

/// Without the commands of GitHub's runner: `::` at the beginning of a line, blanks before it or not, and
/// `##[` anywhere. Names and messages have words of the caged program's, or of the project's.
fn disobeyed(text: &str) -> String {
    let line = |line: &str| {
        let line = line.replace("##[", "# #[");
        if line.trim_start().starts_with("::") { format!(". {line}") } else { line }
    };
    text.split('\n').map(line).collect::<Vec<_>>().join("\n")
}

/// Text for people or scripts on standard output.
///
/// # Errors
/// Standard output is closed or full.
pub(crate) fn data(text: &str) -> Result<(), Failure> {
    bytes(text.as_bytes())
}

pub(crate) fn bytes(bytes: &[u8]) -> Result<(), Failure> {
    let mut stdout = io::stdout().lock();
    match stdout.write_all(bytes).and_then(|()| stdout.flush()) {
        // `mews ls | head` has seen enough: not a failure.
        Err(error) if error.kind() == io::ErrorKind::BrokenPipe => Ok(()),
        Err(error) => Err(Failure::new(format!("cannot write to standard output: {error}"))
            .next("the same with its output to where there is room: df -h")),
        Ok(()) => Ok(()),
    }
}

/// Whether somebody may still read standard output: `mews events -f | head` shall end with head.
pub(crate) fn has_reader() -> bool {
    use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
    let stdout = io::stdout();
    let mut fds = [PollFd::new(stdout.as_fd(), PollFlags::empty())];
    let gone = PollFlags::POLLERR | PollFlags::POLLHUP;
    let looked = poll(&mut fds, PollTimeout::ZERO);
    let [stdout] = &fds;
    looked.is_err() || !stdout.revents().is_some_and(|told| told.intersects(gone))
}

/// One JSON object on a line of its own.
pub(crate) fn json_line(value: &impl Serialize) -> Result<(), Failure> {
    let text = serde_json::to_string(value).map_err(|error| Failure::new(error.to_string()))?;
    data(&format!("{text}\n"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn talk_holds_no_command_of_an_engine() {
        for (text, want) in [
            ("mews: a ::b\n", "mews: a ::b\n"),
            ("mews: x\n::add-mask::y\n", "mews: x\n. ::add-mask::y\n"),
            (" \t::z", ".  \t::z"),
            ("  out/##[set-env name=x]y (3 bytes)", "  out/# #[set-env name=x]y (3 bytes)"),
        ] {
            assert_eq!(disobeyed(text), want);
        }
    }
}
