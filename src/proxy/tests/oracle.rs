//! A comparison with the crate `proxy-header`.

use super::{LIMIT, encoded, field, fields_of, v2};
use crate::proxy::{
    field::{AUTHORITY, CRC32C, UNIQUE_ID, find},
    header::{ProxyCommand, ProxyHeader},
    proxy_version::ProxyVersion,
};
use proptest::{collection::vec, prelude::*};
use proxy_header::{ParseConfig, ProxyHeader as Oracle, Tlv as OracleTlv};
use std::net::SocketAddr;

fn oracle(input: &[u8]) -> Result<(Oracle<'_>, usize), proxy_header::Error> {
    Oracle::parse(input, ParseConfig { include_tlvs: true, allow_v1: true, allow_v2: true })
}

/// What this crate accepts, the other one accepts with the same meaning.
fn assert_same_meaning(input: &[u8]) -> Result<(), TestCaseError> {
    let Ok(Some((ours, length))) = ProxyHeader::parse(input, LIMIT) else { return Ok(()) };
    let theirs = oracle(input);
    if ours.command() == ProxyCommand::Local && theirs.is_err() {
        // It refuses a local header whose block is too short for the family. The specification
        // says that both are ignored.
        return Ok(());
    }
    let (theirs, their_length) = theirs
        .map_err(|error| TestCaseError::fail(format!("{error:?}, but {ours:?} is accepted for {input:?}")))?;
    prop_assert_eq!(length, their_length);
    let addresses = theirs.proxied_address();
    prop_assert_eq!(ours.source(), addresses.map(|addresses| addresses.source));
    prop_assert_eq!(ours.destination(), addresses.map(|addresses| addresses.destination));
    let ours = fields_of(&ours.tlvs);
    if !ours.is_empty() {
        let theirs: Vec<_> = theirs.tlvs().collect();
        prop_assert_eq!(ours.len(), theirs.len());
        for (&(kind, value), theirs) in ours.iter().zip(theirs) {
            let same = match theirs.expect("valid") {
                OracleTlv::Alpn(alpn) => kind == 0x01 && value == &*alpn,
                OracleTlv::Authority(name) => kind == AUTHORITY && value == name.as_bytes(),
                OracleTlv::Crc32c(sum) => kind == CRC32C && value == sum.to_be_bytes(),
                OracleTlv::UniqueId(id) => kind == UNIQUE_ID && value == &*id,
                OracleTlv::Netns(name) => kind == 0x30 && value == name.as_bytes(),
                OracleTlv::Ssl(ssl) => {
                    let text = |kind| find(&value[5..], kind);
                    kind == 0x20
                        && text(0x21) == ssl.version().map(str::as_bytes)
                        && text(0x22) == ssl.cn().map(str::as_bytes)
                        && (value[0] & 1 != 0) == ssl.client_ssl()
                }
                OracleTlv::Noop(_) => kind == 0x04,
                OracleTlv::Custom(their_kind, their_value) => kind == their_kind && value == &*their_value,
                // Subtypes of SSL mean nothing outside of it; this crate does not name them.
                _ => matches!(kind, 0x21..=0x28),
            };
            prop_assert!(same, "field {} with {:?} in {:?}", kind, value, input);
        }
    }
    Ok(())
}

/// Addresses of one family.
fn addresses() -> impl Strategy<Value = (SocketAddr, SocketAddr)> {
    let address = |v6: bool| {
        (any::<[u8; 16]>(), any::<u16>()).prop_map(move |(ip, port)| match v6 {
            true => (ip, port).into(),
            false => ([ip[0], ip[1], ip[2], ip[3]], port).into(),
        })
    };
    any::<bool>().prop_flat_map(move |v6| (address(v6), address(v6)))
}

fn fields() -> impl Strategy<Value = Vec<(u8, Vec<u8>)>> {
    let kind = prop_oneof![Just(1), Just(2), Just(4), Just(5), Just(0x30), 0xe0..=0xff_u8];
    let text = vec(0x20..0x7f_u8, 0..60);
    let ssl = (any::<u8>(), any::<u32>(), text.clone()).prop_map(|(client, verify, version)| {
        (0x20, [&[client][..], &verify.to_be_bytes(), &field(0x21, &version)].concat())
    });
    vec(prop_oneof![4 => (kind, text), 1 => ssl], 0..8)
}

proptest! {
    #[test]
    fn headers_are_the_same_for_both_crates((source, destination) in addresses(), fields in fields()) {
        let mut header = ProxyHeader::v2(source, destination);
        for (kind, value) in &fields {
            header = header.tlv(*kind, value).unwrap();
        }
        for header in [header.clone(), header.crc32c().unwrap(), ProxyHeader::v1(source, destination)] {
            let bytes = encoded(&header);
            prop_assert_eq!(super::parse(&bytes), Ok(Some((header.clone(), bytes.len()))));
            prop_assert!(oracle(&bytes).is_ok());
            assert_same_meaning(&bytes)?;
            // Without fields, both encode alike.
            let address = proxy_header::ProxiedAddress::stream(source, destination);
            let mut theirs = [0; 300];
            if header.version() == ProxyVersion::V1 {
                let length = Oracle::with_address(address).encode_to_slice_v1(&mut theirs).unwrap();
                prop_assert_eq!(bytes, &theirs[..length]);
            } else if header.tlvs.is_empty() {
                let length = Oracle::with_address(address).encode_to_slice_v2(&mut theirs).unwrap();
                prop_assert_eq!(bytes, &theirs[..length]);
            }
        }
    }

    #[test]
    fn mutated_lines_have_one_meaning((source, destination) in addresses(), at in any::<prop::sample::Index>(), byte in 0x09..0x7f_u8) {
        let mut line = encoded(&ProxyHeader::v1(source, destination));
        let at = at.index(line.len());
        line[at] = byte;
        assert_same_meaning(&line)?;
        line.remove(at);
        assert_same_meaning(&line)?;
    }

    #[test]
    fn random_bodies_have_one_meaning(
        command in 0x1f..0x23_u8,
        family in prop_oneof![Just(0), Just(0x11), Just(0x12), Just(0x21), Just(0x22), any::<u8>()],
        body in vec(prop_oneof![3 => Just(0), 1 => Just(1), 1 => Just(2), 1 => Just(0x20), 1 => any::<u8>()], 0..80),
    ) {
        assert_same_meaning(&v2(command, family, &body))?;
    }
}
