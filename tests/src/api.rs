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
    let mut stream = UnixStream::connect(socket).context("connect")?;
    stream.set_read_timeout(Some(Duration::from_secs(10)))?;
    let request = format!("GET {path} HTTP/1.1\r\nHost: mews\r\nConnection: close\r\n\r\n");
    stream.write_all(request.as_bytes())?;
    let mut answer = Vec::new();
    stream.read_to_end(&mut answer)?;
    let answer = String::from_utf8_lossy(&answer).into_owned();
    let (head, body) = answer.split_once("\r\n\r\n").context("an HTTP answer")?;
    let status = head.split(' ').nth(1).and_then(|word| word.parse().ok()).context("a status")?;
    let from = body.find(['{', '[']).context("a JSON body")?;
    let to = body.rfind(['}', ']']).context("a JSON body")?;
    let body = body.get(from..=to).context("a JSON body")?;
    Ok((status, serde_json::from_str(body)?))
}
