//! HTTP/1.1 on one Unix connection: requests one after the other, and the upgrade of an attach.

use crate::hello;
use bytes::Bytes;
use http_body_util::{BodyExt, Full};
use hyper::client::conn::http1::{self, SendRequest};
use hyper_util::rt::TokioIo;
use std::io;
use std::os::fd::OwnedFd;
use tokio::net::UnixStream;
use wire::GrantKey;
use wire::api::{RESOLVED, Resolved};

/// A connection that takes the next request when the last one is answered.
#[derive(Debug)]
pub(crate) struct Connection(SendRequest<Full<Bytes>>);

#[derive(Debug)]
pub(crate) struct Reply {
    pub(crate) status: u16,
    pub(crate) body: Bytes,
}

/// The stream below an upgraded connection, and what was read of it already.
#[derive(Debug)]
pub(crate) struct Upgraded {
    pub(crate) stream: OwnedFd,
    pub(crate) early: Bytes,
    /// What the ID meant, if one was asked for.
    pub(crate) resolved: Option<Resolved>,
}

impl Connection {
    pub(crate) async fn new(stream: std::os::unix::net::UnixStream) -> io::Result<Self> {
        stream.set_nonblocking(true)?;
        let io = TokioIo::new(UnixStream::from_std(stream)?);
        let (sender, connection) = http1::handshake(io).await.map_err(io::Error::other)?;
        // Ends when the sender is dropped; its errors come out of the sender too.
        tokio::spawn(connection.with_upgrades());
        Ok(Self(sender))
    }

    pub(crate) async fn request(
        &mut self,
        method: &str,
        path: &str,
        key: Option<&GrantKey>,
        body: Bytes,
    ) -> io::Result<Reply> {
        self.0.ready().await.map_err(io::Error::other)?;
        let mut request = http::Request::builder()
            .method(method)
            .uri(path)
            .header("host", "mews")
            .header(wire::hello::HEADER, hello::header())
            .header("content-type", "application/json");
        if let Some(key) = key {
            request = request.header("authorization", format!("Bearer {key}"));
        }
        let request = request.body(Full::new(body)).map_err(io::Error::other)?;
        let response = self.0.send_request(request).await.map_err(io::Error::other)?;
        let status = response.status().as_u16();
        let body = response.into_body().collect().await.map_err(io::Error::other)?.to_bytes();
        Ok(Reply { status, body })
    }

    /// The stream itself, or the answer that refuses it.
    pub(crate) async fn upgrade(
        mut self,
        path: &str,
        protocol: &str,
    ) -> io::Result<Result<Upgraded, Reply>> {
        self.0.ready().await.map_err(io::Error::other)?;
        let request = http::Request::builder()
            .uri(path)
            .header("host", "mews")
            .header(wire::hello::HEADER, hello::header())
            .header("connection", "upgrade")
            .header("upgrade", protocol)
            .body(Full::new(Bytes::new()))
            .map_err(io::Error::other)?;
        let response = self.0.send_request(request).await.map_err(io::Error::other)?;
        let status = response.status().as_u16();
        if status != 101 {
            let body = response.into_body().collect().await.map_err(io::Error::other)?;
            return Ok(Err(Reply { status, body: body.to_bytes() }));
        }
        let resolved = response.headers().get(RESOLVED);
        let resolved = resolved.and_then(|json| serde_json::from_slice(json.as_bytes()).ok());
        let upgraded = hyper::upgrade::on(response).await.map_err(io::Error::other)?;
        let parts = upgraded
            .downcast::<TokioIo<UnixStream>>()
            .map_err(|_other| io::Error::other("the upgraded stream is not the socket"))?;
        let stream = parts.io.into_inner().into_std()?.into();
        Ok(Ok(Upgraded { stream, early: parts.read_buf, resolved }))
    }
}

/// A value of a query string.
pub(crate) fn encode(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for byte in text.bytes() {
        if byte.is_ascii_alphanumeric() || b"-._~".contains(&byte) {
            out.push(char::from(byte));
        } else {
            out.push_str(&format!("%{byte:02X}"));
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn query_values_are_encoded() {
        assert_eq!(encode("a b/ü&=\"1\""), "a%20b%2F%C3%BC%26%3D%221%22");
    }
}
