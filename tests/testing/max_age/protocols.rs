//! The last words of each protocol at the age of a connection, also through TLS.

use super::{SECOND, SLACK, Seen, age, connect, end_of, now, serve, text};
use netwheel::{
    http::{Body, Call, HttpClient, HttpServer, Part, Request, Response},
    prelude::*,
    testing::simulation::{Journal, Simulation, sleep},
    websocket::{Message, WebSocketClient, WebSocketServer},
};
use std::time::Duration;

/// Answers `/slow` after 20 s, ends the response to `/stream` after 20 s, and answers everything
/// else at once. Has the default `shutdown`.
struct Site;

impl Handler for Site {
    type Read = Part<Request>;
    type Write = Part<Response>;

    fn read(&mut self, ctx: &mut Context<'_, Self>, part: Part<Request>) -> Result {
        let Part::Head(request) = part else { return Ok(()) };
        match request.path() {
            "/slow" => {
                ctx.schedule(20 * SECOND, |_, ctx| ctx.write(Response::ok("slow").into()));
                Ok(())
            }
            "/stream" => {
                ctx.schedule(20 * SECOND, |_, ctx| {
                    ctx.write(Part::Body("streamed".into()))?;
                    ctx.write(Part::end())
                });
                ctx.write(Response::ok(Body::Streamed).into())
            }
            _ => ctx.write(Response::ok("fast").into()),
        }
    }
}

fn http_server(group: &EventLoopGroup) -> Result<Server> {
    let http = HttpServer::with(netwheel::http::HttpSettings::new().keep_alive_timeout(600 * SECOND))?;
    ServerBootstrap::new(group)
        .max_connection_age(age(60).grace_timeout(30 * SECOND))
        .pipeline(move |_peer| http.pipeline().handler(Site))
        .bind("10.0.0.1:7000")
}

/// Sends requests at these times, and returns the bytes that the client has read.
fn requests(requests: &[(u64, &str)]) -> String {
    let get = |path: &str| format!("GET {path} HTTP/1.1\r\nHost: server\r\n\r\n");
    conversation(requests.iter().map(|(at, path)| (*at, get(path))).collect())
}

/// Sends bytes at these times, and returns the bytes that the client has read.
fn conversation(inputs: Vec<(u64, String)>) -> String {
    let mut simulation = Simulation::new(1);
    serve(&mut simulation, http_server);
    let seen = Seen::new();
    let of_client = seen.clone();
    let client = simulation.node("client", "10.0.0.2", move || {
        let group = EventLoopGroup::builder().threads(1).build()?;
        let begin = now();
        let channel = connect(&group, &of_client)?;
        for (at, input) in &inputs {
            sleep((begin + Duration::from_secs(*at)).saturating_duration_since(now()));
            channel.write(input.clone().into())?;
        }
        channel.closed().wait()?;
        sleep(SECOND);
        Ok(())
    });
    simulation.run_until_ended(client, 300 * SECOND).unwrap();
    text(&seen).to_ascii_lowercase()
}

#[test]
fn an_http_request_in_progress_is_answered_with_connection_close() {
    let seen = requests(&[(50, "/slow")]);
    assert_eq!(seen.matches("http/1.1 200").count(), 1, "{seen}");
    assert!(seen.contains("connection: close") && seen.ends_with("slow<closed>"), "{seen}");
}

#[test]
fn the_next_http_request_of_an_idle_connection_is_answered_with_connection_close() {
    let seen = requests(&[(10, "/"), (80, "/")]);
    let (first, second) = seen.split_once("fast").unwrap();
    assert!(!first.contains("connection: close"), "{seen}");
    assert!(second.contains("connection: close") && second.ends_with("fast<closed>"), "{seen}");
}

#[test]
fn pipelined_http_requests_end_behind_the_first_response_after_the_age() {
    let seen = requests(&[(50, "/slow"), (50, "/")]);
    assert_eq!(seen.matches("http/1.1 200").count(), 1, "the other one was not accepted: {seen}");
    assert!(seen.contains("connection: close"), "{seen}");
}

#[test]
fn a_response_that_has_begun_at_the_age_is_followed_by_one_with_connection_close() {
    let seen = requests(&[(50, "/stream"), (65, "/")]);
    let (first, second) = seen.split_once("streamed\r\n0\r\n\r\n").unwrap();
    assert!(!first.contains("connection: close"), "its head precedes the age: {seen}");
    assert!(second.contains("connection: close") && second.ends_with("fast<closed>"), "{seen}");
    let seen = requests(&[(50, "/stream")]);
    assert!(seen.ends_with("streamed\r\n0\r\n\r\n<closed>"), "{seen}");
}

#[test]
fn the_rest_of_a_request_that_arrives_behind_the_age_does_not_end_the_connection() {
    let begin = "POST / HTTP/1.1\r\nHost: server\r\nContent-Length: 4\r\n\r\nab".to_owned();
    let rest = "cdGET / HTTP/1.1\r\nHost: server\r\n\r\n".to_owned();
    let seen = conversation(vec![(55, begin), (64, rest)]);
    let (first, second) = seen.split_once("fast").unwrap();
    assert!(!first.contains("connection: close"), "the response precedes the age: {seen}");
    assert!(second.contains("connection: close") && second.ends_with("fast<closed>"), "{seen}");
}

