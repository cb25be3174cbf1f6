//! `ClientHello`: a look at the first message of a client, before rustls processes it.
//!
//! The message is complete when rustls gets it, however it is split into records and segments.
//! rustls' unbuffered connections do not expose the server name, so this module parses it.

use super::connection::{HEADER, MAX_PLAIN};
use rustls::pki_types::DnsName;

const ALERT: u8 = 21;
const WARNING: u8 = 1;
const HANDSHAKE: u8 = 22;
const CLIENT_HELLO: u8 = 1;
const SERVER_NAME: u16 = 0;
/// Length of the header of a handshake message.
const MESSAGE_HEADER: usize = 4;
/// The longest handshake message that rustls accepts.
const MAX_MESSAGE: usize = 0xffff;

/// The limit of warnings in front of the message. rustls refuses more.
const MAX_WARNINGS: usize = 4;
/// Length of a record with an alert that is not encrypted.
pub(super) const ALERT_RECORD: usize = HEADER + 2;

/// Progress through the records of a ClientHello. Nothing is consumed until then, so the message is
/// read from the input once it is complete.
#[derive(Debug, Default)]
pub(super) struct ClientHello {
    /// Input bytes in front of the message: warnings.
    warnings: usize,
    /// Input bytes in complete records, including warnings.
    at: usize,
    /// Bytes of the message in these records.
    length: usize,
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
    /// The peer has ended its stream instead.
    Closed,
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
            let length = record_len(header);
            // A warning must not hide the message behind it.
            if header[0] == ALERT && self.at == self.warnings && length == 2 {
                match *rest {
                    [] | [_] => return Look::Incomplete,
                    _ if is_close_notify(record) => return Look::Closed,
                    [WARNING, ..] if self.warnings < MAX_WARNINGS * ALERT_RECORD => {
                        self.warnings += ALERT_RECORD;
                        self.at = self.warnings;
                        continue;
                    }
                    _ => return Look::Ready,
                }
            }
            if !is_handshake(header) {
                return Look::Ready;
            }
            // The first bytes of the message are known before its first record is complete.
            let message = message(&input[self.warnings..]);
            let start: Vec<u8> = message.clone().flatten().take(MESSAGE_HEADER).copied().collect();
            match start.first() {
                Some(&CLIENT_HELLO) | None => {}
                Some(_) => return Look::Ready,
            }
            let whole = (start.len() == MESSAGE_HEADER).then(|| message_len(&start));
            if whole.is_some_and(|whole| whole > MESSAGE_HEADER + MAX_MESSAGE) {
                return Look::TooLong;
            }
            if rest.len() < length {
                return Look::Incomplete;
            }
            self.at += HEADER + length;
            self.length += length;
            if whole.is_some_and(|whole| self.length >= whole) {
                let message: Vec<u8> = message.flatten().take(self.length).copied().collect();
                let name = server_name(&message).map(str::to_ascii_lowercase);
                return name.map_or(Look::Ready, |name| Look::ServerName(name.into()));
            }
        }
    }
}

/// Returns the pieces of a message that these records hold, as far as they go.
fn message(mut records: &[u8]) -> impl Iterator<Item = &[u8]> + Clone {
    std::iter::from_fn(move || {
        let (header, rest) = records.split_at_checked(HEADER).filter(|(header, _)| is_handshake(header))?;
        let (piece, next) = rest.split_at(record_len(header).min(rest.len()));
        records = next;
        Some(piece)
    })
}

/// Returns whether a record can be a part of a message. The version of the record is ignored (RFC
/// 8446, section 5.1); rustls refuses some versions.
fn is_handshake(header: &[u8]) -> bool {
    header[0] == HANDSHAKE && (1..=MAX_PLAIN).contains(&record_len(header))
}

/// Returns the length of a record behind its header.
fn record_len(header: &[u8]) -> usize {
    u16::from_be_bytes([header[3], header[4]]).into()
}

/// Returns whether the first record of a peer ends its stream.
pub(super) fn is_close_notify(input: &[u8]) -> bool {
    matches!(*input, [ALERT, 3, _, 0, 2, WARNING, 0, ..])
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

/// Returns the host that a complete ClientHello names, without a trailing dot. rustls refuses
/// messages that do not parse.
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
        let valid = host_name && DnsName::try_from(name).is_ok();
        return valid.then(|| name.strip_suffix('.').unwrap_or(name));
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
