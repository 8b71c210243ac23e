//! The viewer stream: `u8 type · u32 little-endian length · payload`, both ways.
//!
//! | type | name | payload | from |
//! | --- | --- | --- | --- |
//! | 1 | hello | JSON [`Hello`] | broker, first |
//! | 2 | output | u64 seq, bytes (`seq`: of the first byte) | broker |
//! | 3 | snapshot | u64 seq, u16 cols, u16 rows, bytes; a large one comes as several, to be painted in order | broker |
//! | 4 | history | bytes: rendered lines above the screen | broker |
//! | 5 | input | bytes | viewer |
//! | 6 | resize | u16 cols, u16 rows | both |
//! | 7 | role | JSON [`RoleChange`]; from a viewer: the wish to be that | both |
//! | 8 | throttled | u64 from, u64 dropped: a snapshot follows | broker |
//! | 9 | close | JSON [`Close`] | both |
//! | 10, 11 | ping, pong | none | both |
//! | 12, 13 | out, err | bytes of a pipe stream | broker |
//! | 14 | stdin | bytes; at most [`STDIN_WINDOW`] beyond what was acknowledged | viewer |
//! | 15 | stdin_eof | none | viewer |
//! | 16 | gap | u64 from, u64 to: bytes that are not kept any more | broker |
//! | 17 | ack | u64: bytes of standard input written so far | broker |
//! | 18 | title | UTF-8 | broker |
//! | 19 | bell | none | broker |
//! | 20 | still | u8: 1 stands, 0 goes on | broker, to who asked for it |
//! | 21 | others | JSON [`Others`]: whenever it changed | broker, to who asked for it |
//!
//! Numbers are little-endian. A length above [`FRAME_BYTES_MAX`], an unknown type or a payload
//! of the wrong form ends the stream.

use crate::{Exit, PtyId, Role, Size};
use serde::{Deserialize, Serialize};

/// Largest payload, in bytes.
pub const FRAME_BYTES_MAX: usize = 256 * 1024;
pub const HEADER_BYTES: usize = 5;
/// Standard input that may be under way unacknowledged, in bytes.
pub const STDIN_WINDOW: u64 = 64 * 1024;

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Mode {
    Terminal,
    Pipes,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Hello {
    pub proto: u32,
    pub pty: PtyId,
    pub mode: Mode,
    pub size: Size,
    /// Bytes of output so far.
    pub seq: u64,
    pub role: Role,
    /// Other viewers that are here.
    pub others: Vec<String>,
    /// The one of them that has the keyboard.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub writer: Option<String>,
}

/// Who else is here.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Others {
    /// Has the keyboard.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub writer: Option<String>,
    #[serde(default)]
    pub observers: Vec<String>,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct RoleChange {
    pub role: Role,
    /// Who took over, or who is the writer now.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub by: Option<String>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum CloseReason {
    Detached,
    Exited,
    TooSlow,
    SessionEnded,
    BrokerLost,
    /// The viewer broke the protocol.
    BadFrame,
}

impl CloseReason {
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Detached => "detached",
            Self::Exited => "exited",
            Self::TooSlow => "too_slow",
            Self::SessionEnded => "session_ended",
            Self::BrokerLost => "broker_lost",
            Self::BadFrame => "bad_frame",
        }
    }
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Close {
    pub reason: CloseReason,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub exit: Option<Exit>,
}

/// The highest type byte.
const NEWEST: u8 = 21;

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Frame {
    Hello(Hello),
    Output {
        seq: u64,
        bytes: Vec<u8>,
    },
    Snapshot {
        seq: u64,
        size: Size,
        bytes: Vec<u8>,
    },
    History(Vec<u8>),
    Input(Vec<u8>),
    Resize(Size),
    Role(RoleChange),
    Throttled {
        from: u64,
        dropped: u64,
    },
    Close(Close),
    Ping,
    Pong,
    Out(Vec<u8>),
    Err(Vec<u8>),
    Stdin(Vec<u8>),
    StdinEof,
    Gap {
        from: u64,
        to: u64,
    },
    Ack(u64),
    Title(String),
    Bell,
    /// The program stands still from now on, or goes on. Only to viewers that asked for it
    /// ([`crate::AttachOptions::tell_still`]).
    Still(bool),
    /// Only to viewers that asked for it ([`crate::AttachOptions::tell_others`]).
    Others(Others),
}

