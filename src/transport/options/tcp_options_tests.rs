//! Options are set and read back from the socket.

use super::*;
use crate::transport::options::listener_options::ListenerOptions;
use socket2::{Domain, Socket, Type};
use std::net::{TcpListener, TcpStream};

/// Returns a connection over loopback. The tests set options on its first end.
fn pair(address: &str) -> io::Result<(TcpStream, TcpStream)> {
    let listener = TcpListener::bind(address)?;
    let stream = TcpStream::connect(listener.local_addr()?)?;
    Ok((stream, listener.accept()?.0))
}

const fn seconds(n: u64) -> Duration {
    Duration::from_secs(n)
}

fn refused(options: TcpOptions) -> (&'static str, String) {
    options.check().map(|()| ("nothing", String::new())).unwrap_or_else(|e| match e {
        Error::Setting(e) => (e.setting(), e.value().to_owned()),
        e => panic!("{e}"),
    })
}

#[test]
fn defaults_set_nodelay_only() {
    let (stream, _peer) = pair("127.0.0.1:0").unwrap();
    let socket = SockRef::from(&stream);
    let (send, receive) = (socket.send_buffer_size().unwrap(), socket.recv_buffer_size().unwrap());
    TcpOptions::new().apply(&socket).unwrap();
    assert!(socket.tcp_nodelay().unwrap());
    assert!(!socket.keepalive().unwrap());
    assert_eq!(socket.linger().unwrap(), None);
    assert_eq!((socket.send_buffer_size().unwrap(), socket.recv_buffer_size().unwrap()), (send, receive));

    let (stream, _peer) = pair("127.0.0.1:0").unwrap();
    TcpOptions::new().nodelay(false).apply(&SockRef::from(&stream)).unwrap();
    assert!(!SockRef::from(&stream).tcp_nodelay().unwrap());
}

/// A listener that another program has made may have the option, and Linux passes it on.
#[test]
fn nodelay_is_turned_off_for_a_connection_that_has_inherited_it() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    SockRef::from(&listener).set_tcp_nodelay(true).unwrap();
    let _peer = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
    let (stream, _) = listener.accept().unwrap();
    TcpOptions::new().nodelay(false).apply(&SockRef::from(&stream)).unwrap();
    assert!(!SockRef::from(&stream).tcp_nodelay().unwrap());
}

#[test]
fn options_are_read_back_from_the_socket() {
    let (stream, _peer) = pair("127.0.0.1:0").unwrap();
    let socket = SockRef::from(&stream);
    let options = TcpOptions::new()
        .keepalive(seconds(60))
        .keepalive_interval(seconds(7))
        .keepalive_retries(3)
        .linger(Duration::ZERO)
        .send_buffer(40_000)
        .receive_buffer(50_000)
        .time_to_live(17);
    options.check().unwrap();
    options.apply(&socket).unwrap();
    assert!(socket.keepalive().unwrap());
    assert_eq!(socket.linger().unwrap(), Some(Duration::ZERO));
    assert_eq!(socket.ttl_v4().unwrap(), 17);
    #[cfg(target_os = "linux")]
    {
        assert_eq!(socket.tcp_keepalive_time().unwrap(), seconds(60));
        assert_eq!(socket.tcp_keepalive_interval().unwrap(), seconds(7));
        assert_eq!(socket.tcp_keepalive_retries().unwrap(), 3);
        // Linux doubles the value, for its own bookkeeping.
        assert_eq!(socket.send_buffer_size().unwrap(), 80_000);
        assert_eq!(socket.recv_buffer_size().unwrap(), 100_000);
    }
}

#[cfg(target_os = "linux")]
#[test]
fn linux_only_options_are_read_back() {
    let (stream, _peer) = pair("127.0.0.1:0").unwrap();
    let socket = SockRef::from(&stream);
    let options = TcpOptions::new()
        .user_timeout(Duration::from_millis(1500))
        .not_sent_low_water(16_384)
        .congestion("reno");
    options.check().unwrap();
    options.apply(&socket).unwrap();
    assert_eq!(socket.tcp_user_timeout().unwrap(), Some(Duration::from_millis(1500)));
    assert_eq!(socket.tcp_notsent_lowat().unwrap(), 16_384);
    assert!(socket.tcp_congestion().unwrap().starts_with(b"reno"));

    let nowhere = TcpOptions::new().device("no-such-device");
    nowhere.check().unwrap();
    let failed = nowhere.apply_before_connect(&socket).unwrap_err();
    assert!(
        matches!(failed.kind(), io::ErrorKind::NotFound | io::ErrorKind::PermissionDenied)
            || failed.raw_os_error() == Some(19)
    );
}

