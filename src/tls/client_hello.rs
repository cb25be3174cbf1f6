//! `ClientHello`: a look at the first message of a client, before rustls processes it.
//!
//! The message is complete when rustls gets it, however it is split into records and segments.
//! rustls' unbuffered connections do not expose the server name, so this module parses it.

use super::connection::{HEADER, MAX_PLAIN};
use rustls::pki_types::DnsName;

const ALERT: u8 = 21;
const HANDSHAKE: u8 = 22;
const CLIENT_HELLO: u8 = 1;
const SERVER_NAME: u16 = 0;
/// Length of the header of a handshake message.
const MESSAGE_HEADER: usize = 4;
/// The longest handshake message that rustls accepts.
const MAX_MESSAGE: usize = 0xffff;

/// Progress through the records of a ClientHello. Nothing is consumed meanwhile.
#[derive(Debug, Default)]
pub(super) struct ClientHello {
    /// Input bytes in complete records that belong to the message.
    at: usize,
    /// The message, as far as these records go.
    message: Vec<u8>,
}

/// What the input is, as far as it goes.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Look {
    /// More input is needed.
    Incomplete,
    /// The peer speaks another protocol.
    NotTls,
    /// The message is longer than any that is accepted.
    TooLong,
    /// rustls can process the input, or finds the error in it.
    Ready,
    /// Like `Ready`; the message names this host.
    ServerName(Box<str>),
}

impl ClientHello {
    /// Looks at `input`, which begins with the first byte from the peer.
    pub(super) fn look(&mut self, input: &[u8]) -> Look {
        if !may_be_tls(input) {
            return Look::NotTls;
        }
        loop {
            let record = &input[self.at..];
            let Some((header, rest)) = record.split_at_checked(HEADER) else { return Look::Incomplete };
            let length = usize::from(u16::from_be_bytes([header[3], header[4]]));
            if header[0] != HANDSHAKE || header[1] != 3 || length == 0 || length > MAX_PLAIN {
                return Look::Ready;
            }
            let available = length.min(rest.len());
            // The first bytes of the message are known before its first record is complete.
            if let Some(look) = self.look_at_start(&rest[..available]) {
                return look;
            }
            if available < length {
                return Look::Incomplete;
            }
            self.message.extend_from_slice(&rest[..length]);
            self.at += HEADER + length;
            if self.message.len() >= MESSAGE_HEADER && self.message.len() >= message_len(&self.message) {
                let name = server_name(&self.message).map(str::to_ascii_lowercase);
                self.message = Vec::new();
                return name.map_or(Look::Ready, |name| Look::ServerName(name.into()));
            }
        }
    }

    /// Checks the type and length of the message, which continues with `next`.
    fn look_at_start(&self, next: &[u8]) -> Option<Look> {
        let start: Vec<u8> = self.message.iter().chain(next).take(MESSAGE_HEADER).copied().collect();
        match start.first() {
            Some(&CLIENT_HELLO)
                if start.len() == MESSAGE_HEADER && message_len(&start) > MESSAGE_HEADER + MAX_MESSAGE =>
            {
                Some(Look::TooLong)
            }
            Some(&CLIENT_HELLO) | None => None,
            Some(_) => Some(Look::Ready),
        }
    }
}

/// Returns whether the first bytes of a peer can be a record of TLS.
pub(super) fn may_be_tls(input: &[u8]) -> bool {
    input.first().is_none_or(|kind| (ALERT..=HANDSHAKE).contains(kind))
        && input.get(1).is_none_or(|&major| major == 3)
}

/// Returns the length of a handshake message with its header.
fn message_len(message: &[u8]) -> usize {
    MESSAGE_HEADER + u32::from_be_bytes([0, message[1], message[2], message[3]]) as usize
}

/// Returns the host that a complete ClientHello names. rustls refuses messages that do not parse.
fn server_name(message: &[u8]) -> Option<&str> {
    let mut body = Reader(message.get(MESSAGE_HEADER..message_len(message))?);
    body.take(2 + 32)?; // version, random
    body.prefixed_by_one()?; // session
    body.prefixed_by_two()?; // cipher suites
    body.prefixed_by_one()?; // compression methods
    let mut extensions = Reader(body.prefixed_by_two()?);
    while !extensions.0.is_empty() {
        let kind = extensions.two()?;
        let extension = extensions.prefixed_by_two()?;
        if kind != SERVER_NAME {
            continue;
        }
        let mut names = Reader(Reader(extension).prefixed_by_two()?);
        let host_name = names.take(1)? == [0];
        let name = std::str::from_utf8(names.prefixed_by_two()?).ok()?;
        return (host_name && DnsName::try_from(name).is_ok()).then_some(name);
    }
    None
}

/// The rest of a message that is being read.
struct Reader<'a>(&'a [u8]);

impl<'a> Reader<'a> {
    fn take(&mut self, n: usize) -> Option<&'a [u8]> {
        let (taken, rest) = self.0.split_at_checked(n)?;
        self.0 = rest;
        Some(taken)
    }

    fn two(&mut self) -> Option<u16> {
        self.take(2).map(|bytes| u16::from_be_bytes([bytes[0], bytes[1]]))
    }

    /// Takes bytes with their length in front, in one byte.
    fn prefixed_by_one(&mut self) -> Option<&'a [u8]> {
        let length = self.take(1)?[0];
        self.take(length.into())
    }

    /// Takes bytes with their length in front, in two bytes.
    fn prefixed_by_two(&mut self) -> Option<&'a [u8]> {
        let length = self.two()?;
        self.take(length.into())
    }
}
