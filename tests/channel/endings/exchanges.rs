//! Ends HTTP exchanges in every way that docs/endings.md lists.

use super::{
    rows::{Check, rows},
    table::{Guard, is_cause, watch_end},
};
use crate::support::{
    journal::Journal,
    logs::quiet_panics,
    loops::{end, one_loop},
    tcp::connect,
    wait::{receive, wait_until},
};
use netwheel::{
    channel::ChannelOptions,
    http::{Body, HttpServer, Part, Request, RequestId, Response, StaleResponse, StatusCode},
    prelude::*,
};
use std::{
    io::{ErrorKind, Read, Write},
    net::{Shutdown, TcpStream},
    sync::mpsc::{self, Sender},
    time::Duration,
};

/// Answers a request as its path says.
struct Site {
    journal: Journal<&'static str>,
    path: String,
    request: Option<RequestId>,
    /// Gets the channel of a request that is not answered, or not to its end.
    waiting: Sender<Channel<Part<Response>>>,
    _dropped: Guard,
}

impl Site {
    fn begin_body(&self, ctx: &mut Context<'_, Self>) -> Result {
        ctx.write(Response::ok(Body::Streamed).into())?;
        ctx.write(Part::Body("a part".into()))
    }
}

impl Handler for Site {
    type Read = Part<Request>;
    type Write = Part<Response>;

    fn active(&mut self, ctx: &mut Context<'_, Self>) -> Result {
        watch_end(ctx, &self.journal);
        Ok(())
    }

    fn read(&mut self, ctx: &mut Context<'_, Self>, part: Part<Request>) -> Result {
        if let Part::Head(request) = &part {
            self.path = request.path().to_owned();
            if self.path == "/timeout" {
                self.request = request.id();
            }
        }
        if !matches!(part, Part::End(_)) {
            return Ok(());
        }
        match &*self.path {
            "/fail" => Err("on purpose".into()),
            "/panic" => panic!("on purpose"),
            "/fail-later" => {
                self.begin_body(ctx)?;
                Err("on purpose".into())
            }
            "/panic-later" => {
                self.begin_body(ctx)?;
                panic!("on purpose")
            }
            "/body" => {
                self.begin_body(ctx)?;
                self.waiting.send(ctx.channel()).unwrap();
                Ok(())
            }
            "/last" => ctx.write(Response::ok("bye").close().into()),
            "/timeout" => ctx.write(Response::from(StatusCode::GATEWAY_TIMEOUT).into()),
            "/next" => {
                let late = Response::ok("late").for_request(self.request.unwrap());
                let refused = ctx.write(late.into()).unwrap_err();
                assert!(StaleResponse::of(&refused).is_some());
                self.journal.push("refused");
                ctx.write(Response::ok("in time").close().into())
            }
            _ => {
                self.waiting.send(ctx.channel()).unwrap();
                Ok(())
            }
        }
    }

    fn read_closed(&mut self, _: &mut Context<'_, Self>) -> Result {
        self.journal.push("read_closed");
        Ok(())
    }

    fn error(&mut self, ctx: &mut Context<'_, Self>, _: Error) -> Result {
        self.journal.push("error");
        ctx.close();
        Ok(())
    }

    fn inactive(&mut self, _: &mut Context<'_, Self>) -> Result {
        self.journal.push("inactive");
        Ok(())
    }
}

/// Returns the target of a row's first request, and whether the server uses half-close.
fn target(row: &str) -> (&'static str, bool) {
    match row {
        "the handler fails before the response" => ("/fail", false),
        "the handler panics before the response" => ("/panic", false),
        "the handler fails after the response has begun" => ("/fail-later", false),
        "the handler panics after the response has begun" => ("/panic-later", false),
        "the server closes after the response" => ("/last", false),
        "the request is malformed" => ("", false),
        "the client ends its stream while the handler works"
        | "the client resets the connection while the handler works" => ("/wait", false),
        "the client ends its stream while the handler works, with `half_close`" => ("/wait", true),
        "the client of HTTP/1.0 ends its stream in the middle of the response" => ("/body", false),
        "an answer is late" => ("/timeout", false),
        _ => panic!("nothing tests the row {row:?}"),
    }
}

/// Returns the status codes of the responses, and the end of the stream.
fn received(mut client: TcpStream) -> Vec<String> {
    let mut bytes = Vec::new();
    let end = match client.read_to_end(&mut bytes) {
        Ok(_) => "end",
        Err(e) if e.kind() == ErrorKind::ConnectionReset => "reset",
        Err(e) => panic!("{e}"),
    };
    let text = String::from_utf8(bytes).unwrap();
    let codes = text.split("HTTP/1.1 ").skip(1).map(|response| response[..3].to_owned());
    codes.chain([end.to_owned()]).collect()
}

fn play(row: &str) -> (Vec<&'static str>, Vec<String>) {
    let (path, half_close) = target(row);
    let (group, journal) = (one_loop(), Journal::new());
    let (waiting, works) = mpsc::channel();
    let (http, of_site) = (HttpServer::new(), Journal::clone(&journal));
    let server = ServerBootstrap::new(&group)
        .channel_options(ChannelOptions::new().half_close(half_close))
        .pipeline(move |_| {
            let journal = of_site.clone();
            let _dropped = Guard(journal.clone(), "dropped");
            let (path, waiting) = (String::new(), waiting.clone());
            http.pipeline().handler(Site { journal, path, request: None, waiting, _dropped })
        })
        .bind("127.0.0.1:0")
        .unwrap();
    let mut client = connect(server.local_address());
    let version = if path == "/body" { "1.0" } else { "1.1" };
    let request = |path| format!("GET {path} HTTP/{version}\r\nHost: a\r\n\r\n");
    client.write_all(request(path).as_bytes()).unwrap();
    let channel = (matches!(path, "/wait" | "/body")).then(|| receive(&works));
    let got = match row {
        "the client resets the connection while the handler works" => {
            socket2::SockRef::from(&client).set_linger(Some(Duration::ZERO)).unwrap();
            drop(client);
            Vec::new()
        }
        _ => {
            if let Some(channel) = channel {
                client.shutdown(Shutdown::Write).unwrap();
                if half_close {
                    channel.write(Response::ok("nevertheless").into()).unwrap();
                }
            } else if path == "/timeout" {
                client.write_all(request("/next").as_bytes()).unwrap();
            }
            received(client)
        }
    };
    wait_until("the end", || journal.all().last() == Some(&"dropped"));
    end(&group);
    (journal.all(), got)
}

#[test]
fn an_http_exchange_ends_as_the_table_in_the_docs_says() {
    quiet_panics();
    let mut check = Check::default();
    for [row, events, of_client, cause] in rows("HTTP exchange") {
        let (all, got) = play(row);
        let (causes, happened): (Vec<_>, Vec<_>) = all.into_iter().partition(is_cause);
        let got: Vec<&str> = got.iter().map(String::as_str).collect();
        check.row(row, &[(&happened, events), (&got, of_client), (&causes, cause)]);
    }
    check.end();
}