#[cfg(target_os = "linux")]
#[test]
fn ipv6_uses_the_hop_limit() {
    let options = TcpOptions::new().time_to_live(9);
    // The machine may not have IPv6.
    if let Ok((stream, _peer)) = pair("[::1]:0") {
        let socket = SockRef::from(&stream);
        options.apply(&socket).unwrap();
        assert_eq!(socket.unicast_hops_v6().unwrap(), 9);
    }
    let Ok(listener) = TcpListener::bind("[::]:0") else { return };
    let port = listener.local_addr().unwrap().port();
    let Ok(_client) = TcpStream::connect(("127.0.0.1", port)) else { return };
    let (accepted, _) = listener.accept().unwrap();
    let socket = SockRef::from(&accepted);
    options.apply(&socket).unwrap();
    assert_eq!(socket.ttl_v4().unwrap(), 9, "the connection sends IPv4");
}

/// T-18: only the thread that closes the socket may wait, so the option is not set before.
#[test]
fn t_18_a_linger_that_waits_is_not_set_before_the_close() {
    let (stream, _peer) = pair("127.0.0.1:0").unwrap();
    let options = TcpOptions::new().linger(seconds(5));
    options.apply(&SockRef::from(&stream)).unwrap();
    assert_eq!(SockRef::from(&stream).linger().unwrap(), None);
    assert_eq!(options.lingers(), Some(seconds(5)));
}

#[test]
fn values_that_the_system_would_change_are_refused() {
    let half = Duration::from_millis(1500);
    let alive = || TcpOptions::new().keepalive(seconds(1));
    let cases = [
        (TcpOptions::new().keepalive(Duration::ZERO), "keepalive", "0ns"),
        (TcpOptions::new().keepalive(half), "keepalive", "1.5s"),
        (TcpOptions::new().keepalive(seconds(32_768)), "keepalive", "32768s"),
        (alive().keepalive_interval(half), "keepalive_interval", "1.5s"),
        (alive().keepalive_retries(0), "keepalive_retries", "0"),
        (alive().keepalive_retries(128), "keepalive_retries", "128"),
        (TcpOptions::new().keepalive_interval(seconds(1)), "keepalive_interval", "1s"),
        (TcpOptions::new().keepalive_retries(1), "keepalive_retries", "1"),
        (TcpOptions::new().linger(half), "linger", "1.5s"),
        (TcpOptions::new().linger(seconds(65_536)), "linger", "65536s"),
        (TcpOptions::new().send_buffer(0), "send_buffer", "0"),
        (TcpOptions::new().receive_buffer(1 << 31), "receive_buffer", "2147483648"),
        (TcpOptions::new().user_timeout(Duration::ZERO), "user_timeout", "0ns"),
        (TcpOptions::new().user_timeout(Duration::from_micros(1500)), "user_timeout", "1.5ms"),
        (TcpOptions::new().time_to_live(0), "time_to_live", "0"),
        (TcpOptions::new().time_to_live(256), "time_to_live", "256"),
        (TcpOptions::new().not_sent_low_water(0), "not_sent_low_water", "0"),
        (TcpOptions::new().congestion(""), "congestion", "\"\""),
        (
            TcpOptions::new().congestion("a-name-that-is-too-long"),
            "congestion",
            "\"a-name-that-is-too-long\"",
        ),
        (TcpOptions::new().device("a\0b"), "device", "\"a\\0b\""),
    ];
    for (options, setting, value) in cases {
        assert_eq!(refused(options), (setting, value.to_owned()));
    }
    let most = alive().keepalive(seconds(32_767)).linger(seconds(65_535)).time_to_live(255);
    most.check().unwrap();
    let long = ListenerOptions::new().device("sixteen-bytes-16").check();
    assert!(matches!(long, Err(Error::Setting(e)) if e.setting() == "device"));
}

#[cfg(not(any(target_os = "linux", target_os = "android")))]
#[test]
fn unsupported_options_are_refused() {
    assert_eq!(refused(TcpOptions::new().mark(1)).0, "mark");
    assert_eq!(refused(TcpOptions::new().user_timeout(seconds(1))).0, "user_timeout");
}

#[test]
fn listener_options_are_read_back() {
    let socket = Socket::new(Domain::IPV4, Type::STREAM, None).unwrap();
    let options = ListenerOptions::new().reuse_address(false).receive_buffer(30_000).only_v6(true);
    options.check().unwrap();
    options.apply(&SockRef::from(&socket), false).unwrap();
    #[cfg(unix)]
    assert!(!socket.reuse_address().unwrap() && !socket.reuse_port().unwrap());
    #[cfg(target_os = "linux")]
    assert_eq!(socket.recv_buffer_size().unwrap(), 60_000);

    let socket = Socket::new(Domain::IPV4, Type::STREAM, None).unwrap();
    ListenerOptions::new().reuse_port(true).apply(&SockRef::from(&socket), false).unwrap();
    #[cfg(unix)]
    assert!(socket.reuse_address().unwrap() && socket.reuse_port().unwrap());

    if let Ok(socket) = Socket::new(Domain::IPV6, Type::STREAM, None) {
        for on in [true, false] {
            ListenerOptions::new().only_v6(on).apply(&SockRef::from(&socket), true).unwrap();
            assert_eq!(socket.only_v6().unwrap(), on);
        }
    }
}
