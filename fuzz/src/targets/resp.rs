//! The protocol of Redis, of servers and of clients.

use crate::support::{Cuts, decode_in_pieces, encode, input};
use arbitrary::Arbitrary;
use netwheel::codec::{Resp, RespLimits, RespValue};

#[derive(Debug, Arbitrary)]
struct Input<'a> {
    cuts: Cuts,
    is_client: bool,
    inline: bool,
    small: bool,
    stream: &'a [u8],
}

struct Limits {
    max_bulk_len: usize,
    max_line_len: usize,
    max_elements: usize,
    max_depth: usize,
}

const SMALL: Limits = Limits { max_bulk_len: 40, max_line_len: 20, max_elements: 12, max_depth: 3 };

/// The defaults of the library.
const DEFAULT: Limits =
    Limits { max_bulk_len: 1024 * 1024, max_line_len: 64 * 1024, max_elements: 65_536, max_depth: 8 };

impl Limits {
    fn resp(&self) -> RespLimits {
        RespLimits::new()
            .max_bulk_len(self.max_bulk_len)
            .max_line_len(self.max_line_len)
            .max_elements(self.max_elements)
            .max_depth(self.max_depth)
    }
}

pub fn resp(data: &[u8]) {
    let Some(Input { cuts, is_client, inline, small, stream }) = input(data) else { return };
    let limits = if small { SMALL } else { DEFAULT };
    let (client, server) = (Resp::client(), Resp::server());
    let server = if inline { server.inline_commands() } else { server };
    let limited = |codec: Resp| codec.limits(limits.resp()).expect("limits in range");
    let (client, server) = (limited(client), limited(server));
    let (decoder, mut encoder) = if is_client { (client, server) } else { (server, client) };

    let (decoded, _) = decode_in_pieces(&decoder, stream, cuts, false);
    let messages: Vec<_> = decoded.into_iter().flatten().collect();
    for message in &messages {
        let mut elements = 0;
        check(message, &limits, 0, &mut elements);
        assert!(elements <= limits.max_elements, "{elements} elements");
    }
    let wire = encode(&mut encoder, messages.clone()).expect("a message that was decoded");
    let (again, left) = decode_in_pieces(&decoder, &wire, cuts, false);
    let again: Vec<_> = again.into_iter().map(|event| event.expect("a message")).collect();
    // As text, because NaN is not equal to itself.
    assert_eq!(format!("{again:?}"), format!("{messages:?}"));
    assert!(left.is_empty());
}

/// Asserts that a value is within the limits, and counts its elements.
fn check(value: &RespValue, limits: &Limits, depth: usize, elements: &mut usize) {
    let mut inside = |values: &[RespValue], depth| {
        *elements += values.len();
        values.iter().for_each(|value| check(value, limits, depth, elements));
    };
    let pairs = |pairs: &[(RespValue, RespValue)]| -> Vec<RespValue> {
        pairs.iter().cloned().flat_map(<[_; 2]>::from).collect()
    };
    assert!(depth <= limits.max_depth, "{depth} levels");
    match value {
        RespValue::Array(values) | RespValue::Set(values) | RespValue::Push(values) => {
            inside(values, depth + 1);
        }
        RespValue::Map(map) => inside(&pairs(map), depth + 1),
        RespValue::Attribute { attributes, value } => {
            inside(&pairs(attributes), depth + 1);
            inside(std::slice::from_ref(value), depth + 1);
        }
        RespValue::Bulk(text) | RespValue::BulkError(text) | RespValue::Verbatim { text, .. } => {
            assert!(text.len() <= limits.max_bulk_len.max(limits.max_line_len));
        }
        RespValue::Simple(line) | RespValue::Error(line) | RespValue::BigNumber(line) => {
            assert!(line.len() <= limits.max_line_len);
        }
        _ => {}
    }
}
