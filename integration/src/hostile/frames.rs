//! Frames that are none, and valid ones with some of their bytes changed.

use super::link::{Link, Told, raw};
use super::verbs::{self, Target, VERBS};
use super::{Hostile, object};
use link::memfd;
use nix::sys::socket::{ControlMessage, MsgFlags, UnixAddr, sendmsg};
use serde_json::{Value, json};
use std::fs::File;
use std::io::IoSlice;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};

/// Enough that each verb is changed some hundred times.
const MUTATIONS: u32 = 4_000;
const SEED: u64 = 0x6d65_7773;

pub(super) fn malformed(
    hostile: &Hostile,
    (bobs, anns): (&OwnedFd, &Target),
) -> anyhow::Result<()> {
    let deep = format!("{}{}", "[".repeat(30_000), "]".repeat(30_000));
    let texts: Vec<(&str, Vec<u8>)> = vec![
        ("nothing", Vec::new()),
        ("no JSON", b"\xff\xfe\x00".to_vec()),
        ("half a frame", br#"{"request":{"id":1,"body":{"verb":"ki"#.to_vec()),
        ("deep", deep.into_bytes()),
        ("64 KiB", vec![b'a'; 64 << 10]),
        ("a second hello", br#"{"hello":{"proto":1,"build":"x"}}"#.to_vec()),
        ("an answer", br#"{"answer":{"id":1,"ok":null}}"#.to_vec()),
        ("a notice", br#"{"notify":{"what":"event"}}"#.to_vec()),
        ("no number", br#"{"request":{"body":{"verb":"list"}}}"#.to_vec()),
        ("a text as number", br#"{"request":{"id":"1","body":{"verb":"list"}}}"#.to_vec()),
        ("no verb", br#"{"request":{"id":1,"body":{}}}"#.to_vec()),
        ("an unknown verb", br#"{"request":{"id":1,"body":{"verb":"become_root"}}}"#.to_vec()),
        ("a list as body", br#"{"request":{"id":1,"body":[]}}"#.to_vec()),
    ];
    for (name, bytes) in texts {
        let mut link = hostile.link()?;
        let told = link.send_for(&bytes, &[], 1)?;
        hostile.note(&format!("frame: {name}"), &told.word())?;
    }
    let packets = raw(&hostile.dirs.supervisor_socket())?;
    packets.send(br#"{"request":{"id":1,"body":{"verb":"list"}}}"#, &[])?;
    let _hello = packets.recv()?;
    let told = if matches!(packets.recv(), Ok(None)) { "closed" } else { "served" };
    hostile.note("frame: no hello", told)?;
    hostile.note("frame: too many descriptors", too_many(hostile, anns)?)?;
    specs(hostile, (bobs, anns))
}

/// More than a packet may carry, by hand.
fn too_many(hostile: &Hostile, anns: &Target) -> anyhow::Result<&'static str> {
    let link = raw(&hostile.dirs.supervisor_socket())?;
    let null = File::open("/dev/null")?;
    let fds = vec![null.as_raw_fd(); 200];
    let text = json!({ "request": { "id": 1, "body": verbs::body("kill", anns) } }).to_string();
    let parts = [IoSlice::new(text.as_bytes())];
    let rights = [ControlMessage::ScmRights(&fds)];
    sendmsg::<UnixAddr>(link.as_fd().as_raw_fd(), &parts, &rights, MsgFlags::MSG_NOSIGNAL, None)?;
    let _hello = link.recv()?;
    Ok(if matches!(link.recv(), Ok(None)) { "closed" } else { "served" })
}

/// What comes beside a spawn is no memory file, or says nothing.
fn specs(hostile: &Hostile, (bobs, anns): (&OwnedFd, &Target)) -> anyhow::Result<()> {
    let fresh = Target { cage: wire::CageId::new(), ..*anns };
    let huge = File::from(memfd::sealed("x", b"{}")?);
    let (pipe, _writer) = std::io::pipe()?;
    let big = memfd::sealed("big", &vec![b' '; 12 << 20])?;
    let gifts: Vec<(&str, Vec<OwnedFd>)> = vec![
        ("none", Vec::new()),
        ("an empty one", vec![memfd::sealed("x", b"")?]),
        ("garbage", vec![memfd::sealed("x", &[0xff; 4096])?]),
        ("another form", vec![huge.into()]),
        ("too large", vec![big]),
        ("a pipe that never ends", vec![pipe.into()]),
        ("a folder", vec![File::open("/")?.into()]),
        ("a file of the host", vec![File::open("/etc/passwd")?.into()]),
        ("two", vec![memfd::sealed("x", b"{}")?, memfd::sealed("x", b"{}")?]),
    ];
    let mut link = hostile.link()?;
    for (name, fds) in gifts {
        for verb in ["spawn", "dry_run", "exec"] {
            let body = object(&verbs::body("exec", &fresh), &json!({ "verb": verb }));
            let told = link.ask(&body, &verbs::beside(Some(bobs), &fds))?;
            hostile.note(&format!("spec: {verb} with {name}"), &told.word())?;
        }
    }
    Ok(())
}

/// Requests for ann's cage with somebody else's connection or none, bytes changed at random.
pub(super) fn mutated(hostile: &Hostile, (bobs, anns): (&OwnedFd, &Target)) -> anyhow::Result<()> {
    let mut random = Random(SEED);
    let mut link = hostile.link()?;
    let (mut refused, mut closed) = (0, 0);
    for number in 0..MUTATIONS {
        let Some(verb) = VERBS.get(random.below(VERBS.len())).map(|verb| verb.name) else {
            continue;
        };
        let id = u64::from(number) + 1_000_000;
        let request = json!({ "request": { "id": id, "body": verbs::body(verb, anns) } });
        let bytes = random.change(request.to_string().into_bytes());
        // With another number, or as something that is no request, no answer would come.
        let answered = serde_json::from_slice::<Value>(&bytes).is_ok_and(|value| {
            value.pointer("/request/id").and_then(Value::as_u64) == Some(id)
                && value.pointer("/request/body").is_some()
        });
        let parsed = wire::control::Message::parse(&bytes);
        let is_request = matches!(parsed, Ok(wire::control::Message::Request(_)));
        if is_request && !answered {
            continue;
        }
        let gifts = verbs::gifts(verb)?;
        let authority = (random.below(2) == 0 && verb != "admit").then_some(bobs);
        let fds: Vec<BorrowedFd<'_>> = verbs::beside(authority, &gifts);
        match link.send_for(&bytes, &fds, id)? {
            Told::Refused(_) => refused += 1,
            Told::Closed => closed += 1,
            Told::Done(value, _fds) => {
                let text = String::from_utf8_lossy(&bytes).into_owned();
                // Asking what is going on harms nobody.
                let body = serde_json::from_slice::<Value>(&bytes).unwrap_or_default();
                if body.pointer("/request/body/verb") != Some(&json!("list")) {
                    hostile.note(
                        &format!("mutation {number} of {SEED:#x}: {text}"),
                        &format!("done {value}"),
                    )?;
                }
            }
        }
    }
    let told = if refused > 100 && closed > 100 { "done" } else { "too few came through" };
    hostile.note(&format!("control mutations: {refused} refused, {closed} closed"), told)?;
    Link::open(&hostile.dirs.supervisor_socket(), None).map(drop)
}

/// xorshift64: the same run for the same seed.
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0
    }

    fn below(&mut self, limit: usize) -> usize {
        usize::try_from(self.next() % u64::try_from(limit.max(1)).unwrap_or(1)).unwrap_or(0)
    }

    fn change(&mut self, mut bytes: Vec<u8>) -> Vec<u8> {
        for _time in 0..=self.below(3) {
            if bytes.is_empty() {
                break;
            }
            let at = self.below(bytes.len());
            match self.below(4) {
                0 => {
                    let other = u8::try_from(self.next() & 0xff).unwrap_or(0);
                    bytes.iter_mut().skip(at).take(1).for_each(|byte| *byte = other);
                }
                1 => drop(bytes.remove(at)),
                2 => {
                    let copy: Vec<u8> = bytes.iter().skip(at).copied().take(8).collect();
                    bytes.splice(at..at, copy);
                }
                _cut => bytes.truncate(at),
            }
        }
        bytes
    }
}
