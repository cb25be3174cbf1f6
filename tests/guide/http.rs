//! HTTP servers and clients, from the guide's chapter about HTTP.

use crate::support::{logs, wait::done};
use netwheel::{
    channel::ChannelOptions,
    http::{
        Aggregate, Body, FullMessage, HttpClient, HttpServer, HttpSettings, Part, Request, Response,
        ServerSentEvent, StatusCode,
    },
    pool::HttpAgent,
    prelude::*,
    shutdown::ShutdownOptions,
    testing::EmbeddedChannel,
};
use std::{net::SocketAddr, time::Duration};

struct Notes {
    text: String,
}

impl Handler for Notes {
    type Read = FullMessage<Request>;
    type Write = Part<Response>;

    fn read(&mut self, ctx: &mut Context<'_, Self>, request: FullMessage<Request>) -> Result {
        let response = match (request.head.method(), request.head.path()) {
            ("GET" | "HEAD", "/note") => {
                Response::ok(self.text.clone()).header("Content-Type", "text/plain; charset=utf-8")
            }
            ("PUT", "/note") => match String::from_utf8(request.body.to_vec()) {
                Ok(text) => {
                    self.text = text;
                    Response::new(StatusCode::NO_CONTENT)
                }
                Err(_) => Response::from(StatusCode::BAD_REQUEST),
            },
            (_, "/note") => Response::from(StatusCode::METHOD_NOT_ALLOWED).header("Allow", "GET, HEAD, PUT"),
            _ => Response::from(StatusCode::NOT_FOUND),
        };
        ctx.write(response.into())
    }

    fn shutdown(&mut self, _: &mut Context<'_, Self>) -> Result {
        Ok(()) // the response in progress first
    }
}

fn serve(group: &EventLoopGroup) -> Result<Server> {
    let http = HttpServer::with(
        HttpSettings::new().max_body(64 * 1024).keep_alive_timeout(Duration::from_secs(30)),
    )?;
    ServerBootstrap::new(group)
        .channel_options(ChannelOptions::new().half_close(true))
        .pipeline(move |_peer| {
            http.pipeline().stage(Aggregate::max(64 * 1024)).handler(Notes { text: String::new() })
        })
        .bind("127.0.0.1:0")
}

struct Upper;

impl Handler for Upper {
    type Read = Part<Request>;
    type Write = Part<Response>;

    fn read(&mut self, ctx: &mut Context<'_, Self>, part: Part<Request>) -> Result {
        match part {
            Part::Head(request) => {
                let body = request.announced_body().clone(); // its length, if it is known
                ctx.write(Response::ok(body).into())
            }
            Part::Body(bytes) => ctx.write(Part::Body(bytes.to_ascii_uppercase().into())),
            Part::End(trailers) => ctx.write(Part::End(trailers)),
        }
    }

    fn writability_changed(&mut self, ctx: &mut Context<'_, Self>, writable: bool) -> Result {
        ctx.set_auto_read(writable); // a client that does not read is not read from
        Ok(())
    }
}

struct Reports;

impl Handler for Reports {
    type Read = Part<Request>;
    type Write = Part<Response>;

    fn read(&mut self, ctx: &mut Context<'_, Self>, part: Part<Request>) -> Result {
        let Part::Head(request) = part else { return Ok(()) };
        let (Some(id), path) = (request.id(), request.path().to_owned()) else { return Ok(()) };
        ctx.offload(
            move || format!("the report {path}\n"), // on a worker thread
            move |_, ctx, report| ctx.write(Response::ok(report?).for_request(id).into()),
        )?;
        ctx.schedule(Duration::from_secs(2), move |_, ctx| {
            ctx.write(Response::from(StatusCode::GATEWAY_TIMEOUT).for_request(id).into())
        });
        Ok(())
    }
}

struct Clock;

impl Handler for Clock {
    type Read = Part<Request>;
    type Write = Part<Response>;

    fn read(&mut self, ctx: &mut Context<'_, Self>, part: Part<Request>) -> Result {
        if let Part::Head(_) = part {
            ctx.write(Response::event_stream().into())?;
            ctx.schedule(Duration::from_secs(1), Clock::tick);
        }
        Ok(())
    }
}

impl Clock {
    fn tick(&mut self, ctx: &mut Context<'_, Self>) -> Result {
        ctx.write(ServerSentEvent::data("one more second").name("tick").into_part()?)?;
        ctx.schedule(Duration::from_secs(1), Clock::tick);
        Ok(())
    }
}

fn fetch(group: &EventLoopGroup, address: SocketAddr) -> Result<String> {
    let http = HttpClient::new().host("notes.example");
    let pool = ClientBootstrap::new(group)
        .pipeline(move |_peer| http.calls(64 * 1024))
        .pool()
        .size(4)
        .build(address)?;
    let response = pool.request(Request::new("PUT", "/note").body("milk")).send().wait()?;
    assert_eq!(response.head.status(), StatusCode::NO_CONTENT);
    let response = pool.request(Request::get("/note")).timeout(Duration::from_secs(5)).send().wait()?;
    Ok(String::from_utf8_lossy(&response.body).into_owned())
}

