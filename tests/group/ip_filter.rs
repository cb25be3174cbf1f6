//! IP filters (H-07, H-09): rules in CIDR notation, applied in order before a pipeline is created.

use crate::support::{
    journal::Log,
    logs,
    loops::{end, one_loop},
    recorder::{Event, Recorder},
    tcp::{ask, connect, read_to_end},
    wait::PATIENCE,
};
use bytes::Bytes;
use netwheel::{
    Error, Peer, Pipeline,
    admission::{Admission, IpFilter, IpRule, RejectReason},
    codec::Line,
    prelude::*,
};
use std::{
    net::{IpAddr, Ipv4Addr, Ipv6Addr, TcpStream},
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering::SeqCst},
        mpsc::channel,
    },
};

fn ip(text: &str) -> IpAddr {
    text.parse().unwrap()
}

fn allow(network: &str) -> IpRule {
    IpRule::allow(network).unwrap()
}

fn deny(network: &str) -> IpRule {
    IpRule::deny(network).unwrap()
}

#[test]
fn h_09_an_invalid_network_is_refused_with_its_text() {
    let wrong = [
        "10.0.0.0/33",
        "10.0.0.0/256",
        "10.0.0.0/-1",
        "10.0.0.0/",
        "10.0.0.0",
        "10.0.0/8",
        "10.0.0.0/8/8",
        "10.0.0.0 /8",
        " 10.0.0.0/8",
        "10.0.0.256/8",
        "::/129",
        "::",
        "2001:db8::g/32",
        "localhost/8",
        "/8",
        "/",
        "",
    ];
    for text in wrong {
        for refused in [IpRule::allow(text), IpRule::deny(text)] {
            let Err(Error::Setting(error)) = &refused else { panic!("{text:?} was accepted: {refused:?}") };
            assert_eq!((error.setting(), error.value()), ("network", text));
        }
    }
    let refused = IpRule::deny("10.0.0.0/33").unwrap_err().to_string();
    let allowed = "an IP address, a slash and 0 to 32 (IPv4) or 0 to 128 (IPv6) bits";
    assert_eq!(refused, format!("network is 10.0.0.0/33; it must be {allowed}"));
}

#[test]
fn h_09_every_prefix_matches_addresses_with_the_same_leading_bits() {
    let v4 = u32::from(Ipv4Addr::new(198, 51, 100, 7));
    for bits in 0..=32 {
        let rule = deny(&format!("{}/{bits}", Ipv4Addr::from(v4)));
        for flipped in 0..32u32 {
            let other = IpAddr::from(Ipv4Addr::from(v4 ^ 1 << (31 - flipped)));
            assert_eq!(rule.matches(other), flipped >= bits, "{rule} and {other}");
        }
        assert!(rule.matches(Ipv4Addr::from(v4).into()));
        assert!(!rule.matches(ip("2001:db8::1")), "{rule}: another family");
    }
    let v6 = u128::from("2001:db8:1234:5678:9abc:def0:1234:5678".parse::<Ipv6Addr>().unwrap());
    for bits in 0..=128 {
        let rule = deny(&format!("{}/{bits}", Ipv6Addr::from(v6)));
        for flipped in 0..128u32 {
            let other = IpAddr::from(Ipv6Addr::from(v6 ^ 1 << (127 - flipped)));
            assert_eq!(rule.matches(other), flipped >= bits, "{rule} and {other}");
        }
        assert!(!rule.matches(ip("198.51.100.7")), "{rule}: another family");
    }
}

#[test]
fn an_ipv4_address_mapped_into_ipv6_matches_ipv4_rules() {
    for network in ["10.0.0.0/8", "::ffff:10.0.0.0/104", "::ffff:a00:0/104"] {
        let rule = deny(network);
        assert!(rule.matches(ip("10.1.2.3")) && rule.matches(ip("::ffff:10.1.2.3")), "{network}");
        assert!(!rule.matches(ip("11.0.0.0")) && !rule.matches(ip("::ffff:11.0.0.0")), "{network}");
        assert!(!rule.matches(ip("::a00:0")), "{network}");
        assert_eq!(rule.to_string(), "deny 10.0.0.0/8");
    }
    let all_v6 = deny("::/0");
    assert!(all_v6.matches(ip("::1")) && !all_v6.matches(ip("::ffff:10.0.0.1")));
    assert!(deny("0.0.0.0/0").matches(ip("::ffff:10.0.0.1")));
}

