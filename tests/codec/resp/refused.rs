//! Invalid input: the same error at the same offset, at every split.

use super::{bulk, client, expect, expect_broken, request, server, simple, violation};
use crate::support::codecs::{drive, drive_with_offsets};
use netwheel::{
    Error,
    codec::{Resp, RespError, RespLimits, RespValue},
    error::PeerError,
};

fn too_long(what: &'static str, length: u64, limit: usize) -> Result<RespValue, PeerError> {
    Err(PeerError::too_long(what, length, limit))
}

fn too_many(elements: u64, limit: usize) -> Result<RespValue, PeerError> {
    let codec = client(RespLimits::new().max_elements(limit));
    let (mut events, _) = drive(&mut codec.clone(), [format!("*{elements}\r\n").as_bytes()]);
    let event = events.pop().expect("an error");
    assert_eq!(event.as_ref().unwrap_err().to_string(), "RESP failed");
    event
}

/// Returns the error of a stream of the codec.
fn error_of(codec: &Resp, stream: &[u8]) -> RespError {
    let (events, _) = drive(&mut codec.clone(), [stream]);
    let Some(Err(PeerError::Protocol { protocol: "RESP", cause, .. })) = events.last() else {
        panic!("{events:?}");
    };
    *cause.as_error().downcast_ref().expect("a RespError")
}

/// 100,000 nested arrays would overflow the stack of a recursive decoder (D-36).
#[test]
fn nesting_is_limited_by_a_count_and_not_by_the_stack() {
    let attack = "*1\r\n".repeat(100_000);
    let (events, left) = drive_with_offsets(&mut Resp::client(), [attack.as_bytes()]);
    let error = error_of(&Resp::client(), attack.as_bytes());
    assert!(matches!(error, RespError::TooDeep { limit: 8, .. }), "{error:?}");
    assert_eq!((&events[..], left.len()), (&[(violation(error), 36)][..], 0));

    let deepest = client(RespLimits::new().max_depth(128).max_elements(1 << 20));
    for header in ["*1\r\n", "*2\r\n", "%1\r\n", "|0\r\n", "|1\r\n", "~3\r\n"] {
        let attack = header.repeat(100_000);
        let (events, _) = drive_with_offsets(&mut deepest.clone(), [attack.as_bytes()]);
        assert_eq!(events.len(), 1, "{header:?}");
        assert_eq!(events[0].1, 4 * 129, "{header:?}");
    }
    let inside = format!("{}*0\r\n", "*1\r\n".repeat(127));
    assert!(drive(&mut deepest.clone(), [inside.as_bytes()]).0[0].is_ok());
}

#[test]
fn a_request_has_no_nested_arrays() {
    expect_broken(&Resp::server(), "*2\r\n*1\r\n", RespError::NotARequest(b'*'), 5);
}

#[test]
fn a_server_accepts_only_requests() {
    for (stream, byte, offset) in [
        ("+PING\r\n", b'+', 1),
        ("$4\r\nPING\r\n", b'$', 1),
        ("PING\r\n", b'P', 1),
        ("*1\r\n:1\r\n", b':', 5),
        ("*1\r\n+PING\r\n", b'+', 5),
        (">1\r\n$1\r\nx\r\n", b'>', 1),
    ] {
        expect_broken(&Resp::server(), stream, RespError::NotARequest(byte), offset);
    }
    expect_broken(&Resp::server(), "*1\r\n$-1\r\n", RespError::InvalidLength, 9);
    let inline = Resp::server().inline_commands();
    expect_broken(&inline, "*1\r\nPING\r\n", RespError::NotARequest(b'P'), 5);
}

