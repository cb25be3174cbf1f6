//! Failures, cancellation and shutdown.

use super::support::{Answer, ManualBody, ServiceFn, Site, full, later, ok};
use crate::{
    bootstrap::ServerBootstrap,
    event_loop::ShutdownOptions,
    group::EventLoopGroup,
    http::HttpServer,
    testing::{
        EmbeddedChannel,
        wait::{PATIENCE, wait_until},
    },
    tower::{request_body::RequestBody, routed::Routed, tower_server::TowerServer},
};
use bytes::Bytes;
use http_body_util::Full;
use http_types::{Request, Response};
use std::{
    io::{Read, Write},
    net::TcpStream,
    sync::{
        Arc, Mutex,
        atomic::{AtomicBool, Ordering::SeqCst},
        mpsc,
    },
    time::Duration,
};

const GET: &str = "GET / HTTP/1.1\r\nHost: x\r\n\r\n";

/// Notes that it was dropped.
struct Dropped(Arc<AtomicBool>);

impl Drop for Dropped {
    fn drop(&mut self) {
        self.0.store(true, SeqCst);
    }
}

fn is_500_and_close(answer: &str) -> bool {
    answer.starts_with("HTTP/1.1 500 ") && answer.contains("Connection: close\r\n")
}

#[test]
fn an_error_of_the_service_is_answered_with_500() {
    let mut site = Site::new(async |_: Request<RequestBody>| -> Answer<Full<Bytes>> { Err("no".into()) });
    let answer = site.ask(GET);
    assert!(is_500_and_close(&answer), "{answer}");
    assert!(site.channel.is_closed());
}

#[test]
fn a_panic_on_the_loop_or_the_executor_is_answered_with_500() {
    for polls_on_loop in [true, false] {
        let service = ServiceFn(async |request: Request<RequestBody>| -> Answer<Full<Bytes>> {
            panic!("on purpose: {}", request.uri())
        });
        let mut site = Site::of(TowerServer::new(service).polls_on_loop(polls_on_loop));
        site.send(GET);
        site.run();
        let answer = site.sent();
        assert!(is_500_and_close(&answer), "{answer}");
        assert!(site.channel.is_closed());
    }
}

#[test]
fn a_panic_of_a_later_poll_is_answered_with_500() {
    let (completer, completion) = later::<()>();
    let completion = Arc::new(Mutex::new(Some(completion)));
    let mut site = Site::new(move |_: Request<RequestBody>| {
        let completion = completion.lock().unwrap().take().expect("one call");
        async move {
            completion.await?;
            if true {
                panic!("on purpose");
            }
            ok(full(""))
        }
    });
    assert_eq!(site.ask(GET), "");
    completer.complete(Ok(()));
    site.run();
    assert!(is_500_and_close(&site.sent()));
}

#[test]
fn a_body_that_fails_cuts_the_response() {
    for begins_with in ["", "one"] {
        let (body, frames) = ManualBody::new();
        let body = Arc::new(Mutex::new(Some(body)));
        let mut site = Site::new(move |_: Request<RequestBody>| {
            let body = body.lock().unwrap().take().expect("one call");
            async { ok(body) }
        });
        if begins_with.is_empty() {
            frames.fail();
            assert!(is_500_and_close(&site.ask(GET)), "nothing was sent before");
        } else {
            frames.push(begins_with);
            assert!(site.ask(GET).ends_with("3\r\none\r\n"));
            frames.fail();
            site.run();
            assert_eq!(site.sent(), "", "neither an end nor another head");
        }
        assert!(site.channel.is_closed());
    }
}

#[test]
fn a_body_must_have_its_length() {
    for (length, text) in [(5, "1234"), (3, "1234"), (4, "")] {
        let (body, frames) = ManualBody::new();
        frames.set_length(length);
        if !text.is_empty() {
            frames.push(text);
        }
        frames.end();
        let body = Arc::new(Mutex::new(Some(body)));
        let mut site = Site::new(move |_: Request<RequestBody>| {
            let body = body.lock().unwrap().take().expect("one call");
            async { ok(body) }
        });
        let answer = site.ask(GET);
        let is_cut = answer == format!("HTTP/1.1 200 OK\r\nContent-Length: {length}\r\n\r\n{text}");
        assert!(is_cut || is_500_and_close(&answer), "{length}: {answer}");
        assert!(site.channel.is_closed());
    }
}

#[test]
fn a_service_cannot_take_the_connection_over() {
    let mut site = Site::new(async |_: Request<RequestBody>| {
        Ok(Response::builder().status(101).header("upgrade", "x").body(full(""))?)
    });
    let upgrade = "GET / HTTP/1.1\r\nHost: x\r\nConnection: upgrade\r\nUpgrade: x\r\n\r\n";
    assert!(is_500_and_close(&site.ask(upgrade)));
    let mut site = Site::new(async |_: Request<RequestBody>| ok(full("")));
    assert!(is_500_and_close(&site.ask("CONNECT a:1 HTTP/1.1\r\nHost: a:1\r\n\r\n")));
}

