//! Headers that are refused, each as early as possible.

use super::{IPV4, LIMIT, encoded, field, fields_of, parse, refused, v2};
use crate::proxy::{header::ProxyHeader, proxy_error::ProxyError};
use std::panic;

fn assert_malformed(header: &[u8]) {
    let error = refused(header);
    assert!(matches!(error, ProxyError::Malformed(_)), "{error} for {header:?}");
}

#[test]
fn a_missing_header_is_refused_with_its_first_wrong_byte() {
    for input in [&b"G"[..], b"PROXZ", b"PROXY\t", b"p", b"\r\n\r\n\x01", b"\x16", b"\n"] {
        assert_eq!(refused(input), ProxyError::Absent, "{input:?}");
        assert_eq!(ProxyHeader::parse(&input[..input.len() - 1], LIMIT), Ok(None));
    }
}

/// S-25.
#[test]
fn a_line_of_more_than_107_bytes_is_refused() {
    let too_long = ProxyError::TooLong { length: 108, limit: 107 };
    assert!(parse(format!("PROXY UNKNOWN {}\r\n", "x".repeat(91)).as_bytes()).unwrap().is_some());
    for more in [92, 93, 5000] {
        let line = format!("PROXY UNKNOWN {}\r\n", "x".repeat(more));
        assert_eq!(refused(line.as_bytes()), too_long);
    }
    // The end of the line is not waited for.
    assert_eq!(refused(format!("PROXY {}", "x".repeat(101)).as_bytes()), too_long);
}

#[test]
fn a_line_that_differs_from_the_specification_is_refused() {
    for line in [
        &b"PROXY TCP4 192.0.2.7 198.51.100.1 4321 443\n"[..],
        b"PROXY TCP4 192.0.2.7 198.51.100.1 4321 443\r\r\n",
        b"PROXY TCP4 192.0.2.7 198.51.100.1 4321 443\rx",
        b"PROXY UNKNOWN a\nb\r\n",
        b"PROXY TCP4 192.0.2.7 198.51.100.1 4321 443 \r\n",
        b"PROXY TCP4 192.0.2.7 198.51.100.1 4321 443 1\r\n",
        b"PROXY TCP4 192.0.2.7  198.51.100.1 4321 443\r\n",
        b"PROXY  TCP4 192.0.2.7 198.51.100.1 4321 443\r\n",
        b"PROXY TCP4 192.0.2.7\t198.51.100.1 4321 443\r\n",
        b"PROXY TCP4 192.0.2.7 198.51.100.1 4321\r\n",
        b"PROXY TCP4 192.0.2.7 198.51.100.1 4321 65536\r\n",
        b"PROXY TCP4 192.0.2.7 198.51.100.1 4321 +443\r\n",
        b"PROXY TCP4 192.0.2.7 198.51.100.1 4321 0443\r\n",
        b"PROXY TCP4 192.0.2.7 198.51.100.1 4321 \r\n",
        b"PROXY TCP4 192.0.2.07 198.51.100.1 4321 443\r\n",
        b"PROXY TCP4 192.0.2.256 198.51.100.1 4321 443\r\n",
        b"PROXY TCP4 0x7f.1 198.51.100.1 4321 443\r\n",
        b"PROXY TCP4 ::1 ::1 4321 443\r\n",
        b"PROXY TCP6 192.0.2.7 198.51.100.1 4321 443\r\n",
        b"PROXY TCP6 fe80::1%eth0 ::1 4321 443\r\n",
        b"PROXY TCP6 :::1 ::1 4321 443\r\n",
        b"PROXY tcp4 192.0.2.7 198.51.100.1 4321 443\r\n",
        b"PROXY UDP4 192.0.2.7 198.51.100.1 4321 443\r\n",
        b"PROXY UNKNOWNS\r\n",
        b"PROXY \r\n",
        b"PROXY TCP4 192.0.2.7\0 198.51.100.1 4321 443\r\n",
        b"PROXY TCP4 \xff\xfe 198.51.100.1 4321 443\r\n",
    ] {
        assert_malformed(line);
    }
}

/// S-25.
#[test]
fn a_wrong_version_command_or_family_of_version_2_is_refused_at_its_byte() {
    let header = |command, family| v2(command, family, &IPV4);
    for command in (0..=0xff).filter(|command| !matches!(command, 0x20 | 0x21)) {
        assert_malformed(&header(command, 0x11)[..13]);
    }
    let known = [0x00, 0x11, 0x12, 0x21, 0x22, 0x31, 0x32];
    for family in (0..=0xff).filter(|family| !known.contains(family)) {
        assert_malformed(&header(0x21, family)[..14]);
    }
}

#[test]
fn addresses_that_do_not_fit_into_the_length_are_refused() {
    for (family, needed) in [(0x11, 12), (0x12, 12), (0x21, 36), (0x22, 36), (0x31, 216), (0x32, 216)] {
        assert_malformed(&v2(0x21, family, &vec![0; needed - 1]));
        assert_malformed(&v2(0x21, family, b""));
        assert!(parse(&v2(0x21, family, &vec![0; needed])).unwrap().is_some());
    }
}

