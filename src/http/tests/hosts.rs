//! The authority of a request: `Host`, absolute targets, CONNECT (RFC 9112, sections 3.2 and 3.3).

use super::support::{Server, status};
use crate::{
    http::{Part, Request, Response, client::HttpClient},
    testing::EmbeddedChannel,
};

/// The authority, the host and the port.
type Seen = (Option<String>, Option<String>, Option<u16>);

/// Returns the authority, the host and the port that the handler of a request sees, or the status
/// with which the server refuses it.
fn seen(request: &str) -> Result<Seen, u16> {
    let seen = std::rc::Rc::new(std::cell::RefCell::new(None));
    let noted = seen.clone();
    let mut server = Server::at_head(move |ctx, request| {
        let (authority, host) = (request.authority().map(Into::into), request.host().map(Into::into));
        noted.replace(Some((authority, host, request.port())));
        ctx.write(Response::ok("").into())
    });
    let output = server.send(request);
    seen.take().ok_or_else(|| status(&output))
}

fn host(request: &str) -> Option<String> {
    seen(request).unwrap().1
}

#[test]
fn the_authority_has_a_host_and_perhaps_a_port() {
    for (value, expected_host, port) in [
        ("example.org", "example.org", None),
        ("example.org:8080", "example.org", Some(8080)),
        ("example.org:", "example.org", None),
        ("192.0.2.1:1", "192.0.2.1", Some(1)),
        ("[2001:db8::1]", "[2001:db8::1]", None),
        ("[2001:db8::1]:443", "[2001:db8::1]", Some(443)),
    ] {
        let (authority, host, seen_port) = seen(&format!("GET / HTTP/1.1\r\nHost: {value}\r\n\r\n")).unwrap();
        assert_eq!((authority.as_deref(), host.as_deref()), (Some(value), Some(expected_host)));
        assert_eq!(seen_port, port, "{value}");
    }
}

/// An application that builds links, or chooses a tenant, from `Host` must not believe another host
/// than the proxies in front, which route by the target.
#[test]
fn routing_confusion_by_an_absolute_target_and_another_host() {
    let request = "GET http://tenant-a.example/x HTTP/1.1\r\nHost: tenant-b.example\r\n\r\n";
    assert_eq!(host(request).as_deref(), Some("tenant-a.example"));
    let request = "GET http://a.example:81?x=http://b.example/ HTTP/1.1\r\nHost: b.example:82\r\n\r\n";
    assert_eq!(
        seen(request),
        Ok((Some("a.example:81".into()), Some("a.example".into()), Some(81))),
        "the target of a query"
    );
    let request = "CONNECT a.example:443 HTTP/1.1\r\nHost: b.example\r\n\r\n";
    assert_eq!(host(request).as_deref(), Some("a.example"));
}

/// Only the target's own scheme makes it absolute.
#[test]
fn routing_confusion_by_a_url_in_the_path() {
    let request = "GET /http://evil.example/ HTTP/1.1\r\nHost: a.example\r\n\r\n";
    assert_eq!(host(request).as_deref(), Some("a.example"));
    let request = "GET //evil.example/ HTTP/1.1\r\nHost: a.example\r\n\r\n";
    assert_eq!(host(request).as_deref(), Some("a.example"));
}

#[test]
fn host_header_injection_by_a_second_host() {
    for request in [
        "GET / HTTP/1.1\r\nHost: a.example\r\nHost: b.example\r\n\r\n",
        "GET / HTTP/1.1\r\nHost: a.example\r\nhOsT: a.example\r\n\r\n",
        "GET http://a.example/ HTTP/1.1\r\nHost: a.example\r\nHost: a.example\r\n\r\n",
        "GET / HTTP/1.0\r\nHost: a.example\r\nHost: b.example\r\n\r\n",
        "GET / HTTP/1.1\r\nHost: a.example, b.example\r\n\r\n",
    ] {
        assert_eq!(seen(request), Err(400), "{request}");
    }
}

#[test]
fn host_header_injection_by_a_missing_or_invalid_host() {
    for request in [
        "GET / HTTP/1.1\r\n\r\n",
        "GET http://a.example/ HTTP/1.1\r\n\r\n",
        "GET / HTTP/1.1\r\nHost: a.example@b.example\r\n\r\n",
        "GET / HTTP/1.1\r\nHost: a.example/path\r\n\r\n",
        "GET / HTTP/1.1\r\nHost: http://a.example\r\n\r\n",
        "GET / HTTP/1.1\r\nHost: a.example:b\r\n\r\n",
        "GET / HTTP/1.1\r\nHost: a.example:65536\r\n\r\n",
        "GET / HTTP/1.1\r\nHost: [::1\r\n\r\n",
        "GET http://user@a.example/ HTTP/1.1\r\nHost: a.example\r\n\r\n",
        "GET http:///path HTTP/1.1\r\nHost: a.example\r\n\r\n",
    ] {
        assert_eq!(seen(request), Err(400), "{request}");
    }
}

/// RFC 9112, section 3.2: an empty `Host` stands for a target URI without an authority. HTTP/1.0
/// does not require `Host`.
#[test]
fn a_request_without_an_authority_has_no_host() {
    for request in ["GET / HTTP/1.1\r\nHost:\r\n\r\n", "GET / HTTP/1.0\r\n\r\n"] {
        assert_eq!(seen(request), Ok((None, None, None)), "{request}");
    }
}

/// RFC 9112, section 3.2: "a client MUST send a field value for Host that is identical to that
/// authority component".
#[test]
fn a_client_sends_the_authority_of_an_absolute_target() {
    let sent = |request: Request| {
        let pipeline =
            HttpClient::new().host("proxy.example").pipeline().on_read(|_, _: Part<Response>| Ok(()));
        let mut channel = EmbeddedChannel::new(pipeline);
        channel.channel().write(request.into()).unwrap();
        channel.run_pending();
        String::from_utf8(channel.read_outbound().to_vec()).unwrap()
    };
    let output = sent(Request::get("http://a.example:81/x"));
    assert_eq!(output, "GET http://a.example:81/x HTTP/1.1\r\nHost: a.example:81\r\n\r\n");
    let output = sent(Request::new("CONNECT", "a.example:443"));
    assert_eq!(output, "CONNECT a.example:443 HTTP/1.1\r\nHost: a.example:443\r\n\r\n");
    assert_eq!(sent(Request::get("/")), "GET / HTTP/1.1\r\nHost: proxy.example\r\n\r\n");
}

/// `[169.254.169.254]` is no address of version 4 for a filter that reads the host, but it would be
/// one for a client that drops the brackets.
#[test]
fn server_side_request_forgery_by_brackets_around_another_host() {
    for host in ["[169.254.169.254]", "[internal.example]", "[v1.a]", "[fe80::1%25]", "[::1%]"] {
        let request = format!("GET / HTTP/1.1\r\nHost: {host}\r\n\r\n");
        assert_eq!(seen(&request), Err(400), "{host}");
    }
    assert_eq!(
        host("GET / HTTP/1.1\r\nHost: [fe80::1%25eth0]:1\r\n\r\n").as_deref(),
        Some("[fe80::1%25eth0]")
    );
}
