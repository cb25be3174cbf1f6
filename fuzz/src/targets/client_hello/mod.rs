//! The first message of a TLS client. The source of the library is compiled here once more, because
//! it is private.

#[path = "../../../../src/tls/client_hello.rs"]
#[allow(dead_code, unreachable_pub, reason = "a part of the library's source")]
mod source;

mod connection;

use crate::support::{Cuts, input};
use arbitrary::Arbitrary;
use rustls::server::Acceptor;
use source::{ClientHello, Look};

#[derive(Debug, Arbitrary)]
struct Input<'a> {
    cuts: Cuts,
    stream: &'a [u8],
}

pub fn client_hello(data: &[u8]) {
    let Some(Input { cuts, stream }) = input(data) else { return };
    let mut ways = cuts.ways(stream).into_iter().map(|pieces| look(stream, pieces));
    let whole = ways.next().expect("one way at least");
    for pieces in ways {
        assert_eq!(whole, pieces, "the result depends on the pieces");
    }
    if let Look::ServerName(name) = &whole {
        assert!(!name.is_empty() && name.len() <= 253 && !name.contains(char::is_uppercase), "{name}");
    }
    // rustls agrees if it accepts the message.
    let mut acceptor = Acceptor::default();
    let mut rest = stream;
    let accepted = loop {
        match acceptor.accept() {
            Ok(None) if rest.is_empty() => return,
            Ok(None) => {
                acceptor.read_tls(&mut rest).expect("reading a slice");
            }
            Ok(Some(accepted)) => break accepted,
            Err(_) => return,
        }
    };
    let name = accepted.client_hello().server_name().map(str::to_ascii_lowercase);
    let expected = name.map_or(Look::Ready, |name| Look::ServerName(name.into()));
    assert_eq!(whole, expected);
}

/// Returns the result at the end of the stream, or as soon as it is known.
fn look(stream: &[u8], pieces: Vec<&[u8]>) -> Look {
    let (mut hello, mut received) = (ClientHello::default(), 0);
    let mut result = hello.look(&[]);
    for piece in pieces {
        received += piece.len();
        result = hello.look(&stream[..received]);
        if result != Look::Incomplete {
            break;
        }
    }
    result
}
