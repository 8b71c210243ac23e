//! Links (OSC 8): a screen holds so many bytes of them and no more, then text comes without.
//!
//! Each opened link is a piece of memory for as long as a cell has it, so that a program could fill
//! a screen with one for every cell.

use super::Model;
use alacritty_terminal::term::cell::Cell;
use alacritty_terminal::vte::ansi::{Handler, Hyperlink};
use std::collections::HashSet;

/// A link longer than this is ignored, in bytes.
const LINK_BYTES_MAX: usize = 1024;
/// Of all links on both screens, in bytes.
pub(in crate::screen) const LINKS_BYTES_MAX: usize = 256 * 1024;
/// Looking at every cell is paid for by so many bytes of new links.
const COUNT_AFTER_BYTES: usize = LINKS_BYTES_MAX / 4;
/// What a link costs beside its letters.
const LINK_OVERHEAD_BYTES: usize = 64;
/// One without an id is given one by the library: a number and a word.
const GIVEN_ID_BYTES: usize = 30;

#[derive(Debug, Default)]
pub(super) struct Links {
    /// Of links opened, less those that were found gone.
    held_bytes: usize,
    /// Opened since the cells were looked at.
    offered_bytes: usize,
}

impl Model {
    /// What is written from here on belongs to this link.
    pub(in crate::screen) fn open_link(&mut self, link: Option<Hyperlink>) {
        let fits = link.filter(|link| {
            let id_bytes = link.id.as_ref().map_or(GIVEN_ID_BYTES, String::len);
            let bytes = link.uri.len() + id_bytes;
            bytes <= LINK_BYTES_MAX && self.has_room_for(bytes + LINK_OVERHEAD_BYTES)
        });
        self.term.set_hyperlink(fits);
    }

    fn has_room_for(&mut self, bytes: usize) -> bool {
        self.links.offered_bytes += bytes;
        let is_full = self.links.held_bytes + bytes > LINKS_BYTES_MAX;
        if is_full && self.links.offered_bytes >= COUNT_AFTER_BYTES {
            self.links = Links { held_bytes: self.link_bytes(), offered_bytes: 0 };
        }
        let fits = self.links.held_bytes + bytes <= LINKS_BYTES_MAX;
        if fits {
            self.links.held_bytes += bytes;
        }
        fits
    }

    /// Of links that cells still have.
    fn link_bytes(&self) -> usize {
        let mut seen = HashSet::new();
        let mut bytes = 0;
        let mut count = |cell: &Cell| {
            if let Some(link) = cell.hyperlink()
                && seen.insert(link.uri().as_ptr())
            {
                bytes += link.uri().len() + link.id().len() + LINK_OVERHEAD_BYTES;
            }
        };
        let grids = [Some(self.term.grid()), self.hidden.as_deref()];
        for grid in grids.into_iter().flatten() {
            grid.display_iter().for_each(|indexed| count(indexed.cell));
        }
        bytes
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use wire::Size;

    fn open(model: &mut Model, uri: String) -> bool {
        model.open_link(Some(Hyperlink { id: None, uri }));
        model.term.grid().cursor.template.hyperlink().is_some()
    }

    #[test]
    fn a_screen_holds_so_many_bytes_of_links() {
        let mut model = Model::new(Size { cols: 200, rows: 50 });
        assert!(!open(&mut model, "x".repeat(LINK_BYTES_MAX + 1)));
        let mut linked = 0;
        for number in 0..10_000 {
            linked += usize::from(open(&mut model, format!("{number:0900}")));
            model.term.input('x');
        }
        assert!((200..=LINKS_BYTES_MAX / 900).contains(&linked), "{linked}");
        assert!(model.link_bytes() <= LINKS_BYTES_MAX);
    }

    #[test]
    fn links_that_went_make_room() {
        let mut model = Model::new(Size { cols: 80, rows: 24 });
        let mut linked = 0;
        for number in 0..2_000 {
            linked += usize::from(open(&mut model, format!("{number:0900}")));
            model.term.input('x');
            model.term.newline();
        }
        assert_eq!(linked, 2_000);
    }
}
