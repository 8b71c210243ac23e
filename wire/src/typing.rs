//! What somebody who is no viewer types on a terminal.

use crate::key::Key;
use serde::{Deserialize, Serialize};

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
pub enum Piece {
    /// As it is.
    Text(String),
    /// As the program's modes have it at this moment.
    Key(#[cfg_attr(feature = "schema", schemars(with = "String"))] Key),
    /// In brackets, if the program wants pastes so; line feeds become what enter is.
    Paste(String),
}

/// One after the other, nothing between them.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Typing {
    pub pieces: Vec<Piece>,
    /// Also while a viewer has the keyboard.
    #[serde(default)]
    pub force: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Typed {
    /// Bytes of output before it: what comes after them may be an answer to it.
    pub seq: u64,
    /// The program stands still; it gets this when it goes on.
    pub paused: bool,
}

/// What a program sees of a terminal's modes by its keys.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Modes {
    pub bracketed_paste: bool,
    pub application_cursor: bool,
}

const PASTE_BEGINS: &str = "\x1b[200~";
const PASTE_ENDS: &str = "\x1b[201~";

impl Typing {
    #[must_use]
    pub fn bytes(&self, modes: Modes) -> Vec<u8> {
        let mut bytes = Vec::new();
        for piece in &self.pieces {
            match piece {
                Piece::Text(text) => bytes.extend_from_slice(text.as_bytes()),
                Piece::Key(key) => bytes.extend(key.bytes(modes.application_cursor)),
                Piece::Paste(text) => paste(text, modes.bracketed_paste, &mut bytes),
            }
        }
        bytes
    }
}

/// What is pasted cannot end its own brackets, and so not type.
fn paste(text: &str, in_brackets: bool, bytes: &mut Vec<u8>) {
    let text = text.replace("\r\n", "\r").replace('\n', "\r");
    if !in_brackets {
        return bytes.extend_from_slice(text.as_bytes());
    }
    bytes.extend_from_slice(PASTE_BEGINS.as_bytes());
    bytes.extend_from_slice(text.replace('\x1b', "").as_bytes());
    bytes.extend_from_slice(PASTE_ENDS.as_bytes());
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_paste_cannot_leave_its_brackets() {
        let typing = Typing {
            pieces: vec![
                Piece::Text("a\n".to_owned()),
                Piece::Paste("x\r\ny\x1b[201~\nrm".to_owned()),
                Piece::Key("up".parse().unwrap()),
            ],
            force: false,
        };
        let plain = typing.bytes(Modes::default());
        assert_eq!(plain, b"a\nx\ry\x1b[201~\rrm\x1b[A");
        let modes = Modes { bracketed_paste: true, application_cursor: true };
        assert_eq!(typing.bytes(modes), b"a\n\x1b[200~x\ry[201~\rrm\x1b[201~\x1bOA");
    }

    #[test]
    fn it_reads_as_people_write_it() {
        let json = r#"{"pieces":[{"text":"ls"},{"key":"C-m"},{"paste":"p"}]}"#;
        let typing: Typing = serde_json::from_str(json).unwrap();
        assert_eq!(typing.bytes(Modes::default()), b"ls\rp");
        let wrong = serde_json::from_str::<Typing>(r#"{"pieces":[{"key":"entr"}]}"#).unwrap_err();
        assert!(wrong.to_string().contains("'entr' is no key"), "{wrong}");
    }
}
