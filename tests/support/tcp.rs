//! Blocking TCP peers of the standard library, with timeouts so that a test fails instead of
//! hanging.

use super::wait::PATIENCE;
use std::{
    io::{ErrorKind, Read, Write},
    net::{SocketAddr, TcpStream},
};

/// Port 0 of the loopback address, the only host that tests use.
pub(crate) const ANY_PORT: &str = "127.0.0.1:0";

/// Connects a blocking stream with timeouts.
pub(crate) fn connect(to: SocketAddr) -> TcpStream {
    let stream = TcpStream::connect(to).unwrap();
    patient(&stream);
    stream
}

/// Sets the timeouts of a stream, and `TCP_NODELAY`.
pub(crate) fn patient(stream: &TcpStream) {
    stream.set_read_timeout(Some(PATIENCE)).unwrap();
    stream.set_write_timeout(Some(PATIENCE)).unwrap();
    stream.set_nodelay(true).unwrap();
}

/// Sends bytes and expects the same bytes back.
#[track_caller]
pub(crate) fn ping(stream: &mut (impl Read + Write), bytes: &[u8]) {
    stream.write_all(bytes).unwrap();
    assert_eq!(read_n(stream, bytes.len()), bytes);
}

/// Reads exactly `n` bytes.
#[track_caller]
pub(crate) fn read_n(stream: &mut impl Read, n: usize) -> Vec<u8> {
    let mut bytes = vec![0; n];
    stream.read_exact(&mut bytes).unwrap();
    bytes
}

/// Reads until the peer ends the stream.
#[track_caller]
pub(crate) fn read_all(stream: &mut impl Read) -> Vec<u8> {
    let mut all = Vec::new();
    stream.read_to_end(&mut all).unwrap();
    all
}

/// Compares two byte strings without printing megabytes.
#[track_caller]
pub(crate) fn assert_same(got: &[u8], sent: &[u8]) {
    if got == sent {
        return;
    }
    let at = got.iter().zip(sent).take_while(|(a, b)| a == b).count();
    panic!("received {} of {} bytes; the first difference is at {at}", got.len(), sent.len());
}

/// Sends `text` and expects `answer`.
#[track_caller]
pub(crate) fn ask(stream: &mut (impl Read + Write), text: &str, answer: &str) {
    stream.write_all(text.as_bytes()).unwrap();
    let mut got = vec![0; answer.len()];
    stream.read_exact(&mut got).unwrap();
    assert_eq!(String::from_utf8_lossy(&got), answer);
}

/// Reads until the peer ends the stream. A reset counts as the end.
pub(crate) fn read_to_end(stream: &mut impl Read) -> Vec<u8> {
    let mut all = Vec::new();
    let mut buffer = vec![0; 64 * 1024];
    loop {
        match stream.read(&mut buffer) {
            Ok(0) => return all,
            Ok(n) => all.extend_from_slice(&buffer[..n]),
            Err(e) if e.kind() == ErrorKind::ConnectionReset => return all,
            Err(e) => panic!("waiting for the end of the stream: {e}"),
        }
    }
}

/// Expects that the server resets the connection.
#[track_caller]
pub(crate) fn assert_reset(peer: &mut TcpStream) {
    match peer.read(&mut [0; 1]) {
        Err(e) if e.kind() == ErrorKind::ConnectionReset => {}
        other => panic!("neither served nor reset: {other:?}"),
    }
}

/// Sends five bytes and expects them back.
#[track_caller]
pub(crate) fn assert_echoes(stream: &mut TcpStream) {
    stream.write_all(b"hello").unwrap();
    let mut back = [0; 5];
    stream.read_exact(&mut back).unwrap();
    assert_eq!(&back, b"hello");
}
