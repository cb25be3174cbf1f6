//! The keys of the handshake (RFC 6455, section 4).

use crate::websocket::frame::random;
use sha1_smol::Sha1;

/// What the server appends to the key.
const GUID: &[u8] = b"258EAFA5-E914-47DA-95CA-C5AB0DC85B11";

const ALPHABET: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";

/// Returns whether `key` is 16 bytes in base64.
pub(in crate::websocket) fn is_key(key: &[u8]) -> bool {
    key.len() == 24
        && key.ends_with(b"==")
        && key[..22].iter().all(|byte| byte.is_ascii_alphanumeric() || matches!(byte, b'+' | b'/'))
}

/// Returns the answer to a key.
pub(in crate::websocket) fn accept_key(key: &[u8]) -> String {
    let mut hash = Sha1::from(key);
    hash.update(GUID);
    base64(&hash.digest().bytes())
}

/// Returns a key for a new request.
pub(in crate::websocket) fn random_request_key() -> String {
    let mut bytes = [0; 16];
    random(&mut bytes);
    base64(&bytes)
}

fn base64(bytes: &[u8]) -> String {
    let mut text = String::with_capacity(bytes.len().div_ceil(3) * 4);
    for group in bytes.chunks(3) {
        let byte = |at: usize| u32::from(group.get(at).copied().unwrap_or(0));
        let bits = byte(0) << 16 | byte(1) << 8 | byte(2);
        for at in 0..4 {
            let index = (bits >> (18 - 6 * at)) as usize & 63;
            text.push(if at <= group.len() { char::from(ALPHABET[index]) } else { '=' });
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn base64_has_the_values_of_the_rfc() {
        // RFC 4648, section 10.
        for (bytes, text) in [
            ("", ""),
            ("f", "Zg=="),
            ("fo", "Zm8="),
            ("foo", "Zm9v"),
            ("foob", "Zm9vYg=="),
            ("fooba", "Zm9vYmE="),
            ("foobar", "Zm9vYmFy"),
        ] {
            assert_eq!(base64(bytes.as_bytes()), text);
        }
    }

    #[test]
    fn the_answer_to_a_key_is_that_of_the_rfc() {
        assert_eq!(accept_key(b"dGhlIHNhbXBsZSBub25jZQ=="), "s3pPLMBiTxaQ9kYGzzhZRbK+xOo=");
    }

    #[test]
    fn a_key_has_16_bytes_in_base64() {
        assert!(is_key(random_request_key().as_bytes()));
        assert_ne!(random_request_key(), random_request_key());
        for key in ["", "dGhlIHNhbXBsZSBub25jZQ=", "dGhlIHNhbXBsZSBub25jZQ", "dGhlIHNhbXBsZSBub25jZQAA"] {
            assert!(!is_key(key.as_bytes()), "{key}");
        }
        assert!(!is_key(b"dGhlIHNhbXBsZSBub25jZ-=="));
    }
}