/// The stream is not what this table says; it must be closed.
#[derive(Debug, thiserror::Error, PartialEq, Eq)]
pub enum FrameError {
    #[error("frame type {0} is unknown")]
    UnknownType(u8),
    #[error("a frame of {0} bytes is larger than {FRAME_BYTES_MAX}")]
    TooLarge(usize),
    #[error("a frame of type {0} has a payload of the wrong form")]
    BadPayload(u8),
}

impl Frame {
    fn type_byte(&self) -> u8 {
        match self {
            Self::Hello(_) => 1,
            Self::Output { .. } => 2,
            Self::Snapshot { .. } => 3,
            Self::History(_) => 4,
            Self::Input(_) => 5,
            Self::Resize(_) => 6,
            Self::Role(_) => 7,
            Self::Throttled { .. } => 8,
            Self::Close(_) => 9,
            Self::Ping => 10,
            Self::Pong => 11,
            Self::Out(_) => 12,
            Self::Err(_) => 13,
            Self::Stdin(_) => 14,
            Self::StdinEof => 15,
            Self::Gap { .. } => 16,
            Self::Ack(_) => 17,
            Self::Title(_) => 18,
            Self::Bell => 19,
            Self::Still(_) => 20,
            Self::Others(_) => 21,
        }
    }

    /// Appends the frame to `out`. The caller keeps payloads within [`FRAME_BYTES_MAX`]
    /// (see [`output_header`] for writing output without a copy).
    pub fn encode(&self, out: &mut Vec<u8>) {
        out.push(self.type_byte());
        let length_at = out.len();
        out.extend_from_slice(&[0; 4]);
        match self {
            Self::Hello(hello) => json(out, hello),
            Self::Output { seq, bytes } => {
                out.extend_from_slice(&seq.to_le_bytes());
                out.extend_from_slice(bytes);
            }
            Self::Snapshot { seq, size, bytes } => {
                out.extend_from_slice(&seq.to_le_bytes());
                size_to(out, *size);
                out.extend_from_slice(bytes);
            }
            Self::History(bytes)
            | Self::Input(bytes)
            | Self::Out(bytes)
            | Self::Err(bytes)
            | Self::Stdin(bytes) => out.extend_from_slice(bytes),
            Self::Resize(size) => size_to(out, *size),
            Self::Role(change) => json(out, change),
            Self::Throttled { from, dropped } => pair_to(out, *from, *dropped),
            Self::Close(close) => json(out, close),
            Self::Ping | Self::Pong | Self::StdinEof | Self::Bell => {}
            Self::Gap { from, to } => pair_to(out, *from, *to),
            Self::Ack(bytes) => out.extend_from_slice(&bytes.to_le_bytes()),
            Self::Still(still) => out.push(u8::from(*still)),
            Self::Others(others) => json(out, others),
            Self::Title(title) => out.extend_from_slice(title.as_bytes()),
        }
        let length = u32::try_from(out.len() - length_at - 4).unwrap_or(u32::MAX);
        if let Some(place) = out.get_mut(length_at..length_at + 4) {
            place.copy_from_slice(&length.to_le_bytes());
        }
    }

    #[must_use]
    pub fn to_bytes(&self) -> Vec<u8> {
        let mut out = Vec::new();
        self.encode(&mut out);
        out
    }

