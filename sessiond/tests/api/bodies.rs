//! Whose bodies are read, and how much of them at a time.

use crate::client::Daemon;
use crate::run;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::UnixStream;
use wire::{GrantId, GrantKey};

/// A request whose body is announced, and nothing of it.
async fn announced(daemon: &Daemon, path: &str, bytes: usize, headers: &str) -> UnixStream {
    let mut stream = UnixStream::connect(daemon.folder.path().join("api.sock")).await.unwrap();
    let head = format!(
        "POST {}{path} HTTP/1.1\r\nhost: mews\r\ncontent-length: {bytes}\r\n{headers}\r\n",
        wire::api::BASE
    );
    stream.write_all(head.as_bytes()).await.unwrap();
    stream
}

async fn status(stream: &mut UnixStream) -> String {
    let mut line = [0; 12];
    stream.read_exact(&mut line).await.unwrap();
    String::from_utf8_lossy(&line).into_owned()
}

#[test]
fn nothing_is_read_for_who_has_no_key_of_a_grant() {
    run(async {
        let daemon = Daemon::start().await;
        let key = GrantKey { id: GrantId::new(), secret: "0f".repeat(32) };
        let jobs = format!("/grants/{}/jobs", key.id);
        let other = format!("/grants/{}/jobs", GrantId::new());
        for (path, said, wanted) in [
            (&jobs, String::new(), "HTTP/1.1 401"),
            (&jobs, "authorization: Bearer nonsense\r\n".to_owned(), "HTTP/1.1 401"),
            (&jobs, format!("authorization: Bearer {key}\r\n"), "HTTP/1.1 404"),
            (&other, format!("authorization: Bearer {key}\r\n"), "HTTP/1.1 404"),
        ] {
            let mut stream = announced(&daemon, path, 7_000_000, &said).await;
            assert_eq!(status(&mut stream).await, wanted, "{path} {said}");
        }
    });
}

#[test]
fn who_sends_many_large_bodies_waits_for_their_own() {
    run(async {
        let daemon = Daemon::start().await;
        let path = format!("/sessions/{}/jobs", daemon.session("bash").await);
        let mut taken = Vec::new();
        // 100 is said when the body is asked for.
        let start = async || announced(&daemon, &path, 7_900_000, "expect: 100-continue\r\n").await;
        for _fits in 0..4 {
            let mut stream = start().await;
            assert_eq!(status(&mut stream).await, "HTTP/1.1 100");
            taken.push(stream);
        }
        let mut waits = start().await;
        // Small ones go on, and by then the daemon has seen the large one.
        for _turn in 0..20 {
            daemon.session("bash").await;
        }
        let read = waits.try_read(&mut [0; 12]);
        assert_eq!(read.unwrap_err().kind(), std::io::ErrorKind::WouldBlock);
        taken.pop();
        assert_eq!(status(&mut waits).await, "HTTP/1.1 100");
    });
}
