//! The sessions of the chat server, run without sockets on one manual clock.
//!
//! The server's files refer to each other by the crate root. A test uses `use im::*;` for that.

#![allow(dead_code, reason = "the sessions use only a part of the server's files")]

#[path = "../../examples/im_server/byte_budget.rs"]
pub(crate) mod byte_budget;
#[path = "../../examples/im_server/chat_server.rs"]
pub(crate) mod chat_server;
#[path = "../../examples/support/cpu_work.rs"]
pub(crate) mod cpu_work;
#[path = "../../examples/im_server/direct.rs"]
pub(crate) mod direct;
#[path = "../../examples/im_server/directory.rs"]
pub(crate) mod directory;
#[path = "../../examples/im_server/hub.rs"]
pub(crate) mod hub;
#[path = "../../examples/im_server/latency.rs"]
pub(crate) mod latency;
#[path = "../../examples/im_server/later/mod.rs"]
pub(crate) mod later;
#[path = "../../examples/im_server/listeners.rs"]
pub(crate) mod listeners;
#[path = "../../examples/im_server/login/mod.rs"]
pub(crate) mod login;
#[path = "../../examples/im/message_id.rs"]
pub(crate) mod message_id;
#[path = "../../examples/im_server/name.rs"]
pub(crate) mod name;
#[path = "../../examples/im_server/nodes/mod.rs"]
pub(crate) mod nodes;
#[path = "../../examples/im_server/options.rs"]
pub(crate) mod options;
#[path = "../../examples/im_server/ordered_replies.rs"]
pub(crate) mod ordered_replies;
#[path = "../../examples/im_server/pace.rs"]
pub(crate) mod pace;
#[path = "../../examples/im/protocol.rs"]
pub(crate) mod protocol;
#[path = "../../examples/im/request.rs"]
pub(crate) mod request;
#[path = "../../examples/im_server/retry_pause.rs"]
pub(crate) mod retry_pause;
#[path = "../../examples/im_server/rooms/mod.rs"]
pub(crate) mod rooms;
#[path = "../../examples/im_server/session.rs"]
pub(crate) mod session;
#[path = "../../examples/im_server/slow_consumer.rs"]
pub(crate) mod slow_consumer;
#[path = "../../examples/im_server/store.rs"]
pub(crate) mod store;
#[path = "../../examples/im_server/web/mod.rs"]
pub(crate) mod web;
#[path = "../../examples/im_server/wire.rs"]
pub(crate) mod wire;

use crate::{
    faulty::Faulty,
    support::{
        loops::{advance, manual_group, the_loop},
        wait::SECOND,
    },
};
use hub::Hub;
use login::resume_token::TokenKey;
use netwheel::{
    Pipeline,
    broker::{Broker, MemoryBroker, Topics},
    channel::{ChannelOptions, TimeLimits},
    prelude::*,
    stage::Json,
    testing::{EmbeddedChannel, ManualClock},
};
use protocol::{Reply, Request};
use serde_json::{Value, json};
use session::{Session, Settings};
use slow_consumer::SlowConsumer;
use std::{
    cell::Cell,
    sync::Arc,
    time::{Duration, Instant},
};
use wire::Lines;

pub(crate) const SETTINGS: Settings = Settings {
    heartbeat: Duration::from_secs(3600),
    idle_timeout: Duration::from_secs(3600),
    ack_timeout: Duration::from_secs(5),
    max_unacked: 3,
    max_unacked_bytes: 1024 * 1024,
    login_timeout: Duration::ZERO,
    login_work: cpu_work::CpuWork::NONE,
    rates: pace::Rates { requests: 0, deliveries: 0, congestion: Duration::ZERO },
    lookup_time: Duration::ZERO,
    max_lookups: 2,
};

/// A server without sockets.
pub(crate) struct World {
    pub(crate) hub: Arc<Hub>,
    clock: ManualClock,
    options: ChannelOptions,
    settings: Settings,
    limits: TimeLimits,
    /// The time of the next announcement.
    announced: Cell<Instant>,
}

/// A connection from the client's point of view.
pub(crate) struct Client(pub(crate) EmbeddedChannel<Reply>);

