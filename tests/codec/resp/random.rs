//! Random values and random bytes.
//!
//! Set `NETWHEEL_RANDOM_CASES` for more cases than 10,000.

use super::{bulk, client, encoded, expect, server};
use crate::support::{codecs::drive_with_offsets, random::Random};
use bytes::Bytes;
use netwheel::{
    Codec,
    codec::{Resp, RespLimits, RespValue},
};
use proptest::{collection::vec, prelude::*};

fn scalar() -> impl Strategy<Value = RespValue> {
    prop_oneof![
        "[ -~]{0,8}".prop_map(|text| RespValue::Simple(text.into())),
        "[ -~]{0,8}".prop_map(|text| RespValue::Error(text.into())),
        any::<i64>().prop_map(RespValue::Integer),
        vec(any::<u8>(), 0..12).prop_map(bulk),
        "[\\r\\n]{0,4}".prop_map(bulk),
        vec(any::<u8>(), 0..12).prop_map(|bytes| RespValue::BulkError(bytes.into())),
        Just(RespValue::NullBulk),
        Just(RespValue::NullArray),
        Just(RespValue::Null),
        any::<bool>().prop_map(RespValue::Boolean),
        // NaN is equal to no number.
        any::<f64>().prop_filter("NaN", |number| !number.is_nan()).prop_map(RespValue::Double),
        "[+-]?[0-9]{1,30}".prop_map(|digits| RespValue::BigNumber(digits.into())),
        (any::<[u8; 3]>(), vec(any::<u8>(), 0..8))
            .prop_map(|(format, text)| RespValue::Verbatim { format, text: text.into() }),
    ]
}

/// A value of up to 5 levels, without push messages.
fn value() -> impl Strategy<Value = RespValue> {
    scalar().prop_recursive(5, 40, 4, |inner| {
        let pairs = vec((inner.clone(), inner.clone()), 0..3);
        prop_oneof![
            vec(inner.clone(), 0..4).prop_map(RespValue::Array),
            vec(inner.clone(), 0..4).prop_map(RespValue::Set),
            pairs.clone().prop_map(RespValue::Map),
            (pairs, inner).prop_map(|(attributes, value)| {
                RespValue::Attribute { attributes, value: Box::new(value) }
            }),
        ]
    })
}

fn message() -> impl Strategy<Value = RespValue> {
    prop_oneof![4 => value(), 1 => vec(value(), 0..4).prop_map(RespValue::Push)]
}

proptest! {
    #[test]
    fn encoded_values_decode_to_the_same_values_at_every_split(messages in vec(message(), 1..4)) {
        let codec = client(RespLimits::new().max_depth(8));
        let (mut stream, mut expected) = (Vec::new(), Vec::new());
        for message in messages {
            let wire = encoded(&Resp::server(), message.clone()).unwrap();
            prop_assert!(wire.len() <= Resp::encoded_len_hint(&message).unwrap());
            stream.extend(wire);
            expected.push((Ok(message), stream.len()));
        }
        expect(&codec, &stream, &expected);
    }

    #[test]
    fn encoded_requests_decode_to_the_same_requests_at_every_split(
        requests in vec(vec(vec(any::<u8>(), 0..12), 1..5), 1..4),
    ) {
        let (mut stream, mut expected) = (Vec::new(), Vec::new());
        for arguments in requests {
            let request = RespValue::command(arguments);
            stream.extend(encoded(&Resp::client(), request.clone()).unwrap());
            expected.push((Ok(request), stream.len()));
        }
        expect(&Resp::server(), &stream, &expected);
        expect(&Resp::server().inline_commands(), &stream, &expected);
    }

    #[test]
    fn values_without_the_types_of_resp3_have_the_same_text(value in value()) {
        let wire = encoded(&server(RespLimits::new()), value.into_resp2()).unwrap();
        let (events, _) = drive_with_offsets(&mut Resp::client(), [&wire[..]]);
        prop_assert_eq!(events.len(), 1);
        prop_assert!(!wire.starts_with(b"_") && !wire.starts_with(b"%") && !wire.starts_with(b"~"));
    }
}

