//! Whether there are colours, and which: `--color` decides, then `NO_COLOR`, then `CLICOLOR_FORCE`,
//! then whether a person looks at it.

use std::io::{self, IsTerminal};
use std::sync::OnceLock;

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum When {
    /// On a terminal, unless NO_COLOR is set; CLICOLOR_FORCE: always
    #[default]
    Auto,
    Always,
    Never,
}

static WANTED: OnceLock<When> = OnceLock::new();

/// Said once, before anybody asks.
pub(crate) fn want(when: When) {
    WANTED.get_or_init(|| when);
}

impl When {
    /// The same in clap's words, for `--help` and for wrong usage.
    pub(crate) fn of_clap(self) -> clap::ColorChoice {
        match self {
            Self::Auto => clap::ColorChoice::Auto,
            Self::Always => clap::ColorChoice::Always,
            Self::Never => clap::ColorChoice::Never,
        }
    }
}

pub(super) fn on_stdout() -> bool {
    wanted(io::stdout().is_terminal())
}

pub(super) fn on_stderr() -> bool {
    wanted(io::stderr().is_terminal())
}

fn wanted(is_terminal: bool) -> bool {
    let is_set = |name: &str| std::env::var_os(name).filter(|value| !value.is_empty());
    let forced = is_set("CLICOLOR_FORCE").is_some_and(|value| value != "0");
    let is_dumb = std::env::var_os("TERM").is_some_and(|term| term == "dumb");
    let when = WANTED.get().copied().unwrap_or_default();
    decide(when, is_set("NO_COLOR").is_some(), forced, is_terminal && !is_dumb)
}

fn decide(when: When, is_forbidden: bool, is_forced: bool, is_terminal: bool) -> bool {
    match when {
        When::Always => true,
        When::Never => false,
        When::Auto => !is_forbidden && (is_forced || is_terminal),
    }
}

/// What a word is painted for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Paint {
    Good,
    Warn,
    Bad,
    Head,
    /// It steps back behind the rest.
    Back,
}

impl Paint {
    pub(crate) fn on(self, text: &str) -> String {
        let code = match self {
            Self::Good => "32",
            Self::Warn => "33",
            Self::Bad => "1;31",
            Self::Head => "1",
            Self::Back => "2",
        };
        format!("\x1b[{code}m{text}\x1b[0m")
    }

    pub(crate) fn when(self, wanted: bool, text: &str) -> String {
        if wanted { self.on(text) } else { text.to_owned() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_flag_goes_before_the_variables_and_these_before_the_terminal() {
        for (when, no, force, terminal, want) in [
            (When::Auto, false, false, true, true),
            (When::Auto, false, false, false, false),
            (When::Auto, true, false, true, false),
            (When::Auto, false, true, false, true),
            (When::Auto, true, true, true, false),
            (When::Always, true, false, false, true),
            (When::Never, false, true, true, false),
        ] {
            assert_eq!(decide(when, no, force, terminal), want, "{when:?} {no} {force} {terminal}");
        }
    }

    #[test]
    fn a_painted_word_ends_its_colour() {
        assert_eq!(Paint::Bad.on("x"), "\x1b[1;31mx\x1b[0m");
    }
}
