//! The protocol of Redis.
//!
//! Invariants: an incomplete message stays in the input, and each of its bytes is examined at most
//! twice: once by the scanner, which finds the end of the message, and once when the value is
//! built. Neither uses recursion. Memory is reserved for elements that have arrived, never for
//! announced ones. After a violation that hides where the next message begins, all further input is
//! dropped.

mod assembly;
mod encoder;
mod error;
mod inline;
mod limits;
mod number;
mod reader;
mod refused;
mod role;
mod scanner;
mod token;
mod value;

pub use error::RespError;
pub use limits::RespLimits;
pub use value::RespValue;

use crate::{
    buffer::OutboundBuffer,
    error::{PeerError, Result},
    pipeline::{Codec, combine},
};
use bytes::{Buf, Bytes};
use encoder::{Encoder, encoded_len};
use refused::Refused;
use role::Role;
use scanner::{Scanned, Scanner};

/// The name of the protocol in errors.
const PROTOCOL: &str = "RESP";

/// A codec for RESP, the Redis serialization protocol, versions 2 and 3.
///
/// | | reads | writes |
/// |---|---|---|
/// | [`server`](Resp::server) | requests: arrays of one or more bulk strings | any value |
/// | [`client`](Resp::client) | any value | requests |
///
/// ```text
///   bytes                                        message
///   *2␍␊$4␍␊ECHO␍␊$2␍␊hi␍␊                       Array([Bulk("ECHO"), Bulk("hi")])
///   $2␍␊hi␍␊                                     Bulk("hi")
///   %1␍␊+proto␍␊:3␍␊                             Map([(Simple("proto"), Integer(3))])
/// ```
///
/// Both versions are always read. What is written depends only on the [`RespValue`], so the handler
/// of a server remembers which version its client has asked for (`HELLO 3`), and otherwise converts
/// replies with [`RespValue::into_resp2`]. Streamed strings and aggregates of RESP3 are refused
/// ([`RespError::Streamed`]), because Redis does not have them either.
///
/// A server ignores empty requests (`*0`, `*-1`, an empty line), as Redis does. It accepts lines of
/// text as requests after [`inline_commands`](Resp::inline_commands).
///
/// # Errors
///
/// | the peer sent | error | next message |
/// |---|---|---|
/// | a bulk string or line over its limit | [`PeerError::TooLong`], as early as possible | is decoded; the rest of the invalid message is dropped as it arrives |
/// | too many elements, unbalanced quotes | [`PeerError::Protocol`] with a [`RespError`] | is decoded, likewise |
/// | any other violation | [`PeerError::Protocol`] with a [`RespError`] | none: all further input is dropped |
///
/// A server usually answers with an error (`-ERR Protocol error: …`) and closes the channel. A
/// message that is incomplete when the peer ends its stream is dropped.
///
/// # Thread and memory
///
/// Runs on the channel's loop. The channel keeps the bytes of an incomplete message. The codec
/// keeps its position in that message, and one entry for each level that needs more elements.
/// [`RespLimits`] has the limits. Strings of a message share the memory of the read buffer. A
/// handler that keeps strings for a long time should copy them.
///
/// ```
/// use bytes::Bytes;
/// use netwheel::{Codec, buffer::OutboundBuffer, codec::{Resp, RespValue}};
///
/// # fn main() -> netwheel::Result {
/// let (mut server, mut client) = (Resp::server(), Resp::client());
///
/// let mut output = OutboundBuffer::new();
/// client.encode(RespValue::command(["INCR", "visits"]), &mut output)?;
/// assert_eq!(output.to_bytes(), "*2\r\n$4\r\nINCR\r\n$6\r\nvisits\r\n");
///
/// let request = server.decode(&mut output.to_bytes())?.unwrap();
/// assert_eq!(request, RespValue::command(["INCR", "visits"]));
///
/// let reply = client.decode(&mut Bytes::from_static(b":17\r\n"))?.unwrap();
/// assert_eq!(reply, RespValue::Integer(17));
/// # Ok(())
/// # }
/// ```
#[derive(Debug, Clone)]
#[doc(alias = "RedisDecoder")]
#[doc(alias = "RedisEncoder")]
pub struct Resp {
    role: Role,
    /// Whether the stream can no longer be decoded.
    broken: bool,
    limits: RespLimits,
    /// The state of an incomplete message. Boxed, because most messages arrive whole.
    scanner: Option<Box<Scanner>>,
}