/// Pieces of messages, valid and invalid, of which streams are made.
const PIECES: &[&[u8]] = &[
    b"*1\r\n",
    b"*2\r\n",
    b"*3\r\n",
    b"*0\r\n",
    b"*-1\r\n",
    b"%1\r\n",
    b"~2\r\n",
    b"|1\r\n",
    b">1\r\n",
    b"$0\r\n\r\n",
    b"$2\r\nab\r\n",
    b"$4\r\nPING\r\n",
    b"$2\r\n\r\n\r\n",
    b"$-1\r\n",
    b"$9\r\n123456789\r\n",
    b"+OK\r\n",
    b"-ERR\r\n",
    b":17\r\n",
    b"_\r\n",
    b"#t\r\n",
    b",1.5\r\n",
    b"(123\r\n",
    b"+123456789\r\n",
    b"!2\r\nno\r\n",
    b"=5\r\ntxt:a\r\n",
    b"*9\r\n",
    b"*999999999999\r\n",
    b"$99\r\n",
    b"PING\r\n",
    b"a 'b c'\r\n",
    b"'\r\n",
    b"\r\n",
    b"\n",
    b"\r",
    b"$?\r\n",
    b"*",
    b"$1",
    b"%",
];

fn stream(random: &mut Random) -> Bytes {
    let mut stream = Vec::new();
    for _ in 0..random.between(1, 12) {
        stream.extend_from_slice(PIECES[random.between(0, PIECES.len() - 1)]);
    }
    // Half of the streams are made of whole pieces.
    for _ in 0..random.between(0, 6).saturating_sub(3) {
        let at = random.between(0, stream.len() - 1);
        stream[at] = b"*$+-:_#,(!=~%>|\r\n0123456789 \"'x"[random.between(0, 30)];
    }
    stream.into()
}

/// D-36
#[test]
fn random_input_gives_the_same_events_at_the_same_offsets_at_every_split() {
    let mut random = Random::new(17);
    let limits = RespLimits::new().max_bulk_len(8).max_line_len(8).max_elements(6).max_depth(3);
    let codecs = [
        client(limits.clone()),
        server(limits.clone()),
        server(limits).inline_commands(),
        client(RespLimits::new()),
    ];
    let (mut messages, mut errors) = (0, 0);
    for case in 0..Random::cases() {
        let stream = stream(&mut random);
        let codec = &codecs[case % codecs.len()];
        let whole = drive_with_offsets(&mut codec.clone(), [&stream[..]]);
        for size in [1, 3, 20] {
            let chunks = random.chunks(&stream, 1, size);
            let split = drive_with_offsets(&mut codec.clone(), chunks.iter().map(|chunk| &chunk[..]));
            assert_eq!(whole.0, split.0, "case {case}: {stream:?} as {chunks:?}");
        }
        let refused = whole.0.iter().filter(|(event, _)| event.is_err()).count();
        (messages, errors) = (messages + whole.0.len() - refused, errors + refused);
    }
    let enough = Random::cases() / 2;
    assert!(messages > enough && errors > enough, "{messages} messages, {errors} errors");
}

#[test]
fn random_bytes_neither_panic_nor_decode_differently_at_another_split() {
    let mut random = Random::new(18);
    for case in 0..Random::cases() {
        let length = random.between(1, 60);
        let stream = random.bytes(length);
        for codec in [Resp::client(), Resp::server().inline_commands()] {
            let whole = drive_with_offsets(&mut codec.clone(), [&stream[..]]);
            let split = drive_with_offsets(&mut codec.clone(), stream.chunks(1));
            assert_eq!(whole.0, split.0, "case {case}: {stream:?}");
        }
    }
}
