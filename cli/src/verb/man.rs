//! `mews man`: the manual, a page for each verb, made from the same text as `--help`.

use crate::args::Cli;
use crate::failure::Failure;
use crate::out::{self, Say};
use clap::{Command, CommandFactory};
use clap_mangen::Man;
use serde_json::json;
use std::fs::DirBuilder;
use std::io;
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};

/// Of the words; mandoc wants one.
const DATE: &str = "2026-11-28";

#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  mews man ~/.local/share/man/man1
  mews man ./man1 && man ./man1/mews-run.1")]
pub(crate) struct Args {
    /// Folder for the pages; made if it is not there
    dir: PathBuf,
}

pub(crate) fn run(args: &Args, say: &Say) -> Result<u8, Failure> {
    let cannot = |error: io::Error| {
        Failure::new(format!("cannot write to {}: {error}", args.dir.display()))
            .next("mews man ./man1")
    };
    DirBuilder::new().recursive(true).mode(0o755).create(&args.dir).map_err(cannot)?;
    let mut whole = Cli::command().disable_help_subcommand(true);
    whole.build();
    let mut pages = Vec::new();
    write(&whole, &args.dir, &mut pages).map_err(cannot)?;
    if say.json {
        out::json_line(&json!({ "pages": pages }))?;
    } else {
        say.note(&format!("{} pages in {}", pages.len(), args.dir.display()));
    }
    Ok(0)
}

fn write(command: &Command, folder: &Path, pages: &mut Vec<String>) -> io::Result<()> {
    let name = name(command);
    std::fs::write(folder.join(format!("{name}.1")), page(command)?)?;
    pages.push(name);
    visible(command).try_for_each(|verb| write(verb, folder, pages))
}

fn visible(command: &Command) -> impl Iterator<Item = &Command> {
    command.get_subcommands().filter(|verb| !verb.is_hide_set())
}

/// `mews-grants-make`
fn name(command: &Command) -> String {
    command.get_display_name().unwrap_or_else(|| command.get_name()).to_owned()
}

fn page(command: &Command) -> io::Result<Vec<u8>> {
    let help = command.get_after_help().map(ToString::to_string).unwrap_or_default();
    let (words, examples) = help.split_once("Examples:\n").unwrap_or((&help, ""));
    let man = Man::new(command.clone())
        .title(name(command).to_uppercase())
        .date(DATE)
        .source(concat!("mews ", env!("CARGO_PKG_VERSION")))
        .manual("mews");
    let mut page = Vec::new();
    man.render_title(&mut page)?;
    man.render_name_section(&mut page)?;
    man.render_synopsis_section(&mut page)?;
    man.render_description_section(&mut page)?;
    page.extend(paragraphs(words).into_bytes());
    page.extend(without_doubles(&options(&man)?).into_bytes());
    if visible(command).next().is_some() {
        man.render_subcommands_section(&mut page)?;
    }
    if !examples.is_empty() {
        let lines: String = examples.lines().map(|line| literal(line) + "\n").collect();
        page.extend(format!(".SH EXAMPLES\n.nf\n{lines}.fi\n").into_bytes());
    }
    page.extend(see_also(command).into_bytes());
    Ok(page)
}

fn options(man: &Man) -> io::Result<String> {
    let mut section = Vec::new();
    man.render_options_section(&mut section)?;
    Ok(String::from_utf8_lossy(&section).into_owned())
}

/// An empty line is a space, and a break beside one is too many, says mandoc.
fn without_doubles(section: &str) -> String {
    let mut lines: Vec<&str> = section.lines().collect();
    lines.iter_mut().filter(|line| line.is_empty()).for_each(|line| *line = ".sp");
    let is_space = |at: Option<usize>| at.and_then(|at| lines.get(at)) == Some(&".sp");
    let is_double = |at: usize, line: &str| {
        line == ".br" && (is_space(at.checked_sub(1)) || is_space(Some(at + 1)))
    };
    let kept = lines.iter().enumerate().filter(|(at, line)| !is_double(*at, line));
    kept.map(|(_at, line)| format!("{line}\n")).collect()
}

/// What `--help` says behind the flags.
fn paragraphs(words: &str) -> String {
    let mut page = String::new();
    for paragraph in words.split("\n\n").map(str::trim).filter(|text| !text.is_empty()) {
        page.push_str(".PP\n");
        for line in paragraph.lines() {
            page.push_str(&literal(line.trim()));
            page.push('\n');
        }
    }
    page
}

/// Nothing in it is roff's.
fn literal(line: &str) -> String {
    let mut text = String::new();
    if line.starts_with(['.', '\'']) {
        text.push_str("\\&");
    }
    for c in line.chars() {
        match c {
            '\\' => text.push_str("\\e"),
            '-' => text.push_str("\\-"),
            '\'' => text.push_str("\\(aq"),
            '`' => text.push_str("\\(ga"),
            '^' => text.push_str("\\(ha"),
            '~' => text.push_str("\\(ti"),
            other => text.push(other),
        }
    }
    text.trim_end().to_owned()
}

/// The page above, or the first ones of a newcomer.
fn see_also(command: &Command) -> String {
    let name = name(command);
    let also = match name.rsplit_once('-') {
        Some((above, _verb)) => vec![above.to_owned()],
        None => ["run", "attach", "ls", "policy"].map(|verb| format!("mews-{verb}")).into(),
    };
    let also: Vec<String> =
        also.iter().map(|name| format!("\\fB{}\\fR(1)", literal(name))).collect();
    format!(".SH \"SEE ALSO\"\n{}\n", also.join(",\n"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_roff_would_read_as_its_own_is_said_otherwise() {
        assert_eq!(literal(".x"), "\\&.x");
        assert_eq!(literal("'a' -b \\ ~ ^`"), "\\&\\(aqa\\(aq \\-b \\e \\(ti \\(ha\\(ga");
    }

    #[test]
    fn a_break_beside_a_space_goes() {
        assert_eq!(without_doubles("a\n.br\n\n.br\nb\n.br\n"), "a\n.sp\nb\n.br\n");
    }

    #[test]
    fn every_verb_has_a_page_with_its_examples() {
        let folder = tempfile::tempdir().unwrap();
        let args = Args { dir: folder.path().join("man1") };
        run(&args, &Say::new(true)).unwrap();
        let read = |name: &str| std::fs::read_to_string(args.dir.join(name)).unwrap();
        for name in ["mews.1", "mews-run.1", "mews-grants-make.1", "mews-daemon-stop.1"] {
            let page = read(name);
            for part in [".TH ", ".SH NAME", ".SH OPTIONS", ".SH EXAMPLES", "SEE ALSO"] {
                assert!(page.contains(part), "{name} has no {part}");
            }
        }
        assert!(read("mews.1").contains("mews\\-run"), "verbs are listed");
    }
}