/// Returns the state of a server, with a limit for the bytes of unacknowledged direct messages.
pub(crate) fn new_hub(max_unacked_bytes: usize) -> Arc<Hub> {
    hub_on(topics_on(MemoryBroker::new(), "a"), "a", max_unacked_bytes)
}

/// Returns a connection of a server to its store.
pub(crate) fn topics_on(store: impl Broker, node: &str) -> Topics {
    let group = EventLoopGroup::builder().threads(1).build().unwrap();
    Topics::builder(&group, store).node(node).build().unwrap()
}

fn hub_on(topics: Topics, node: &str, max_unacked_bytes: usize) -> Arc<Hub> {
    // The servers of a store have one key, and numbers of their own.
    let tokens = TokenKey::new([7; 32], node.bytes().map(u64::from).sum());
    Hub::start(topics, node, tokens, Arc::default(), max_unacked_bytes).unwrap()
}

/// Builds the pipeline of a connection on the server.
pub(crate) fn session(hub: &Arc<Hub>, idle: IdleTimeouts) -> Pipeline<Reply> {
    session_with(hub, idle, SETTINGS, TimeLimits::new())
}

pub(crate) fn session_with(
    hub: &Arc<Hub>,
    idle: IdleTimeouts,
    settings: Settings,
    limits: TimeLimits,
) -> Pipeline<Reply> {
    Pipeline::codec(Lines::new(1000))
        .idle(idle)
        .time_limits(limits)
        .stage(Json::<Request, Reply>::new())
        .handler(Session::new(hub.clone(), settings))
}

/// A connection of a server to its store, whose lease can end.
pub(crate) struct Leased {
    pub(crate) topics: Topics,
    broker: Faulty,
    clock: ManualClock,
    group: EventLoopGroup,
}

impl Leased {
    pub(crate) fn new(store: &MemoryBroker, node: &str) -> Self {
        let (group, clock) = manual_group();
        let broker = Faulty::new(store, the_loop(&group));
        let topics = Topics::builder(&group, broker.clone()).node(node).build().unwrap();
        Leased { topics, broker, clock, group }
    }

    /// Lets the lease end. The server is connected to the store again, and has not renewed it.
    pub(crate) fn end_lease(&self) {
        self.broker.set_cut(true);
        self.advance(3);
        self.broker.set_cut(false);
        assert_eq!(self.topics.authority(), None);
    }

    /// Lets the next lease begin.
    pub(crate) fn begin_lease(&self) {
        self.advance(2);
        assert!(self.topics.authority().is_some());
    }

    /// Lets the times of renewals come.
    fn advance(&self, renewals: u32) {
        (0..renewals).for_each(|_| advance(the_loop(&self.group), &self.clock, 3 * SECOND));
    }
}

impl World {
    pub(crate) fn new() -> Self {
        World {
            hub: new_hub(hub::MAX_UNACKED_BYTES),
            clock: ManualClock::new(),
            options: ChannelOptions::new(),
            settings: SETTINGS,
            limits: TimeLimits::new(),
            announced: Cell::new(Instant::now()),
        }
    }

    /// Creates the server `node`, with a store that others have too.
    pub(crate) fn on(topics: Topics, node: &str) -> Self {
        World { hub: hub_on(topics, node, hub::MAX_UNACKED_BYTES), ..World::new() }
    }

    pub(crate) fn with_settings(settings: Settings) -> Self {
        World { settings, ..World::new() }
    }

    pub(crate) fn settings(self, settings: Settings) -> Self {
        World { settings, ..self }
    }

    pub(crate) fn with_hub(hub: Arc<Hub>) -> Self {
        World { hub, ..World::new() }
    }

    pub(crate) fn time_limits(self, limits: TimeLimits) -> Self {
        World { limits, ..self }
    }

    /// Announces joins and leaves like the server's periodic task. Each call is one hour after the
    /// previous one.
    pub(crate) fn announce(&self) {
        self.announced.set(self.announced.get() + Duration::from_secs(3600));
        self.hub.rooms.announcer.announce(self.announced.get());
    }

    /// Creates a server that allows `max_outbound` pending bytes per client.
    pub(crate) fn with(policy: SlowConsumer, max_outbound: usize) -> Self {
        World { options: policy.channel_options(max_outbound).unwrap(), ..World::new() }
    }

