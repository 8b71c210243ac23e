//! What GitHub Actions reads: workflow commands on standard output, and the file of the step's summary.
//!
//! The runner takes every line that begins with `::`, or has `##[` in it, for a command, the caged program's
//! too. So a program's output stands between `::stop-commands::TOKEN` and `::TOKEN::`, and the token is random. The runner
//! reads standard output and error by turns of its own: a program's standard error goes to standard output
//! with the rest, or its last lines could be read after the token that ends the protection. What we say of
//! it on standard error has no such line ([`out::is_read_by_github`]).

use super::artifacts::Taken;
use super::text;
use super::verdict::{Kind, Verdict};
use crate::escape::escape;
use crate::failure::Failure;
use crate::{out, whole};
use std::fs::File;
use std::io::{self, Write as _};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};

/// Last lines in an annotation; the engine cuts long ones.
const ANNOTATED_LINES: usize = 10;
const SUMMARY_LINES: usize = 30;
const SUMMARY_FILES: usize = 100;

#[derive(Debug)]
pub(crate) struct Github {
    token: String,
    /// Opened before anything runs.
    summary: Option<File>,
}

impl Github {
    pub(crate) fn open(env: &impl Fn(&str) -> Option<String>) -> Result<Self, Failure> {
        let path = env("GITHUB_STEP_SUMMARY").filter(|path| !path.is_empty());
        let open = |path: String| {
            let file = File::options()
                .append(true)
                .create(true)
                .custom_flags(libc::O_NOFOLLOW | libc::O_NONBLOCK)
                .open(&path);
            file.map_err(|error| {
                Failure::new(format!("cannot write $GITHUB_STEP_SUMMARY ({path}): {error}"))
                    .next("mews run --ci none -- CMD")
            })
        };
        Ok(Self { token: whole::unguessable(), summary: path.map(open).transpose()? })
    }

    /// Nothing that is printed from here on is a command.
    pub(crate) fn begin(&self, command: &str) -> Result<(), Failure> {
        let title = data(&escape(command));
        out::data(&format!("::group::mews run: {title}\n::stop-commands::{}\n", self.token))
    }

    /// `printed`: the command has printed something, maybe a line without its end.
    pub(crate) fn resume(&self, printed: bool) -> Result<(), Failure> {
        let fresh = if printed { "\n" } else { "" };
        out::data(&format!("{fresh}::{}::\n::endgroup::\n", self.token))
    }

    pub(crate) fn annotate(
        &self,
        command: &str,
        verdict: &Verdict,
        output: &[u8],
    ) -> Result<(), Failure> {
        out::data(&annotation(command, verdict, output))
    }

    pub(crate) fn summarize(&self, text: &str) -> io::Result<()> {
        match &self.summary {
            Some(file) => { file }.write_all(text.as_bytes()),
            None => Ok(()),
        }
    }
}

fn annotation(command: &str, verdict: &Verdict, output: &[u8]) -> String {
    if matches!(verdict.kind, Kind::Passed | Kind::Skipped) {
        return String::new();
    }
    let last = text::last_lines(&text::plain(output), ANNOTATED_LINES);
    let words = format!("{}\n{last}", text::plain(verdict.message.as_bytes()));
    let title = property(&format!("mews run: {}", escape(command)));
    format!("::error title={title}::{}\n", data(words.trim_end()))
}

/// Markdown: the program's words stand in a fence that they cannot end.
pub(crate) fn summary(
    command: &str,
    verdict: &Verdict,
    ms: u64,
    output: &[u8],
    taken: Option<&Taken>,
) -> String {
    let word = match verdict.kind {
        Kind::Passed => "passed",
        Kind::Failed => "failed",
        Kind::Error => "error",
        Kind::Skipped => "left running",
    };
    let seconds = format!("{}.{:03} s", ms / 1000, ms % 1000);
    let mut text = format!("### mews run: {word}\n\n{}\n{seconds}", fenced(command));
    if verdict.kind != Kind::Passed {
        let message = escape(&verdict.message);
        text.push_str(&format!(": {}\n\n", verdict.cause));
        text.push_str(&fenced(&message));
        let last = text::last_lines(&text::plain(output), SUMMARY_LINES);
        if !last.is_empty() {
            text.push_str(&format!("\nLast lines of output:\n\n{}", fenced(&last)));
        }
    }
    if let Some(taken) = taken {
        text.push_str(&format!("\n\nArtifacts: {}\n\n", taken.files.len()));
        let shown = taken.files.iter().take(SUMMARY_FILES);
        let line = |path: &str, words: &str| format!("{}  {words}", escape(path));
        let mut lines: Vec<String> =
            shown.map(|file| line(&file.path.lossy(), &file.bytes.to_string())).collect();
        let left = taken.left.iter().take(SUMMARY_FILES);
        lines.extend(left.map(|left| line(&left.path.lossy(), &format!("left: {}", left.why))));
        text.push_str(&fenced(&lines.join("\n")));
    }
    text.push('\n');
    text
}

