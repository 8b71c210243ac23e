//! The size of a terminal.

use serde::{Deserialize, Serialize};

/// Columns and rows, each in characters.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Size {
    pub cols: u16,
    pub rows: u16,
}

impl Size {
    pub const DEFAULT: Self = Self { cols: 80, rows: 24 };
    pub const MIN: Self = Self { cols: 2, rows: 2 };
    pub const MAX: Self = Self { cols: 500, rows: 300 };

    /// The nearest size that a terminal of ours may have.
    #[must_use]
    pub fn clamped(self) -> Self {
        Self {
            cols: self.cols.clamp(Self::MIN.cols, Self::MAX.cols),
            rows: self.rows.clamp(Self::MIN.rows, Self::MAX.rows),
        }
    }
}
