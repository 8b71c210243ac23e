use super::{CONNECTIONS_MAX, open_door, serve};
use crate::orders::Forwarder;
use std::io::{Read, Write};
use std::net::{Shutdown, SocketAddr, TcpStream};
use std::os::unix::net::{UnixListener, UnixStream};

/// A forwarder in a thread that goes with the test program; what listens outside; where to connect.
fn forwarder() -> (UnixListener, SocketAddr, tempfile::TempDir) {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("s");
    let outside = UnixListener::bind(&path).unwrap();
    let connect = path.to_str().unwrap().to_owned();
    let door = open_door(&Forwarder { listen: ([127, 0, 0, 1], 0).into(), connect }).unwrap();
    let address = door.listener.local_addr().unwrap();
    std::thread::spawn(move || serve(&[door]).ok());
    (outside, address, folder)
}

fn rest(stream: &mut impl Read) -> String {
    let mut text = String::new();
    stream.read_to_string(&mut text).unwrap();
    text
}

#[test]
fn a_half_close_is_passed_on_and_the_answer_still_comes() {
    let (outside, address, _folder) = forwarder();
    let mut inside = TcpStream::connect(address).unwrap();
    let mut peer = outside.accept().unwrap().0;
    inside.write_all(b"question").unwrap();
    inside.shutdown(Shutdown::Write).unwrap();
    assert_eq!(rest(&mut peer), "question");
    peer.write_all(b"answer").unwrap();
    drop(peer);
    assert_eq!(rest(&mut inside), "answer");
}

#[test]
fn a_reader_that_waits_holds_up_only_itself_and_loses_nothing() {
    let (outside, address, _folder) = forwarder();
    let mut slow = TcpStream::connect(address).unwrap();
    let slow_peer = outside.accept().unwrap().0;
    let bytes: Vec<u8> = (0..8_000_000_u32).map(|n| n.to_le_bytes()[0]).collect();
    let sent = bytes.clone();
    let writer = std::thread::spawn(move || {
        let mut peer: UnixStream = slow_peer;
        peer.write_all(&sent).unwrap();
    });
    let mut other = TcpStream::connect(address).unwrap();
    let mut other_peer = outside.accept().unwrap().0;
    other.write_all(b"x").unwrap();
    let mut byte = [0];
    other_peer.read_exact(&mut byte).unwrap();
    let mut seen = Vec::new();
    slow.read_to_end(&mut seen).unwrap();
    writer.join().unwrap();
    assert!(seen == bytes);
}

#[test]
fn more_connections_than_places_wait_for_their_turn() {
    // Both ends of everything are in this process: more than the 1,024 that a user has by default.
    use nix::sys::resource::{Resource, getrlimit, setrlimit};
    let (_soft, hard) = getrlimit(Resource::RLIMIT_NOFILE).unwrap();
    setrlimit(Resource::RLIMIT_NOFILE, hard, hard).unwrap();
    let (outside, address, _folder) = forwarder();
    let echo = std::thread::spawn(move || {
        let mut held = Vec::new();
        for _each in 0..CONNECTIONS_MAX + 20 {
            held.push(outside.accept().unwrap().0);
            if held.len() == CONNECTIONS_MAX {
                // All places are taken: the others come in one by one as these go.
                held.clear();
            }
        }
    });
    let streams: Vec<_> =
        (0..CONNECTIONS_MAX + 20).map(|_each| TcpStream::connect(address).unwrap()).collect();
    echo.join().unwrap();
    for mut stream in streams {
        assert_eq!(rest(&mut stream), "");
    }
}

#[test]
fn nobody_outside_closes_the_connection() {
    let (outside, address, _folder) = forwarder();
    drop(outside);
    let mut inside = TcpStream::connect(address).unwrap();
    let mut byte = [0];
    assert!(matches!(inside.read(&mut byte), Ok(0) | Err(_)));
}
