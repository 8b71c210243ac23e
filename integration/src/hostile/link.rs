//! sessiond's side of the link, blocking, by hand.

use anyhow::{Context as _, bail};
use link::{Packets, memfd};
use nix::sys::socket::{setsockopt, sockopt};
use nix::sys::time::TimeVal;
use serde_json::{Value, json};
use std::os::fd::{BorrowedFd, OwnedFd};
use std::path::{Path, PathBuf};
use wire::control::{Hello, Message};
use wire::supervisor::{CageState, Phase};
use wire::{CageId, WireError};

/// For an answer; a spawn or a kill included.
const ANSWER_S: i64 = 20;

pub(super) struct Link {
    packets: Packets,
    path: PathBuf,
    next: u64,
}

/// What came of a request.
#[derive(Debug)]
pub(super) enum Told {
    Done(Value, Vec<OwnedFd>),
    Refused(WireError),
    /// The supervisor closed the link.
    Closed,
}

impl Told {
    pub(super) fn word(&self) -> String {
        match self {
            Self::Done(..) => "done".to_owned(),
            Self::Closed => "closed".to_owned(),
            Self::Refused(error) => {
                let code = serde_json::to_value(error.code).unwrap_or_default();
                format!("refused {}: {}", code.as_str().unwrap_or_default(), error.message)
            }
        }
    }
}

impl Link {
    pub(super) fn open(path: &Path, listener: Option<BorrowedFd<'_>>) -> anyhow::Result<Self> {
        let packets = raw(path)?;
        let hello = Message::Hello(Hello::ours()).to_bytes();
        let fds: Vec<BorrowedFd<'_>> = listener.into_iter().collect();
        packets.send(&hello, &fds)?;
        let first = packets.recv()?.context("a hello")?;
        let Ok(Message::Hello(_)) = Message::parse(&first.bytes) else { bail!("no hello") };
        Ok(Self { packets, path: path.to_owned(), next: 1 })
    }

    pub(super) fn ask(&mut self, body: &Value, fds: &[BorrowedFd<'_>]) -> anyhow::Result<Told> {
        let id = self.next;
        self.next += 1;
        let text = json!({ "request": { "id": id, "body": body } }).to_string();
        self.send_for(text.as_bytes(), fds, id)
    }

    /// Sends anything, and waits for the answer to this number. After it, the link works again.
    pub(super) fn send_for(
        &mut self,
        bytes: &[u8],
        fds: &[BorrowedFd<'_>],
        id: u64,
    ) -> anyhow::Result<Told> {
        let told = self.try_for(bytes, fds, id)?;
        if matches!(told, Told::Closed) {
            *self = Self::open(&self.path, None)?;
        }
        Ok(told)
    }

    fn try_for(&self, bytes: &[u8], fds: &[BorrowedFd<'_>], id: u64) -> anyhow::Result<Told> {
        if self.packets.send(bytes, fds).is_err() {
            return Ok(Told::Closed);
        }
        loop {
            let Some(packet) = self.packets.recv().context("no answer came")? else {
                return Ok(Told::Closed);
            };
            if let Ok(Message::Answer(answer)) = Message::parse(&packet.bytes)
                && answer.id == id
            {
                let result: Result<Value, WireError> = answer.result.into();
                return Ok(match result {
                    Ok(value) => Told::Done(value, packet.fds),
                    Err(error) => Told::Refused(error),
                });
            }
        }
    }

    pub(super) fn states(&mut self) -> anyhow::Result<Vec<CageState>> {
        match self.ask(&json!({ "verb": "list" }), &[])? {
            Told::Done(_null, fds) => {
                let fd = fds.into_iter().next().context("a list")?;
                Ok(serde_json::from_slice(&memfd::read(fd, 1 << 24)?)?)
            }
            other @ (Told::Refused(_) | Told::Closed) => bail!("list: {other:?}"),
        }
    }

    pub(super) fn state_of(&mut self, cage: CageId) -> anyhow::Result<Option<CageState>> {
        Ok(self.states()?.into_iter().find(|state| state.cage == cage))
    }

    /// How the cage ended, when it has.
    pub(super) fn exit_of(&mut self, cage: CageId) -> anyhow::Result<Option<i32>> {
        let limit = std::time::Duration::from_secs(20);
        let state = testkit::pause::until("the cage has ended", limit, || {
            self.state_of(cage).ok().flatten().filter(|state| state.phase == Phase::Gone)
        })?;
        Ok(state.exit.and_then(|exit| exit.code).map(i32::from))
    }
}

/// A connection without a hello.
pub(super) fn raw(path: &Path) -> anyhow::Result<Packets> {
    let packets = Packets::connect(path)?;
    setsockopt(&packets, sockopt::ReceiveTimeout, &TimeVal::new(ANSWER_S, 0))?;
    Ok(packets)
}
