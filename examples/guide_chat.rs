//! A chat server: the program of the guide's second chapter.
//!
//! ```text
//! cargo run --example guide_chat
//! nc 127.0.0.1 7000            # in two other terminals
//! ```

use bytes::Bytes;
use netwheel::{
    channel::{ChannelOptions, Overflow, TimeLimits},
    codec::Line,
    prelude::*,
    shutdown::ShutdownOptions,
};
use std::{
    collections::HashMap,
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

const MAX_ROOMS: usize = 1000;
const MAX_NAME: usize = 32;

/// The rooms by name, shared by all event loops.
#[derive(Clone, Default)]
struct Rooms(Arc<Mutex<HashMap<Bytes, ChannelGroup<Bytes>>>>);

impl Rooms {
    /// Moves `member` from the room `left` to the room called `name`, and returns this one. Returns
    /// `None` if there are too many rooms for a new one.
    fn enter(
        &self,
        name: &Bytes,
        member: Channel<Bytes>,
        left: Option<&ChannelGroup<Bytes>>,
    ) -> Option<ChannelGroup<Bytes>> {
        let mut rooms = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if !rooms.contains_key(name) {
            rooms.retain(|_, members| !members.is_empty());
            if rooms.len() == MAX_ROOMS {
                return None;
            }
        }
        if let Some(left) = left {
            left.leave(member.id());
        }
        // `name` is a part of a read buffer, which the map must not keep alive.
        let room = rooms.entry(Bytes::copy_from_slice(name)).or_default();
        room.join(member);
        Some(room.clone())
    }
}

/// One client.
struct Session {
    rooms: Rooms,
    name: Option<Bytes>,
    room: Option<ChannelGroup<Bytes>>,
}

impl Session {
    fn new(rooms: Rooms) -> Self {
        Session { rooms, name: None, room: None }
    }

    fn login(&mut self, ctx: &mut Context<'_, Self>, name: Bytes) -> Result {
        if name.is_empty() || name.len() > MAX_NAME {
            return ctx.write("error: a name has 1 to 32 bytes".into());
        }
        self.name = Some(Bytes::copy_from_slice(&name));
        ctx.write("ok".into())
    }

    fn join(&mut self, ctx: &mut Context<'_, Self>, room: Bytes) -> Result {
        if room.is_empty() || room.len() > MAX_NAME {
            return ctx.write("error: a room's name has 1 to 32 bytes".into());
        }
        let Some(entered) = self.rooms.enter(&room, ctx.channel(), self.room.as_ref()) else {
            return ctx.write("error: too many rooms".into());
        };
        self.room = Some(entered);
        ctx.write("ok".into())
    }

    fn say(&mut self, ctx: &mut Context<'_, Self>, text: &[u8]) -> Result {
        let (Some(name), Some(room)) = (&self.name, &self.room) else {
            return ctx.write("error: first NAME, then JOIN".into());
        };
        let message = [name, &b": "[..], text].concat();
        let broadcast = room.broadcast_except(ctx.id(), message.into())?;
        // One message of a member at a time: a flood fills its own socket, not the room.
        let paused = ctx.pause_reading();
        broadcast.report().on_complete(move |_| drop(paused));
        Ok(())
    }
}

impl Handler for Session {
    type Read = Bytes;
    type Write = Bytes;

    fn active(&mut self, ctx: &mut Context<'_, Self>) -> Result {
        ctx.schedule(Duration::from_secs(30), |me, ctx| match me.name {
            Some(_) => Ok(()),
            None => ctx.close_with("error: no NAME within 30 seconds".into()),
        });
        ctx.write("welcome; send NAME <name>, JOIN <room>, SAY <text>, PONG, QUIT".into())
    }

    fn read(&mut self, ctx: &mut Context<'_, Self>, line: Bytes) -> Result {
        let end = line.iter().position(|byte| *byte == b' ').unwrap_or(line.len());
        let rest = line.slice(line.len().min(end + 1)..);
        match &line[..end] {
            b"NAME" => self.login(ctx, rest),
            b"JOIN" => self.join(ctx, rest),
            b"SAY" => self.say(ctx, &rest),
            b"PONG" => Ok(()),
            b"QUIT" => ctx.close_with("bye".into()),
            _ => ctx.write("error: unknown command".into()),
        }
    }

    fn idle(&mut self, ctx: &mut Context<'_, Self>, event: IdleEvent) -> Result {
        match event.state {
            IdleState::Writer => ctx.write("PING".into()),
            _ if ctx.expects_input() => ctx.close_with("bye: no sign of life".into()),
            _ => Ok(()),
        }
    }

    fn shutdown(&mut self, ctx: &mut Context<'_, Self>) -> Result {
        ctx.close_with("bye: the server restarts".into())
    }
}

fn main() -> Result {
    let address = std::env::args().nth(1).unwrap_or("127.0.0.1:7000".to_owned());
    let group = EventLoopGroup::new()?;
    let rooms = Rooms::default();
    let server = ServerBootstrap::new(&group)
        .channel_options(ChannelOptions::new().max_outbound(256 * 1024).overflow(Overflow::Close))
        .pipeline(move |_peer| {
            let second = Duration::from_secs(1);
            Pipeline::codec(Line::new().max_len(4096))
                .idle(IdleTimeouts::new().writer(30 * second).reader(90 * second))
                .time_limits(TimeLimits::new().progress(64, 10 * second))
                .handler(Session::new(rooms.clone()))
        })
        .bind(&*address)?;

    let stop = server.clone();
    ctrlc::set_handler(move || stop.close().detach()).map_err(Error::other)?;
    println!("listening on {}", server.local_address());
    server.closed().wait()?;
    let report = group.shutdown(ShutdownOptions::new().timeout(Duration::from_secs(5))).wait()?;
    println!("{report}");
    Ok(())
}
