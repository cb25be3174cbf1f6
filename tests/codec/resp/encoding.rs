//! Encoding: the bytes of each type, and the values that are refused.

use super::{bulk, client, encoded, request, server, simple};
use bytes::Bytes;
use netwheel::{
    Codec, Error,
    codec::{Resp, RespLimits, RespValue},
    error::EncodeError,
};

#[track_caller]
fn refuses(codec: &Resp, value: RespValue, why: &str) {
    match encoded(codec, value) {
        Err(Error::Encode(EncodeError::Unencodable(text))) => assert!(text.contains(why), "{text}"),
        other => panic!("{other:?}"),
    }
}

#[track_caller]
fn is_too_long(codec: &Resp, value: RespValue, what: &str) {
    match encoded(codec, value) {
        Err(Error::Encode(EncodeError::TooLong { what: found, length: 5, limit: 4, .. })) => {
            assert_eq!(found, what);
        }
        other => panic!("{other:?}"),
    }
}

#[test]
fn every_type_is_written_in_its_own_form() {
    let pairs = vec![(simple("a"), RespValue::Integer(-1))];
    for (value, wire) in [
        (simple("OK"), "+OK\r\n"),
        (RespValue::Error("ERR no".into()), "-ERR no\r\n"),
        (RespValue::Integer(0), ":0\r\n"),
        (RespValue::Integer(i64::MIN), ":-9223372036854775808\r\n"),
        (bulk("a\r\nb"), "$4\r\na\r\nb\r\n"),
        (RespValue::NullBulk, "$-1\r\n"),
        (RespValue::NullArray, "*-1\r\n"),
        (RespValue::Array(vec![bulk(""), RespValue::Array(vec![])]), "*2\r\n$0\r\n\r\n*0\r\n"),
        (RespValue::Null, "_\r\n"),
        (RespValue::Boolean(true), "#t\r\n"),
        (RespValue::Boolean(false), "#f\r\n"),
        (RespValue::Double(2.5), ",2.5\r\n"),
        (RespValue::Double(f64::INFINITY), ",inf\r\n"),
        (RespValue::Double(f64::NAN), ",nan\r\n"),
        (RespValue::BigNumber("-12".into()), "(-12\r\n"),
        (RespValue::BulkError("ERR a\nb".into()), "!7\r\nERR a\nb\r\n"),
        (RespValue::Verbatim { format: *b"mkd", text: "*hi*".into() }, "=8\r\nmkd:*hi*\r\n"),
        (RespValue::Set(vec![RespValue::Null]), "~1\r\n_\r\n"),
        (RespValue::Map(pairs.clone()), "%1\r\n+a\r\n:-1\r\n"),
        (RespValue::Push(vec![simple("x")]), ">1\r\n+x\r\n"),
        (
            RespValue::Attribute { attributes: pairs, value: Box::new(RespValue::Map(vec![])) },
            "|1\r\n+a\r\n:-1\r\n%0\r\n",
        ),
    ] {
        assert_eq!(encoded(&Resp::server(), value.clone()).unwrap(), wire);
        assert!(Resp::encoded_len_hint(&value).unwrap() >= wire.len(), "{value:?}");
    }
}

/// A line break would let the text of an error begin another reply (D-40).
#[test]
fn simple_strings_and_errors_with_cr_or_lf_are_refused() {
    for text in ["a\r\n+b", "a\n", "\r", "\n"] {
        for value in [RespValue::Simple(text.into()), RespValue::Error(text.into())] {
            refuses(&Resp::server(), value.clone(), "CR or LF");
            refuses(&Resp::server(), RespValue::Array(vec![value]), "CR or LF");
        }
    }
}

#[test]
fn a_big_number_has_digits_only() {
    for text in ["", "-", "1.5", "1\r\n+OK", "x"] {
        refuses(&Resp::server(), RespValue::BigNumber(text.into()), "big number");
    }
}

#[test]
fn a_push_message_inside_another_value_is_refused() {
    refuses(&Resp::server(), RespValue::Array(vec![RespValue::Push(vec![])]), "push");
}

#[test]
fn a_client_writes_only_requests() {
    assert_eq!(encoded(&Resp::client(), request(&["GET", "k"])).unwrap(), "*2\r\n$3\r\nGET\r\n$1\r\nk\r\n");
    for value in [
        simple("PING"),
        bulk("PING"),
        RespValue::Array(vec![]),
        RespValue::Array(vec![simple("PING")]),
        RespValue::Array(vec![RespValue::Array(vec![bulk("PING")])]),
    ] {
        refuses(&Resp::client(), value, "a request is");
    }
}

#[test]
fn the_limits_apply_to_encoding() {
    let limits = RespLimits::new().max_bulk_len(4).max_line_len(4).max_elements(4).max_depth(2);
    let codec = server(limits.clone());
    is_too_long(&codec, bulk("12345"), "bulk string");
    is_too_long(&codec, RespValue::BulkError("12345".into()), "bulk string");
    is_too_long(&codec, RespValue::Verbatim { format: *b"txt", text: "1".into() }, "bulk string");
    is_too_long(&codec, simple("12345"), "line");
    is_too_long(&codec, RespValue::BigNumber("12345".into()), "line");
    is_too_long(&client(limits), request(&["12345"]), "bulk string");
    // Doubles have no limit of their own, and peers read all of them.
    let long = -f64::MIN_POSITIVE;
    assert_eq!(encoded(&codec, RespValue::Double(long)).unwrap(), ",-2.2250738585072014e-308\r\n");

    refuses(&codec, RespValue::Array(vec![RespValue::Null; 5]), "5 elements; the limit is 4");
    let pair = RespValue::Array(vec![RespValue::Null; 2]);
    assert!(encoded(&codec, RespValue::Array(vec![pair.clone(), RespValue::Null])).is_ok());
    refuses(&codec, RespValue::Array(vec![pair.clone(), pair]), "6 elements");

    let nested = |levels| (1..levels).fold(RespValue::Set(vec![]), |inner, _| RespValue::Array(vec![inner]));
    assert_eq!(encoded(&codec, nested(2)).unwrap(), "*1\r\n~0\r\n");
    refuses(&codec, nested(3), "more than 2 nested");
    assert!(encoded(&Resp::server(), nested(8)).is_ok());
    refuses(&Resp::server(), nested(9), "more than 8 nested");
}

#[test]
fn codecs_with_equal_settings_share_their_encodings() {
    let key = |codec: Resp| codec.encoding_key().unwrap();
    assert_eq!(key(Resp::server()), key(Resp::server().inline_commands()));
    assert_ne!(key(Resp::server()), key(Resp::client()));
    assert_ne!(key(Resp::server()), key(server(RespLimits::new().max_depth(9))));
}

#[test]
fn a_long_bulk_string_is_not_copied() {
    let long = Bytes::from(vec![b'x'; 100_000]);
    let wire = encoded(&Resp::server(), RespValue::Bulk(long.clone())).unwrap();
    assert_eq!(wire.len(), long.len() + 11);
    assert_eq!(Resp::encoded_len_hint(&RespValue::Bulk(long)), Some(wire.len()));
}