#[test]
fn h_07_the_first_matching_rule_decides_and_the_default_is_to_allow() {
    let filter = IpFilter::new([
        allow("10.1.0.0/16"),
        deny("10.0.0.0/8"),
        allow("10.2.0.0/16"),
        deny("2001:db8::/32"),
    ]);
    for (address, allowed) in [
        ("10.1.2.3", true),
        ("10.2.2.3", false),
        ("10.0.0.0", false),
        ("10.255.255.255", false),
        ("9.255.255.255", true),
        ("2001:db8:ffff::1", false),
        ("2001:db9::1", true),
    ] {
        assert_eq!(filter.allows(ip(address)), allowed, "{address}");
    }
    assert_eq!(filter.deciding(ip("10.2.2.3")), Some(&filter.rules()[1]));
    assert_eq!(filter.deciding(ip("192.0.2.1")), None);
    assert!(IpFilter::default().allows(ip("192.0.2.1")));
    let collected: IpFilter = filter.rules().iter().copied().collect();
    assert_eq!(collected, filter);
}

fn lines(_: &Peer) -> Pipeline<Bytes> {
    let echo = Recorder::with(&Log::new(), |ctx, call| match call {
        Event::Read(message) => ctx.write(message.clone()),
        _ => Ok(()),
    });
    Pipeline::codec(Line::new()).handler(echo)
}

#[test]
fn h_07_a_denied_address_is_closed_before_a_pipeline_is_made() {
    logs::collect();
    let group = one_loop();
    let (rejected, rejections) = channel();
    let made = Arc::new(AtomicUsize::new(0));
    let bootstrap = |rule: IpRule| {
        let (rejected, count) = (rejected.clone(), made.clone());
        let told = move |rejection: &netwheel::admission::Rejection| rejected.send(*rejection).unwrap();
        let admission = Admission::new().ip_filter(IpFilter::new([rule])).on_rejected(told);
        ServerBootstrap::new(&group).admission(admission).pipeline(move |peer| {
            count.fetch_add(1, SeqCst);
            lines(peer)
        })
    };
    let rule = deny("127.0.0.0/8");
    let server = bootstrap(rule).bind("127.0.0.1:0").unwrap();
    for n in 1..=10 {
        let mut peer = connect(server.local_address());
        assert!(read_to_end(&mut peer).is_empty());
        let rejection = rejections.recv_timeout(PATIENCE).unwrap();
        assert_eq!(rejection.address, Some(peer.local_addr().unwrap()));
        assert_eq!(rejection.reason, RejectReason::Denied(rule));
        assert_eq!(group.next().metrics().rejected_filter, n);
    }
    assert_eq!((made.load(SeqCst), group.next().metrics().accepted), (0, 0));
    let said = logs::lines_with(&format!("on {}: a connection from", server.local_address()));
    assert_eq!(said.len(), 1, "{said:#?}");
    assert!(said[0].starts_with("INFO") && said[0].ends_with("filter rule: deny 127.0.0.0/8"), "{said:?}");

    let server = bootstrap(deny("127.0.0.2/31")).bind("127.0.0.1:0").unwrap();
    ask(&mut connect(server.local_address()), "x\n", "x\n");
    assert_eq!(group.next().metrics().rejected_limit, 0);
    end(&group);
}

#[test]
fn a_socket_that_serves_both_families_filters_both() {
    let group = one_loop();
    let serve = |rule| {
        let admission = Admission::new().ip_filter(IpFilter::new([rule]));
        ServerBootstrap::new(&group).admission(admission).pipeline(lines).bind("[::]:0")
    };
    let (Ok(no_v4), Ok(no_v6)) = (serve(deny("127.0.0.0/8")), serve(deny("::1/128"))) else {
        eprintln!("SKIPPED: no IPv6 on this machine");
        return;
    };
    let to = |server: &Server, ip: &str| {
        TcpStream::connect((ip, server.local_address().port())).inspect(|stream| {
            stream.set_read_timeout(Some(PATIENCE)).unwrap();
        })
    };
    let (Ok(mut denied), Ok(mut v6), Ok(mut v4), Ok(mut denied_v6)) =
        (to(&no_v4, "127.0.0.1"), to(&no_v4, "::1"), to(&no_v6, "127.0.0.1"), to(&no_v6, "::1"))
    else {
        eprintln!("SKIPPED: this system has no dual-stack sockets");
        return;
    };
    assert!(read_to_end(&mut denied).is_empty());
    ask(&mut v6, "x\n", "x\n");
    assert!(read_to_end(&mut denied_v6).is_empty());
    ask(&mut v4, "x\n", "x\n");
    end(&group);
}
