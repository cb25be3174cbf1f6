//! Trusted networks, versions and limits.

use super::{IPV4, field, v2};
use crate::proxy::{
    header::ProxyHeader, proxy_error::ProxyError, proxy_protocol::ProxyProtocol, proxy_version::ProxyVersion,
};

#[test]
fn only_trusted_networks_may_announce_addresses() {
    let trust = |protocol: ProxyProtocol| protocol.trust("10.0.0.0/8").unwrap().trust("fd00::/8").unwrap();
    let (required, optional) = (trust(ProxyProtocol::required()), trust(ProxyProtocol::optional()));
    for inside in ["10.255.0.1:1", "[::ffff:10.0.0.1]:2", "[fd00::1]:3"] {
        let address = Some(inside.parse().unwrap());
        assert_eq!(required.expects_header(address), Ok(true), "{inside}");
        assert_eq!(optional.expects_header(address), Ok(true), "{inside}");
    }
    for outside in [Some("11.0.0.1:1"), Some("[::1]:2"), Some("[::ffff:192.0.2.1]:3"), None] {
        let address = outside.map(|address| address.parse().unwrap());
        assert_eq!(required.expects_header(address), Err(ProxyError::Untrusted), "{outside:?}");
        assert_eq!(optional.expects_header(address), Ok(false), "{outside:?}");
    }
    assert_eq!(required.trust_unix_sockets().expects_header(None), Ok(true));
    assert_eq!(ProxyProtocol::optional().expects_header(Some("127.0.0.1:1".parse().unwrap())), Ok(false));
}

#[test]
fn a_version_that_is_not_accepted_is_refused_with_its_first_byte() {
    let (one, two) = (&b"PROXY UNKNOWN\r\n"[..], v2(0x21, 0x11, &IPV4));
    let only = |version| ProxyProtocol::required().version(version);
    assert!(only(ProxyVersion::V1).parse(one).unwrap().is_some());
    assert!(only(ProxyVersion::V2).parse(&two).unwrap().is_some());
    for end in 1..one.len() {
        let error = ProxyError::VersionNotAccepted(ProxyVersion::V1);
        assert_eq!(only(ProxyVersion::V2).parse(&one[..end]), Err(error));
        let error = ProxyError::VersionNotAccepted(ProxyVersion::V2);
        assert_eq!(only(ProxyVersion::V1).parse(&two[..end]), Err(error));
    }
    assert_eq!(only(ProxyVersion::V1).parse(b""), Ok(None));
    assert_eq!(only(ProxyVersion::V1).parse(b"GET"), Err(ProxyError::Absent));
    assert!(ProxyProtocol::required().parse(one).unwrap().is_some());
    assert!(ProxyProtocol::required().parse(&two).unwrap().is_some());
}

#[test]
fn the_limit_of_a_header_can_be_changed() {
    let trusted = || ProxyProtocol::required().trust_unix_sockets();
    for invalid in [0, 51, ProxyHeader::MAX_LEN + 1] {
        trusted().max_len(invalid).check().unwrap_err();
    }
    for valid in [52, ProxyHeader::MAX_LEN] {
        trusted().max_len(valid).check().unwrap();
    }
    ProxyProtocol::required().trust("10.0.0.0/33").unwrap_err();
    let header = v2(0x21, 0x11, &[&IPV4[..], &field(0xe0, &[0; 22])].concat());
    assert_eq!(header.len(), 53);
    let error = ProxyError::TooLong { length: 53, limit: 52 };
    assert_eq!(ProxyProtocol::required().max_len(52).parse(&header), Err(error));
    let largest = ProxyProtocol::required().max_len(ProxyHeader::MAX_LEN);
    let header = v2(0x20, 0x00, &field(0xe0, &vec![0; 65_532]));
    assert_eq!(largest.parse(&header).unwrap().unwrap().1, ProxyHeader::MAX_LEN);
}
