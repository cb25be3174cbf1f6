//! The values of a killed node are dropped, also if they own each other.

use bytes::Bytes;
use netwheel::{
    codec::Line,
    datagram::{DatagramContext, DatagramHandler},
    prelude::*,
    reconnect::Backoff,
    testing::simulation::{Journal, NodeId, Simulation, sleep},
};
use std::{
    net::SocketAddr,
    sync::{Arc, Weak},
    time::Duration,
};

const SECOND: Duration = Duration::from_secs(1);

/// A value of the program, which the test sees until it is dropped.
type Token = Arc<&'static str>;

#[derive(Clone)]
struct Tokens(Journal<Weak<&'static str>>);

impl Tokens {
    fn token(&self, owner: &'static str) -> Token {
        let token = Arc::new(owner);
        self.0.push(Arc::downgrade(&token));
        token
    }

    fn left(&self) -> Vec<&'static str> {
        self.0.with(|tokens| tokens.iter().filter_map(Weak::upgrade).map(|token| *token).collect())
    }
}

struct Quiet {
    _token: Token,
}

impl DatagramHandler for Quiet {
    fn read(&mut self, _: &mut DatagramContext<'_, Self>, _: Bytes, _: SocketAddr) -> Result {
        Ok(())
    }
}

/// Registers callbacks for each kind of end. Each callback owns the object whose end it awaits.
fn program(tokens: &Tokens) -> Result {
    let group = EventLoopGroup::builder().threads(2).build()?;
    let (in_pipeline, accepted) = (tokens.token("server: pipeline"), tokens.clone());
    let server = ServerBootstrap::new(&group)
        .pipeline(move |_peer| {
            let _ = &in_pipeline;
            let in_handler = accepted.token("accepted channel: handler");
            Pipeline::codec(Line::new()).on_read(move |ctx, line| {
                let _ = &in_handler;
                ctx.write(line)
            })
        })
        .bind("10.0.0.1:7000")?;
    let (owned, token) = (server.clone(), tokens.token("server: closed"));
    server.closed().on_complete(move |_| drop((owned, token)));

    let (in_pipeline, in_hook) = (tokens.token("client: pipeline"), tokens.token("client: hook"));
    let reconnecting = |address: &str| {
        let (in_pipeline, in_hook) = (in_pipeline.clone(), in_hook.clone());
        ClientBootstrap::new(&group)
            .pipeline(move |_peer| {
                let _ = &in_pipeline;
                Pipeline::codec(Line::new()).on_read(|_ctx, _line| Ok(()))
            })
            .reconnect(Backoff::default())
            .on_event(move |_event| {
                let _ = &in_hook;
                std::ops::ControlFlow::Continue(())
            })
            .connect(address)
    };
    let connected = reconnecting("10.0.0.1:7000")?;
    let refused = reconnecting("10.0.0.1:7001")?;
    for client in [&connected, &refused] {
        let (owned, token) = (client.clone(), tokens.token("client: closed"));
        client.closed().on_complete(move |_| drop((owned, token)));
    }
    let (owned, token) = (refused.clone(), tokens.token("client: connected"));
    refused.connected().on_complete(move |_| drop((owned, token)));

    let channel = connected.connected().wait()?;
    let (owned, token) = (channel.clone(), tokens.token("channel: closed"));
    channel.closed().on_complete(move |_| drop((owned, token)));
    let (owned, token) = (channel.clone(), tokens.token("channel: task"));
    channel.schedule(100 * SECOND, move |_ctx| {
        drop((owned, token));
        Ok(())
    })?;
    let members = ChannelGroup::new();
    assert!(members.join(channel.clone()));
    let (owned, token) = (members.clone(), tokens.token("group of channels"));
    channel.closed().on_complete(move |_| drop((owned, token)));

    let token = tokens.token("datagrams: handler");
    let datagrams = DatagramBootstrap::new(&group)
        .handler(move || Quiet { _token: token.clone() })
        .bind("10.0.0.1:7002")?;
    let (owned, token) = (datagrams.clone(), tokens.token("datagrams: closed"));
    datagrams.closed().on_complete(move |_| drop((owned, token)));

    #[cfg(feature = "redis")]
    {
        let redis = netwheel::redis::RedisClient::builder(&group, "redis://10.0.0.1:7001").connect()?;
        let (owned, token) = (redis.clone(), tokens.token("Redis: call"));
        redis.call(["PING"]).on_complete(move |_| drop((owned, token)));
        let owned = (redis.clone(), tokens.token("Redis: sink"));
        let subscription = redis.subscribe("news", move |_event| _ = &owned)?;
        let owned = (redis, subscription, tokens.token("Redis: closed"));
        owned.0.closed().on_complete(move |_| drop(owned));
    }

    let (owned, token) = (group.clone(), tokens.token("loop: terminated"));
    group.next().terminated().on_complete(move |_| drop((owned, token)));
    let (owned, token) = (group.clone(), tokens.token("loop: task"));
    group.next().schedule(100 * SECOND, move || drop((owned, token)))?;
    loop {
        sleep(SECOND);
    }
}

type End = fn(&mut Simulation, NodeId);

#[test]
fn a_killed_node_leaves_no_memory() {
    let ends: [End; 3] = [|all, node| all.kill(node), |all, node| all.power_off(node), |_, _| ()];
    for end in ends {
        let tokens = Tokens(Journal::new());
        let of_program = tokens.clone();
        let mut simulation = Simulation::new(1);
        let node = simulation.node("one", "10.0.0.1", move || program(&of_program));
        simulation.run_for(5 * SECOND).unwrap();
        assert!(tokens.left().contains(&"accepted channel: handler"));
        assert!(tokens.left().contains(&"loop: task"), "the program has started all");
        end(&mut simulation, node);
        drop(simulation);
        assert_eq!(tokens.left(), Vec::<&str>::new());
    }
}