#[test]
fn an_upgrade_is_an_ordinary_request_of_the_service() {
    let mut site = Site::new(async |request: Request<RequestBody>| {
        Ok(Response::builder().status(426).body(full(request.headers()["upgrade"].as_bytes().to_vec()))?)
    });
    let upgrade = "GET / HTTP/1.1\r\nHost: x\r\nConnection: upgrade\r\nUpgrade: websocket\r\n\r\n";
    for _ in 0..2 {
        assert!(site.ask(upgrade).ends_with("\r\n\r\nwebsocket"));
    }
}

/// A site whose service waits forever, and whether its future was dropped.
fn waiting(polls_on_loop: bool) -> (Site, Arc<AtomicBool>) {
    let dropped = Arc::<AtomicBool>::default();
    let noted = dropped.clone();
    let service = ServiceFn(move |_: Request<RequestBody>| {
        let guard = Dropped(noted.clone());
        async move {
            std::future::pending::<()>().await;
            drop(guard);
            ok(full(""))
        }
    });
    (Site::of(TowerServer::new(service).polls_on_loop(polls_on_loop)), dropped)
}

#[test]
fn the_future_is_dropped_when_the_client_goes_away() {
    for polls_on_loop in [true, false] {
        let (mut site, dropped) = waiting(polls_on_loop);
        site.send(GET);
        site.run();
        assert!(!dropped.load(SeqCst));
        site.channel.end_inbound();
        site.run();
        assert!(dropped.load(SeqCst) && site.channel.is_closed());
        assert_eq!(site.executor.tasks(), 0);
    }
}

#[test]
fn the_future_is_dropped_when_the_channel_closes() {
    let (mut site, dropped) = waiting(true);
    site.send(GET);
    site.run();
    site.channel.channel().close_now();
    site.run();
    assert!(dropped.load(SeqCst) && site.channel.is_closed());
}

#[test]
fn a_body_that_waits_for_the_channel_is_dropped_with_it() {
    let (body, frames) = ManualBody::new();
    let body = Arc::new(Mutex::new(Some(body)));
    let mut site = Site::new(move |_: Request<RequestBody>| {
        let body = body.lock().unwrap().take().expect("one call");
        async { ok(body) }
    });
    for _ in 0..64 {
        frames.push(vec![b'a'; 16 * 1024]);
    }
    site.channel.set_outbound_room(Some(0));
    site.send(GET);
    site.run();
    assert!(!frames.is_dropped());
    site.channel.channel().close_now();
    site.run();
    assert!(frames.is_dropped());
}

#[test]
fn an_executor_that_drops_the_future_fails_the_request() {
    let (mut site, dropped) = waiting(true);
    site.send(GET);
    site.run();
    site.executor.drop_tasks();
    assert!(dropped.load(SeqCst));
    site.run();
    assert!(is_500_and_close(&site.sent()));
}

#[test]
fn a_group_without_an_executor_answers_500() {
    let server = TowerServer::new(ServiceFn(async |_: Request<RequestBody>| ok(full(""))));
    let mut channel = EmbeddedChannel::new(HttpServer::new().pipeline().handler(server.handler()));
    channel.write_inbound(GET.as_bytes()).unwrap();
    assert!(is_500_and_close(&String::from_utf8_lossy(&channel.read_outbound())));
}

/// A route that answers later answers during a shutdown too.
#[test]
fn a_shutdown_waits_for_the_answer_of_a_route() {
    let group = EventLoopGroup::builder().threads(1).build().unwrap();
    let server = TowerServer::new(ServiceFn(async |_: Request<RequestBody>| ok(full(""))));
    let (asked, requests) = mpsc::channel();
    let server = server.route(move |ctx, _| {
        asked.send(ctx.channel()).unwrap();
        Ok(Routed::Answered)
    });
    let http = HttpServer::new();
    let server = ServerBootstrap::new(&group)
        .pipeline(move |_peer| http.pipeline().handler(server.handler()))
        .bind("127.0.0.1:0")
        .unwrap();
    let [mut idle, mut client] = [(); 2].map(|()| {
        let client = TcpStream::connect(server.local_address().to_string()).unwrap();
        client.set_read_timeout(Some(PATIENCE)).unwrap();
        client
    });
    client.write_all(GET.as_bytes()).unwrap();
    let channel = requests.recv_timeout(PATIENCE).unwrap();
    wait_until("both are connected", || group.metrics()[0].channels == 2);
    let ended = group.shutdown(ShutdownOptions::new().quiet_period(Duration::ZERO).timeout(PATIENCE));
    assert_eq!(idle.read(&mut [0]).unwrap(), 0, "an idle connection is closed");
    channel.write(crate::http::Response::ok("later").into()).unwrap();
    let mut answer = String::new();
    client.read_to_string(&mut answer).unwrap();
    assert!(answer.ends_with("later"), "{answer:?}");
    wait_until("the loop ends without force", || ended.is_done());
}
