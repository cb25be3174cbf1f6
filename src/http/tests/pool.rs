//! Calls through a pool: no connection is used by two calls at once, or after its end.

use crate::{
    bootstrap::{ChannelPool, ClientBootstrap},
    channel::{
        Channel,
        filter::{Filter, FilterContext, FilterState},
    },
    error::{Error, PeerError},
    group::EventLoopGroup,
    http::{Call, FullMessage, NotSent, Request, Response, client::HttpClient, settings::HttpSettings},
    sync::Completion,
    testing::wait::PATIENCE,
};
use std::{
    io::{BufRead, BufReader, Write},
    net::{SocketAddr, TcpListener, TcpStream},
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
        mpsc,
    },
    thread,
    time::{Duration, Instant},
};

/// What the server does with a request.
pub(super) enum Answer {
    Bytes(String),
    /// Answers, and closes without an announcement.
    BytesAndClose(String),
    Silence,
    Close,
}

pub(super) struct Site {
    address: SocketAddr,
    connections: Arc<AtomicUsize>,
}

pub(super) fn ok(text: &str) -> String {
    format!("HTTP/1.1 200 OK\r\nContent-Length: {}\r\n\r\n{text}", text.len())
}

impl Site {
    /// Serves each connection on a thread. `answer` gets the numbers of the connection and of the
    /// request on it, both counted from 0, and the target.
    pub(super) fn new(answer: impl Fn(usize, usize, &str) -> Answer + Send + Sync + 'static) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let connections = Arc::new(AtomicUsize::new(0));
        let (count, answer) = (connections.clone(), Arc::new(answer));
        thread::spawn(move || {
            for stream in listener.incoming() {
                let (number, answer) = (count.fetch_add(1, Ordering::SeqCst), answer.clone());
                thread::spawn(move || serve(stream.unwrap(), number, &*answer));
            }
        });
        Site { address, connections }
    }

    pub(super) fn port(&self) -> u16 {
        self.address.port()
    }

    pub(super) fn connections(&self) -> usize {
        self.connections.load(Ordering::SeqCst)
    }

    pub(super) fn pool(&self, size: usize) -> (EventLoopGroup, ChannelPool<Call>) {
        self.pool_with(size, |bootstrap| bootstrap)
    }

    /// Like [`Site::pool`], with another bootstrap.
    fn pool_with(
        &self,
        size: usize,
        change: impl FnOnce(ClientBootstrap) -> ClientBootstrap,
    ) -> (EventLoopGroup, ChannelPool<Call>) {
        let group = EventLoopGroup::builder().threads(1).build().unwrap();
        let http = HttpClient::with(HttpSettings::new().reuse_timeout(PATIENCE)).unwrap().host("h");
        let bootstrap = change(ClientBootstrap::new(&group)).pipeline(move |_| http.calls(1024));
        let pool = bootstrap.pool().size(size).build(self.address).unwrap();
        (group, pool)
    }
}

fn serve(stream: TcpStream, number: usize, answer: &dyn Fn(usize, usize, &str) -> Answer) {
    let mut lines = BufReader::new(stream.try_clone().unwrap()).lines();
    let mut stream = stream;
    for request in 0.. {
        let Some(Ok(line)) = lines.next() else { return };
        while lines.next().is_some_and(|line| line.is_ok_and(|line| !line.is_empty())) {}
        let target = line.split(' ').nth(1).unwrap_or_default().to_owned();
        match answer(number, request, &target) {
            Answer::Bytes(text) if stream.write_all(text.as_bytes()).is_ok() => {}
            // The client has gone.
            Answer::Bytes(_) => return,
            Answer::BytesAndClose(text) => {
                let _ = stream.write_all(text.as_bytes());
                return;
            }
            Answer::Silence => {}
            Answer::Close => return,
        }
    }
}

/// Returns an address at which nobody listens. Linux has a whole network of loopback addresses, and
/// other tests use other ones.
pub(super) fn refusing_address() -> SocketAddr {
    let address = if cfg!(target_os = "linux") { "127.0.36.1:0" } else { "127.0.0.1:0" };
    TcpListener::bind(address).unwrap().local_addr().unwrap()
}

