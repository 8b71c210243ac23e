//! Clients of the API that keep or take what they can, for the suite `operators` to run as somebody.
//! They say on standard output what came of it, a line each, and go on when a line comes in.

use anyhow::Context as _;
use std::io::{BufRead, BufReader, ErrorKind, Read, Write};
use std::os::unix::net::UnixStream;
use std::process::ExitCode;

/// As large as a command with its environment may be.
const BODY: usize = 7_000_000;

pub(crate) fn main(args: &[String]) -> ExitCode {
    let args: Vec<&str> = args.iter().map(String::as_str).collect();
    let done = match args[..] {
        ["keep", socket, ref paths @ ..] => keep(socket, paths),
        ["bodies", socket, path] => bodies(socket, path),
        ["crowd", socket] => crowd(socket),
        _ => return ExitCode::from(2),
    };
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            say(&format!("{error:#}"));
            ExitCode::FAILURE
        }
    }
}

/// Asks one after the other over one connection: the status and body of each, or that it was closed.
fn keep(socket: &str, paths: &[&str]) -> anyhow::Result<()> {
    let mut stream = UnixStream::connect(socket)?;
    for path in paths {
        stream.write_all(head("GET", path, 0).as_bytes())?;
        let mut answers = BufReader::new(&stream);
        let (mut status, mut length) = (String::new(), 0);
        // Closed with what was asked unread is a reset.
        if !matches!(answers.read_line(&mut status), Ok(1..)) {
            say("closed");
            return Ok(());
        }
        loop {
            let mut line = String::new();
            answers.read_line(&mut line)?;
            if let Some(said) = line.to_ascii_lowercase().strip_prefix("content-length:") {
                length = said.trim().parse()?;
            }
            if line.trim().is_empty() {
                break;
            }
        }
        let mut body = vec![0; length];
        answers.read_exact(&mut body)?;
        say(&format!("{} {}", code(&status), String::from_utf8_lossy(&body)));
    }
    Ok(())
}

/// Many large bodies at once, none of which ends: what is said to each.
fn bodies(socket: &str, path: &str) -> anyhow::Result<()> {
    let body = vec![b' '; BODY - 1];
    let mut streams = Vec::new();
    for _number in 0..80 {
        let mut stream = UnixStream::connect(socket)?;
        stream.write_all(head("POST", path, BODY).as_bytes())?;
        // Nobody has to read it.
        let _refused = stream.write_all(&body);
        streams.push(stream);
    }
    for stream in streams {
        let mut status = String::new();
        BufReader::new(stream).read_line(&mut status)?;
        say(code(&status));
    }
    Ok(())
}

/// Connections that say nothing, and behind them one that asks: whether it is answered beside them, and
/// what once they are gone.
fn crowd(socket: &str) -> anyhow::Result<()> {
    let silent: Vec<UnixStream> =
        (0..40).map(|_number| UnixStream::connect(socket)).collect::<Result<_, _>>()?;
    let mut asks = UnixStream::connect(socket)?;
    asks.write_all(head("GET", "/sessions", 0).as_bytes())?;
    say("asked");
    std::io::stdin().read_line(&mut String::new())?;
    asks.set_nonblocking(true)?;
    match asks.read(&mut [0]) {
        Err(error) if error.kind() == ErrorKind::WouldBlock => say("waits"),
        _ => say("answered beside them"),
    }
    asks.set_nonblocking(false)?;
    drop(silent);
    let mut status = String::new();
    BufReader::new(asks).read_line(&mut status).context("an answer")?;
    say(code(&status));
    Ok(())
}

fn head(method: &str, path: &str, length: usize) -> String {
    let base = wire::api::BASE;
    format!("{method} {base}{path} HTTP/1.1\r\nHost: mews\r\nContent-Length: {length}\r\n\r\n")
}

fn code(status: &str) -> &str {
    status.split(' ').nth(1).unwrap_or("none")
}

fn say(line: &str) {
    println!("{line}");
}
