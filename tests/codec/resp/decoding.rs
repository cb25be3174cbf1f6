//! Valid input, at every split.

use super::{bulk, client, expect, expect_one, request, server, simple};
use crate::support::codecs::drive;
use bytes::Bytes;
use netwheel::{
    Codec,
    codec::{Resp, RespLimits, RespValue},
};

/// D-36
#[test]
fn a_server_decodes_pipelined_requests() {
    let stream = b"*1\r\n$4\r\nPING\r\n*3\r\n$3\r\nSET\r\n$1\r\nk\r\n$4\r\na\r\nb\r\n*2\r\n$3\r\nGET\r\n$0\r\n\r\n*2\r\n$3\r\nGE";
    let expected = [
        (Ok(request(&["PING"])), 14),
        (Ok(request(&["SET", "k", "a\r\nb"])), 44),
        (Ok(request(&["GET", ""])), 63),
    ];
    expect(&Resp::server(), stream, &expected);
}

/// D-36
#[test]
fn a_client_decodes_every_type() {
    let attributes = vec![(simple("ttl"), RespValue::Integer(60))];
    for (stream, value) in [
        (&b"+OK\r\n"[..], simple("OK")),
        (b"+\r\n", simple("")),
        (b"-ERR no\r\n", RespValue::Error("ERR no".into())),
        (b":17\r\n", RespValue::Integer(17)),
        (b":-9223372036854775808\r\n", RespValue::Integer(i64::MIN)),
        (b":+5\r\n", RespValue::Integer(5)),
        (b"$5\r\n\r\n\0\r\n\r\n", bulk("\r\n\0\r\n")),
        (b"$0\r\n\r\n", bulk("")),
        (b"$-1\r\n", RespValue::NullBulk),
        (b"*-1\r\n", RespValue::NullArray),
        (b"*0\r\n", RespValue::Array(vec![])),
        (
            b"*2\r\n*1\r\n:1\r\n+x\r\n",
            RespValue::Array(vec![RespValue::Array(vec![RespValue::Integer(1)]), simple("x")]),
        ),
        (b"*2\r\n*0\r\n*0\r\n", RespValue::Array(vec![RespValue::Array(vec![]); 2])),
        (b"_\r\n", RespValue::Null),
        (b"#t\r\n", RespValue::Boolean(true)),
        (b"#f\r\n", RespValue::Boolean(false)),
        (b",1.25\r\n", RespValue::Double(1.25)),
        (b",-1e3\r\n", RespValue::Double(-1000.0)),
        (b",10\r\n", RespValue::Double(10.0)),
        (b",-inf\r\n", RespValue::Double(f64::NEG_INFINITY)),
        (
            b"(-3492890328409238509324850943850943825024385\r\n",
            RespValue::BigNumber("-3492890328409238509324850943850943825024385".into()),
        ),
        (b"!8\r\nERR a\r\nb\r\n", RespValue::BulkError("ERR a\r\nb".into())),
        (b"=6\r\ntxt:hi\r\n", RespValue::Verbatim { format: *b"txt", text: "hi".into() }),
        (b"~2\r\n:1\r\n:2\r\n", RespValue::Set(vec![RespValue::Integer(1), RespValue::Integer(2)])),
        (
            b"%2\r\n+a\r\n:1\r\n+b\r\n%0\r\n",
            RespValue::Map(vec![(simple("a"), RespValue::Integer(1)), (simple("b"), RespValue::Map(vec![]))]),
        ),
        (b">2\r\n+message\r\n$2\r\nhi\r\n", RespValue::Push(vec![simple("message"), bulk("hi")])),
        (
            b"|1\r\n+ttl\r\n:60\r\n$1\r\nv\r\n",
            RespValue::Attribute { attributes: attributes.clone(), value: Box::new(bulk("v")) },
        ),
        (
            b"*1\r\n|1\r\n+ttl\r\n:60\r\n*1\r\n_\r\n",
            RespValue::Array(vec![RespValue::Attribute {
                attributes,
                value: Box::new(RespValue::Array(vec![RespValue::Null])),
            }]),
        ),
    ] {
        expect_one(&Resp::client(), stream, value);
    }
}

