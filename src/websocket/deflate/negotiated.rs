//! The negotiation of permessage-deflate (RFC 7692, section 7.1).
//!
//! Invariants: an offer that has an unknown, repeated or invalid parameter is declined. An offer
//! that asks for a window of our compressor of 8 bits is declined too, because zlib does not have
//! it. A server accepts the first valid offer.

use super::settings::Deflate;
use crate::{http::Headers, websocket::header_list::elements};

const NAME: &[u8] = b"permessage-deflate";
const HEADER: &str = "sec-websocket-extensions";

/// What both ends have agreed on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::websocket) struct Negotiated {
    /// The window of our compressor. Below 9, nothing is compressed.
    pub(super) window_bits: u8,
    /// Whether our messages may refer to earlier ones.
    pub(super) send_takeover: bool,
    /// Whether the peer's messages may refer to earlier ones.
    pub(super) receive_takeover: bool,
    pub(super) level: u8,
    /// The length from which messages are compressed.
    pub(super) threshold: u32,
}

/// The parameters of an offer or of its acceptance.
#[derive(Debug, Default, PartialEq, Eq)]
struct Parameters {
    server_no_context_takeover: bool,
    client_no_context_takeover: bool,
    server_max_window_bits: Option<u8>,
    /// With the value, which is optional in an offer.
    client_max_window_bits: Option<Option<u8>>,
}

impl Parameters {
    /// Parses an element of the header. Returns `None` if it is another extension, or invalid.
    fn parse(element: &[u8]) -> Option<Self> {
        let mut parts = element.split(|byte| *byte == b';').map(<[u8]>::trim_ascii);
        if !parts.next()?.eq_ignore_ascii_case(NAME) {
            return None;
        }
        let mut found = Parameters::default();
        for part in parts {
            let mut sides = part.splitn(2, |byte| *byte == b'=').map(<[u8]>::trim_ascii);
            let (name, value) = (sides.next()?, sides.next());
            let is_repeated = match (name.to_ascii_lowercase().as_slice(), value) {
                (b"server_no_context_takeover", None) => {
                    std::mem::replace(&mut found.server_no_context_takeover, true)
                }
                (b"client_no_context_takeover", None) => {
                    std::mem::replace(&mut found.client_no_context_takeover, true)
                }
                (b"server_max_window_bits", Some(value)) => {
                    found.server_max_window_bits.replace(bits(value)?).is_some()
                }
                (b"client_max_window_bits", None) => found.client_max_window_bits.replace(None).is_some(),
                (b"client_max_window_bits", Some(value)) => {
                    found.client_max_window_bits.replace(Some(bits(value)?)).is_some()
                }
                _ => return None,
            };
            if is_repeated {
                return None;
            }
        }
        Some(found)
    }
}

/// Parses the size of a window: 8 to 15, without leading zeros, perhaps in quotes.
fn bits(value: &[u8]) -> Option<u8> {
    let value = value.strip_prefix(b"\"").and_then(|value| value.strip_suffix(b"\"")).unwrap_or(value);
    match value {
        [digit @ b'8'..=b'9'] => Some(digit - b'0'),
        [b'1', digit @ b'0'..=b'5'] => Some(10 + digit - b'0'),
        _ => None,
    }
}

impl Negotiated {
    /// Chooses among the offers of a client. Returns the result and the header of the response.
    pub(in crate::websocket) fn accept(ours: &Deflate, headers: &Headers) -> Option<(Self, String)> {
        elements(headers, HEADER).filter_map(Parameters::parse).find_map(|offer| Self::answer(ours, &offer))
    }

    fn answer(ours: &Deflate, offer: &Parameters) -> Option<(Self, String)> {
        let window_bits =
            offer.server_max_window_bits.map_or(ours.window_bits, |bits| bits.min(ours.window_bits));
        if window_bits < 9 {
            return None;
        }
        let send_takeover = ours.context_takeover && !offer.server_no_context_takeover;
        let receive_takeover = ours.context_takeover && !offer.client_no_context_takeover;
        let mut answer = String::from("permessage-deflate");
        if !send_takeover {
            answer.push_str("; server_no_context_takeover");
        }
        if !receive_takeover {
            answer.push_str("; client_no_context_takeover");
        }
        if offer.server_max_window_bits.is_some() || window_bits < 15 {
            answer.push_str(&format!("; server_max_window_bits={window_bits}"));
        }
        Some((Self::new(ours, window_bits, send_takeover, receive_takeover), answer))
    }

    /// Returns the header of a client's request.
    pub(in crate::websocket) fn offer(ours: &Deflate) -> String {
        let mut offer = String::from("permessage-deflate; client_max_window_bits");
        if ours.window_bits < 15 {
            offer.push_str(&format!("={}", ours.window_bits));
        }
        if !ours.context_takeover {
            offer.push_str("; server_no_context_takeover; client_no_context_takeover");
        }
        offer
    }

