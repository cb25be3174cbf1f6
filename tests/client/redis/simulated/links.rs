//! Connections that break, and servers that are restarted.

use super::{
    super::{outcome, subscriptions::text_of},
    SECOND, builder, redis, redis_node,
};
use netwheel::{
    EventLoopGroup, Result,
    redis::{RedisClient, RedisCommand, RedisSettings, ServerInfo},
    testing::{
        redis::{Persistence, RedisServer},
        simulation::{Journal, NodeId, Simulation, sleep},
    },
};
use std::{
    sync::{Arc, Mutex},
    time::Duration,
};

/// A server, and a client on another node.
struct Scene {
    simulation: Simulation,
    redis: NodeId,
    client: NodeId,
}

impl Scene {
    fn new(server: &RedisServer, program: impl Fn() -> Result + Send + Sync + 'static) -> Self {
        let mut simulation = Simulation::new(1);
        let redis = redis_node(&mut simulation, server);
        let client = simulation.node("client", "10.0.0.2", program);
        Scene { simulation, redis, client }
    }

    fn run_for(&mut self, time: Duration) {
        self.simulation.run_for(time).unwrap_or_else(|failure| panic!("{failure}"));
    }

    fn finish(&mut self) {
        let ended = self.simulation.run_until_ended(self.client, 1000 * SECOND);
        ended.unwrap_or_else(|failure| panic!("{failure}"));
    }
}

#[test]
fn a_command_in_flight_may_be_executed_and_a_waiting_one_is_sent_later() {
    let server = redis().persistence(Persistence::Always);
    let control = server.clone();
    let mut scene = Scene::new(&server, move || {
        let redis = builder()?.connect()?;
        assert_eq!(outcome(redis.call(["INCR", "n"]).wait()), "1");
        control.hold_for(100 * SECOND);
        let in_flight = redis.call(["INCR", "n"]);
        // Meanwhile the server is killed, 1 second after the beginning, and started after 3.
        assert_eq!(outcome(in_flight.wait()), "may be executed: Closed");
        let brief = redis.call(RedisCommand::new("INCR").arg("n").timeout(SECOND));
        let patient = redis.call(RedisCommand::new("INCR").arg("n").timeout(20 * SECOND));
        let said = outcome(brief.wait());
        assert!(said.starts_with("not sent: "), "{said}");
        assert_eq!(outcome(patient.wait()), "2", "the one in flight was not executed");
        assert_eq!(redis.stats().connects, 2);
        Ok(())
    });
    scene.run_for(SECOND);
    scene.simulation.kill(scene.redis);
    scene.run_for(2 * SECOND);
    scene.simulation.restart(scene.redis);
    scene.finish();
}

#[test]
fn a_half_open_connection_is_found() {
    let server = redis();
    let mut scene = Scene::new(&server, move || {
        let settings = RedisSettings::new()
            .heartbeat_interval(2 * SECOND)
            .heartbeat_timeout(2 * SECOND)
            .connect_timeout(SECOND);
        let events = Journal::new();
        let seen = events.clone();
        let redis = builder()?.settings(settings).connect()?;
        let _news = redis.subscribe("news", move |event| seen.push(text_of(&event)))?;
        redis.call(["PING"]).wait()?;
        // The machine of the server loses its power after 1 second, and boots after 20.
        sleep(10 * SECOND);
        assert_eq!(events.with(|events| events.to_vec()), ["subscribed", "lost"]);
        assert!(redis.server_info().is_none());
        sleep(20 * SECOND);
        assert_eq!(outcome(redis.call(["PUBLISH", "news", "hello"]).wait()), "1");
        sleep(SECOND);
        assert_eq!(events.with(|events| events.to_vec()), ["subscribed", "lost", "subscribed", "hello"]);
        Ok(())
    });
    scene.run_for(SECOND);
    scene.simulation.power_off(scene.redis);
    scene.run_for(20 * SECOND);
    scene.simulation.restart(scene.redis);
    scene.finish();
}

#[test]
fn a_cut_link_heals() {
    let server = redis();
    let mut scene = Scene::new(&server, move || {
        let settings = RedisSettings::new().command_timeout(100 * SECOND);
        let redis = builder()?.settings(settings).connect()?;
        redis.connected().wait()?;
        sleep(2 * SECOND);
        // The link is cut now, for 30 seconds.
        assert_eq!(outcome(redis.call(["PING"]).wait()), "may be executed: TimedOut", "by the heartbeat");
        assert_eq!(outcome(redis.call(["PING"]).wait()), "PONG");
        Ok(())
    });
    scene.run_for(SECOND);
    let (redis, client) = (scene.redis, scene.client);
    scene.simulation.cut(redis, client, 30 * SECOND);
    scene.finish();
}

