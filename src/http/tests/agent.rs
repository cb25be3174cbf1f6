//! Requests to many hosts.

use super::pool::{Answer, Site, get, ok};
use crate::{
    bootstrap::{ClientBootstrap, HttpAgent, HttpAgentBuilder},
    error::{Error, Resource},
    group::EventLoopGroup,
    http::{NotSent, Request},
};
use std::time::Duration;

fn echo(_: usize, _: usize, target: &str) -> Answer {
    if target == "/hang" { Answer::Silence } else { Answer::Bytes(ok(target)) }
}

fn agent(build: impl FnOnce(HttpAgentBuilder) -> HttpAgentBuilder) -> HttpAgent {
    let group = EventLoopGroup::builder().threads(1).build().unwrap();
    build(HttpAgent::builder(ClientBootstrap::new(&group))).build().unwrap()
}

fn url(host: &str, site: &Site, path: &str) -> String {
    format!("http://{host}:{}{path}", site.port())
}

#[test]
fn each_host_and_port_has_its_own_connections() {
    let sites = [Site::new(echo), Site::new(echo)];
    let agent = agent(|builder| builder.connections_per_host(1));
    for _ in 0..5 {
        for site in &sites {
            // The name is looked up on a thread for lookups.
            let response = get(agent.request(Request::get(&url("LocalHost", site, "/a?b"))).send()).unwrap();
            assert_eq!(response.body, "/a?b");
        }
    }
    assert_eq!([sites[0].connections(), sites[1].connections()], [1, 1]);
    assert_eq!((agent.hosts(), agent.connections()), (2, 2));
}

#[test]
fn the_server_sees_the_host_and_the_origin_form() {
    let site = Site::new(|_, _, target| Answer::Bytes(ok(target)));
    let agent = agent(|builder| builder);
    for (path, target) in [("", "/"), ("?a", "/?a"), ("/b#c", "/b")] {
        let response = get(agent.request(Request::get(&url("127.0.0.1", &site, path))).send()).unwrap();
        assert_eq!(response.body, target);
    }
}

#[test]
fn a_target_that_is_no_url_is_refused() {
    let agent = agent(|builder| builder);
    for target in [
        "/a",
        "ftp://a/",
        "http:///",
        "https://localhost/",
        "http://u:p@localhost/",
        "http://a:99999/",
        "http://[10.0.0.1]/",
        "http://[::ffff:10.0.0.1%251]/",
    ] {
        let error = get(agent.request(Request::get(target)).send()).unwrap_err();
        assert!(matches!(error, Error::Encode(_)), "{target}: {error:?}");
    }
    assert_eq!(agent.hosts(), 0);
}

#[test]
fn the_pool_that_was_not_used_for_the_longest_time_makes_room() {
    let sites = [Site::new(echo), Site::new(echo), Site::new(echo)];
    let agent = agent(|builder| builder.max_hosts(2).connections_per_host(1));
    let ask =
        |at: usize| get(agent.request(Request::get(&url("127.0.0.1", &sites[at], "/"))).send()).unwrap();
    for at in [0, 1, 0, 2, 0, 1] {
        ask(at);
        assert!(agent.hosts() <= 2);
    }
    assert_eq!([0, 1, 2].map(|at| sites[at].connections()), [1, 2, 1]);
}

#[test]
fn pools_in_use_are_not_removed() {
    let sites = [Site::new(echo), Site::new(echo)];
    let agent = agent(|builder| builder.max_hosts(1));
    let hanging = agent.request(Request::get(&url("127.0.0.1", &sites[0], "/hang"))).send();
    crate::testing::wait::wait_until("it is sent", || sites[0].connections() == 1);
    let refused = agent.request(Request::get(&url("127.0.0.1", &sites[1], "/"))).send();
    let error = get(refused).unwrap_err();
    let cause = NotSent::of(&error).unwrap().cause();
    assert!(matches!(cause, Error::Full { resource: Resource::AgentHosts, limit: 1 }), "{cause:?}");
    drop(hanging);
    crate::testing::wait::wait_until("it is given up", || agent.connections() == 0);
    get(agent.request(Request::get(&url("127.0.0.1", &sites[1], "/"))).send()).unwrap();
}