#[test]
fn invalid_lengths_are_refused_at_the_end_of_their_line() {
    for length in [
        "",
        "-",
        "-2",
        "-0",
        "-01",
        "+1",
        "01",
        "00",
        "1x",
        "0x1",
        " 1",
        "1 ",
        "1.0",
        "1e3",
        "\u{661}",
        "9223372036854775808",
        "18446744073709551617",
        "99999999999999999999999",
    ] {
        for kind in ['$', '*', '~', '%', '>', '|', '!', '='] {
            let stream = format!("{kind}{length}\r\n");
            expect_broken(&Resp::client(), &stream, RespError::InvalidLength, stream.len());
        }
        let stream = format!("*{length}\r\n");
        expect_broken(&Resp::server(), &stream, RespError::InvalidLength, stream.len());
    }
    for kind in ['~', '%', '>', '|', '!', '='] {
        expect_broken(&Resp::client(), format!("{kind}-1\r\n"), RespError::InvalidLength, 5);
    }
}

/// The end of the line is not waited for.
#[test]
fn a_number_without_end_is_refused_after_32_digits() {
    let zeros = "0".repeat(100);
    for (kind, error) in [
        ("$", RespError::InvalidLength),
        ("*", RespError::InvalidLength),
        (":", RespError::InvalidValue("integer")),
        ("#", RespError::InvalidValue("boolean")),
        ("_", RespError::InvalidValue("null")),
    ] {
        expect_broken(&Resp::client(), format!("{kind}{zeros}"), error, 34);
    }
}

#[test]
fn invalid_values_are_refused_at_the_end_of_their_line() {
    for (what, streams) in [
        ("integer", &[":\r\n", ":-\r\n", ":1x\r\n", ":1.0\r\n", ":9223372036854775808\r\n", ":--1\r\n"][..]),
        ("boolean", &["#\r\n", "#T\r\n", "#true\r\n", "#1\r\n"]),
        ("null", &["_x\r\n", "_-1\r\n"]),
        ("double", &[",\r\n", ",1,5\r\n", ",0x1p3\r\n", ",infinity\r\n", ",NaN\r\n", ",1e\r\n", ",--1\r\n"]),
        ("big number", &["(\r\n", "(-\r\n", "(1.5\r\n", "(1e5\r\n", "(+-1\r\n"]),
        ("verbatim string", &["=3\r\ntxt\r\n", "=0\r\n\r\n", "=6\r\ntextab\r\n"]),
    ] {
        for stream in streams {
            expect_broken(&Resp::client(), stream, RespError::InvalidValue(what), stream.len());
        }
    }
}

#[test]
fn unknown_and_streamed_types_are_refused_at_once() {
    for byte in [b'@', b'x', b'0', b' ', b'\r', b'\n', 0, 0xFF] {
        expect_broken(&Resp::client(), [byte], RespError::UnknownType(byte), 1);
    }
    for stream in ["$?\r\n", "*?\r\n", "~?\r\n", "%?\r\n"] {
        expect_broken(&Resp::client(), stream, RespError::Streamed, 4);
    }
    for stream in [";4\r\n", ".\r\n"] {
        expect_broken(&Resp::client(), stream, RespError::Streamed, 1);
    }
    expect_broken(&Resp::client(), "*1\r\n>1\r\n", RespError::NestedPush, 5);
}

#[test]
fn cr_and_lf_end_a_line_only_together() {
    expect_broken(&Resp::client(), "+OK\n", RespError::InvalidLine, 4);
    expect_broken(&Resp::client(), "+OK\rx", RespError::InvalidLine, 5);
    expect_broken(&Resp::client(), "+OK\r\r\n", RespError::InvalidLine, 5);
    expect_broken(&Resp::client(), "$2\nok\r\n", RespError::InvalidLine, 3);
    expect_broken(&Resp::client(), "-ERR\n-x\r\n", RespError::InvalidLine, 5);
    expect_broken(&Resp::server(), "*1\n", RespError::InvalidLine, 3);
}

/// The crate redis-protocol 6.0 accepts any two bytes.
#[test]
fn a_bulk_string_ends_in_crlf() {
    expect_broken(&Resp::client(), "$2\r\nabXY", RespError::MissingTerminator, 7);
    expect_broken(&Resp::client(), "$2\r\nab\rY", RespError::MissingTerminator, 8);
    expect_broken(&Resp::client(), "$2\r\nabc\r\n", RespError::MissingTerminator, 7);
    expect_broken(&Resp::server(), "*1\r\n$2\r\nab\n\r", RespError::MissingTerminator, 11);
}

