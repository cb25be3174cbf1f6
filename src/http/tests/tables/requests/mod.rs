//! Requests, as a server sees them.

mod bodies;
mod headers;
mod lines;

use super::{
    check,
    row::{After, Row},
    transcript::{Transcript, error_line},
};
use crate::{
    error::{Error, Result},
    http::{Part, Request, Response, Version, server::HttpServer},
    pipeline::{Context, Handler},
    testing::EmbeddedChannel,
};

/// Returns all rows.
pub(super) fn rows() -> Vec<Row> {
    [lines::rows(), headers::rows(), bodies::rows()].into_iter().flatten().collect()
}

/// Records requests, and answers each at its end.
struct Site(Transcript);

impl Handler for Site {
    type Read = Part<Request>;
    type Write = Part<Response>;

    fn read(&mut self, ctx: &mut Context<'_, Self>, part: Part<Request>) -> Result {
        match part {
            Part::Head(head) => {
                let version = if head.version() == Version::Http10 { "1.0" } else { "1.1" };
                let host = head.authority().map(|host| format!(" for {host}")).unwrap_or_default();
                let line = format!("{} {} HTTP/{version}{host}", head.method(), head.target());
                self.0.head(line, head.headers());
                Ok(())
            }
            Part::Body(bytes) => {
                self.0.body(&bytes);
                Ok(())
            }
            Part::End(trailers) => {
                self.0.end(&trailers);
                ctx.write(Response::ok("").into())
            }
        }
    }

    fn error(&mut self, _: &mut Context<'_, Self>, error: Error) -> Result {
        self.0.error(&error);
        Ok(())
    }
}

/// Returns the lines of a row: those of its handler, those for the answers, and the state of the
/// connection.
fn expected(row: &Row) -> Vec<String> {
    let mut lines = row.seen.clone();
    lines.extend(row.error.map(error_line));
    let ends = row.seen.iter().filter(|line| line.starts_with("end")).count();
    lines.extend(vec!["answered 200".to_owned(); ends]);
    let failure = row.refusal.or(row.error.map(|error| error.status().as_u16()));
    lines.extend(failure.map(|status| format!("answered {status}")));
    lines.extend(row.after.lines());
    lines
}

/// Returns a line for each answer.
fn answers(channel: &mut EmbeddedChannel<Part<Response>>) -> Vec<String> {
    let output = channel.read_outbound();
    let output = String::from_utf8_lossy(&output).into_owned();
    output.split("HTTP/1.1 ").skip(1).map(|answer| format!("answered {}", &answer[..3])).collect()
}

fn play(row: &Row, pieces: &[&[u8]]) -> Vec<String> {
    let transcript = Transcript::default();
    let pipeline = HttpServer::new().pipeline().handler(Site(transcript.clone()));
    let mut channel = EmbeddedChannel::new(pipeline);
    for piece in pieces {
        // Input after a close is refused.
        let _ = channel.write_inbound(piece);
    }
    let mut lines = transcript.take();
    lines.extend(answers(&mut channel));
    match row.after {
        _ if !channel.is_open() => lines.push("closed".into()),
        After::Kept => {
            let _ = channel.write_inbound(b"GET /next HTTP/1.1\r\nHost: next\r\n\r\n");
            let mut next = transcript.take();
            next.extend(answers(&mut channel));
            let is_next = next == ["GET /next HTTP/1.1 for next", "end", "answered 200"];
            lines.extend(if is_next { vec!["kept".into()] } else { next });
        }
        After::Waits(_) => {
            lines.push("open".into());
            channel.end_inbound();
            lines.extend(transcript.take());
            lines.extend(answers(&mut channel));
            lines.extend(channel.is_open().then(|| "open behind the end".into()));
        }
        After::Closed | After::HandedOver => lines.push("open".into()),
    }
    lines
}

#[test]
fn a_server_sees_the_requests_of_go_and_netty_as_the_table_says() {
    check(&rows(), expected, play);
}
