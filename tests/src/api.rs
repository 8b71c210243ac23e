//! A look at the API, without any code of the product.

use anyhow::Context as _;
use std::io::{Read, Write};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::time::Duration;

/// GET; status and JSON body.
///
/// # Errors
/// Nobody answers, or not with JSON.
pub fn get(socket: &Path, path: &str) -> anyhow::Result<(u16, serde_json::Value)> {
    let (status, body) = ask(socket, "GET", path, "")?;
    Ok((status, serde_json::from_str(&body).context("a JSON body")?))
}

/// One request on a connection of its own; status, and the JSON of the body if it is some.
///
/// # Errors
/// Nobody answers.
pub fn ask(socket: &Path, method: &str, path: &str, body: &str) -> anyhow::Result<(u16, String)> {
    ask_by_key(socket, (method, path), "", body)
}

/// The same with the key of a grant.
///
/// # Errors
/// As for [`ask`].
pub fn ask_by_key(
    socket: &Path,
    (method, path): (&str, &str),
    key: &str,
    body: &str,
) -> anyhow::Result<(u16, String)> {
    let mut stream = UnixStream::connect(socket).context("connect")?;
    stream.set_read_timeout(Some(crate::pace::stretched(Duration::from_secs(20))))?;
    let length = body.len();
    let request = format!(
        "{method} {path} HTTP/1.1\r\nHost: mews\r\nConnection: close\r\n\
         Authorization: Bearer {key}\r\nContent-Type: application/json\r\nContent-Length: {length}\r\n\r\n{body}"
    );
    stream.write_all(request.as_bytes())?;
    let mut answer = Vec::new();
    let mut piece = [0; 16 * 1024];
    // Events that come one by one have no end: their head is the answer.
    while !String::from_utf8_lossy(&answer).contains("text/event-stream\r\n") {
        match stream.read(&mut piece)? {
            0 => break,
            count => answer.extend_from_slice(piece.get(..count).unwrap_or_default()),
        }
    }
    let answer = String::from_utf8_lossy(&answer).into_owned();
    let (head, body) = answer.split_once("\r\n\r\n").context("an HTTP answer")?;
    let status = head.split(' ').nth(1).and_then(|word| word.parse().ok()).context("a status")?;
    // Without what a chunked body has around it.
    let json = body.find(['{', '[']).zip(body.rfind(['}', ']']));
    let json = json.and_then(|(from, to)| body.get(from..=to)).unwrap_or_default();
    Ok((status, json.to_owned()))
}
