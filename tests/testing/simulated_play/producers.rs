//! Threads that write the first messages of many connections, and obey writability.

use super::{
    frames::{Frame, Kind, Wire},
    kit::{Draw, PATIENCE, Play, SECOND},
    settings,
};
use bytes::Bytes;
use netwheel::{
    buffer::WaterMark,
    channel::ChannelOptions,
    prelude::*,
    testing::simulation::{Failure, Network, Simulation, sleep},
};
use std::sync::{
    Arc,
    atomic::{AtomicU32, Ordering::SeqCst},
};

/// Sends each frame back.
struct Echo;

impl Handler for Echo {
    type Read = Bytes;
    type Write = Bytes;

    fn read(&mut self, ctx: &mut Context<'_, Self>, frame: Bytes) -> Result {
        ctx.write(frame)
    }
}

/// Counts the answers, and checks the calls of `writability_changed`.
struct Answers {
    play: Play,
    count: Arc<AtomicU32>,
    is_paused: bool,
}

impl Handler for Answers {
    type Read = Bytes;
    type Write = Bytes;

    fn read(&mut self, _ctx: &mut Context<'_, Self>, frame: Bytes) -> Result {
        let number = self.count.fetch_add(1, SeqCst);
        let is_next = Frame::decode(frame).is_some_and(|frame| frame.number == number);
        self.play.must(is_next, || format!("another frame than number {number}"));
        Ok(())
    }

    fn writability_changed(&mut self, _ctx: &mut Context<'_, Self>, writable: bool) -> Result {
        self.play.must(self.is_paused == writable, || "writability_changed does not alternate".to_owned());
        self.is_paused = !writable;
        Ok(())
    }
}

pub(super) fn play(simulation: &mut Simulation) -> Result<(), Failure> {
    let play = Play::new(simulation, true);
    simulation.network(Network::new().buffers(5000, 5000));
    let shared = play.clone();
    let server = simulation.node("server", "10.0.0.1", move || serve(&shared));
    let shared = play.clone();
    let client = simulation.node("client", "10.0.0.2", move || client(&shared));
    play.end(simulation, server, &[server, client])
}

fn serve(play: &Play) -> Result {
    let mut draw = Draw::new();
    let group = settings::group(&mut draw).build()?;
    let wire = draw.pick(&Wire::ALL);
    let _server =
        ServerBootstrap::new(&group).pipeline(move |_peer| wire.pipeline(Echo)).bind("10.0.0.1:7000")?;
    play.wait_for(1);
    settings::end(play, &group, "the server")
}

fn client(play: &Play) -> Result {
    let mut draw = Draw::new();
    let group = settings::group(&mut draw).build()?;
    sleep(SECOND);
    for _ in 0..8 {
        connection(play, &group, &mut draw)?;
    }
    settings::end(play, &group, "the client")?;
    play.finished();
    Ok(())
}

fn connection(play: &Play, group: &EventLoopGroup, draw: &mut Draw) -> Result {
    let mark = draw.pick(&[WaterMark::new(1, 1)?, WaterMark::new(100, 4000)?, WaterMark::default()]);
    let options = ChannelOptions::new().water_mark(mark);
    let (count, wire) = (Arc::new(AtomicU32::new(0)), draw.pick(&Wire::ALL));
    let (of_handler, shared) = (count.clone(), play.clone());
    let channel = ClientBootstrap::new(group)
        .channel_options(options)
        .pipeline(move |_peer| {
            let (play, count) = (shared.clone(), of_handler.clone());
            wire.pipeline(Answers { play, count, is_paused: false })
        })
        .connect("server:7000")
        .wait()?;
    let size = draw.pick(&[0, 10, 5000]);
    let messages = 1 + draw.below(4) as u32;
    for number in 0..messages {
        let frame = Frame { link: 0, producer: 0, kind: Kind::Data, number };
        let accepted = channel.write(frame.encode(size));
        play.must(accepted.is_ok(), || format!("message {number} of {size} bytes is refused: {accepted:?}"));
        let is_writable = channel.writable().wait_timeout(PATIENCE).is_ok_and(|result| result.is_ok());
        play.must(is_writable, || format!("not writable after message {number} of {size} bytes"));
    }
    play.eventually(|| "all answers arrive".to_owned(), || count.load(SeqCst) == messages);
    play.must(channel.is_writable(), || "not writable although everything has arrived".to_owned());
    channel.close();
    let has_closed = channel.closed().wait_timeout(PATIENCE).is_ok();
    play.must(has_closed, || "a channel does not close".to_owned());
    Ok(())
}