fn agent(group: &EventLoopGroup) -> Result<HttpAgent> {
    HttpAgent::builder(ClientBootstrap::new(group)).build()
}

fn notify(agent: &HttpAgent, url: &str, event: String, key: &str) -> Completion<FullMessage<Response>> {
    let request = Request::post(url, event).header("Idempotency-Key", key);
    agent.request(request).idempotent(true).timeout(Duration::from_secs(2)).retries(2).send()
}

async fn download(agent: &HttpAgent, url: &str, file: &mut Vec<u8>) -> Result {
    let mut response = agent.request(Request::get(url)).stream().await?;
    while let Some(bytes) = response.body.next().await? {
        file.extend_from_slice(&bytes);
    }
    Ok(())
}

#[cfg(feature = "tokio")]
#[test]
fn an_agent_notifies_and_downloads() {
    let group = EventLoopGroup::builder().threads(2).build().unwrap();
    let server = serve(&group).unwrap();
    let url = format!("http://localhost:{}/note", server.local_address().port());
    let agent = agent(&group).unwrap();
    let response = done(notify(&agent, &url, "milk".into(), "17")).unwrap();
    assert_eq!(response.head.status(), StatusCode::METHOD_NOT_ALLOWED);
    assert_eq!(response.head.headers().get("allow"), Some(&b"GET, HEAD, PUT"[..]));
    let mut file = Vec::new();
    let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
    runtime.block_on(download(&agent, &url, &mut file)).unwrap();
    assert!(file.is_empty());
}

#[test]
fn a_client_with_a_pool_stores_and_fetches_a_note() {
    let group = EventLoopGroup::builder().threads(2).build().unwrap();
    let server = serve(&group).unwrap();
    assert_eq!(fetch(&group, server.local_address()).unwrap(), "milk");
    group.shutdown(ShutdownOptions::new().quiet_period(Duration::ZERO)).wait().unwrap();
}

#[test]
fn a_failed_handler_is_answered_with_the_page_of_the_program_and_logged_once() {
    logs::collect();
    let http = HttpServer::new().error_pages(|status| {
        let body = format!(r#"{{"status":{status},"title":"{}"}}"#, status.reason());
        Response::new(status).header("Content-Type", "application/problem+json").body(body)
    });
    let pipeline = http.pipeline().on_read(|_, _: Part<Request>| Err("the note is gone".into()));
    let mut channel = EmbeddedChannel::new(pipeline);
    channel.write_inbound(b"GET / HTTP/1.1\r\nHost: a\r\n\r\n").unwrap();
    assert!(channel.read_outbound().ends_with(br#"{"status":500,"title":"Internal Server Error"}"#));
    assert_eq!(logs::lines_with("the note is gone").len(), 1);
}

#[test]
fn a_body_is_streamed_back_in_capitals() -> Result {
    let mut channel = EmbeddedChannel::new(HttpServer::new().pipeline().handler(Upper));
    channel.write_inbound(b"POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 5\r\n\r\nhe")?;
    let begin = channel.read_outbound();
    assert!(begin.starts_with(b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n") && begin.ends_with(b"\r\n\r\nHE"));
    channel.write_inbound(b"llo")?;
    assert_eq!(channel.read_outbound(), &b"LLO"[..]);
    Ok(())
}

#[test]
fn a_clock_sends_an_event_each_second() -> Result {
    let mut channel = EmbeddedChannel::new(HttpServer::new().pipeline().handler(Clock));
    channel.write_inbound(b"GET / HTTP/1.1\r\nHost: a\r\n\r\n")?;
    assert!(channel.read_outbound().starts_with(b"HTTP/1.1 200 OK\r\n"));
    channel.advance(Duration::from_secs(1));
    assert!(channel.read_outbound().ends_with(b"event: tick\ndata: one more second\n\n\r\n"));
    assert_eq!(Body::Streamed.length(), None);
    Ok(())
}

#[test]
fn each_request_gets_its_own_report_or_a_timeout() {
    let mut channel = EmbeddedChannel::new(HttpServer::new().pipeline().handler(Reports));
    let get = |path: &str| format!("GET {path} HTTP/1.1\r\nHost: a\r\n\r\n");
    channel.write_inbound(get("/one").as_bytes()).unwrap();
    channel.run_pending();
    assert!(channel.read_outbound().ends_with(b"the report /one\n"));
    channel.write_inbound(get("/two").as_bytes()).unwrap();
    channel.advance(Duration::from_secs(2));
    assert!(channel.read_outbound().starts_with(b"HTTP/1.1 504 "), "without a worker");
    channel.run_pending();
    channel.write_inbound(get("/three").as_bytes()).unwrap();
    channel.run_pending();
    assert!(channel.read_outbound().ends_with(b"the report /three\n"));
    channel.advance(Duration::from_secs(5));
    assert!(channel.read_outbound().is_empty() && channel.is_open());
}
