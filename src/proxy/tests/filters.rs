//! Headers of connections, through embedded channels.

use super::{IPV4, encoded, field, v2};
use crate::{
    channel::{Pipeline, filter::Filter},
    codec::Line,
    error::{Error, PeerError, Result},
    pipeline::{Context, Handler},
    proxy::{header::ProxyHeader, proxy_error::ProxyError, proxy_protocol::ProxyProtocol},
    testing::EmbeddedChannel,
};
use bytes::Bytes;
use std::{cell::RefCell, rc::Rc};

/// Answers each line with the announced client and the line. Records its callbacks.
struct Who(Rc<RefCell<Vec<String>>>);

impl Handler for Who {
    type Read = Bytes;
    type Write = Bytes;

    fn active(&mut self, _: &mut Context<'_, Self>) -> Result {
        self.0.borrow_mut().push("active".into());
        Ok(())
    }

    fn read(&mut self, ctx: &mut Context<'_, Self>, line: Bytes) -> Result {
        let client = ctx.proxy().map(|header| match header.source() {
            Some(source) => source.to_string(),
            None => "nobody".into(),
        });
        let client = client.unwrap_or_else(|| "direct".into());
        ctx.write(format!("{client} {}", String::from_utf8_lossy(&line)).into())
    }

    fn error(&mut self, _: &mut Context<'_, Self>, error: Error) -> Result {
        self.0.borrow_mut().push(error.to_string());
        Ok(())
    }

    fn inactive(&mut self, _: &mut Context<'_, Self>) -> Result {
        self.0.borrow_mut().push("inactive".into());
        Ok(())
    }
}

/// Passes `input` in two parts. Returns the output, the callbacks, and whether the channel is open.
fn run(filter: impl Filter, input: &[u8], split: usize) -> (Bytes, Vec<String>, bool) {
    let log = Rc::default();
    let pipeline = Pipeline::codec(Line::new()).handler(Who(Rc::clone(&log)));
    let mut channel = EmbeddedChannel::builder(pipeline).filter(filter).build().unwrap();
    for part in [&input[..split], &input[split..]] {
        // Fails if the first part has closed the channel, which callers check.
        let _ = channel.write_inbound(part);
    }
    let callbacks = log.borrow().clone();
    (channel.read_outbound(), callbacks, channel.is_open())
}

/// Embedded channels lack an IP address, like Unix sockets.
fn trusting() -> ProxyProtocol {
    ProxyProtocol::required().trust_unix_sockets()
}

fn client() -> ProxyHeader {
    ProxyHeader::v2("192.0.2.7:4321".parse().unwrap(), "198.51.100.1:443".parse().unwrap())
}

/// S-26.
#[test]
fn lines_behind_the_header_are_kept_at_every_split() {
    let headers = [
        (b"PROXY TCP4 192.0.2.7 198.51.100.1 4321 443\r\n".to_vec(), "192.0.2.7:4321"),
        (b"PROXY UNKNOWN\r\n".to_vec(), "nobody"),
        (encoded(&client().tlv(0x02, b"example.com").unwrap().crc32c().unwrap()), "192.0.2.7:4321"),
        (encoded(&ProxyHeader::v2_local()), "nobody"),
    ];
    for (header, source) in headers {
        let input = [&header[..], b"PROXY \nagain\n"].concat();
        for split in 0..=input.len() {
            let (output, callbacks, open) = run(trusting().filter(), &input, split);
            assert_eq!(output, format!("{source} PROXY \n{source} again\n"), "split {split}");
            assert_eq!((callbacks, open), (vec!["active".to_string()], true));
        }
    }
}

#[test]
fn a_connection_without_a_valid_header_closes_before_its_handler_is_called() {
    let mut wrong_sum = encoded(&client().crc32c().unwrap());
    wrong_sum[16] ^= 1;
    let overrun = v2(0x21, 0x11, &[&IPV4[..], &field(0x01, b"h2")[..4]].concat());
    let long_line = format!("PROXY UNKNOWN {}\r\n", "x".repeat(100)).into_bytes();
    for header in [b"GET / HTTP/1.1\r\n".to_vec(), wrong_sum, overrun, long_line] {
        let input = [&header[..], b"hello\n"].concat();
        for split in 0..=input.len() {
            let (output, callbacks, open) = run(trusting().filter(), &input, split);
            assert_eq!((&output[..], callbacks.len(), open), (&b""[..], 0, false), "split {split}");
        }
    }
}

#[test]
fn only_a_trusted_peer_has_its_header_interpreted() {
    let input = b"PROXY TCP4 192.0.2.7 198.51.100.1 4321 443\r\n";
    let direct = ProxyProtocol::optional().trust("10.0.0.0/8").unwrap();
    let (output, callbacks, open) = run(direct.filter(), input, 5);
    assert!(output.starts_with(b"direct PROXY TCP4 192.0.2.7"), "{output:?}");
    assert_eq!((callbacks, open), (vec!["active".to_string()], true));

    let refused = ProxyProtocol::required().trust("10.0.0.0/8").unwrap();
    let (output, callbacks, open) = run(refused.filter(), input, 5);
    assert_eq!((&output[..], callbacks.len(), open), (&b""[..], 0, false));
}

/// Load balancers check a port by connecting and closing.
#[test]
fn a_connection_that_ends_before_its_header_closes_silently() {
    for part in [0, 1, 5, 20] {
        let log = Rc::default();
        let pipeline = Pipeline::codec(Line::new()).handler(Who(Rc::clone(&log)));
        let mut channel = EmbeddedChannel::builder(pipeline).filter(trusting().filter()).build().unwrap();
        channel.write_inbound(&encoded(&client())[..part]).unwrap();
        channel.end_inbound();
        assert!(log.borrow().is_empty() && !channel.is_open(), "{part} bytes");
    }
}

#[test]
fn a_client_sends_its_header_before_anything_else() {
    for header in [client().crc32c().unwrap(), ProxyHeader::v1_unknown()] {
        let (output, callbacks, open) = run(header.filter(), b"hello\n", 3);
        assert_eq!(output, [&encoded(&header)[..], b"direct hello\n"].concat());
        assert_eq!((callbacks, open), (vec!["active".to_string()], true));
    }
}

#[test]
fn the_error_of_a_refused_header_can_be_downcast() {
    let error = Error::from(ProxyError::Absent);
    let Error::Peer(PeerError::Protocol { protocol: "PROXY", cause, .. }) = &error else {
        panic!("{error:?}")
    };
    assert_eq!(cause.as_error().downcast_ref(), Some(&ProxyError::Absent));
}