    #[track_caller]
    pub(crate) fn login(&self, user: &str) -> Client {
        let mut client = self.connect();
        client.say(json!({"type": "login", "user": user}));
        assert_eq!(client.hear_one()["ack_timeout_ms"], 5000);
        client
    }

    pub(crate) fn connect(&self) -> Client {
        let channel = EmbeddedChannel::builder(session_with(
            &self.hub,
            IdleTimeouts::new(),
            self.settings,
            self.limits,
        ))
        .channel_options(self.options.clone())
        .clock(self.clock.clone())
        .build();
        Client(channel.unwrap())
    }
}

impl Client {
    #[track_caller]
    pub(crate) fn say(&mut self, request: Value) {
        self.0.write_inbound(format!("{request}\n").as_bytes()).unwrap();
    }

    #[track_caller]
    pub(crate) fn join(&mut self, room: &str) {
        self.say(json!({"type": "join", "room": room}));
    }

    /// Sends a direct message.
    #[track_caller]
    pub(crate) fn direct(&mut self, to: &str, id: impl Into<Value>) {
        self.say(json!({"type": "direct", "to": to, "text": "psst", "id": id.into()}));
    }

    pub(crate) fn ack(&mut self, id: u64) {
        self.say(json!({"type": "ack", "id": id}));
    }

    /// Returns all lines since the last call, without times of day, positions and tokens.
    #[track_caller]
    pub(crate) fn hear(&mut self) -> Vec<Value> {
        self.0.run_pending();
        self.hear_so_far()
    }

    /// Like [`hear`](Self::hear), but without running pending work, such as offloaded tasks.
    #[track_caller]
    pub(crate) fn hear_so_far(&mut self) -> Vec<Value> {
        let lines = self.0.read_outbound();
        let parse = |line: &[u8]| {
            let mut reply: Value = serde_json::from_slice(line).unwrap();
            for position in ["epoch", "offset", "resume_token"] {
                reply.as_object_mut().unwrap().remove(position);
            }
            for time in ["ts", "since"] {
                if let Some(ts) = reply.as_object_mut().unwrap().remove(time) {
                    assert!(ts.as_u64().unwrap() > 1_700_000_000_000);
                }
            }
            reply
        };
        lines.split(|&byte| byte == b'\n').filter(|line| !line.is_empty()).map(parse).collect()
    }

    #[track_caller]
    pub(crate) fn hear_one(&mut self) -> Value {
        let mut replies = self.hear();
        assert_eq!(replies.len(), 1, "{replies:?}");
        replies.remove(0)
    }

    #[track_caller]
    pub(crate) fn hear_nothing(&mut self) {
        assert_eq!(self.hear(), [] as [Value; 0]);
    }

    /// Returns the code and the id of the only reply, which is an error.
    #[track_caller]
    pub(crate) fn hear_error(&mut self) -> (String, Value) {
        error_of(&self.hear_one())
    }

    pub(crate) fn leave(&mut self) {
        self.0.end_inbound();
        assert!(self.0.is_closed());
    }

    /// Returns the number of timers. They are ack timeouts, because there are no idle timeouts
    /// here.
    pub(crate) fn armed(&self) -> usize {
        self.0.timers()
    }
}

/// A direct message with the text of [`Client::direct`].
pub(crate) fn psst(from: &str, id: u64) -> Value {
    json!({ "type": "direct", "from": from, "text": "psst", "id": id })
}

/// The outcome of a direct message.
pub(crate) fn delivered(to: &str, id: impl Into<Value>) -> Value {
    json!({ "type": "delivered", "to": to, "id": id.into() })
}

/// Returns the code and the id of an error.
#[track_caller]
pub(crate) fn error_of(reply: &Value) -> (String, Value) {
    assert_eq!(reply["type"], "error", "{reply}");
    (reply["code"].as_str().unwrap().to_owned(), reply["id"].clone())
}

/// Returns the code of an error and the id of the refused request.
pub(crate) fn refused(code: &str, id: impl Into<Value>) -> (String, Value) {
    (code.to_owned(), id.into())
}
