//! How a viewer joins a terminal.

use crate::Size;
use serde::{Deserialize, Serialize};

/// What a viewer may do. One writer at a time, any number of observers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Role {
    Writer,
    Observer,
}

/// What a viewer is shown.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum View {
    /// History, a snapshot of the screen, then live bytes; for pipes: what is kept, then live bytes.
    #[default]
    Screen,
    /// Rendered lines, each once the program has gone on from it, at the end what is left (`logs -f`).
    Lines,
    /// Raw bytes from the oldest that is kept, with gaps told (`logs -f --raw`).
    Bytes,
}

/// How many lines above the screen a viewer is sent first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum History {
    None,
    Lines(u32),
    All,
}

impl Default for History {
    fn default() -> Self {
        Self::Lines(1000)
    }
}

/// Which role a viewer wants.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Join {
    /// The writer if there is none, else an observer.
    #[default]
    Auto,
    Observe,
    /// The writer even if there is one; that one becomes an observer and is told.
    Take,
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
#[expect(
    clippy::struct_excessive_bools,
    reason = "each says by itself what one viewer is or knows"
)]
pub struct AttachOptions {
    pub join: Join,
    pub view: View,
    pub history: History,
    /// The viewer's own size; applied if it becomes the writer.
    pub size: Option<Size>,
    /// A name for this viewer that others see, as `alice@pts/3`.
    pub viewer: String,
    /// Not on this machine's terminal: the policy's `remote_rate` applies.
    pub remote: bool,
    /// This viewer is `mews run`: for pipe streams nothing may be lost and the program waits for it.
    pub runner: bool,
    /// This viewer knows what to make of [`crate::frame::Frame::Still`].
    pub tell_still: bool,
    /// This viewer knows what to make of [`crate::frame::Frame::Others`].
    pub tell_others: bool,
}

/// Which store of a terminal to read.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
pub enum ScrollbackForm {
    /// Rendered logical lines, the screen's own lines at the end.
    #[default]
    Rendered,
    /// Raw bytes, from the recording where there is one, else the byte ring.
    Raw,
    /// Rendered lines that were printed since then, in ms since 1970.
    Since(i64),
    /// JSON [`crate::screen::ScreenView`] of now, or of its end. Pipe streams have none.
    Screen,
    /// JSON [`crate::screen::Last`], of a terminal that has closed.
    Last,
}
