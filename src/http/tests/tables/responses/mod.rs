//! Responses, as a client sees them.

mod framing;
mod heads;

use super::{
    check,
    row::{After, Row},
    transcript::{Transcript, error_line},
};
use crate::{
    error::{Error, Result},
    http::{Part, Request, Response, Version, client::HttpClient},
    pipeline::{Context, Handler},
    testing::EmbeddedChannel,
};

/// Returns all rows.
pub(super) fn rows() -> Vec<Row> {
    [heads::rows(), framing::rows()].into_iter().flatten().collect()
}

/// Records responses.
struct Recorder(Transcript);

impl Handler for Recorder {
    type Read = Part<Response>;
    type Write = Part<Request>;

    fn read(&mut self, _: &mut Context<'_, Self>, part: Part<Response>) -> Result {
        match part {
            Part::Head(head) => {
                let version = if head.version() == Version::Http10 { "1.0" } else { "1.1" };
                self.0.head(format!("{} HTTP/{version}", head.status()), head.headers());
            }
            Part::Body(bytes) => self.0.body(&bytes),
            Part::End(trailers) => self.0.end(&trailers),
        }
        Ok(())
    }

    fn error(&mut self, _: &mut Context<'_, Self>, error: Error) -> Result {
        self.0.error(&error);
        Ok(())
    }
}

/// Returns the lines of a row: those of its handler, and the state of the connection.
fn expected(row: &Row) -> Vec<String> {
    let mut lines = row.seen.clone();
    lines.extend(row.error.map(error_line));
    lines.extend(row.after.lines());
    lines
}

/// Writes a request. `UPGRADE` is a GET that asks for another protocol.
fn send(channel: &mut EmbeddedChannel<Part<Request>>, method: &str) -> Result {
    let request = match method {
        "UPGRADE" => Request::get("/").header("Connection", "Upgrade").header("Upgrade", "websocket"),
        "CONNECT" => Request::new(method, "b.example:443"),
        _ => Request::new(method, "/"),
    };
    let written = channel.channel().write_tracked(request.into()).map_err(Error::from)?;
    channel.run_pending();
    written.wait()
}

fn play(row: &Row, pieces: &[&[u8]]) -> Vec<String> {
    let transcript = Transcript::default();
    let pipeline = HttpClient::new().host("a.example").pipeline().handler(Recorder(transcript.clone()));
    let mut channel = EmbeddedChannel::new(pipeline);
    for method in row.sent {
        send(&mut channel, method).unwrap();
    }
    for piece in pieces {
        // Input after a close is refused.
        let _ = channel.write_inbound(piece);
    }
    let mut lines = transcript.take();
    match row.after {
        _ if !channel.is_open() => lines.push("closed".into()),
        After::Kept => {
            lines.extend(send(&mut channel, "GET").err().map(|error| format!("not sent: {error:#}")));
            let _ = channel.write_inbound(b"HTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\nnext");
            let next = transcript.take();
            let is_next = next == ["200 HTTP/1.1", "body next", "end"];
            lines.extend(if is_next { vec!["kept".into()] } else { next });
        }
        After::Waits(_) => {
            lines.push("open".into());
            channel.end_inbound();
            lines.extend(transcript.take());
            lines.extend(channel.is_open().then(|| "open behind the end".into()));
        }
        After::Closed | After::HandedOver => lines.push("open".into()),
    }
    lines
}

#[test]
fn a_client_sees_the_responses_of_go_and_netty_as_the_table_says() {
    check(&rows(), expected, play);
}