#[track_caller]
pub(super) fn get<T>(completion: Completion<T>) -> crate::error::Result<T> {
    completion.wait_timeout(PATIENCE).unwrap_or_else(|_| panic!("no result in time"))
}

#[track_caller]
fn text(response: Completion<FullMessage<Response>>) -> String {
    String::from_utf8(get(response).unwrap().body.to_vec()).unwrap()
}

/// Answers all targets but `/hang`.
fn echo_but_hang(_: usize, _: usize, target: &str) -> Answer {
    if target == "/hang" { Answer::Silence } else { Answer::Bytes(ok(target)) }
}

#[test]
fn a_call_that_was_given_up_does_not_return_its_connection_to_the_pool() {
    let site = Site::new(echo_but_hang);
    let (_group, pool) = site.pool(1);
    for round in 0..20 {
        let channel = get(pool.acquire()).unwrap();
        let (call, response) = Call::new(Request::get("/hang"));
        channel.write(call).map_err(Error::from).unwrap();
        drop(response);
        drop(channel);
        let channel = get(pool.acquire()).unwrap();
        let target = format!("/{round}");
        let (call, response) = Call::new(Request::get(&target));
        channel.write(call).map_err(Error::from).unwrap();
        assert_eq!(text(response), target);
    }
}

/// A call that is given up ends the use of its connection, but not the other calls on it.
#[test]
fn a_channel_that_is_returned_after_a_call_was_given_up_serves_the_calls_that_wait() {
    let (allow, allowed) = std::sync::mpsc::channel();
    let allowed = std::sync::Mutex::new(allowed);
    let site = Site::new(move |_, _, target| {
        if target == "/slow" {
            allowed.lock().unwrap().recv().unwrap();
        }
        Answer::Bytes(ok(target))
    });
    let (group, pool) = site.pool(1);
    let channel = get(pool.acquire()).unwrap();
    let [(slow, dropped), (second, waits)] =
        ["/slow", "/second"].map(|target| Call::new(Request::get(target)));
    channel.write(slow).map_err(Error::from).unwrap();
    get(channel.write_tracked(second).map_err(Error::from).unwrap()).unwrap();
    drop(dropped);
    // The loop takes its mail in order, so it has given the call up in the turn before the last.
    (0..2).for_each(|_| get(group.next().call(|| ())).unwrap());
    drop(channel);
    assert_eq!((pool.acquired(), pool.free()), (1, 0), "the second call waits");
    let next = pool.request(Request::get("/next")).send();
    assert!(!waits.is_done() && !next.is_done());
    allow.send(()).unwrap();
    assert_eq!((text(waits), text(next)), ("/second".into(), "/next".into()));
    assert_eq!(site.connections(), 2, "the first connection takes no further call");
}

#[test]
fn a_channel_that_is_returned_during_its_exchange_is_free_after_the_response() {
    is_free_after_the_response(|bootstrap| bootstrap);
}

/// With filters, such as TLS, the pipeline is made when they are established.
#[test]
fn a_channel_with_filters_that_is_returned_during_its_exchange_is_free_after_the_response() {
    is_free_after_the_response(|bootstrap| bootstrap.filter(|_| Unchanged));
}

/// A filter that changes no byte.
struct Unchanged;

impl Filter for Unchanged {
    fn read(&mut self, ctx: &mut FilterContext<'_>, input: &mut [u8]) -> Result<usize, Error> {
        ctx.deliver(input);
        Ok(input.len())
    }

    fn state(&self) -> FilterState {
        FilterState::Established
    }
}

fn is_free_after_the_response(change: impl FnOnce(ClientBootstrap) -> ClientBootstrap) {
    let (allow, allowed) = std::sync::mpsc::channel();
    let allowed = std::sync::Mutex::new(allowed);
    let site = Site::new(move |_, _, target| {
        if target == "/slow" {
            allowed.lock().unwrap().recv().unwrap();
        }
        Answer::Bytes(ok(target))
    });
    let (_group, pool) = site.pool_with(1, change);
    let channel = get(pool.acquire()).unwrap();
    let (call, slow) = Call::new(Request::get("/slow"));
    channel.write(call).map_err(Error::from).unwrap();
    drop(channel);
    assert_eq!((pool.acquired(), pool.free()), (1, 0), "the exchange is in progress");
    let next = pool.request(Request::get("/next")).send();
    assert!(!slow.is_done() && !next.is_done());
    allow.send(()).unwrap();
    assert_eq!((text(slow), text(next)), ("/slow".into(), "/next".into()));
    assert_eq!(site.connections(), 1);
}