impl Resp {
    /// Returns a codec that decodes requests and encodes replies, with the default limits.
    pub fn server() -> Self {
        Self::with(Role::Server { inline: false })
    }

    /// Returns a codec that encodes requests and decodes replies and push messages, with the
    /// default limits.
    pub fn client() -> Self {
        Self::with(Role::Client)
    }

    fn with(role: Role) -> Self {
        Resp { role, broken: false, limits: RespLimits::new(), scanner: None }
    }

    /// Makes a server also accept lines of text as requests, for people with telnet and for
    /// monitoring. No effect on a client.
    ///
    /// White space separates arguments. They may be quoted, as in Redis. The commands `POST` and
    /// `Host:` are a [`RespError::HttpRequest`], after which nothing is decoded. So a web page
    /// cannot make a browser send commands in the body of a request.
    pub fn inline_commands(mut self) -> Self {
        if let Role::Server { inline } = &mut self.role {
            *inline = true;
        }
        self
    }

    /// Sets the limits.
    ///
    /// # Errors
    /// [`Error::Setting`](crate::Error::Setting) for a limit out of its range.
    pub fn limits(mut self, limits: RespLimits) -> Result<Self> {
        self.limits = limits.checked()?;
        Ok(self)
    }

    /// Continues with the incomplete message, or begins the next one.
    #[inline]
    fn scan(&mut self, input: &mut Bytes) -> Scanned {
        if let Some(scanner) = &mut self.scanner {
            let scanned = scanner.scan(input, self.role, &self.limits);
            if !scanned.continues() {
                self.scanner = None;
            }
            return scanned;
        }
        let mut scanner = Scanner::new();
        let scanned = scanner.scan(input, self.role, &self.limits);
        if scanned.continues() {
            self.scanner = Some(Box::new(scanner));
        }
        scanned
    }
}

impl Codec for Resp {
    type Read = RespValue;
    type Write = RespValue;

    fn decode(&mut self, input: &mut Bytes) -> Result<Option<RespValue>> {
        while !self.broken && !input.is_empty() {
            match self.scan(input) {
                Scanned::Whole(length) => {
                    let value = assembly::assemble(input, length, self.role, &self.limits);
                    input.advance(length);
                    let value = value.map_err(|refused| match refused {
                        Refused::Invalid(error) => {
                            self.broken |= !error.is_recoverable();
                            PeerError::protocol(PROTOCOL, error)
                        }
                        Refused::TooLong(error) => error,
                    })?;
                    match value {
                        RespValue::NullArray if self.role != Role::Client => {}
                        RespValue::Array(items) if items.is_empty() && self.role != Role::Client => {}
                        value => return Ok(Some(value)),
                    }
                }
                Scanned::Incomplete => return Ok(None),
                Scanned::Dropped => {}
                Scanned::TooLong(error) => return Err(error.into()),
                Scanned::Broken(error) => {
                    self.broken = true;
                    return Err(PeerError::protocol(PROTOCOL, error).into());
                }
            }
        }
        if self.broken {
            input.clear();
        }
        Ok(None)
    }

    /// Appends one message.
    ///
    /// # Errors
    /// [`EncodeError::TooLong`](crate::error::EncodeError::TooLong) for a string or line over its
    /// limit. [`EncodeError::Unencodable`](crate::error::EncodeError::Unencodable) for a simple
    /// string or error that contains CR or LF, a big number that is none, a push message inside
    /// another value, and too many elements or levels. Also for a client's message that is not a
    /// request.
    fn encode(&mut self, message: RespValue, output: &mut OutboundBuffer) -> Result {
        Encoder::new(output, &self.limits).message(message, self.role)
    }

