//! `logs -f`: only reads, until the end of the command or of patience.

use super::stdio::Output;
use super::{Ending, Ends, ending};
use crate::escape::rendered;
use crate::http::Upgraded;
use crate::out::{Say, colours};
use std::io;
use wire::frame::Frame;

/// What comes is lines for people, to be made harmless; or bytes, exactly as they are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Form {
    Lines,
    Bytes,
}

pub(crate) async fn follow(upgraded: Upgraded, form: Form, say: &Say) -> io::Result<Ending> {
    let Upgraded { stream, early, resolved: _ } = upgraded;
    let (mut incoming, mut outgoing) = super::stream::split(stream, &early)?;
    let mut stdout = Output::stdout()?;
    let mut ends = Ends::new()?;
    let mut over = None;
    loop {
        if let (true, Some(ending)) = (stdout.is_empty(), over.take()) {
            return Ok(ending);
        }
        tokio::select! {
            frame = incoming.next(), if stdout.is_empty() => match frame? {
                None => return Ok(Ending::Lost),
                Some(Frame::Close(close)) => over = Some(ending(close)),
                Some(Frame::Ping) => outgoing.push(&Frame::Pong),
                Some(Frame::Gap { from, to }) => {
                    say.note(&format!("{} bytes are not kept any more", to.saturating_sub(from)));
                }
                Some(frame) => show(frame, form, &mut stdout),
            },
            done = stdout.flush(), if !stdout.is_empty() => match done {
                Err(error) if error.kind() == io::ErrorKind::BrokenPipe => {
                    return Ok(Ending::Detached);
                }
                other => other?,
            },
            () = outgoing.flush(), if outgoing.waiting() > 0 => {}
            signal = ends.next() => return Ok(Ending::Signalled(signal)),
        }
    }
}

fn show(frame: Frame, form: Form, stdout: &mut Output) {
    let bytes = match frame {
        Frame::Output { bytes, .. }
        | Frame::History(bytes)
        | Frame::Snapshot { bytes, .. }
        | Frame::Out(bytes)
        | Frame::Err(bytes) => bytes,
        Frame::Hello(_)
        | Frame::Others(_)
        | Frame::Input(_)
        | Frame::Resize(_)
        | Frame::Role(_)
        | Frame::Throttled { .. }
        | Frame::Close(_)
        | Frame::Ping
        | Frame::Pong
        | Frame::Stdin(_)
        | Frame::StdinEof
        | Frame::Gap { .. }
        | Frame::Ack(_)
        | Frame::Title(_)
        | Frame::Still(_)
        | Frame::Bell => return,
    };
    match form {
        Form::Bytes => stdout.push(&bytes),
        Form::Lines => stdout.push(&rendered(&bytes, colours())),
    }
}