#[test]
fn an_idle_http_connection_closes_at_the_end_of_the_grace_time() {
    let mut simulation = Simulation::new(1);
    serve(&mut simulation, http_server);
    let seen = Seen::new();
    let of_client = seen.clone();
    let client = simulation.node("client", "10.0.0.2", move || {
        let group = EventLoopGroup::builder().threads(1).build()?;
        connect(&group, &of_client)?.closed().wait()?;
        sleep(SECOND);
        Ok(())
    });
    simulation.run_until_ended(client, 300 * SECOND).unwrap();
    assert_eq!(text(&seen), "<closed>", "an end of the stream, not a reset");
    assert!((90 * SECOND..90 * SECOND + SLACK).contains(&end_of(&seen)), "{:?}", end_of(&seen));
}

/// Accepts WebSocket connections that echo.
struct Upgrade(WebSocketServer);

impl Handler for Upgrade {
    type Read = Part<Request>;
    type Write = Part<Response>;

    fn read(&mut self, ctx: &mut Context<'_, Self>, part: Part<Request>) -> Result {
        let Part::Head(request) = part else { return Ok(()) };
        let (response, pipeline) = match self.0.accept(&request) {
            Ok(accepted) => accepted.into_parts(),
            Err(refusal) => return ctx.write((*refusal).into()),
        };
        ctx.write(response.into())?;
        ctx.replace_pipeline(pipeline.on_read(|ctx, message| match message {
            Message::Close(_) => Ok(()),
            message => ctx.write(message),
        }))
    }
}

/// Talks to a server over WebSocket until it says goodbye. Returns the last messages.
fn websocket_conversation(
    server: impl Fn(ServerBootstrap) -> Result<ServerBootstrap> + Send + Sync + 'static,
    client: impl Fn(ClientBootstrap) -> Result<ClientBootstrap> + Send + Sync + 'static,
) -> Vec<String> {
    let mut simulation = Simulation::new(1);
    // The cryptographic library draws its own random numbers.
    simulation.compare_contents(false);
    serve(&mut simulation, move |group| {
        let (http, websocket) = (HttpServer::new(), WebSocketServer::new());
        let bootstrap = ServerBootstrap::new(group).max_connection_age(age(60).grace_timeout(5 * SECOND));
        server(bootstrap)?
            .pipeline(move |_peer| http.pipeline().handler(Upgrade(websocket.clone())))
            .bind("10.0.0.1:7000")
    });
    let heard = Journal::new();
    let of_client = heard.clone();
    let node = simulation.node("client", "10.0.0.2", move || {
        let group = EventLoopGroup::builder().threads(1).build()?;
        let heard = of_client.clone();
        let channel = client(ClientBootstrap::new(&group))?
            .websocket(WebSocketClient::new("server"), "/", move |accepted| {
                let heard = heard.clone();
                let (_, pipeline) = accepted.into_parts();
                pipeline.on_read(move |_, message| {
                    heard.push(format!("{message:?}"));
                    Ok(())
                })
            })
            .connect("server:7000")
            .wait()?;
        channel.write(Message::text("hello"))?;
        let cause = channel.closed().wait()?;
        of_client.push(cause.to_string());
        sleep(SECOND);
        Ok(())
    });
    simulation.run_until_ended(node, 300 * SECOND).unwrap();
    let elapsed = simulation.elapsed();
    assert!((60 * SECOND..62 * SECOND).contains(&elapsed), "{elapsed:?}: the close handshake takes no time");
    heard.with(<[_]>::to_vec)
}

#[track_caller]
fn assert_goes_away(heard: &[String]) {
    let [hello, close, cause] = heard else { panic!("{heard:?}") };
    assert!(hello.contains("hello"), "{hello}");
    assert!(close.contains("1001"), "{close}");
    assert_eq!(cause, "closed");
}

#[test]
fn a_websocket_gets_close_1001() {
    assert_goes_away(&websocket_conversation(Ok, Ok));
}

#[cfg(feature = "tls")]
#[test]
fn a_websocket_over_tls_gets_close_1001_and_ends_cleanly() {
    use crate::programs::tls_relay::{HOST, roots, server_tls};
    use netwheel::tls::{TlsClient, TlsVersion};

    let heard = websocket_conversation(
        |server| Ok(server.tls(server_tls()?)),
        |client| {
            let tls =
                TlsClient::builder(roots()?).server_name(HOST).min_version(TlsVersion::Tls13).build()?;
            Ok(client.tls(tls))
        },
    );
    assert_goes_away(&heard);
}

#[test]
fn a_pool_of_http_connections_loses_no_request_to_the_age() {
    let mut simulation = Simulation::new(1);
    serve(&mut simulation, |group| {
        let http = HttpServer::new();
        ServerBootstrap::new(group)
            .max_connection_age(age(5))
            .pipeline(move |_peer| http.pipeline().handler(Site))
            .bind("10.0.0.1:7000")
    });
    let client = simulation.node("client", "10.0.0.2", || {
        let group = EventLoopGroup::builder().threads(1).build()?;
        let http = HttpClient::new().host("server");
        let pool = ClientBootstrap::new(&group)
            .pipeline(move |_peer| http.calls(1 << 20))
            .pool()
            .size(3)
            .build("server:7000")?;
        for _ in 0..600 {
            let channel = pool.acquire().wait()?;
            let (call, response) = Call::new(Request::get("/"));
            channel.write(call)?;
            drop(channel);
            // No retry.
            assert_eq!(&response.wait()?.body[..], b"fast");
            sleep(SECOND / 10);
        }
        Ok(())
    });
    simulation.run_until_ended(client, 300 * SECOND).unwrap();
}