fn fenced(text: &str) -> String {
    let mut longest = 0;
    let mut run = 0;
    for c in text.chars() {
        run = if c == '`' { run + 1 } else { 0 };
        longest = longest.max(run);
    }
    let fence = "`".repeat(longest.max(2) + 1);
    format!("{fence}text\n{text}\n{fence}\n")
}

/// The data of a workflow command.
fn data(text: &str) -> String {
    text.replace('%', "%25").replace('\r', "%0D").replace('\n', "%0A")
}

/// A property of one.
fn property(text: &str) -> String {
    data(text).replace(':', "%3A").replace(',', "%2C")
}

/// Whether our standard output is the step's own, and not a file or a pipe of its script, whose bytes are
/// nobody's to add to: the outermost process that the runner told of itself has the same.
pub(crate) fn reads_our_output() -> bool {
    let output = |pid: u32| {
        let found = std::fs::metadata(format!("/proc/{pid}/fd/1")).ok()?;
        Some((found.dev(), found.ino(), found.mode() & libc::S_IFMT))
    };
    let Some(ours) = output(std::process::id()).filter(|ours| ours.2 != libc::S_IFREG) else {
        return false;
    };
    let mut outermost = None;
    let mut pid = parent(std::process::id());
    while let Some(at) = pid.filter(|&pid| pid > 0) {
        if is_of_a_step(at) {
            outermost = Some(at);
        }
        pid = parent(at);
    }
    outermost.and_then(output) == Some(ours)
}

fn parent(pid: u32) -> Option<u32> {
    let status = std::fs::read_to_string(format!("/proc/{pid}/status")).ok()?;
    status.lines().find_map(|line| line.strip_prefix("PPid:"))?.trim().parse().ok()
}

fn is_of_a_step(pid: u32) -> bool {
    let environ = std::fs::read(format!("/proc/{pid}/environ")).unwrap_or_default();
    environ.split(|&byte| byte == 0).any(|entry| entry == b"GITHUB_ACTIONS=true")
}

#[cfg(test)]
mod tests {
    use super::*;
    use wire::Arg;

    fn failed() -> Verdict {
        Verdict {
            kind: Kind::Failed,
            cause: "exited".to_owned(),
            message: "exit status 7".to_owned(),
        }
    }

    #[test]
    fn an_annotation_is_one_line_whatever_was_printed() {
        let text = annotation("a: b, 100%", &failed(), b"one\n::add-mask::x\r\n::set-env::%0A\n");
        assert_eq!(
            text,
            "::error title=mews run%3A a%3A b%2C 100%25::exit status 7%0Aone%0A::add-mask::x%0A\
             ::set-env::%250A\n"
        );
        let passed = Verdict { kind: Kind::Passed, ..failed() };
        assert_eq!(annotation("a", &passed, b""), "");
    }

    #[test]
    fn a_summary_quotes_what_a_program_says() {
        let mut taken = Taken::failed("no");
        taken.files.push(super::super::artifacts::Taking { path: Arg::from("a`\n#b"), bytes: 3 });
        let output = b"before\n````\n# heading <img src=x>\n";
        let text = summary("make", &failed(), 1500, output, Some(&taken));
        assert!(text.contains("mews run: failed") && text.contains("1.500 s: exited"), "{text}");
        let fence = "`````text\nbefore\n````\n# heading <img src=x>\n`````\n";
        assert!(text.contains(fence), "{text}");
        assert!(text.contains("a`\\n#b  3\n.  left: no"), "{text}");
    }

    #[test]
    fn tokens_are_not_guessed() {
        let none = |_name: &str| None;
        let (one, other) = (Github::open(&none).unwrap(), Github::open(&none).unwrap());
        assert!(one.token != other.token && one.token.len() >= 26);
    }
}
