//! The node of a bot, which connects again whenever its connection has ended.

use super::{
    bot::Bot,
    ledger::Ledger,
    support::{Calm, Draw, SECOND, until_ok},
};
use crate::protocol::{Reply, Request};
use netwheel::{
    codec::Line,
    prelude::*,
    stage::Json,
    testing::simulation::sleep,
    websocket::{Message, WebSocketClient, WebSocketSettings},
};
use std::{
    sync::{Arc, Mutex},
    time::Duration,
};

pub(super) fn run(number: u32, ledger: &Arc<Mutex<Ledger>>, calm: &Calm) -> Result {
    let is_websocket = number % 2 == 1;
    let mut draw = Draw::new();
    let group = until_ok(|| EventLoopGroup::builder().threads(1).build());
    loop {
        let (ledger, calm) = (ledger.clone(), calm.clone());
        let bootstrap = ClientBootstrap::new(&group).connect_timeout(5 * SECOND);
        let bot = move || Bot::new(number, is_websocket, ledger.clone(), calm.clone());
        let idle = IdleTimeouts::new().reader(8 * SECOND);
        let ended = if is_websocket {
            let settings = WebSocketSettings::new().ping_interval(Duration::ZERO);
            let websocket = WebSocketClient::new("server").with(settings)?;
            let client = bootstrap.websocket(websocket, "/ws", move |accepted| {
                accepted
                    .into_parts()
                    .1
                    .stage(Json::<Reply, Request, Message>::new())
                    .idle(idle)
                    .handler(bot())
            });
            client.connect("server:8080").wait().map(|channel| channel.closed())
        } else {
            let client = bootstrap.pipeline(move |_peer| {
                Pipeline::codec(Line::new()).stage(Json::<Reply, Request>::new()).idle(idle).handler(bot())
            });
            client.connect("server:9000").wait().map(|channel| channel.closed())
        };
        if let Ok(ended) = ended {
            let _ = ended.wait();
        }
        sleep(SECOND / 4 + draw.time(2 * SECOND));
    }
}