    fn encoded_len_hint(message: &RespValue) -> Option<usize> {
        Some(encoded_len(message))
    }

    fn encoding_key(&self) -> Option<u64> {
        let RespLimits { max_bulk_len, max_line_len, max_elements, max_depth } = self.limits;
        let limits = [max_bulk_len, max_line_len, max_elements, max_depth];
        let role = u64::from(self.role == Role::Client);
        Some(limits.into_iter().fold(role, |key, limit| combine(key, limit as u64)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Feeds `stream` in chunks of one size. Returns the number of messages and errors, and the
    /// work: the tokens that were begun, and the bytes of lines that were searched.
    fn work(mut codec: Resp, stream: &[u8], size: usize) -> (usize, usize) {
        reader::work::take();
        let stream = Bytes::copy_from_slice(stream);
        let (mut events, mut consumed, mut received) = (0, 0, 0);
        while received < stream.len() {
            received = stream.len().min(received + size);
            let mut input = stream.slice(consumed..received);
            while let event @ (Ok(Some(_)) | Err(_)) = codec.decode(&mut input) {
                events += 1;
                assert!(event.is_ok() || !input.is_empty() || received > consumed);
            }
            consumed = received - input.len();
        }
        (events, reader::work::take())
    }

    #[test]
    fn work_is_linear_in_the_bytes_however_slowly_they_arrive() {
        let numbers = format!("*60000\r\n{}", ":1\r\n".repeat(60_000));
        let maps = "%1\r\n+k\r\n".repeat(7) + "_\r\n";
        let (long, text) = ("x".repeat(1 << 20), "x".repeat(1 << 16));
        let too_long = format!("*2\r\n${}\r\n{long}y\r\n", long.len() + 1);
        for (stream, events) in [
            (numbers, 1),
            (maps.repeat(5000), 5000),
            (format!("${}\r\n{long}\r\n", long.len()), 1),
            (format!("+{text}\r\n-{text}\r\n"), 2),
            (format!("+{long}\r\n+OK\r\n"), 2),
            (format!("{too_long}:1\r\n").repeat(3), 3),
            (format!("{too_long}+{text}\r\n"), 1),
            (format!("!{long}"), 1),
        ] {
            for size in [1, 7, 1000, stream.len()] {
                let start = &stream[..stream.len().min(20)];
                let (found, work) = work(Resp::client(), stream.as_bytes(), size);
                assert_eq!(found, events, "{start:?} in chunks of {size}");
                // A byte of a header is searched once for its message and once for its value, and
                // one more token is begun for each chunk.
                assert!(work <= 3 * stream.len(), "{start:?}: {work} for {} bytes", stream.len());
            }
        }
    }

    #[test]
    fn a_bulk_string_that_arrives_slowly_costs_nothing_until_it_is_whole() {
        let stream = format!("$100000\r\n{}\r\n", "x".repeat(100_000));
        let (events, work) = work(Resp::client(), stream.as_bytes(), 1);
        assert_eq!(events, 1);
        assert!(work < 100, "{work}");
    }

    #[test]
    fn the_codec_is_small_and_keeps_no_memory_between_messages() {
        assert!(size_of::<Resp>() <= 48, "{}", size_of::<Resp>());
        let mut codec = Resp::client();
        let stream = Bytes::from_static(b"*2\r\n*1\r\n:1\r\n:2\r\n");
        assert!(codec.decode(&mut stream.slice(..14)).unwrap().is_none());
        assert!(codec.scanner.is_some());
        assert!(codec.decode(&mut stream.clone()).unwrap().is_some());
        assert!(codec.scanner.is_none());
    }
}