/// D-36
#[test]
fn a_bulk_string_over_the_limit_is_refused_at_its_header_and_dropped() {
    let codec = client(RespLimits::new().max_bulk_len(4));
    let stream = "*3\r\n:1\r\n$5\r\nab\r\nc\r\n*1\r\n!9\r\n123456789\r\n$2\r\nok\r\n";
    let expected = [(too_long("bulk string", 5, 4), 12), (Ok(bulk("ok")), stream.len())];
    expect(&codec, stream, &expected);
    let stream = "*2\r\n$4\r\nECHO\r\n$6\r\n\r\n$5\r\n\r\n*1\r\n$4\r\nPING\r\n";
    let expected = [(too_long("bulk string", 6, 4), 18), (Ok(request(&["PING"])), stream.len())];
    expect(&server(RespLimits::new().max_bulk_len(4)), stream, &expected);
}

/// D-36
#[test]
fn half_a_gibibyte_is_the_most_whatever_the_limit() {
    let largest = RespLimits::new().max_bulk_len(512 << 20);
    let stream = "*1\r\n$536870913\r\n";
    let expected = [(too_long("bulk string", 536_870_913, 512 << 20), stream.len())];
    expect(&server(largest.clone()), stream, &expected);
    let stream = "$9223372036854775807\r\n";
    expect(&client(largest.clone()), stream, &[(too_long("bulk string", i64::MAX as u64, 512 << 20), 22)]);
    match Resp::server().limits(largest.max_bulk_len((512 << 20) + 1)) {
        Err(Error::Setting(error)) => assert_eq!(error.setting(), "max_bulk_len"),
        other => panic!("{other:?}"),
    }
}

#[test]
fn a_dropped_part_is_checked_for_its_end() {
    let codec = client(RespLimits::new().max_bulk_len(4).max_line_len(4));
    let refused = too_long("bulk string", 5, 4);
    let broken = violation(RespError::MissingTerminator);
    expect(&codec, "$5\r\n12345xy\r\n+OK\r\n", &[(refused.clone(), 4), (broken.clone(), 10)]);
    expect(&codec, "$5\r\n12345\rx\r\n+OK\r\n", &[(refused, 4), (broken, 11)]);
    let broken = violation(RespError::InvalidLine);
    expect(&codec, "+12345\n\r\n+OK\r\n", &[(too_long("line", 5, 4), 6), (broken, 7)]);
}

#[test]
fn a_line_over_the_limit_is_refused_when_this_is_known_and_dropped() {
    let codec = client(RespLimits::new().max_line_len(4));
    for kind in ['+', '-', '('] {
        let stream = format!("{kind}123456789\r\n*2\r\n:1\r\n+1234\r\n");
        let ones = RespValue::Array(vec![RespValue::Integer(1), simple("1234")]);
        expect(&codec, &stream, &[(too_long("line", 5, 4), 6), (Ok(ones), stream.len())]);
    }
    let stream = format!(",{}\r\n+OK\r\n", "1".repeat(25));
    expect(&codec, &stream, &[(too_long("line", 25, 24), 26), (Ok(simple("OK")), stream.len())]);
    let mut codec = client(RespLimits::new());
    let long = [b"+".to_vec(), vec![b'x'; 1 << 20]].concat();
    let (events, left) = drive(&mut codec, long.chunks(1000));
    assert_eq!((events, left.len()), (vec![too_long("line", 65_537, 65_536)], 0));
    assert_eq!(drive(&mut codec, [&b"\r\n+OK\r\n"[..]]).0, [Ok(simple("OK"))]);
}

#[test]
fn an_inline_command_over_the_limit_is_refused_and_dropped() {
    let codec = server(RespLimits::new().max_line_len(4)).inline_commands();
    for line in ["abcde\n", "abcde\r\n", "abcd\rx\n", "abcdefgh\r\n"] {
        let stream = format!("{line}PING\r\n");
        let expected = [(too_long("inline command", 5, 4), 5), (Ok(request(&["PING"])), stream.len())];
        expect(&codec, &stream, &expected);
    }
}

