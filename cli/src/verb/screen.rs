//! `mews screen`: what is on a terminal now.

use super::attach::terminal_of;
use crate::api::Api;
use crate::escape::{escape, rendered};
use crate::failure::Failure;
use crate::out::{self, Say};
use wire::screen::ScreenView;

#[derive(Debug, clap::Args)]
#[command(after_help = "\
Of a command that has ended it is the last screen. With --json: size, rows, cursor, title, whether
it is the alternate screen, and `seq`, the bytes of output that it is the sum of.

Examples:
  mews screen bash-1
  mews screen --ansi htop | less -R
  mews screen pi --json | jq -r '.rows[]'")]
pub(crate) struct Args {
    /// Name or id: of a session, or of one of its terminals
    id: String,
    /// Text alone, whatever standard output is
    #[arg(long, conflicts_with = "ansi")]
    text: bool,
    /// With colours, whatever standard output is
    #[arg(long)]
    ansi: bool,
}

pub(crate) async fn run(args: &Args, say: &Say) -> Result<u8, Failure> {
    let api = Api::new();
    let found = api.resolve(&args.id).await?;
    let (_cage, pty) = terminal_of(&found)?;
    let view: Result<ScreenView, Failure> = api.get(&format!("/ptys/{pty}/screen")).await;
    let view = view.map_err(|failure| failure.next(format!("mews logs {}", found.name)))?;
    if say.json {
        out::json_line(&view)?;
        return Ok(0);
    }
    let colours = args.ansi || (!args.text && out::colours());
    out::bytes(&page(&view, colours))?;
    Ok(0)
}

/// The rows down to the last one that holds something.
fn page(view: &ScreenView, colours: bool) -> Vec<u8> {
    let rows = if colours { &view.ansi } else { &view.rows };
    let used = rows.iter().rposition(|row| !row.is_empty()).map_or(0, |last| last + 1);
    let mut text = Vec::new();
    for row in rows.iter().take(used) {
        if colours {
            text.extend(rendered(row.as_bytes(), true));
        } else {
            text.extend_from_slice(escape(row).as_bytes());
        }
        text.push(b'\n');
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_below_the_last_one_are_left_out() {
        let rows = ["a", "", "b", "", ""].map(str::to_owned).to_vec();
        let ansi = ["\x1b[31ma\x1b[m", "", "b", "", ""].map(str::to_owned).to_vec();
        let view = ScreenView { rows, ansi, ..ScreenView::default() };
        assert_eq!(page(&view, false), b"a\n\nb\n");
        assert_eq!(page(&view, true), b"\x1b[31ma\x1b[m\n\nb\n");
    }
}