#[test]
fn a_name_without_addresses_fails_the_request_and_is_looked_up_again() {
    let agent = agent(|builder| builder);
    for _ in 0..2 {
        let request = agent.request(Request::get("http://no-such-host.invalid/"));
        let error = get(request.timeout(Duration::from_secs(30)).send()).unwrap_err();
        let cause = NotSent::of(&error).unwrap().cause();
        assert!(matches!(cause, Error::Io { .. }), "{cause:?}");
    }
    assert_eq!(agent.connections(), 0);
}

#[test]
fn a_closed_agent_refuses_requests() {
    let site = Site::new(echo);
    let agent = agent(|builder| builder);
    get(agent.request(Request::get(&url("127.0.0.1", &site, "/"))).send()).unwrap();
    agent.close();
    let error = get(agent.request(Request::get(&url("127.0.0.1", &site, "/"))).send()).unwrap_err();
    assert!(matches!(NotSent::of(&error).unwrap().cause(), Error::Closed));
}

#[test]
fn settings_out_of_range_are_refused() {
    let group = EventLoopGroup::builder().threads(1).build().unwrap();
    let builder = || HttpAgent::builder(ClientBootstrap::new(&group));
    for builder in [builder().max_hosts(0), builder().connections_per_host(0)] {
        assert!(matches!(builder.build(), Err(Error::Setting(_))));
    }
}

#[cfg(feature = "tls")]
#[test]
fn https_checks_the_certificate_for_the_host() {
    use crate::{
        bootstrap::ServerBootstrap,
        http::{Part, Response, server::HttpServer},
        tls::{TlsCertificate, TlsClient, TlsRoots, TlsServer},
    };
    let made = rcgen::generate_simple_self_signed(["localhost".to_owned()]).unwrap();
    let (chain, key) = (made.cert.pem(), made.signing_key.serialize_pem());
    let certificate = TlsCertificate::from_pem(chain.as_bytes(), key.as_bytes()).unwrap();
    let group = EventLoopGroup::builder().threads(1).build().unwrap();
    let http = HttpServer::new();
    let server = ServerBootstrap::new(&group)
        .tls(TlsServer::builder(certificate).build().unwrap())
        .pipeline(move |_| {
            http.pipeline().on_read(|ctx, part| match part {
                Part::Head(request) => {
                    ctx.write(Response::ok(request.authority().unwrap().to_owned()).into())
                }
                _ => Ok(()),
            })
        })
        .bind("127.0.0.1:0")
        .unwrap();
    let roots = TlsRoots::from_pem(chain.as_bytes()).unwrap();
    let tls = TlsClient::builder(roots).alpn(["http/1.1"]).build().unwrap();
    let agent = HttpAgent::builder(ClientBootstrap::new(&group)).tls(tls).build().unwrap();
    let port = server.local_address().port();
    let authority = format!("localhost:{port}");
    let response = get(agent.request(Request::get(&format!("https://{authority}/"))).send()).unwrap();
    assert_eq!(response.body, authority);
    let wrong = get(agent.request(Request::get(&format!("https://127.0.0.1:{port}/"))).send()).unwrap_err();
    assert!(NotSent::of(&wrong).is_some(), "{wrong:?}");
}

/// The server would choose HTTP/2, and each request would fail.
#[cfg(feature = "tls")]
#[test]
fn tls_that_offers_other_protocols_than_http_1_1_is_refused() {
    use crate::tls::{TlsClient, TlsRoots};
    let made = rcgen::generate_simple_self_signed(["localhost".to_owned()]).unwrap();
    let group = EventLoopGroup::builder().threads(1).build().unwrap();
    let build = |protocols: &[&str]| {
        let roots = TlsRoots::from_pem(made.cert.pem().as_bytes()).unwrap();
        let tls = TlsClient::builder(roots).alpn(protocols.iter().copied()).build().unwrap();
        HttpAgent::builder(ClientBootstrap::new(&group)).tls(tls).build()
    };
    let Err(Error::Setting(refused)) = build(&["http/1.1", "h2"]) else { panic!("it was accepted") };
    assert_eq!((refused.setting(), refused.value()), ("alpn", "h2"));
    for accepted in [&["http/1.1"][..], &[]] {
        build(accepted).unwrap();
    }
}