    fn decode(kind: u8, payload: &[u8]) -> Result<Self, FrameError> {
        let bad = || FrameError::BadPayload(kind);
        let bytes = || payload.to_vec();
        let empty = |frame: Self| if payload.is_empty() { Ok(frame) } else { Err(bad()) };
        match kind {
            1 => Ok(Self::Hello(parse(kind, payload)?)),
            2 => {
                let (seq, rest) = u64_from(payload).ok_or_else(bad)?;
                Ok(Self::Output { seq, bytes: rest.to_vec() })
            }
            3 => {
                let (seq, rest) = u64_from(payload).ok_or_else(bad)?;
                let (size, rest) = size_from(rest).ok_or_else(bad)?;
                Ok(Self::Snapshot { seq, size, bytes: rest.to_vec() })
            }
            4 => Ok(Self::History(bytes())),
            5 => Ok(Self::Input(bytes())),
            6 => match size_from(payload) {
                Some((size, [])) => Ok(Self::Resize(size)),
                Some(_) | None => Err(bad()),
            },
            7 => Ok(Self::Role(parse(kind, payload)?)),
            8 => pair_from(payload)
                .map(|(from, dropped)| Self::Throttled { from, dropped })
                .ok_or_else(bad),
            9 => Ok(Self::Close(parse(kind, payload)?)),
            10 => empty(Self::Ping),
            11 => empty(Self::Pong),
            12 => Ok(Self::Out(bytes())),
            13 => Ok(Self::Err(bytes())),
            14 => Ok(Self::Stdin(bytes())),
            15 => empty(Self::StdinEof),
            16 => pair_from(payload).map(|(from, to)| Self::Gap { from, to }).ok_or_else(bad),
            17 => match u64_from(payload) {
                Some((count, [])) => Ok(Self::Ack(count)),
                Some(_) | None => Err(bad()),
            },
            18 => String::from_utf8(bytes()).map(Self::Title).map_err(|_not_utf8| bad()),
            19 => empty(Self::Bell),
            20 => match payload {
                [0] => Ok(Self::Still(false)),
                [1] => Ok(Self::Still(true)),
                _other => Err(bad()),
            },
            21 => Ok(Self::Others(parse(kind, payload)?)),
            other => Err(FrameError::UnknownType(other)),
        }
    }
}

/// The header of an output frame for `bytes` bytes, so that a shared buffer can follow uncopied.
#[must_use]
pub fn output_header(seq: u64, bytes: usize) -> [u8; HEADER_BYTES + 8] {
    let mut header = [0_u8; HEADER_BYTES + 8];
    let length = u32::try_from(bytes + 8).unwrap_or(u32::MAX).to_le_bytes();
    let fields = std::iter::once(2).chain(length).chain(seq.to_le_bytes());
    for (place, byte) in header.iter_mut().zip(fields) {
        *place = byte;
    }
    header
}

/// Takes bytes as they come and gives whole frames.
#[derive(Debug, Default)]
pub struct Decoder {
    buffer: Vec<u8>,
    start: usize,
}

impl Decoder {
    pub fn feed(&mut self, bytes: &[u8]) {
        if self.start > 0 && self.start == self.buffer.len() {
            self.buffer.clear();
            self.start = 0;
        } else if self.start > FRAME_BYTES_MAX {
            self.buffer.drain(..self.start);
            self.start = 0;
        }
        self.buffer.extend_from_slice(bytes);
    }

    /// The next whole frame, if its bytes are here.
    ///
    /// # Errors
    /// The stream must be closed.
    pub fn next_frame(&mut self) -> Result<Option<Frame>, FrameError> {
        let waiting = self.buffer.get(self.start..).unwrap_or_default();
        let Some((header, rest)) = waiting.split_first_chunk::<HEADER_BYTES>() else {
            return Ok(None);
        };
        let [kind, l0, l1, l2, l3] = *header;
        if !(1..=NEWEST).contains(&kind) {
            return Err(FrameError::UnknownType(kind));
        }
        let length = u32::from_le_bytes([l0, l1, l2, l3]) as usize;
        if length > FRAME_BYTES_MAX {
            return Err(FrameError::TooLarge(length));
        }
        let Some(payload) = rest.get(..length) else { return Ok(None) };
        let frame = Frame::decode(kind, payload)?;
        self.start += HEADER_BYTES + length;
        Ok(Some(frame))
    }
}

fn json(out: &mut Vec<u8>, value: &impl Serialize) {
    // Our own structs of strings and numbers always serialise.
    out.extend_from_slice(&serde_json::to_vec(value).unwrap_or_default());
}

fn parse<T: serde::de::DeserializeOwned>(kind: u8, payload: &[u8]) -> Result<T, FrameError> {
    serde_json::from_slice(payload).map_err(|_wrong| FrameError::BadPayload(kind))
}

fn size_to(out: &mut Vec<u8>, size: Size) {
    out.extend_from_slice(&size.cols.to_le_bytes());
    out.extend_from_slice(&size.rows.to_le_bytes());
}

fn pair_to(out: &mut Vec<u8>, a: u64, b: u64) {
    out.extend_from_slice(&a.to_le_bytes());
    out.extend_from_slice(&b.to_le_bytes());
}

