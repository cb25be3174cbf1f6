//! The end of a connection that has reached its age: grace time, pauses, half-closed streams,
//! handshakes, shutdowns of the loop.

use super::{Polite, Recorder, SECOND, SLACK, Seen, age, connect, end_of, now, serve, text};
use bytes::Bytes;
use netwheel::{
    channel::{ChannelOptions, CloseCause, ShutdownCause},
    codec::RawBytes,
    prelude::*,
    shutdown::ShutdownOptions,
    testing::simulation::{Journal, Simulation, sleep},
};
use std::time::Duration;

/// Stays open at its age, and records the causes of its notifications and of its end.
#[derive(Clone, Default)]
struct Stays {
    causes: Journal<Option<ShutdownCause>>,
    ends: Journal<CloseCause>,
}

impl Handler for Stays {
    type Read = Bytes;
    type Write = Bytes;

    fn read(&mut self, ctx: &mut Context<'_, Self>, bytes: Bytes) -> Result {
        ctx.write(bytes)
    }

    fn shutdown(&mut self, ctx: &mut Context<'_, Self>) -> Result {
        self.causes.push(ctx.shutdown_cause());
        Ok(())
    }

    fn inactive(&mut self, ctx: &mut Context<'_, Self>) -> Result {
        self.ends.push(ctx.close_cause().expect("it has ended"));
        Ok(())
    }
}

/// Runs a client until its connection ends.
fn until_end(simulation: &mut Simulation) -> Seen {
    let seen = Seen::new();
    let of_client = seen.clone();
    let client = simulation.node("client", "10.0.0.2", move || {
        let group = EventLoopGroup::builder().threads(1).build()?;
        let channel = connect(&group, &of_client)?;
        channel.write("hi".into())?;
        channel.closed().wait()?;
        sleep(15 * SECOND);
        Ok(())
    });
    simulation.run_until_ended(client, 300 * SECOND).unwrap();
    seen
}

#[test]
fn a_connection_says_bye_at_its_age_and_closes_cleanly() {
    let mut simulation = Simulation::new(1);
    serve(&mut simulation, |group| {
        ServerBootstrap::new(group)
            .max_connection_age(age(60))
            .pipeline(|_peer| Pipeline::codec(RawBytes).handler(Polite))
            .bind("10.0.0.1:7000")
    });
    let seen = until_end(&mut simulation);
    assert_eq!(text(&seen), "hibye<closed>");
    assert!((60 * SECOND..60 * SECOND + SLACK).contains(&end_of(&seen)), "{:?}", end_of(&seen));
}

#[test]
fn a_connection_that_stays_open_is_closed_after_the_grace_time() {
    let mut simulation = Simulation::new(1);
    let (stays, counted) = (Stays::default(), Journal::new());
    let (of_server, metrics) = (stays.clone(), counted.clone());
    simulation.node("server", "10.0.0.1", move || {
        let group = EventLoopGroup::builder().threads(1).build()?;
        let stays = of_server.clone();
        let _server = ServerBootstrap::new(&group)
            .max_connection_age(age(60).grace_timeout(20 * SECOND))
            .pipeline(move |_peer| Pipeline::codec(RawBytes).handler(stays.clone()))
            .bind("10.0.0.1:7000")?;
        sleep(70 * SECOND);
        let now = group.metrics()[0].clone();
        metrics.push((now.connections_aged, now.grace_expired, now.channels));
        sleep(20 * SECOND);
        let now = group.metrics()[0].clone();
        metrics.push((now.connections_aged, now.grace_expired, now.channels));
        assert_eq!(now.timers_pending, 0, "nothing is left");
        sleep(60 * SECOND);
        Ok(())
    });
    let seen = until_end(&mut simulation);
    assert_eq!(counted.with(<[_]>::to_vec), [(1, 0, 1), (1, 1, 0)]);
    assert_eq!(stays.causes.with(<[_]>::to_vec), [Some(ShutdownCause::MaxAge)], "notified once");
    assert_eq!(stays.ends.with(<[_]>::to_vec), [CloseCause::TimedOut]);
    assert_eq!(text(&seen), "hi<reset>", "not a regular end");
    assert!((80 * SECOND..80 * SECOND + SLACK).contains(&end_of(&seen)), "{:?}", end_of(&seen));
}

#[test]
fn a_connection_that_stays_open_is_notified_again_when_its_loop_shuts_down() {
    let mut simulation = Simulation::new(1);
    let stays = Stays::default();
    let of_server = stays.clone();
    simulation.node("server", "10.0.0.1", move || {
        let group = EventLoopGroup::builder().threads(1).build()?;
        let stays = of_server.clone();
        let _server = ServerBootstrap::new(&group)
            .max_connection_age(age(60).grace_timeout(600 * SECOND))
            .pipeline(move |_peer| Pipeline::codec(RawBytes).handler(stays.clone()))
            .bind("10.0.0.1:7000")?;
        sleep(70 * SECOND);
        let options = ShutdownOptions::new().quiet_period(Duration::ZERO).timeout(5 * SECOND);
        group.shutdown(options).wait().map(drop)
    });
    let seen = until_end(&mut simulation);
    let causes = [Some(ShutdownCause::MaxAge), Some(ShutdownCause::LoopShutdown)];
    assert_eq!(stays.causes.with(<[_]>::to_vec), causes);
    assert!(end_of(&seen) < 80 * SECOND);
}

