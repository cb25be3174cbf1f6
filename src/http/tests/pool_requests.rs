//! Requests through a pool: retries, time limits, streamed responses.

use super::pool::{Answer, Site, get, ok, refusing_address};
use crate::{
    bootstrap::{Backoff, ClientBootstrap},
    error::Error,
    event_loop::ShutdownOptions,
    group::EventLoopGroup,
    http::{NotSent, Request, StatusCode, client::HttpClient},
    testing::wait::{PATIENCE, wait_until},
};
use std::{
    sync::{Mutex, mpsc},
    time::{Duration, Instant},
};

fn briefly() -> Backoff {
    Backoff::new().initial(Duration::from_millis(1)).max_delay(Duration::from_millis(2))
}

/// A server whose first connections end without a response.
fn failing(connections: usize) -> Site {
    Site::new(
        move |connection, _, target| {
            if connection < connections { Answer::Close } else { Answer::Bytes(ok(target)) }
        },
    )
}

#[test]
fn an_idempotent_request_is_retried_when_its_connection_ends() {
    for method in ["GET", "HEAD", "PUT", "DELETE", "OPTIONS"] {
        let site = failing(2);
        let (_group, pool) = site.pool(1);
        let request = pool.request(Request::new(method, "/x")).retries(2).backoff(briefly());
        assert_eq!(get(request.send()).unwrap().head.status(), StatusCode::OK, "{method}");
        assert_eq!(site.connections(), 3);
    }
}

#[test]
fn no_more_attempts_are_made_than_asked_for() {
    let site = failing(usize::MAX);
    let (_group, pool) = site.pool(1);
    let error = get(pool.request(Request::get("/")).retries(2).backoff(briefly()).send()).unwrap_err();
    assert!(matches!(error, Error::Closed | Error::Io { .. }), "{error:?}");
    assert_eq!(site.connections(), 3);
}

/// RFC 9110, section 9.2.2: the server may have processed it.
#[test]
fn a_request_that_is_not_idempotent_is_not_sent_twice() {
    for method in ["POST", "PATCH", "LOCK"] {
        let site = failing(1);
        let (_group, pool) = site.pool(1);
        let request = pool.request(Request::new(method, "/").body("x")).retries(2).backoff(briefly());
        let error = get(request.send()).unwrap_err();
        assert!(NotSent::of(&error).is_none(), "{error:?}");
        assert_eq!(site.connections(), 1, "{method}");
    }
    let site = failing(1);
    let (_group, pool) = site.pool(1);
    let request = Request::post("/", "x").header("Idempotency-Key", "17");
    let request = pool.request(request).retries(2).backoff(briefly()).idempotent(true);
    assert_eq!(get(request.send()).unwrap().body, "/");
    assert_eq!(site.connections(), 2);
}

#[test]
fn a_request_that_was_never_sent_is_retried_whatever_its_method() {
    let group = EventLoopGroup::builder().threads(1).build().unwrap();
    let address = refusing_address();
    let http = HttpClient::new().host("h");
    let pool =
        ClientBootstrap::new(&group).pipeline(move |_| http.calls(1024)).pool().build(address).unwrap();
    let waits = Backoff::new().initial(Duration::from_millis(40)).jitter(false);
    let begun = Instant::now();
    let error = get(pool.request(Request::post("/", "x")).retries(1).backoff(waits).send()).unwrap_err();
    assert!(begun.elapsed() >= Duration::from_millis(40), "it was retried");
    let cause = NotSent::of(&error).expect("it was not sent").cause();
    assert_eq!(cause.io_kind(), Some(std::io::ErrorKind::ConnectionRefused));
}

/// The timer that limits an attempt ends with it, so it cannot end a later one.
#[test]
fn failed_attempts_leave_no_timers() {
    let group = EventLoopGroup::builder().threads(1).build().unwrap();
    let http = HttpClient::new().host("h");
    let pool = ClientBootstrap::new(&group)
        .pipeline(move |_| http.calls(1024))
        .pool()
        .build(refusing_address())
        .unwrap();
    let request = pool.request(Request::get("/")).retries(5).attempt_timeout(PATIENCE).backoff(briefly());
    get(request.send()).unwrap_err();
    wait_until("no timer is left", || group.metrics().iter().all(|of_loop| of_loop.timers_pending == 0));
}

