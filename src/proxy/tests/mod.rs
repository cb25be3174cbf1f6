//! Tests of headers: valid ones, attacks, and a comparison with the crate `proxy-header`.

mod attacks;
mod filters;
mod headers;
mod oracle;
mod settings;

use super::{field::split, header::ProxyHeader, proxy_error::ProxyError};

const LIMIT: usize = ProxyHeader::DEFAULT_MAX_LEN;

/// Parses a whole input. Checks that each prefix of it is incomplete or gives the same result.
fn parse(input: &[u8]) -> Result<Option<(ProxyHeader, usize)>, ProxyError> {
    let whole = ProxyHeader::parse(input, LIMIT);
    let first = (0..=input.len().min(LIMIT + 1))
        .map(|end| (end, ProxyHeader::parse(&input[..end], LIMIT)))
        .find(|(_, result)| *result != Ok(None));
    match first {
        None => assert_eq!(whole, Ok(None)),
        Some((end, result)) => {
            assert_eq!(result, whole, "a prefix of {end} bytes");
            if let Ok(Some((_, length))) = result {
                assert_eq!(length, end, "complete with its last byte");
            }
        }
    }
    whole
}

/// Parses a valid header with bytes behind it, which it must not touch.
fn valid(header: &[u8]) -> ProxyHeader {
    for behind in [&b""[..], b"\r\n", b"PROXY TCP4", &[0; 300]] {
        let (_, length) = parse(&[header, behind].concat()).unwrap().unwrap();
        assert_eq!(length, header.len());
    }
    parse(header).unwrap().unwrap().0
}

/// Parses a header that must be refused.
fn refused(header: &[u8]) -> ProxyError {
    parse(header).expect_err("the header is invalid")
}

fn encoded(header: &ProxyHeader) -> Vec<u8> {
    let mut bytes = Vec::new();
    header.encode(&mut bytes);
    bytes
}

/// Returns a header of version 2 with these bytes behind the signature.
fn v2(command: u8, family: u8, body: &[u8]) -> Vec<u8> {
    let mut bytes = b"\r\n\r\n\0\r\nQUIT\n".to_vec();
    bytes.extend([command, family]);
    bytes.extend(u16::try_from(body.len()).unwrap().to_be_bytes());
    bytes.extend(body);
    bytes
}

/// Returns the types and values of fields.
fn fields_of(mut fields: &[u8]) -> Vec<(u8, &[u8])> {
    let mut all = Vec::new();
    while let Ok((kind, value, rest)) = split(fields) {
        all.push((kind, value));
        fields = rest;
    }
    all
}

/// Returns a field.
fn field(kind: u8, value: &[u8]) -> Vec<u8> {
    let length = u16::try_from(value.len()).unwrap().to_be_bytes();
    [&[kind], &length[..], value].concat()
}

/// Two addresses of IPv4 with ports: 192.0.2.7:4321 and 198.51.100.1:443.
const IPV4: [u8; 12] = [192, 0, 2, 7, 198, 51, 100, 1, 0x10, 0xe1, 0x01, 0xbb];