fn u64_from(bytes: &[u8]) -> Option<(u64, &[u8])> {
    bytes.split_first_chunk::<8>().map(|(head, rest)| (u64::from_le_bytes(*head), rest))
}

fn pair_from(bytes: &[u8]) -> Option<(u64, u64)> {
    let (a, rest) = u64_from(bytes)?;
    match u64_from(rest)? {
        (b, []) => Some((a, b)),
        _ => None,
    }
}

fn size_from(bytes: &[u8]) -> Option<(Size, &[u8])> {
    let (&[c0, c1, r0, r1], rest) = bytes.split_first_chunk::<4>()?;
    let size = Size { cols: u16::from_le_bytes([c0, c1]), rows: u16::from_le_bytes([r0, r1]) };
    Some((size, rest))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn any_frame() -> impl Strategy<Value = Frame> {
        let bytes = || proptest::collection::vec(any::<u8>(), 0..300);
        let size = || (any::<u16>(), any::<u16>()).prop_map(|(cols, rows)| Size { cols, rows });
        prop_oneof![
            (any::<u64>(), bytes()).prop_map(|(seq, bytes)| Frame::Output { seq, bytes }),
            (any::<u64>(), size(), bytes()).prop_map(|(seq, size, bytes)| Frame::Snapshot {
                seq,
                size,
                bytes
            }),
            bytes().prop_map(Frame::History),
            bytes().prop_map(Frame::Input),
            bytes().prop_map(Frame::Err),
            size().prop_map(Frame::Resize),
            (any::<u64>(), any::<u64>()).prop_map(|(from, to)| Frame::Gap { from, to }),
            (any::<u64>(), any::<u64>())
                .prop_map(|(from, dropped)| Frame::Throttled { from, dropped }),
            any::<u64>().prop_map(Frame::Ack),
            ".{0,40}".prop_map(Frame::Title),
            Just(Frame::Ping),
            any::<bool>().prop_map(Frame::Still),
            Just(Frame::StdinEof),
            Just(Frame::Close(Close { reason: CloseReason::Detached, exit: None })),
            Just(Frame::Role(RoleChange { role: Role::Observer, by: Some("b".into()) })),
            Just(Frame::Others(Others { writer: Some("a".into()), observers: vec!["b".into()] })),
        ]
    }

    proptest! {
        #[test]
        fn frames_survive_any_split(
            frames in proptest::collection::vec(any_frame(), 1..8), step in 1_usize..64,
        ) {
            let mut bytes = Vec::new();
            frames.iter().for_each(|frame| frame.encode(&mut bytes));
            let mut decoder = Decoder::default();
            let mut got = Vec::new();
            for piece in bytes.chunks(step) {
                decoder.feed(piece);
                while let Some(frame) = decoder.next_frame().unwrap() {
                    got.push(frame);
                }
            }
            prop_assert_eq!(got, frames);
        }

        #[test]
        fn junk_never_panics(bytes in proptest::collection::vec(any::<u8>(), 0..600)) {
            let mut decoder = Decoder::default();
            decoder.feed(&bytes);
            while let Ok(Some(_)) = decoder.next_frame() {}
        }
    }

    #[test]
    fn vectors_stay_as_they_are() {
        let resize = Frame::Resize(Size { cols: 80, rows: 24 });
        assert_eq!(resize.to_bytes(), [6, 4, 0, 0, 0, 80, 0, 24, 0]);
        let output = Frame::Output { seq: 258, bytes: b"hi".to_vec() };
        assert_eq!(output.to_bytes(), [2, 10, 0, 0, 0, 2, 1, 0, 0, 0, 0, 0, 0, b'h', b'i']);
        let mut by_header = output_header(258, 2).to_vec();
        by_header.extend_from_slice(b"hi");
        assert_eq!(by_header, output.to_bytes());
    }

    #[test]
    fn too_large_and_unknown_are_refused_before_the_payload_comes() {
        let mut decoder = Decoder::default();
        decoder.feed(&[2, 0xff, 0xff, 0xff, 0x7f]);
        assert_eq!(decoder.next_frame(), Err(FrameError::TooLarge(0x7fff_ffff)));
        let mut decoder = Decoder::default();
        decoder.feed(&[77, 0, 0, 0, 0]);
        assert_eq!(decoder.next_frame(), Err(FrameError::UnknownType(77)));
    }
}