#[test]
fn a_request_to_a_pool_that_closes_is_not_retried() {
    let site = Site::new(|_, _, _| Answer::Silence);
    let (_group, pool) = site.pool(1);
    let _hanging = pool.request(Request::get("/")).send();
    let hour = Duration::from_secs(3600);
    let waits = Backoff::new().initial(hour).max_delay(hour).jitter(false);
    let request = pool.request(Request::get("/")).timeout(10 * hour).retries(3).backoff(waits);
    let waiting = request.send();
    wait_until("it waits", || pool.waiters() == 1);
    pool.close();
    let error = get(waiting).unwrap_err();
    assert!(matches!(NotSent::of(&error).expect("it was not sent").cause(), Error::Closed), "{error:?}");
}

#[test]
fn the_time_limit_is_for_all_attempts_together() {
    let site = Site::new(|_, _, _| Answer::Silence);
    let (_group, pool) = site.pool(1);
    let limit = Duration::from_millis(500);
    let begun = Instant::now();
    let request = pool.request(Request::get("/")).timeout(limit).attempt_timeout(limit / 100);
    let error = get(request.retries(100).backoff(briefly()).send()).unwrap_err();
    assert!(matches!(error, Error::TimedOut { .. }), "{error:?}");
    assert!(begun.elapsed() >= limit / 2);
    wait_until("a second attempt has arrived", || site.connections() > 1);
}

#[test]
fn an_attempt_that_hangs_leaves_time_for_a_retry() {
    let site = Site::new(
        |connection, _, target| {
            if connection == 0 { Answer::Silence } else { Answer::Bytes(ok(target)) }
        },
    );
    let (_group, pool) = site.pool(1);
    let request = pool.request(Request::get("/x")).attempt_timeout(Duration::from_millis(50));
    // On a busy machine further attempts are too slow.
    assert_eq!(get(request.retries(100).backoff(briefly()).send()).unwrap().body, "/x");
}

#[test]
fn a_status_can_count_as_a_failure_of_the_attempt() {
    let busy = "HTTP/1.1 503 Busy\r\nContent-Length: 4\r\n\r\nbusy";
    let site = |busy_requests: usize| {
        Site::new(move |_, request, target| {
            Answer::Bytes(if request < busy_requests { busy.into() } else { ok(target) })
        })
    };
    let unavailable = StatusCode::SERVICE_UNAVAILABLE;
    let (_group, pool) = site(2).pool(1);
    let request = pool.request(Request::get("/x")).retries(2).retry_status(unavailable).backoff(briefly());
    assert_eq!(get(request.send()).unwrap().body, "/x");
    // The last response is the result, as is any without this setting, or of a POST.
    let (_group, pool) = site(9).pool(1);
    let request = pool.request(Request::get("/x")).retries(2).retry_status(unavailable).backoff(briefly());
    assert_eq!(get(request.send()).unwrap().body, "busy");
    assert_eq!(get(pool.request(Request::get("/x")).retries(9).send()).unwrap().body, "busy");
    let post = pool.request(Request::post("/x", "")).retries(9).retry_status(unavailable);
    assert_eq!(get(post.send()).unwrap().body, "busy");
    // A response that is streamed is dropped for the retry, and its connection with it.
    let (_group, pool) = site(1).pool(1);
    let request = pool.request(Request::get("/x")).retries(1).retry_status(unavailable).backoff(briefly());
    let mut response = get(request.stream()).unwrap();
    assert!(get(response.body.next()).unwrap().is_some());
}

