//! Version 1: one line of text.
//!
//! A result does not depend on how the bytes are split: the line is checked byte by byte for its
//! end, and its content only when it is complete.

use super::{
    header::{Endpoints, ProxyCommand, ProxyHeader},
    proxy_error::ProxyError,
    proxy_version::ProxyVersion,
};
use bytes::{BufMut, Bytes};
use std::{
    net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr},
    str::FromStr,
};

/// The first bytes of the line.
pub(super) const PREFIX: &[u8] = b"PROXY ";

/// The longest line with its end, in bytes.
pub(super) const MAX_LINE: usize = 107;

/// Parses a header from input that begins with [`PREFIX`] or a part of it.
pub(super) fn parse(input: &[u8]) -> Result<Option<(ProxyHeader, usize)>, ProxyError> {
    if input.len() < PREFIX.len() {
        return Ok(None);
    }
    let Some(line) = line(input)? else { return Ok(None) };
    let endpoints = endpoints(&line[PREFIX.len()..])?;
    let header = ProxyHeader {
        version: ProxyVersion::V1,
        command: ProxyCommand::Proxy,
        is_datagram: false,
        endpoints,
        tlvs: Bytes::new(),
    };
    Ok(Some((header, line.len() + 2)))
}

/// Returns the line without its end, if it is complete.
fn line(input: &[u8]) -> Result<Option<&[u8]>, ProxyError> {
    let end = input.iter().take(MAX_LINE).position(|byte| matches!(byte, b'\r' | b'\n'));
    match end {
        Some(at) if at + 2 > MAX_LINE => {}
        Some(at) if input[at] == b'\n' => {
            return Err(ProxyError::Malformed("the line ends without a carriage return"));
        }
        Some(at) => match input.get(at + 1) {
            None => return Ok(None),
            Some(b'\n') => return Ok(Some(&input[..at])),
            Some(_) => {
                return Err(ProxyError::Malformed("a carriage return is not followed by a line feed"));
            }
        },
        None if input.len() < MAX_LINE => return Ok(None),
        None => {}
    }
    Err(ProxyError::TooLong { length: MAX_LINE + 1, limit: MAX_LINE })
}

/// Parses the fields behind the prefix.
fn endpoints(line: &[u8]) -> Result<Endpoints, ProxyError> {
    // What a sender adds to UNKNOWN is ignored, as specified.
    if line == b"UNKNOWN" || line.starts_with(b"UNKNOWN ") {
        return Ok(Endpoints::Unknown);
    }
    let line = str::from_utf8(line).map_err(|_| ProxyError::Malformed("the line is not ASCII"))?;
    let mut words = line.split(' ');
    let mut next = || words.next().ok_or(ProxyError::Malformed("the line has too few fields"));
    let family = next()?;
    let parse = match family {
        "TCP4" => address::<Ipv4Addr>,
        "TCP6" => address::<Ipv6Addr>,
        _ => return Err(ProxyError::Malformed("the protocol is not TCP4, TCP6 or UNKNOWN")),
    };
    let (source, destination) = (parse(next()?)?, parse(next()?)?);
    let (source_port, destination_port) = (port(next()?)?, port(next()?)?);
    if words.next().is_some() {
        return Err(ProxyError::Malformed("the line has too many fields"));
    }
    Ok(Endpoints::Ip {
        source: SocketAddr::new(source, source_port),
        destination: SocketAddr::new(destination, destination_port),
    })
}

/// Parses an address. The standard library refuses leading zeros.
fn address<A: FromStr + Into<IpAddr>>(word: &str) -> Result<IpAddr, ProxyError> {
    let address = word.parse::<A>();
    address.map(Into::into).map_err(|_| ProxyError::Malformed("an address is not of its family"))
}

fn port(word: &str) -> Result<u16, ProxyError> {
    let canonical = word.bytes().all(|byte| byte.is_ascii_digit()) && (word == "0" || !word.starts_with('0'));
    match word.parse() {
        Ok(port) if canonical => Ok(port),
        _ => Err(ProxyError::Malformed("a port is not a number from 0 to 65535")),
    }
}

/// Appends the line of a header.
pub(super) fn encode(header: &ProxyHeader, out: &mut impl BufMut) {
    let line = match header.endpoints {
        Endpoints::Ip { source, destination } => {
            let family = if source.is_ipv4() { "TCP4" } else { "TCP6" };
            let (from, to) = (source.ip(), destination.ip());
            format!("PROXY {family} {from} {to} {} {}\r\n", source.port(), destination.port())
        }
        Endpoints::Unknown | Endpoints::Unix(_) => "PROXY UNKNOWN\r\n".into(),
    };
    out.put_slice(line.as_bytes());
}