#[test]
fn consecutive_calls_use_one_connection() {
    let site = Site::new(echo_but_hang);
    let (_group, pool) = site.pool(8);
    for round in 0..50 {
        let target = format!("/{round}");
        assert_eq!(text(pool.request(Request::get(&target)).send()), target);
    }
    assert_eq!(site.connections(), 1);
}

#[test]
fn a_call_whose_time_is_over_when_it_has_a_connection_names_its_own_limit() {
    let site = Site::new(echo_but_hang);
    let group = EventLoopGroup::builder().threads(1).build().unwrap();
    let http = HttpClient::new().host("h");
    let limit = Duration::from_millis(50);
    // The hook runs on the loop, so the timer of the call cannot fire before the call is sent.
    let slow = move |_: &Channel<Call>| {
        let start = Instant::now();
        while start.elapsed() <= limit {
            thread::yield_now();
        }
        Ok(())
    };
    let bootstrap = ClientBootstrap::new(&group).pipeline(move |_| http.calls(1024));
    let pool = bootstrap.pool().on_acquire(slow).build(site.address).unwrap();
    let error = get(pool.request(Request::get("/a")).timeout(limit).send()).unwrap_err();
    let cause = NotSent::of(&error).expect("it was not sent").cause();
    assert!(matches!(cause, Error::TimedOut { operation: "a call", after } if *after == limit), "{error:#}");
}

#[test]
fn a_call_through_a_pool_has_a_time_limit_for_everything() {
    let site = Site::new(echo_but_hang);
    let (_group, pool) = site.pool(1);
    let hanging = pool.request(Request::get("/hang")).send();
    // Waits for the only connection.
    let limit = Duration::from_millis(200);
    let error = get(pool.request(Request::get("/a")).timeout(limit).send()).unwrap_err();
    let cause = NotSent::of(&error).expect("it was not sent").cause();
    assert!(matches!(cause, Error::TimedOut { operation: "a call", after } if *after == limit), "{error:#}");
    drop(hanging);
    // Waits for the response, on a connection that is open.
    assert_eq!(text(pool.request(Request::get("/b")).send()), "/b");
    let error = get(pool.request(Request::get("/hang")).timeout(limit).send()).unwrap_err();
    assert!(matches!(error, Error::TimedOut { operation: "a call", after } if after == limit), "{error:#}");
    assert_eq!(text(pool.request(Request::get("/b")).send()), "/b");
    assert_eq!((pool.acquired(), pool.waiters()), (0, 0));
}

#[test]
fn a_connection_that_the_server_will_close_is_not_handed_out() {
    for head in ["1.1 200 OK\r\nConnection: close", "1.0 200 OK", "1.1 200 OK\r\nKeep-Alive: timeout=0"] {
        let response = format!("HTTP/{head}\r\nContent-Length: 0\r\n\r\n");
        let site = Site::new(move |_, _, _| Answer::Bytes(response.clone()));
        let (_group, pool) = site.pool(2);
        for _ in 0..10 {
            // With POST, so that the call is not repeated.
            get(pool.request(Request::post("/", "x")).send()).unwrap();
        }
        assert_eq!(site.connections(), 10, "{head}");
    }
}

#[test]
fn a_safe_request_is_repeated_if_its_connection_had_ended() {
    is_repeated_if_its_connection_had_ended(|bootstrap| bootstrap);
}

/// Many servers end the TCP connection only, also with TLS.
#[test]
fn a_safe_request_is_repeated_if_its_connection_had_ended_without_the_mark_of_its_filter() {
    is_repeated_if_its_connection_had_ended(|bootstrap| bootstrap.filter(|_| Unmarked));
}