#[test]
fn a_streamed_response_keeps_its_connection_until_its_end() {
    let site = Site::new(|_, _, target| Answer::Bytes(ok(target)));
    let (_group, pool) = site.pool(1);
    for round in 0..20 {
        let target = format!("/{round}");
        let mut response = get(pool.request(Request::get(&target)).stream()).unwrap();
        let mut body = Vec::new();
        while let Some(bytes) = get(response.body.next()).unwrap() {
            body.extend_from_slice(&bytes);
        }
        assert_eq!(body, target.as_bytes());
    }
    assert_eq!(site.connections(), 1);
    drop(get(pool.request(Request::get("/long")).stream()));
    assert_eq!(get(pool.request(Request::get("/next")).send()).unwrap().body, "/next");
}

#[test]
fn a_streamed_response_that_begins_after_the_close_of_its_pool_is_complete() {
    let ((arrived, arrivals), (allow, allowed)) = (mpsc::channel(), mpsc::channel::<()>());
    let (allowed, length) = (Mutex::new(allowed), 4 << 20);
    let site = Site::new(move |_, _, _| {
        arrived.send(()).unwrap();
        allowed.lock().unwrap().recv().unwrap();
        Answer::Bytes(ok(&"x".repeat(length)))
    });
    let (_group, pool) = site.pool(1);
    let response = pool.request(Request::get("/")).stream();
    arrivals.recv_timeout(PATIENCE).unwrap();
    pool.close();
    allow.send(()).unwrap();
    let mut response = get(response).unwrap();
    let mut received = 0;
    while let Some(bytes) = get(response.body.next()).unwrap() {
        received += bytes.len();
    }
    assert_eq!(received, length);
    wait_until("the channel has left the pool", || pool.acquired() == 0);
}

#[test]
fn calls_in_flight_fail_with_shut_down_and_are_not_repeated() {
    let (arrived, arrivals) = mpsc::channel();
    let site = Site::new(move |_, _, target| match target {
        "/first" => Answer::Bytes(ok(target)),
        _ => {
            arrived.send(()).unwrap();
            Answer::Silence
        }
    });
    let (group, pool) = site.pool(2);
    // A channel is used again, so its end would be a reason to repeat the request.
    let calls = [Request::get("/first"), Request::get("/first")].map(|first| pool.request(first).send());
    for call in calls {
        get(call).unwrap();
    }
    let calls = [Request::get("/"), Request::post("/", "x")].map(|request| pool.request(request).send());
    for _ in &calls {
        arrivals.recv_timeout(PATIENCE).unwrap();
    }
    let connections = site.connections();
    group.shutdown(ShutdownOptions::new().quiet_period(Duration::ZERO)).wait().unwrap();
    for call in calls {
        let error = get(call).unwrap_err();
        assert!(matches!(error, Error::ShutDown), "{error:?}");
    }
    assert_eq!(site.connections(), connections);
}

#[test]
fn a_request_that_waits_for_its_retry_ends_with_its_loops_or_its_completion() {
    let site = failing(usize::MAX);
    let (group, pool) = site.pool(1);
    let waits = Backoff::new().initial(Duration::from_secs(50)).jitter(false);
    let start = || pool.request(Request::get("/")).retries(1).backoff(waits.clone()).send();
    let (given_up, waiting) = (start(), start());
    crate::testing::wait::wait_until("both attempts have failed", || {
        site.connections() == 2 && pool.acquired() == 0
    });
    drop(given_up);
    group.shutdown(ShutdownOptions::new().quiet_period(Duration::ZERO)).wait().unwrap();
    let error = get(waiting).unwrap_err();
    assert!(matches!(error, Error::ShutDown | Error::Closed), "{error:?}");
}

#[test]
fn a_body_in_parts_and_an_invalid_backoff_are_refused() {
    let site = failing(0);
    let (_group, pool) = site.pool(1);
    let streamed = Request::post("/", crate::http::Body::Streamed);
    assert!(matches!(get(pool.request(streamed).send()), Err(Error::Encode(_))));
    let never = Backoff::new().initial(Duration::ZERO);
    assert!(matches!(get(pool.request(Request::get("/")).backoff(never).send()), Err(Error::Setting(_))));
}