#[test]
fn a_paused_connection_and_one_that_is_half_closed_are_drained_too() {
    for half_close in [false, true] {
        let mut simulation = Simulation::new(1);
        serve(&mut simulation, move |group| {
            let options = ChannelOptions::new().auto_read(half_close).half_close(half_close);
            ServerBootstrap::new(group)
                .max_connection_age(age(60))
                .channel_options(options)
                .pipeline(|_peer| Pipeline::codec(RawBytes).handler(HalfOpen))
                .bind("10.0.0.1:7000")
        });
        let seen = Seen::new();
        let of_client = seen.clone();
        let client = simulation.node("client", "10.0.0.2", move || {
            let group = EventLoopGroup::builder().threads(1).build()?;
            let seen = of_client.clone();
            let channel = ClientBootstrap::new(&group)
                .channel_options(ChannelOptions::new().half_close(true))
                .pipeline(move |_peer| Pipeline::codec(RawBytes).handler(Recorder::new(&seen)))
                .connect("server:7000")
                .wait()?;
            channel.write("unread".into())?;
            if half_close {
                channel.shutdown_write();
            }
            channel.closed().wait()?;
            sleep(SECOND);
            Ok(())
        });
        simulation.run_until_ended(client, 300 * SECOND).unwrap();
        assert!(text(&seen).starts_with("bye"), "half-closed {half_close}: {}", text(&seen));
        assert!((60 * SECOND..62 * SECOND).contains(&end_of(&seen)), "{:?}", end_of(&seen));
    }
}

/// Keeps a half-closed connection open, and says bye at its age.
struct HalfOpen;

impl Handler for HalfOpen {
    type Read = Bytes;
    type Write = Bytes;

    fn read(&mut self, _: &mut Context<'_, Self>, _: Bytes) -> Result {
        Ok(())
    }

    fn read_closed(&mut self, _: &mut Context<'_, Self>) -> Result {
        Ok(())
    }

    fn shutdown(&mut self, ctx: &mut Context<'_, Self>) -> Result {
        ctx.write("bye".into())?;
        ctx.close();
        Ok(())
    }
}

#[test]
fn a_pipeline_that_replaces_an_aged_one_is_notified_too() {
    let mut simulation = Simulation::new(1);
    let stays = Stays::default();
    let of_server = stays.clone();
    serve(&mut simulation, move |group| {
        let stays = of_server.clone();
        ServerBootstrap::new(group)
            .max_connection_age(age(60).grace_timeout(10 * SECOND))
            .pipeline(move |_peer| Pipeline::codec(RawBytes).handler(Replaces(stays.clone())))
            .bind("10.0.0.1:7000")
    });
    let seen = until_end(&mut simulation);
    assert_eq!(stays.causes.with(<[_]>::to_vec), [Some(ShutdownCause::MaxAge)]);
    assert!((80 * SECOND..80 * SECOND + 2 * SLACK).contains(&end_of(&seen)), "{:?}", end_of(&seen));
}

/// Is replaced at its age.
struct Replaces(Stays);

impl Handler for Replaces {
    type Read = Bytes;
    type Write = Bytes;

    fn read(&mut self, _: &mut Context<'_, Self>, _: Bytes) -> Result {
        Ok(())
    }

    fn shutdown(&mut self, ctx: &mut Context<'_, Self>) -> Result {
        ctx.replace_pipeline(Pipeline::codec(RawBytes).handler(self.0.clone()))
    }
}

#[test]
fn connections_that_end_early_leave_nothing_and_others_keep_their_times() {
    let mut simulation = Simulation::new(1);
    serve(&mut simulation, |group| {
        ServerBootstrap::new(group)
            .max_connection_age(age(60))
            .pipeline(|_peer| Pipeline::codec(RawBytes).handler(Polite))
            .bind("10.0.0.1:7000")
    });
    let seen = Seen::new();
    let of_client = seen.clone();
    let client = simulation.node("client", "10.0.0.2", move || {
        let group = EventLoopGroup::builder().threads(1).build()?;
        let kept = connect(&group, &of_client)?;
        let begin = now();
        // The slots of these are used again and again.
        while now() < begin + 59 * SECOND {
            let brief = connect(&group, &Seen::new())?;
            brief.close();
            brief.closed().wait()?;
            sleep(SECOND / 20);
        }
        kept.closed().wait()?;
        sleep(SECOND);
        Ok(())
    });
    simulation.run_until_ended(client, 300 * SECOND).unwrap();
    assert_eq!(text(&seen), "bye<closed>");
    assert!((60 * SECOND..60 * SECOND + SLACK).contains(&end_of(&seen)), "{:?}", end_of(&seen));
}
