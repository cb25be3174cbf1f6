//! A small node: rooms of lines on `Topic` and a broker, without the other parts of the chat
//! server.
//!
//! `im_chaos --as-node` runs it. It trusts its clients: a name belongs to anyone who uses it, and
//! anyone may publish to any room.

mod presence;
mod room;
mod session;

use crate::{
    MAX_LINE,
    output::{complain, say},
    protocol::{Reply, Request},
};
use clap::Parser;
use netwheel::{
    broker::{MemoryBroker, RedisBroker, Topics, TopicsBuilder},
    codec::Line,
    prelude::*,
    redis::RedisClient,
    shutdown::ShutdownOptions,
    stage::Json,
};
use room::Rooms;
use session::Session;
use std::{
    io::Read,
    sync::mpsc::{self, RecvTimeoutError},
    thread,
    time::Duration,
};

/// Time between two comparisons of the lists of members with the sessions.
const AUDIT: Duration = Duration::from_secs(2);

/// A small node of rooms.
#[derive(Parser)]
pub(crate) struct NodeOptions {
    /// Run as a node.
    #[arg(long, required = true)]
    as_node: bool,
    /// Address to listen on; port 0 selects a free port.
    #[arg(long, default_value = "127.0.0.1:0")]
    listen: String,
    /// "memory", or the URL of a Redis server.
    #[arg(long, default_value = "memory")]
    broker: String,
    /// Name of the node, which no other node has.
    #[arg(long)]
    node: String,
    /// Messages of a room that are kept. The default suffices for a client that was away for
    /// minutes.
    #[arg(long, default_value_t = 5000)]
    history: u64,
    /// Accept a Redis that may evict keys.
    #[arg(long)]
    allow_eviction: bool,
}

/// Runs a node until Ctrl-C, or until standard input ends.
///
/// # Errors
/// If a setting is not valid, or the address is in use.
pub(crate) fn run(options: &NodeOptions) -> Result {
    let (stop, stopped) = mpsc::channel();
    let interrupted = stop.clone();
    let on_signal = move || {
        // Fails if the node is about to end.
        let _ = interrupted.send(());
    };
    ctrlc::set_handler(on_signal).map_err(Error::other)?;
    thread::spawn(move || {
        // Nothing is sent: the end says that the program which has started this one is gone.
        let _ = std::io::stdin().read_to_end(&mut Vec::new());
        let _ = stop.send(());
    });
    let group = EventLoopGroup::builder().threads(2).name("node").build()?;
    let topics = builder(&group, options)?.node(&options.node).build()?;
    let rooms = Rooms::new(topics.clone(), options.node.clone(), options.history);
    let sessions = rooms.clone();
    let server = ServerBootstrap::new(&group)
        .pipeline(move |_peer| {
            let lines = Pipeline::codec(Line::new().max_len(MAX_LINE));
            lines.stage(Json::<Request, Reply>::new()).handler(Session::new(sessions.clone()))
        })
        .bind(&*options.listen)?;
    say!("listening on {}", server.local_address());
    while stopped.recv_timeout(AUDIT) == Err(RecvTimeoutError::Timeout) {
        rooms.audit();
    }
    server.close().wait()?;
    group.shutdown(ShutdownOptions::new().timeout(Duration::from_secs(2))).wait()?;
    Ok(())
}

fn builder(group: &EventLoopGroup, options: &NodeOptions) -> Result<TopicsBuilder> {
    let broker = options.broker.as_str();
    if broker == "memory" {
        return Ok(Topics::builder(group, MemoryBroker::new()));
    }
    let client =
        RedisClient::builder(group, broker).on_event(|event| log::info!("redis: {event:?}")).connect()?;
    let broker = RedisBroker::new(client);
    Ok(Topics::builder(group, if options.allow_eviction { broker.allow_eviction() } else { broker }))
}

/// Runs a node and returns whether it has ended without an error.
pub(crate) fn main() -> bool {
    let done = run(&NodeOptions::parse());
    if let Err(error) = &done {
        complain!("{error:#}");
    }
    done.is_ok()
}