#[test]
fn a_command_gets_the_run_id_of_the_server_that_executes_it() {
    let server = redis();
    let seen = Arc::new(Mutex::new(Vec::new()));
    let recorded = seen.clone();
    let mut scene = Scene::new(&server, move || {
        let redis = builder()?.connect()?;
        for _ in 0..100 {
            let ask = |server: &ServerInfo| {
                RedisCommand::transaction(vec![
                    RedisCommand::new("ECHO").arg(server.run_id().unwrap().to_owned()),
                    ["INFO", "server"].into(),
                ])
            };
            let reply = redis.call(RedisCommand::built_with(ask).timeout(30 * SECOND)).wait();
            let Ok(reply) = reply else { continue };
            let text = super::super::text_of(&reply);
            let (run_id, info) = text[1..].split_once(' ').unwrap();
            assert!(info.contains(&format!("run_id:{run_id}\r\n")), "{text}");
            let mut seen = recorded.lock().unwrap();
            if seen.last().is_none_or(|last| last != run_id) {
                seen.push(run_id.to_owned());
            }
            drop(seen);
            sleep(SECOND / 10);
        }
        Ok(())
    });
    for _ in 0..3 {
        scene.run_for(2 * SECOND);
        scene.simulation.kill(scene.redis);
        scene.run_for(SECOND);
        scene.simulation.restart(scene.redis);
    }
    scene.finish();
    assert_eq!(seen.lock().unwrap().len(), 4, "{seen:?}");
}

/// Subscribes to channels, and records the events of each.
fn subscribe_all(
    redis: &RedisClient,
    count: usize,
    events: &Journal<(usize, String)>,
) -> Vec<netwheel::redis::RedisSubscription> {
    let subscribe = |n: usize| {
        let events = events.clone();
        redis.subscribe(format!("channel{n}"), move |event| events.push((n, text_of(&event)))).unwrap()
    };
    (0..count).map(subscribe).collect()
}

#[test]
fn all_subscriptions_are_renewed_also_if_the_connection_breaks_meanwhile() {
    const CHANNELS: usize = 1000;
    let server = redis();
    let mut scene = Scene::new(&server, move || {
        let events = Journal::new();
        let redis = builder()?.settings(RedisSettings::new().subscribe_batch(7)).connect()?;
        let mut subscriptions = subscribe_all(&redis, CHANNELS, &events);
        sleep(20 * SECOND);
        drop(subscriptions.split_off(CHANNELS - 100));
        sleep(SECOND);
        let publish = |n: usize| {
            let command = RedisCommand::new("PUBLISH").arg(format!("channel{n}")).arg("hello");
            outcome(redis.call(command).wait())
        };
        for n in 0..CHANNELS {
            assert_eq!(publish(n), if n < CHANNELS - 100 { "1" } else { "0" });
        }
        sleep(SECOND);
        for n in 0..CHANNELS - 100 {
            let of_channel: Vec<String> = events.with(|events| {
                events.iter().filter(|(channel, _)| *channel == n).map(|(_, text)| text.clone()).collect()
            });
            let (message, states) = of_channel.split_last().unwrap();
            assert_eq!(message, "hello", "channel {n}");
            let expected =
                states.iter().enumerate().all(|(at, state)| state == ["subscribed", "lost"][at % 2]);
            assert!(expected && states.len() % 2 == 1, "channel {n}: {states:?}");
        }
        Ok(())
    });
    // Two kills, the second one during the renewal.
    scene.run_for(SECOND);
    for pause in [Duration::from_millis(700), SECOND] {
        scene.simulation.kill(scene.redis);
        scene.run_for(SECOND / 2);
        scene.simulation.restart(scene.redis);
        scene.run_for(pause);
    }
    scene.finish();
}

#[test]
fn a_shutdown_of_the_group_completes_what_is_in_flight() {
    let server = redis();
    let control = server.clone();
    let mut scene = Scene::new(&server, move || {
        let group = EventLoopGroup::builder().threads(1).build()?;
        let redis = RedisClient::builder(&group, super::URL).connect()?;
        redis.connected().wait()?;
        control.hold_for(SECOND);
        let call = redis.call(["INCR", "n"]);
        let brief = redis.call(RedisCommand::new("INCR").arg("n").timeout(SECOND / 5));
        sleep(SECOND / 10);
        let shutdown = group.shutdown(netwheel::shutdown::ShutdownOptions::new().timeout(5 * SECOND));
        assert_eq!(outcome(brief.wait()), "may be executed: TimedOut", "deadlines hold in the drain");
        shutdown.wait()?;
        assert_eq!(outcome(call.wait()), "1");
        assert_eq!(outcome(redis.call(["PING"]).wait()), "closed");
        Ok(())
    });
    scene.finish();
}
