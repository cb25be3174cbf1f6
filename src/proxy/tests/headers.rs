//! The meaning of accepted headers.

use super::{IPV4, encoded, field, fields_of, v2, valid};
use crate::proxy::{
    header::{ProxyCommand, ProxyHeader},
    proxy_version::ProxyVersion,
};

#[test]
fn a_line_of_version_1_announces_its_addresses() {
    let header = valid(b"PROXY TCP4 192.0.2.7 198.51.100.1 4321 443\r\n");
    assert_eq!(
        header,
        ProxyHeader::v1("192.0.2.7:4321".parse().unwrap(), "198.51.100.1:443".parse().unwrap())
    );
    assert_eq!(header.version(), ProxyVersion::V1);
    assert_eq!(header.command(), ProxyCommand::Proxy);

    let header = valid(b"PROXY TCP6 2001:db8::1 ::ffff:192.0.2.1 0 65535\r\n");
    assert_eq!(header.source(), Some("[2001:db8::1]:0".parse().unwrap()));
    assert_eq!(header.destination(), Some("[::ffff:192.0.2.1]:65535".parse().unwrap()));
    let longest = "ffff:ffff:ffff:ffff:ffff:ffff:ffff:ffff";
    valid(format!("PROXY TCP6 {longest} {longest} 65535 65535\r\n").as_bytes());
}

#[test]
fn an_unknown_line_of_version_1_announces_nothing_whatever_follows() {
    let longest = "ffff:ffff:ffff:ffff:ffff:ffff:ffff:ffff";
    let worst = format!("PROXY UNKNOWN {longest} {longest} 65535 65535\r\n");
    assert_eq!(worst.len(), 107);
    for line in [&b"PROXY UNKNOWN\r\n"[..], b"PROXY UNKNOWN \xff\0 PROXY\r\n", worst.as_bytes()] {
        assert_eq!(valid(line), ProxyHeader::v1_unknown());
    }
    assert_eq!(ProxyHeader::v1_unknown().source(), None);
}

#[test]
fn a_header_of_version_2_announces_its_addresses() {
    let header = valid(&v2(0x21, 0x11, &IPV4));
    assert_eq!(
        header,
        ProxyHeader::v2("192.0.2.7:4321".parse().unwrap(), "198.51.100.1:443".parse().unwrap())
    );
    let header = valid(&v2(0x21, 0x12, &IPV4));
    assert_eq!(encoded(&header), v2(0x21, 0x12, &IPV4));
    assert_eq!(header.source(), Some("192.0.2.7:4321".parse().unwrap()));

    let mut body = [0; 36];
    body[..16].copy_from_slice(&"2001:db8::7".parse::<std::net::Ipv6Addr>().unwrap().octets());
    body[31] = 1;
    body[33] = 80;
    body[35] = 81;
    let header = valid(&v2(0x21, 0x21, &body));
    assert_eq!(header.source(), Some("[2001:db8::7]:80".parse().unwrap()));
    assert_eq!(header.destination(), Some("[::1]:81".parse().unwrap()));
    assert_eq!(encoded(&header), v2(0x21, 0x21, &body));
}

#[test]
fn unix_addresses_are_paths_or_abstract_names() {
    let mut body = [0; 216];
    body[..8].copy_from_slice(b"/run/a.s");
    body[108..113].copy_from_slice(b"\0name");
    let header = valid(&v2(0x21, 0x31, &body));
    assert_eq!(header.source(), None);
    assert_eq!(header.unix_source(), Some(&b"/run/a.s"[..]));
    assert_eq!(header.unix_destination(), Some(&b"\0name"[..]));
    assert_eq!(encoded(&header), v2(0x21, 0x31, &body));

    let header = valid(&v2(0x21, 0x32, &[[b'x'; 108], [0; 108]].concat()));
    assert_eq!(header.unix_source(), Some(&[b'x'; 108][..]));
    assert_eq!(header.unix_destination(), Some(&b""[..]));
    assert_eq!(valid(&v2(0x21, 0x11, &IPV4)).unix_source(), None);
}

