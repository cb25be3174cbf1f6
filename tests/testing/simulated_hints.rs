//! WebSocket clients that obey the hints of a server.

use netwheel::{
    http::{HttpServer, Part, Request, Response, StatusCode},
    prelude::*,
    reconnect::{Backoff, ReconnectEvent},
    testing::simulation::{Journal, Simulation, sleep},
    websocket::{CloseCode, Message, WebSocketClient, WebSocketServer},
};
use std::{
    ops::ControlFlow,
    sync::{
        Arc,
        atomic::{AtomicU32, Ordering},
    },
    time::Duration,
};

const SECOND: Duration = Duration::from_secs(1);

/// Refuses the first two requests, and closes later connections with changing codes.
struct Busy(Arc<AtomicU32>);

impl Handler for Busy {
    type Read = Part<Request>;
    type Write = Part<Response>;

    fn read(&mut self, ctx: &mut Context<'_, Self>, part: Part<Request>) -> Result {
        let Part::Head(request) = part else { return Ok(()) };
        let number = self.0.fetch_add(1, Ordering::Relaxed);
        let refusal = Response::from(StatusCode::SERVICE_UNAVAILABLE);
        let close = match number {
            0 => return ctx.write(refusal.header("Retry-After", "40").into()),
            1 => {
                let refusal = refusal.header("Date", "Thu, 01 Jan 2026 00:00:00 GMT");
                return ctx.write(refusal.header("Retry-After", "Thu, 01 Jan 2026 00:00:50 GMT").into());
            }
            2 => Message::close(CloseCode::TRY_AGAIN_LATER, "busy; retry after 60 s"),
            3 => Message::close(CloseCode::SERVICE_RESTART, ""),
            _ => Message::close(CloseCode::NORMAL, "retry after 60 s"),
        };
        let (response, pipeline) = match WebSocketServer::new().accept(&request) {
            Ok(accepted) => accepted.into_parts(),
            Err(refusal) => return ctx.write((*refusal).into()),
        };
        ctx.write(response.into())?;
        ctx.replace_pipeline(pipeline.on_read(move |ctx, message| match message {
            Message::Text(_) => ctx.write(close.clone()),
            _ => Ok(()),
        }))
    }
}

#[test]
fn retry_after_and_the_codes_1012_and_1013_delay_the_next_attempt() {
    let mut simulation = Simulation::new(3);
    let requests = Arc::new(AtomicU32::new(0));
    simulation.node("server", "10.0.0.1", move || {
        let group = EventLoopGroup::builder().threads(1).build()?;
        let (http, requests) = (HttpServer::new(), requests.clone());
        ServerBootstrap::new(&group)
            .pipeline(move |_peer| http.pipeline().handler(Busy(requests.clone())))
            .bind("10.0.0.1:80")?
            .closed()
            .wait()
    });
    let delays = Journal::new();
    let told = delays.clone();
    let client = simulation.node("client", "10.0.0.2", move || {
        let group = EventLoopGroup::builder().threads(1).build()?;
        let told = told.clone();
        let reconnecting = ClientBootstrap::new(&group)
            .websocket(WebSocketClient::new("server"), "/", |accepted| {
                accepted.into_parts().1.on_read(|_, _| Ok(()))
            })
            .reconnect(Backoff::new().initial(SECOND).factor(1.0).max_delay(SECOND).reset_after(SECOND))
            .on_event(move |event| {
                match event {
                    ReconnectEvent::Connected { channel, .. } => {
                        channel.write(Message::text("hello")).expect("it is open");
                    }
                    ReconnectEvent::Failed { next: Some(next), .. }
                    | ReconnectEvent::Lost { next: Some(next), .. } => told.push(next),
                    _ => {}
                }
                ControlFlow::Continue(())
            })
            .connect("server:80")?;
        sleep(300 * SECOND);
        reconnecting.close();
        reconnecting.closed().wait()
    });
    simulation.run_until_ended(client, 400 * SECOND).unwrap();
    let delays = delays.with(<[_]>::to_vec);
    let expected = [40..=41, 50..=51, 60..=61, 5..=31, 0..=1, 0..=1];
    for (delay, range) in delays.iter().zip(expected) {
        let range = Duration::from_secs(*range.start())..=Duration::from_secs(*range.end());
        assert!(range.contains(delay), "{delay:?} is not in {range:?}: {delays:?}");
    }
    assert!(delays.len() >= 6, "{delays:?}");
}
