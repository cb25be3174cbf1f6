//! Version 2: a binary header with optional fields.
//!
//! A result does not depend on how the bytes are split: each check is made as soon as its bytes
//! are there, in their order, and the body is checked when it is complete.

use super::{
    crc32c::crc32c,
    field::{self, split},
    header::{Endpoints, ProxyCommand, ProxyHeader},
    proxy_error::ProxyError,
    proxy_version::ProxyVersion,
};
use bytes::{BufMut, Bytes};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

/// The first bytes of the header.
pub(super) const SIGNATURE: &[u8] = b"\r\n\r\n\0\r\nQUIT\n";

/// Length of the signature, the command, the family and the length.
pub(super) const FIXED: usize = 16;

/// The transports in the lower half of the byte with the family.
const STREAM: u8 = 1;
const DATAGRAM: u8 = 2;

/// Length of both Unix addresses.
const UNIX: usize = 216;

/// Parses a header from input that begins with [`SIGNATURE`] or a part of it.
pub(super) fn parse(input: &[u8], limit: usize) -> Result<Option<(ProxyHeader, usize)>, ProxyError> {
    let Some(&command) = input.get(SIGNATURE.len()) else { return Ok(None) };
    let command = match command {
        0x20 => ProxyCommand::Local,
        0x21 => ProxyCommand::Proxy,
        0x22..=0x2f => return Err(ProxyError::Malformed("the command is not LOCAL or PROXY")),
        _ => return Err(ProxyError::Malformed("the version is not 2")),
    };
    let Some(&family) = input.get(SIGNATURE.len() + 1) else { return Ok(None) };
    // A local connection ignores the family and the block, as specified.
    if command == ProxyCommand::Proxy && !matches!(family, 0x00 | 0x11 | 0x12 | 0x21 | 0x22 | 0x31 | 0x32) {
        return Err(ProxyError::Malformed("the address family or transport is unknown"));
    }
    let Some((fixed, rest)) = input.split_first_chunk::<FIXED>() else { return Ok(None) };
    let body = usize::from(u16::from_be_bytes([fixed[14], fixed[15]]));
    let length = FIXED + body;
    if length > limit {
        return Err(ProxyError::TooLong { length, limit });
    }
    let Some(body) = rest.get(..body) else { return Ok(None) };

    let mut header = ProxyHeader {
        version: ProxyVersion::V2,
        command,
        is_datagram: false,
        endpoints: Endpoints::Unknown,
        tlvs: Bytes::new(),
    };
    let tlvs = match (command, family) {
        (_, 0x00) if command == ProxyCommand::Local => body,
        // The layout of an unspecified family is unknown, and a local connection ignores the
        // addresses. Both blocks are skipped, as specified.
        (ProxyCommand::Local, _) | (_, 0x00) => &[],
        (ProxyCommand::Proxy, family) => {
            header.is_datagram = family & 0xf == DATAGRAM;
            let (endpoints, tlvs) = addresses(family >> 4, body)
                .ok_or(ProxyError::Malformed("the header ends inside of the addresses"))?;
            header.endpoints = endpoints;
            tlvs
        }
    };
    match check(&input[..length], tlvs) {
        Ok(()) => header.tlvs = Bytes::copy_from_slice(tlvs),
        // A health check may send any bytes.
        Err(ProxyError::Malformed(_)) if command == ProxyCommand::Local => {}
        Err(error) => return Err(error),
    }
    Ok(Some((header, length)))
}

/// Parses the addresses of a family. Returns them, and the bytes behind them.
fn addresses(family: u8, body: &[u8]) -> Option<(Endpoints, &[u8])> {
    fn ip<A: From<[u8; N]> + Into<IpAddr>, const N: usize>(body: &[u8]) -> Option<(Endpoints, &[u8])> {
        let (&source, rest) = body.split_first_chunk::<N>()?;
        let (&destination, rest) = rest.split_first_chunk::<N>()?;
        let (&source_port, rest) = rest.split_first_chunk::<2>()?;
        let (&destination_port, rest) = rest.split_first_chunk::<2>()?;
        let address = |ip: [u8; N], port| SocketAddr::new(A::from(ip).into(), u16::from_be_bytes(port));
        let endpoints = Endpoints::Ip {
            source: address(source, source_port),
            destination: address(destination, destination_port),
        };
        Some((endpoints, rest))
    }
    match family {
        1 => ip::<Ipv4Addr, 4>(body),
        2 => ip::<Ipv6Addr, 16>(body),
        _ => {
            let (paths, rest) = body.split_at_checked(UNIX)?;
            Some((Endpoints::Unix(Bytes::copy_from_slice(paths)), rest))
        }
    }
}