    /// Checks the answer of a server to [`offer`](Negotiated::offer). Returns `None` if it contains
    /// anything else.
    pub(in crate::websocket) fn check(ours: &Deflate, headers: &Headers) -> Option<Self> {
        let mut accepted = elements(headers, HEADER);
        let parameters = Parameters::parse(accepted.next()?)?;
        if accepted.next().is_some() || parameters.client_max_window_bits == Some(None) {
            return None;
        }
        if !ours.context_takeover && !parameters.server_no_context_takeover {
            return None;
        }
        // With a window of 8 bits, which zlib does not have, our messages stay uncompressed.
        let window_bits = parameters.client_max_window_bits.flatten().unwrap_or(ours.window_bits);
        let window_bits = window_bits.min(ours.window_bits);
        let send_takeover = ours.context_takeover && !parameters.client_no_context_takeover;
        let receive_takeover = !parameters.server_no_context_takeover;
        Some(Self::new(ours, window_bits, send_takeover, receive_takeover))
    }

    fn new(ours: &Deflate, window_bits: u8, send_takeover: bool, receive_takeover: bool) -> Self {
        Negotiated {
            window_bits,
            send_takeover,
            receive_takeover,
            level: ours.level,
            threshold: u32::try_from(ours.threshold).unwrap_or(u32::MAX),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn answer(ours: &Deflate, offers: &[&str]) -> Option<String> {
        let mut headers = Headers::new();
        for offer in offers {
            headers.add("Sec-WebSocket-Extensions", offer);
        }
        Negotiated::accept(ours, &headers).map(|(_, answer)| answer)
    }

    #[test]
    fn a_valid_offer_is_answered_without_context_takeover_by_default() {
        let none = "permessage-deflate; server_no_context_takeover; client_no_context_takeover";
        for offer in [
            "permessage-deflate",
            "permessage-deflate; client_max_window_bits",
            "permessage-deflate; client_max_window_bits=8",
            "Permessage-Deflate ; SERVER_NO_CONTEXT_TAKEOVER",
        ] {
            assert_eq!(answer(&Deflate::new(), &[offer]).as_deref(), Some(none), "{offer}");
        }
        let bits = answer(&Deflate::new(), &["permessage-deflate; server_max_window_bits=\"10\""]);
        assert_eq!(bits.unwrap(), format!("{none}; server_max_window_bits=10"));
        let takeover = Deflate::new().context_takeover(true);
        assert_eq!(answer(&takeover, &["permessage-deflate"]).unwrap(), "permessage-deflate");
        assert_eq!(
            answer(&takeover.window_bits(9), &["permessage-deflate; server_no_context_takeover"]).unwrap(),
            "permessage-deflate; server_no_context_takeover; server_max_window_bits=9"
        );
    }

    #[test]
    fn an_offer_with_bad_repeated_or_unknown_parameters_is_declined() {
        for offer in [
            "x-webkit-deflate-frame",
            "permessage-deflate; unknown",
            "permessage-deflate; server_no_context_takeover=1",
            "permessage-deflate; server_no_context_takeover; server_no_context_takeover",
            "permessage-deflate; client_max_window_bits; client_max_window_bits=9",
            "permessage-deflate; server_max_window_bits",
            "permessage-deflate; server_max_window_bits=8",
            "permessage-deflate; server_max_window_bits=7",
            "permessage-deflate; server_max_window_bits=16",
            "permessage-deflate; server_max_window_bits=015",
            "permessage-deflate; server_max_window_bits=-9",
            "permessage-deflate; server_max_window_bits=",
            "permessage-deflate; client_max_window_bits=99999999999999999999",
            "permessage-deflate; ",
        ] {
            assert_eq!(answer(&Deflate::new(), &[offer]), None, "{offer}");
            // The next offer counts, in the same header or in another one.
            let both = format!("{offer}, permessage-deflate");
            assert!(answer(&Deflate::new(), &[&both]).is_some(), "{both}");
            assert!(answer(&Deflate::new(), &[offer, "permessage-deflate"]).is_some());
        }
    }

    fn check(ours: &Deflate, accepted: &str) -> Option<Negotiated> {
        Negotiated::check(ours, &Headers::new().with("Sec-WebSocket-Extensions", accepted))
    }

    #[test]
    fn a_client_refuses_what_it_has_not_offered() {
        let none = "permessage-deflate; server_no_context_takeover";
        assert!(check(&Deflate::new(), none).is_some());
        for accepted in [
            "permessage-deflate",
            "permessage-deflate; server_no_context_takeover; client_max_window_bits",
            "permessage-deflate; server_no_context_takeover; other",
            "permessage-deflate; server_no_context_takeover, permessage-deflate",
            "other",
        ] {
            assert_eq!(check(&Deflate::new(), accepted), None, "{accepted}");
        }
        let narrow = check(&Deflate::new(), &format!("{none}; client_max_window_bits=8")).unwrap();
        assert_eq!(narrow.window_bits, 8);
    }
}