/// The block of a local header may contain anything.
#[test]
fn local_and_unspecified_headers_of_version_2_announce_nothing() {
    let bodies = [
        (0x00, &b""[..]),
        (0x11, &IPV4),
        (0x11, b"short"),
        (0x31, b""),
        // The layout of the block, and the family, mean nothing in a health check.
        (0x00, b"no fields..."),
        (0x44, b"an unknown family"),
        (0xff, b""),
    ];
    for (family, body) in bodies {
        assert_eq!(valid(&v2(0x20, family, body)), ProxyHeader::v2_local());
    }
    let header = valid(&v2(0x21, 0x00, b"any layout of addresses"));
    assert_eq!(header.command(), ProxyCommand::Proxy);
    assert_eq!((header.source(), &header.tlvs[..]), (None, &b""[..]));
}

#[test]
fn fields_are_kept_in_order() {
    let ssl = [&[7, 0, 0, 0, 0][..], &field(0x21, b"TLSv1.3"), &field(0x22, b"client")].concat();
    let fields = [
        field(0x01, b"h2"),
        field(0x02, b"example.com"),
        field(0x04, b""),
        field(0x05, &[9; 128]),
        field(0x20, &ssl),
        field(0x30, b"blue"),
        field(0xea, b"\x01vpce"),
    ];
    let header = valid(&v2(0x21, 0x11, &[&IPV4[..], &fields.concat()].concat()));
    let expected = [
        (0x01, &b"h2"[..]),
        (0x02, b"example.com"),
        (0x04, b""),
        (0x05, &[9; 128]),
        (0x20, &ssl),
        (0x30, b"blue"),
        (0xea, b"\x01vpce"),
    ];
    assert_eq!(fields_of(&header.tlvs), expected);
    for (kind, value) in expected {
        assert_eq!(header.tlv_value(kind), Some(value));
    }
    assert_eq!(header.tlv_value(0xeb), None);
    assert_eq!((header.authority(), header.unique_id()), (Some("example.com"), Some(&[9; 128][..])));
}

#[test]
fn a_checksum_follows_later_fields() {
    let (source, destination) = ("192.0.2.7:1".parse().unwrap(), "[2001:db8::1]:2".parse().unwrap());
    let header = ProxyHeader::v2(source, destination).crc32c().unwrap();
    assert_eq!(valid(&encoded(&header)), header);
    let longer = header.clone().tlv(0x02, b"example.com").unwrap().crc32c().unwrap();
    assert_eq!(valid(&encoded(&longer)), longer);
    assert_ne!(header.tlv_value(0x03), longer.tlv_value(0x03));
    assert_eq!(longer.source(), Some("[::ffff:192.0.2.7]:1".parse().unwrap()));
    let local = ProxyHeader::v2_local().tlv(0x05, b"check").unwrap().crc32c().unwrap();
    assert_eq!(valid(&encoded(&local)), local);
}

#[test]
fn fields_that_cannot_be_sent_are_refused() {
    let v2 = ProxyHeader::v2_local();
    for (kind, value) in [(0x03, &[0; 4][..]), (0x05, &[0; 129]), (0x02, b"\xff"), (0x20, b"")] {
        v2.clone().tlv(kind, value).unwrap_err();
    }
    ProxyHeader::v1_unknown().tlv(0x01, b"h2").unwrap_err();
    ProxyHeader::v1_unknown().crc32c().unwrap_err();
    let fits = vec![0; usize::from(u16::MAX) - 3];
    let full = v2.clone().tlv(0xe0, &fits).unwrap();
    assert_eq!(encoded(&full).len(), ProxyHeader::MAX_LEN);
    assert_eq!(ProxyHeader::parse(&encoded(&full), ProxyHeader::MAX_LEN).unwrap().unwrap().0, full);
    full.crc32c().unwrap_err();
    v2.tlv(0xe0, &[fits, vec![0]].concat()).unwrap_err();
}