/// The announced length is refused with the 16th byte, and nothing is kept for it.
#[test]
fn a_header_of_version_2_over_the_limit_is_refused_before_its_body() {
    let mut header = v2(0x21, 0x11, &[&IPV4[..], &field(0xe0, &[0; LIMIT - 16 - 15])].concat());
    assert_eq!(header.len(), LIMIT);
    assert!(parse(&header).unwrap().is_some());
    header[15] += 1;
    let error = ProxyError::TooLong { length: LIMIT + 1, limit: LIMIT };
    assert_eq!(refused(&header[..16]), error);
    header[14..16].fill(0xff);
    assert_eq!(refused(&header), ProxyError::TooLong { length: 65_551, limit: LIMIT });
}

/// S-26.
#[test]
fn fields_that_overrun_the_header_are_refused() {
    let with = |fields: &[u8]| v2(0x21, 0x11, &[&IPV4[..], fields].concat());
    for fields in [
        &b"\x01"[..],
        b"\x01\x00",
        b"\x01\x00\x01",
        b"\x01\xff\xff\x00",
        b"\x01\x00\x01x\x02",
        b"\x03\x00\x03abc",
        b"\x03\x00\x05abcde",
        b"\x02\x00\x01\xff",
        b"\x30\x00\x01\xff",
        &field(0x05, &[0; 129]),
        &field(0x20, &[0; 4]),
        &field(0x20, b"\x01\0\0\0\0\x21"),
        &field(0x20, b"\x01\0\0\0\0\x21\x00\x02x"),
        &field(0x20, b"\x01\0\0\0\0\x22\x00\x01\xff"),
    ] {
        assert_malformed(&with(fields));
    }
}

/// CVE-2022-41881: a decoder that recursed for each level overflowed the stack.
/// S-26.
#[test]
fn nested_ssl_fields_are_refused_without_recursion() {
    let mut nested = vec![1, 0, 0, 0, 0];
    while nested.len() + 8 < LIMIT - 40 {
        nested = [&[1, 0, 0, 0, 0][..], &field(0x20, &nested)].concat();
    }
    assert_malformed(&v2(0x21, 0x11, &[&IPV4[..], &field(0x20, &nested)].concat()));
}

/// S-26.
#[test]
fn any_flipped_bit_is_found_by_the_checksum() {
    let header = ProxyHeader::v2("192.0.2.7:1".parse().unwrap(), "192.0.2.8:2".parse().unwrap());
    let bytes = encoded(&header.tlv(0x02, b"example.com").unwrap().crc32c().unwrap());
    for bit in 0..bytes.len() * 8 {
        let mut bytes = bytes.clone();
        bytes[bit / 8] ^= 1 << (bit % 8);
        // A larger length makes the header incomplete, a LOCAL command discards it, and a
        // changed type hides the checksum: no other bit goes unnoticed.
        match parse(&bytes) {
            Err(_) | Ok(None) => {}
            Ok(Some((header, _))) => {
                assert_eq!(header.tlv_value(0x03), None, "bit {bit}: {header:?}");
            }
        }
    }
    let mut wrong = bytes.clone();
    wrong[16] ^= 1;
    assert!(matches!(refused(&wrong), ProxyError::Checksum { .. }));
    let mut twice = field(0x03, &[0; 4]);
    twice.extend(twice.clone());
    assert_malformed(&v2(0x21, 0x11, &[&IPV4[..], &twice].concat()));
}

/// The number of cases can be raised for a longer run.
#[test]
fn random_and_mutated_bytes_neither_panic_nor_keep_more_than_the_limit() {
    let cases = std::env::var("NETWHEEL_PROXY_CASES").map_or(10_000, |n| n.parse().unwrap());
    let client = ["192.0.2.7:1".parse().unwrap(), "[2001:db8::7]:65535".parse().unwrap()];
    let ssl = [&[1, 0, 0, 0, 0][..], &field(0x21, b"TLSv1.3")].concat();
    let full = ProxyHeader::v2(client[0], client[0]).tlv(0x20, &ssl).unwrap().tlv(0x02, b"a.b").unwrap();
    let seeds = [
        encoded(&ProxyHeader::v1(client[0], client[0])),
        encoded(&ProxyHeader::v1(client[1], client[1])),
        encoded(&ProxyHeader::v2(client[1], client[1])),
        encoded(&full),
        encoded(&full.crc32c().unwrap()),
        v2(0x21, 0x31, &[b'/'; 216]),
    ];
    let mut random = fastrand::Rng::with_seed(85);
    for case in 0..cases {
        let mut bytes = seeds[case % seeds.len()].clone();
        for _ in 0..random.usize(1..6) {
            let at = random.usize(..bytes.len());
            match random.u8(..5) {
                0 => bytes[at] = random.u8(..),
                1 => bytes[at] ^= 1 << random.u8(..8),
                2 => bytes.insert(at, random.u8(..)),
                3 => bytes.truncate(at.max(1)),
                _ => bytes.extend(std::iter::repeat_with(|| random.u8(..)).take(20)),
            }
        }
        let result = panic::catch_unwind(|| parse(&bytes));
        let result = result.unwrap_or_else(|_| panic!("case {case}: {bytes:?}"));
        if let Ok(Some((header, length))) = &result {
            assert!(header.tlvs.len() <= *length && *length <= LIMIT);
            assert_eq!(fields_of(&header.tlvs).len(), count_fields(&header.tlvs));
            let (again, _) = parse(&encoded(header)).unwrap().unwrap();
            assert_eq!(again, *header, "case {case}");
        }
    }
}

fn count_fields(mut fields: &[u8]) -> usize {
    let mut count = 0;
    while let &[_, high, low, ..] = fields {
        fields = &fields[3 + usize::from(u16::from_be_bytes([high, low]))..];
        count += 1;
    }
    count
}
