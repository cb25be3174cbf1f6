//! A server of this crate: answers late or at once, and is deployed now and then.

use super::{
    super::support::{Calm, Draw, MS, SECOND, deploy},
    body_for,
    ledger::Ledger,
};
use bytes::Bytes;
use netwheel::{
    http::{Aggregate, Body, FullMessage, HttpServer, Part, Request, Response},
    prelude::*,
};
use std::sync::{Arc, Mutex};

struct Honest {
    ledger: Arc<Mutex<Ledger>>,
    draw: Draw,
    calm: Calm,
}

impl Handler for Honest {
    type Read = FullMessage<Request>;
    type Write = Part<Response>;

    fn read(&mut self, ctx: &mut Context<'_, Self>, request: FullMessage<Request>) -> Result {
        let id = self.ledger.lock().unwrap().arrived(request.head.target());
        let response = Response::ok(Body::Empty).header("X-Id", id.to_string());
        let is_late = self.draw.one_in(3);
        let time = if self.calm.is_now() { self.draw.time(50 * MS) } else { self.draw.time(4 * SECOND) };
        if is_late && let Some(id_of_request) = request.head.id() {
            ctx.schedule(time, move |_, ctx| {
                let response = response.body(body_for(id)).for_request(id_of_request);
                ctx.write(response.into())
            });
            return Ok(());
        }
        if self.draw.one_in(3) && request.head.method() != "HEAD" {
            ctx.write(response.body(Body::Streamed).into())?;
            for part in body_for(id).as_bytes().chunks(300) {
                ctx.write(Part::Body(Bytes::copy_from_slice(part)))?;
            }
            return ctx.write(Part::end());
        }
        ctx.write(response.body(body_for(id)).into())
    }

    /// A late response to a client that has gone fails here.
    fn error(&mut self, ctx: &mut Context<'_, Self>, _: Error) -> Result {
        ctx.close();
        Ok(())
    }
}

pub(super) fn serve(ledger: &Arc<Mutex<Ledger>>, calm: &Calm) {
    let mut draw = Draw::new();
    let time = || 10 * SECOND + draw.time(60 * SECOND);
    deploy(calm, time, |group| {
        let (http, ledger, calm) = (HttpServer::new(), ledger.clone(), calm.clone());
        let server = ServerBootstrap::new(group)
            .pipeline(move |_peer| {
                let honest = Honest { ledger: ledger.clone(), draw: Draw::new(), calm: calm.clone() };
                http.pipeline().stage(Aggregate::max(4096)).handler(honest)
            })
            .bind("10.0.0.2:80")?;
        Ok(server.closed())
    });
}