#[test]
fn unbalanced_quotes_are_an_error_and_the_next_command_is_decoded() {
    let stream = "SET k \"v\r\nPING\r\n";
    let expected = [(violation(RespError::UnbalancedQuotes), 10), (Ok(request(&["PING"])), 16)];
    expect(&Resp::server().inline_commands(), stream, &expected);
    assert!(RespError::UnbalancedQuotes.is_recoverable());
}

#[test]
fn an_http_request_executes_no_inline_command() {
    let codec = Resp::server().inline_commands();
    let post = "POST / HTTP/1.1\r\nContent-Length: 9\r\n\r\nset x y\r\n";
    expect(&codec, post, &[(violation(RespError::HttpRequest), 17)]);
    let put = "PUT / HTTP/1.1\r\nhost: a\r\n\r\nset x y\r\n";
    let first = Ok(request(&["PUT", "/", "HTTP/1.1"]));
    expect(&codec, put, &[(first, 16), (violation(RespError::HttpRequest), 25)]);
    assert!(!RespError::HttpRequest.is_recoverable());
}

/// D-36
#[test]
fn elements_are_counted_in_all_levels_together() {
    let codec = client(RespLimits::new().max_elements(4));
    for (header, elements) in [("*5\r\n", 5), ("~5\r\n", 5), (">5\r\n", 5), ("%3\r\n", 6), ("|2\r\n", 5)] {
        expect(&codec, header, &[(too_many(elements, 4), 4)]);
    }
    let stream = "*2\r\n*2\r\n:1\r\n:1\r\n*1\r\n:1\r\n+OK\r\n";
    let expected = [(too_many(5, 4), 20), (Ok(simple("OK")), stream.len())];
    expect(&codec, stream, &expected);
    assert!(error_of(&codec, b"*5\r\n").is_recoverable());
}

#[test]
fn limits_of_requests_hold_for_inline_commands() {
    let codec = server(RespLimits::new().max_elements(4)).inline_commands();
    for line in ["a b c d e f\n", "a 'b' c d e f\r\n"] {
        let stream = format!("{line}PING\r\n");
        let expected = [(too_many(6, 4), line.len()), (Ok(request(&["PING"])), stream.len())];
        expect(&codec, &stream, &expected);
    }
    let codec = server(RespLimits::new().max_bulk_len(4)).inline_commands();
    let expected = [(too_long("bulk string", 5, 4), 11), (Ok(request(&["PING"])), 16)];
    expect(&codec, "PING abcde\nPING\n", &expected);
}

/// D-36
#[test]
fn an_announced_count_is_refused_at_its_header() {
    for count in [65_537, 2_147_483_647, i64::MAX as u64] {
        let stream = format!("*{count}\r\n");
        let (events, _) = drive_with_offsets(&mut Resp::server(), [stream.as_bytes()]);
        assert_eq!(events, [(too_many(count, 65_536), stream.len())]);
        for kind in ['%', '|'] {
            let stream = format!("{kind}{count}\r\n$");
            let (events, _) = drive_with_offsets(&mut Resp::client(), [stream.as_bytes()]);
            assert!(matches!(events[..], [(Err(_), offset)] if offset + 1 == stream.len()));
        }
    }
}

#[test]
fn limits_out_of_range_are_refused() {
    let new = RespLimits::new;
    for (limits, setting) in [
        (new().max_bulk_len(0), "max_bulk_len"),
        (new().max_line_len(0), "max_line_len"),
        (new().max_line_len((1 << 20) + 1), "max_line_len"),
        (new().max_elements(0), "max_elements"),
        (new().max_elements(1 << 31), "max_elements"),
        (new().max_depth(0), "max_depth"),
        (new().max_depth(129), "max_depth"),
    ] {
        match Resp::client().limits(limits) {
            Err(Error::Setting(error)) => assert_eq!(error.setting(), setting),
            other => panic!("{other:?}"),
        }
    }
}
