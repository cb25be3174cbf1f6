//! A handler that fails: the client gets an answer, unless one has begun.

use crate::{
    channel::CloseCause,
    error::{Error, Result},
    http::{Body, Part, Request, Response, StatusCode, server::HttpServer},
    pipeline::{Context, Handler},
    testing::EmbeddedChannel,
};

#[derive(Debug, Clone, Copy, PartialEq)]
enum Failure {
    Err,
    Panic,
    AfterTheHead,
}

#[derive(Debug, Clone, Copy, PartialEq)]
enum Reaction {
    Close,
    Err,
    OwnPage,
}

struct Fails {
    failure: Failure,
    reaction: Reaction,
}

impl Handler for Fails {
    type Read = Part<Request>;
    type Write = Part<Response>;

    fn read(&mut self, ctx: &mut Context<'_, Self>, part: Part<Request>) -> Result {
        if let Part::Head(_) = part {
            return Ok(());
        }
        if self.failure == Failure::AfterTheHead {
            ctx.write(Response::ok(Body::Sized(9)).into())?;
        }
        assert!(self.failure != Failure::Panic, "on purpose");
        Err("on purpose".into())
    }

    fn error(&mut self, ctx: &mut Context<'_, Self>, error: Error) -> Result {
        match self.reaction {
            Reaction::Close => ctx.close(),
            Reaction::Err => return Err(error),
            Reaction::OwnPage => {
                ctx.write(Response::new(StatusCode::SERVICE_UNAVAILABLE).into())?;
                ctx.close();
            }
        }
        Ok(())
    }
}

/// Returns the output of a server whose handler fails.
fn output(failure: Failure, reaction: Reaction) -> String {
    let handler = Fails { failure, reaction };
    let mut channel = EmbeddedChannel::new(HttpServer::new().pipeline().handler(handler));
    let closed = channel.channel().closed();
    channel.write_inbound(b"GET / HTTP/1.1\r\nHost: a\r\n\r\n").unwrap();
    assert!(channel.is_closed());
    assert_eq!(closed.wait().unwrap(), CloseCause::Failed);
    String::from_utf8(channel.read_outbound().to_vec()).unwrap()
}

#[test]
fn a_failing_or_panicking_handler_answers_500_unless_it_has_answered() {
    for failure in [Failure::Err, Failure::Panic] {
        for reaction in [Reaction::Close, Reaction::Err] {
            let got = output(failure, reaction);
            assert!(got.starts_with("HTTP/1.1 500 "), "{failure:?}, {reaction:?}: {got:?}");
            assert!(got.contains("\r\nConnection: close\r\n"), "{got:?}");
            assert_eq!(got.matches("HTTP/1.1").count(), 1, "{got:?}");
        }
        let own = output(failure, Reaction::OwnPage);
        assert!(own.starts_with("HTTP/1.1 503 "), "{own:?}");
        assert_eq!(own.matches("HTTP/1.1").count(), 1, "{own:?}");
    }
    let begun = output(Failure::AfterTheHead, Reaction::Err);
    assert!(begun.starts_with("HTTP/1.1 200 ") && !begun.contains(" 500 "), "{begun:?}");
}
