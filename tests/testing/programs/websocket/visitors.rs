//! Clients: one conversation after another.

use super::{
    super::support::{Calm, Draw, MS, SECOND, until_ok},
    conversation::{Conversation, Conversations, Side},
    fragments::Fragments,
    player::Player,
    server::settings,
};
use netwheel::{
    channel::CloseCause, codec::RawBytes, prelude::*, testing::simulation::sleep, websocket::WebSocketClient,
};
use std::sync::{Arc, Mutex};

pub(super) fn run(conversations: &Arc<Mutex<Conversations>>, calm: &Calm) -> Result {
    let group = until_ok(|| EventLoopGroup::builder().threads(1).build());
    let mut draw = Draw::new();
    loop {
        let is_calm = calm.is_now();
        let conversation = conversations.lock().unwrap().begin();
        let cause = visit(&group, &conversation, &mut draw, calm);
        if is_calm {
            let mut conversations = conversations.lock().unwrap();
            let conversation = conversation.lock().unwrap();
            if cause != Some(CloseCause::Clean) || !conversation.is_complete() {
                conversation.violated(&format!("it ends with {cause:?} although all is calm"));
            }
            conversations.completed += 1;
        }
        sleep(draw.time(SECOND));
    }
}

/// Has one conversation. Returns why its connection has ended; `None` if there was none.
fn visit(
    group: &EventLoopGroup,
    conversation: &Arc<Mutex<Conversation>>,
    draw: &mut Draw,
    calm: &Calm,
) -> Option<CloseCause> {
    let websocket = WebSocketClient::new("server").with(settings()).ok()?;
    let by_hand = draw.one_in(4);
    #[cfg(feature = "deflate")]
    let websocket = match draw.below(3) {
        0 => websocket,
        _ if by_hand => websocket,
        n => websocket.deflate(netwheel::websocket::Deflate::new().context_takeover(n == 1)).ok()?,
    };
    let target = format!("/{}", conversation.lock().unwrap().id);
    let (moved, calm) = (conversation.clone(), calm.clone());
    let bootstrap = ClientBootstrap::new(group).connect_timeout(5 * SECOND);
    let client = bootstrap.websocket(websocket, &target, move |accepted| {
        let conversation = moved.clone();
        if by_hand {
            Pipeline::codec(RawBytes).handler(Fragments::new(conversation)).into_any()
        } else {
            let player = Player::new(Side::Client, conversation, &calm);
            accepted.into_parts().1.handler(player).into_any()
        }
    });
    let channel = client.connect("server:80").wait().ok()?;
    let closed = channel.closed().wait_timeout(300 * SECOND);
    let Ok(cause) = closed else {
        conversation.lock().unwrap().violated("it has not ended in five minutes");
        return None;
    };
    sleep(20 * MS);
    cause.ok()
}