#[test]
fn not_a_number_is_decoded() {
    let (events, _) = drive(&mut Resp::client(), [&b",nan\r\n"[..]]);
    assert!(matches!(events[..], [Ok(RespValue::Double(number))] if number.is_nan()));
}

#[test]
fn nested_aggregates_may_have_elements_behind_them_at_each_level() {
    let level = |inner: RespValue, number| {
        RespValue::Array(vec![RespValue::Integer(number), inner, RespValue::Integer(-number)])
    };
    let value = (1..=8).fold(RespValue::Null, level);
    let opening: String = (1..=8).rev().map(|number| format!("*3\r\n:{number}\r\n")).collect();
    let closing: String = (1..=8).map(|number| format!(":-{number}\r\n")).collect();
    expect_one(&Resp::client(), format!("{opening}_\r\n{closing}"), value);
}

#[test]
fn a_server_ignores_empty_requests() {
    let ping = Ok(request(&["PING"]));
    expect(&Resp::server(), b"*0\r\n*-1\r\n*1\r\n$4\r\nPING\r\n*0\r\n", &[(ping.clone(), 23)]);
    let stream = b"\r\n\n  \r\n*0\r\nPING\r\n\r\n";
    expect(&Resp::server().inline_commands(), stream, &[(ping, 17)]);
}

/// D-36
#[test]
fn inline_commands_are_requests_if_enabled() {
    let stream = b"PING\r\nset key \"a b\"\n*1\r\n$4\r\nPING\r\n+x\r\n";
    let expected = [
        (Ok(request(&["PING"])), 6),
        (Ok(request(&["set", "key", "a b"])), 20),
        (Ok(request(&["PING"])), 34),
        (Ok(request(&["+x"])), 38),
    ];
    expect(&Resp::server().inline_commands(), stream, &expected);
}

#[test]
fn values_of_exactly_the_limits_are_decoded() {
    let limits = RespLimits::new().max_bulk_len(3).max_line_len(2).max_elements(4).max_depth(2);
    let codec = client(limits.clone());
    expect_one(&codec, "$3\r\nabc\r\n", bulk("abc"));
    expect_one(&codec, "+ab\r\n", simple("ab"));
    // The longest text that a double is encoded as.
    expect_one(&codec, ",-2.2250738585072014e-308\r\n", RespValue::Double(-f64::MIN_POSITIVE));
    let pair = RespValue::Array(vec![RespValue::Integer(1); 2]);
    expect_one(
        &codec,
        "*2\r\n*2\r\n:1\r\n:1\r\n*0\r\n",
        RespValue::Array(vec![pair, RespValue::Array(vec![])]),
    );
    let codec = server(limits).inline_commands();
    expect(
        &codec,
        "ab\r\na \ncd\n",
        &[(Ok(request(&["ab"])), 4), (Ok(request(&["a"])), 7), (Ok(request(&["cd"])), 10)],
    );
}

#[test]
fn strings_share_the_memory_of_the_input() {
    let stream = Bytes::copy_from_slice(b"*2\r\n$3\r\nGET\r\n$3\r\nkey\r\n");
    let start = stream.as_ptr() as usize;
    let RespValue::Array(arguments) = Resp::server().decode(&mut stream.clone()).unwrap().unwrap() else {
        panic!("an array");
    };
    let offsets: Vec<_> =
        arguments.iter().map(|argument| argument.as_bytes().unwrap().as_ptr() as usize - start).collect();
    assert_eq!(offsets, [8, 17]);
}

#[test]
fn an_incomplete_message_is_not_consumed_and_the_end_of_the_stream_drops_it() {
    let mut codec = Resp::server();
    let mut input = Bytes::from_static(b"*1\r\n$4\r\nPING\r\n*2\r\n$3\r\nGET\r\n$3\r\nke");
    assert_eq!(codec.decode(&mut input).unwrap(), Some(request(&["PING"])));
    for _ in 0..2 {
        assert_eq!(codec.decode(&mut input).unwrap(), None);
        assert_eq!(input, "*2\r\n$3\r\nGET\r\n$3\r\nke");
    }
    assert_eq!(codec.decode_last(&mut input).unwrap(), None);
    assert_eq!(codec.decode_last(&mut Bytes::new()).unwrap(), None);
}