/// Checks the fields and the checksum of a complete header, which ends with `tlvs`.
fn check(header: &[u8], tlvs: &[u8]) -> Result<(), ProxyError> {
    let mut rest = tlvs;
    let mut checksum = None;
    while !rest.is_empty() {
        let (kind, value, next) = split(rest)?;
        field::check(kind, value)?;
        if let (field::CRC32C, Ok(announced)) = (kind, value.try_into()) {
            let end = header.len() - next.len();
            if checksum.replace((u32::from_be_bytes(announced), end)).is_some() {
                return Err(ProxyError::Malformed("the header has two checksums"));
            }
        }
        rest = next;
    }
    let Some((announced, end)) = checksum else { return Ok(()) };
    let computed = crc32c([&header[..end - 4], &[0; 4], &header[end..]]);
    if announced == computed { Ok(()) } else { Err(ProxyError::Checksum { announced, computed }) }
}

/// Returns the length of an encoded header.
pub(super) fn encoded_len(header: &ProxyHeader) -> usize {
    let addresses = match &header.endpoints {
        Endpoints::Unknown => 0,
        Endpoints::Ip { source: SocketAddr::V4(_), .. } => 12,
        Endpoints::Ip { source: SocketAddr::V6(_), .. } => 36,
        Endpoints::Unix(_) => UNIX,
    };
    FIXED + addresses + header.tlvs.len()
}

/// Appends a header, with the checksum that its fields contain.
pub(super) fn encode(header: &ProxyHeader, out: &mut impl BufMut) {
    out.put_slice(SIGNATURE);
    out.put_u8(match header.command {
        ProxyCommand::Local => 0x20,
        ProxyCommand::Proxy => 0x21,
    });
    let transport = if header.is_datagram { DATAGRAM } else { STREAM };
    out.put_u8(match &header.endpoints {
        Endpoints::Unknown => 0x00,
        Endpoints::Ip { source: SocketAddr::V4(_), .. } => 0x10 | transport,
        Endpoints::Ip { source: SocketAddr::V6(_), .. } => 0x20 | transport,
        Endpoints::Unix(_) => 0x30 | transport,
    });
    let body = encoded_len(header) - FIXED;
    out.put_u16(u16::try_from(body).expect("the length was checked when fields were added"));
    match &header.endpoints {
        Endpoints::Unknown => {}
        Endpoints::Ip { source, destination } => {
            for address in [source, destination] {
                match address.ip() {
                    IpAddr::V4(ip) => out.put_slice(&ip.octets()),
                    IpAddr::V6(ip) => out.put_slice(&ip.octets()),
                }
            }
            out.put_u16(source.port());
            out.put_u16(destination.port());
        }
        Endpoints::Unix(paths) => out.put_slice(paths),
    }
    out.put_slice(&header.tlvs);
}

/// Writes the checksum of a header into its fields, if they have one.
pub(super) fn seal(header: &mut ProxyHeader) {
    let mut rest = &header.tlvs[..];
    let mut end = None;
    while let Ok((kind, _, next)) = split(rest) {
        if kind == field::CRC32C {
            end = Some(header.tlvs.len() - next.len());
        }
        rest = next;
    }
    let Some(end) = end else { return };
    let mut tlvs = header.tlvs.to_vec();
    tlvs[end - 4..end].fill(0);
    header.tlvs = tlvs.clone().into();
    let mut encoded = Vec::with_capacity(encoded_len(header));
    encode(header, &mut encoded);
    tlvs[end - 4..end].copy_from_slice(&crc32c([&encoded[..]]).to_be_bytes());
    header.tlvs = tlvs.into();
}
