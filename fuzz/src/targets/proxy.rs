//! PROXY headers of both versions.

use crate::support::{Cuts, input};
use arbitrary::Arbitrary;
use netwheel::{
    Context, Error, Handler, Pipeline, Result,
    bytes::Bytes,
    codec::RawBytes,
    proxy::{ProxyHeader, ProxyProtocol},
    testing::EmbeddedChannel,
};
use std::{cell::RefCell, rc::Rc};

#[derive(Debug, Arbitrary)]
struct Input<'a> {
    cuts: Cuts,
    is_short: bool,
    stream: &'a [u8],
}

pub fn proxy(data: &[u8]) {
    let Some(Input { cuts, is_short, stream }) = input(data) else { return };
    let limit = if is_short { 64 } else { ProxyHeader::DEFAULT_MAX_LEN };
    let whole = ProxyHeader::parse(stream, limit);
    // Each prefix is incomplete, or has the result of the whole input.
    let end = (0..=stream.len()).find(|&end| ProxyHeader::parse(&stream[..end], limit) != Ok(None));
    let first = end.map_or(Ok(None), |end| ProxyHeader::parse(&stream[..end], limit));
    assert_eq!(first, whole, "the prefix of {end:?} bytes");
    if let Ok(Some((header, length))) = &whole {
        assert!(*length <= limit.max(107), "a header of {length} bytes");
        assert_eq!(end, Some(*length), "complete with its last byte");
        let _ = (header.authority(), header.unique_id(), header.unix_source(), header.unix_destination());
        let _ = (0..=u8::MAX).filter_map(|kind| header.tlv_value(kind)).count();

        let mut encoded = Vec::new();
        header.encode(&mut encoded);
        let parsed = ProxyHeader::parse(&encoded, ProxyHeader::MAX_LEN);
        assert_eq!(parsed, Ok(Some((header.clone(), encoded.len()))));
    }
    through_filter(stream, cuts, whole.ok().flatten().map(|(_, length)| length));
}

/// Records the bytes behind the header, and the error.
#[derive(Default)]
struct Behind {
    bytes: Rc<RefCell<Vec<u8>>>,
}

impl Handler for Behind {
    type Read = Bytes;
    type Write = Bytes;

    fn read(&mut self, _: &mut Context<'_, Self>, bytes: Bytes) -> Result {
        self.bytes.borrow_mut().extend_from_slice(&bytes);
        Ok(())
    }

    fn error(&mut self, _: &mut Context<'_, Self>, error: Error) -> Result {
        panic!("the handler is not active before the header is complete: {error:#}");
    }
}

/// Passes the stream to a channel. The bytes behind a header of `length` bytes are delivered.
fn through_filter(stream: &[u8], cuts: Cuts, length: Option<usize>) {
    for pieces in cuts.ways(stream) {
        let behind = Behind::default();
        let bytes = Rc::clone(&behind.bytes);
        let protocol = ProxyProtocol::required().trust_unix_sockets();
        let mut channel = EmbeddedChannel::builder(Pipeline::codec(RawBytes).handler(behind))
            .filter(protocol.filter())
            .build()
            .expect("settings in range");
        for piece in pieces {
            // Refused after the channel has closed.
            let _ = channel.write_inbound(piece);
        }
        if let Some(length) = length {
            assert!(*bytes.borrow() == stream[length..], "the bytes behind the header were changed");
            assert!(channel.is_open());
        }
    }
}
