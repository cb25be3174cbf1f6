//! The character classes of RFC 9110, section 5.6, and comparisons without case.

use memchr::memchr;
use std::net::Ipv6Addr;

/// Returns whether `bytes` is a token: a method, the name of a header, the name of a coding.
pub(super) fn is_token(bytes: &[u8]) -> bool {
    !bytes.is_empty() && bytes.iter().all(|byte| is_token_byte(*byte))
}

pub(super) fn is_token_byte(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(&byte)
}

/// Returns whether `bytes` may be the value of a header: visible characters, spaces, tabs, and
/// bytes above ASCII, without spaces around it.
pub(super) fn is_field_value(bytes: &[u8]) -> bool {
    let inner = bytes.iter().all(|byte| *byte == b'\t' || (*byte >= b' ' && *byte != 0x7F));
    let is_space = |byte: Option<&u8>| matches!(byte, Some(b' ' | b'\t'));
    inner && !is_space(bytes.first()) && !is_space(bytes.last())
}

/// Returns whether `bytes` may be the target of a request: visible ASCII characters. A fragment is
/// not part of a target (RFC 9112, section 3.2): some recipients would cut it off, others not.
pub(super) fn is_target(bytes: &[u8]) -> bool {
    !bytes.is_empty() && bytes.iter().all(|byte| byte.is_ascii_graphic() && *byte != b'#')
}

/// Returns whether `bytes` may be the value of `Host`: a name or address with an optional port
/// (RFC 3986, section 3.2), without user information. In brackets, only an address of
/// version 6 is valid. Otherwise a filter and a client could read the same host differently.
pub(crate) fn is_host(bytes: &[u8]) -> bool {
    let (is_address, port) = match bytes {
        [b'[', rest @ ..] => {
            let Some(end) = memchr(b']', rest) else { return false };
            (is_ipv6(&rest[..end]), &rest[end + 1..])
        }
        _ => split_name(bytes),
    };
    let has_valid_port = match port {
        [] => true,
        [b':', digits @ ..] => is_port(digits),
        _ => false,
    };
    is_address && has_valid_port
}

/// Returns whether `bytes` are an address of version 6, maybe with a zone (RFC 6874).
#[cold]
fn is_ipv6(bytes: &[u8]) -> bool {
    let Ok(text) = std::str::from_utf8(bytes) else { return false };
    let (address, zone) = text.split_once("%25").unwrap_or((text, "0"));
    let has_zone = !zone.is_empty() && zone.bytes().all(is_name_byte);
    has_zone && address.parse::<Ipv6Addr>().is_ok()
}

/// Returns whether `digits` are a port, or nothing.
#[cold]
fn is_port(digits: &[u8]) -> bool {
    let number = digits.iter().try_fold(0, |number: u32, digit| {
        digit
            .is_ascii_digit()
            .then(|| number * 10 + u32::from(digit - b'0'))
            .filter(|number| *number <= 65_535)
    });
    number.is_some() && digits.len() <= 5
}

/// Splits `bytes` behind the name bytes. Returns whether they are a registered name, possibly
/// empty: each `%` begins an escape.
fn split_name(bytes: &[u8]) -> (bool, &[u8]) {
    let end = bytes.iter().position(|byte| !is_plain_name_byte(*byte)).unwrap_or(bytes.len());
    let rest = &bytes[end..];
    if rest.starts_with(b"%") { split_escaped_name(bytes) } else { (true, rest) }
}

#[cold]
fn split_escaped_name(bytes: &[u8]) -> (bool, &[u8]) {
    let end = bytes.iter().position(|byte| !is_name_byte(*byte)).unwrap_or(bytes.len());
    let (name, rest) = bytes.split_at(end);
    (has_escapes_only(name), rest)
}

/// Returns whether two hexadecimal digits follow each `%`.
fn has_escapes_only(bytes: &[u8]) -> bool {
    bytes.iter().enumerate().filter(|(_, byte)| **byte == b'%').all(|(at, _)| {
        bytes.get(at + 1..at + 3).is_some_and(|digits| digits.iter().all(u8::is_ascii_hexdigit))
    })
}

/// The bytes of a name without escapes. Each request has one, so a byte costs one look at a table.
static PLAIN_NAME_BYTES: [bool; 256] = {
    let mut table = [false; 256];
    let others = b"-._~!$&'()*+;=";
    let mut at = 0;
    while at < others.len() {
        table[others[at] as usize] = true;
        at += 1;
    }
    let mut byte = 0;
    while byte < 256 {
        table[byte] |= (byte as u8).is_ascii_alphanumeric();
        byte += 1;
    }
    table
};

fn is_plain_name_byte(byte: u8) -> bool {
    PLAIN_NAME_BYTES[usize::from(byte)]
}

fn is_name_byte(byte: u8) -> bool {
    byte == b'%' || is_plain_name_byte(byte)
}

/// Removes spaces and tabs around `bytes`.
pub(super) fn trim(bytes: &[u8]) -> &[u8] {
    let is_space = |byte: &u8| matches!(byte, b' ' | b'\t');
    let start = bytes.iter().position(|byte| !is_space(byte)).unwrap_or(bytes.len());
    let end = bytes.iter().rposition(|byte| !is_space(byte)).map_or(start, |last| last + 1);
    &bytes[start..end]
}

/// Returns the elements of a list with commas, without empty ones (RFC 9110, section 5.6.1).
pub(super) fn list(value: &[u8]) -> impl Iterator<Item = &[u8]> {
    value.split(|byte| *byte == b',').map(trim).filter(|element| !element.is_empty())
}