/// A filter that changes no byte, and finds each stream truncated.
struct Unmarked;

impl Filter for Unmarked {
    fn read(&mut self, ctx: &mut FilterContext<'_>, input: &mut [u8]) -> Result<usize, Error> {
        Unchanged.read(ctx, input)
    }

    fn end_of_input(&mut self, _: &mut FilterContext<'_>, _: usize) -> Result<(), Error> {
        Err(PeerError::Truncated.into())
    }

    fn state(&self) -> FilterState {
        FilterState::Established
    }
}

fn is_repeated_if_its_connection_had_ended(change: impl FnOnce(ClientBootstrap) -> ClientBootstrap) {
    let site = Site::new(|_, request, target| match request {
        0 => Answer::Bytes(ok(target)),
        _ => Answer::Close,
    });
    let (_group, pool) = site.pool_with(1, change);
    assert_eq!(text(pool.request(Request::get("/1")).send()), "/1");
    assert_eq!(text(pool.request(Request::get("/2")).send()), "/2");
    let error = get(pool.request(Request::post("/3", "")).send()).unwrap_err();
    let is_end = matches!(error, Error::Closed | Error::Peer(PeerError::Truncated));
    assert!(is_end, "it may have been processed: {error:#}");
    assert_eq!(text(pool.request(Request::post("/4", "")).send()), "/4");
}

#[test]
fn a_repeated_call_that_cannot_be_sent_again_is_not_reported_as_not_sent() {
    let (arrive, arrived) = std::sync::mpsc::channel();
    let (allow, allowed) = std::sync::mpsc::channel::<()>();
    let allowed = std::sync::Mutex::new(allowed);
    let site = Site::new(move |_, request, target| match request {
        0 => Answer::Bytes(ok(target)),
        _ => {
            arrive.send(()).unwrap();
            allowed.lock().unwrap().recv().unwrap();
            Answer::Close
        }
    });
    let (_group, pool) = site.pool(1);
    assert_eq!(text(pool.request(Request::get("/first")).send()), "/first");
    let second = pool.request(Request::get("/second")).send();
    arrived.recv_timeout(PATIENCE).unwrap();
    // The repetition finds a closed pool.
    pool.close();
    allow.send(()).unwrap();
    let error = get(second).unwrap_err();
    assert!(matches!(error, Error::Closed), "{error:?}");
}

#[test]
fn a_request_is_not_repeated_on_new_connections() {
    let site = Site::new(|_, _, _| Answer::Close);
    let (_group, pool) = site.pool(1);
    assert!(matches!(get(pool.request(Request::get("/")).send()), Err(Error::Closed)));
    assert_eq!(site.connections(), 1);
}

/// While `send` begins a call, the loop may end its first attempt and begin the next one.
#[test]
fn connections_that_end_without_an_announcement_lose_no_safe_request_and_block_no_thread() {
    let site = Site::new(|_, _, target| Answer::BytesAndClose(ok(target)));
    let (done, ended) = mpsc::channel();
    let (_group, pool) = site.pool(2);
    thread::spawn(move || {
        for round in 0..500 {
            let target = format!("/{round}");
            assert_eq!(text(pool.request(Request::get(&target)).send()), target);
        }
        done.send(()).unwrap();
    });
    ended.recv_timeout(PATIENCE).expect("a call whose beginning ends");
}

#[test]
fn a_call_fails_as_not_sent_if_nobody_listens_or_the_pool_is_closed() {
    let site = Site { address: refusing_address(), connections: Arc::default() };
    let (_group, pool) = site.pool(1);
    let error = get(pool.request(Request::get("/")).send()).unwrap_err();
    let cause = NotSent::of(&error).expect("it was not sent").cause();
    assert_eq!(cause.io_kind(), Some(std::io::ErrorKind::ConnectionRefused), "{error:#}");
    pool.close();
    let error = get(pool.request(Request::get("/")).send()).unwrap_err();
    assert!(matches!(NotSent::of(&error).expect("it was not sent").cause(), Error::Closed));
    assert_eq!(pool.acquired(), 0);
}
