//! Connections that reach their maximum age, in simulated machines and virtual time.

mod ends;
mod protocols;
mod spread;

use bytes::Bytes;
use netwheel::{
    channel::{MaxConnectionAge, ShutdownCause},
    codec::RawBytes,
    prelude::*,
    testing::simulation::{Journal, NodeId, Simulation},
    time::default_clock,
};
use std::time::{Duration, Instant};

const SECOND: Duration = Duration::from_secs(1);

/// The latest time after its age at which a connection of a small server is notified.
const SLACK: Duration = Duration::from_secs(2);

/// Returns a maximum age without jitter.
fn age(seconds: u64) -> MaxConnectionAge {
    MaxConnectionAge::new(Duration::from_secs(seconds)).jitter(Duration::ZERO)
}

/// Adds a server that runs until the end of the simulation.
fn serve(
    simulation: &mut Simulation,
    bind: impl Fn(&EventLoopGroup) -> Result<Server> + Send + Sync + 'static,
) -> NodeId {
    simulation.node("server", "10.0.0.1", move || {
        let group = EventLoopGroup::builder().threads(1).build()?;
        bind(&group)?.closed().wait()
    })
}

/// Bytes and ends that a client has seen, with the times since it was connected.
type Seen = Journal<(Duration, String)>;

fn now() -> Instant {
    default_clock().now()
}

/// A client that records its input and its end.
struct Recorder {
    seen: Seen,
    since: Instant,
}

impl Recorder {
    fn new(seen: &Seen) -> Self {
        Recorder { seen: seen.clone(), since: now() }
    }

    fn record(&self, what: String) {
        self.seen.push((now() - self.since, what));
    }
}

impl Handler for Recorder {
    type Read = Bytes;
    type Write = Bytes;

    fn read(&mut self, _: &mut Context<'_, Self>, bytes: Bytes) -> Result {
        self.record(String::from_utf8_lossy(&bytes).into_owned());
        Ok(())
    }

    fn inactive(&mut self, ctx: &mut Context<'_, Self>) -> Result {
        let cause = ctx.close_cause().map(|cause| cause.to_string()).unwrap_or_default();
        self.record(format!("<{cause}>"));
        Ok(())
    }
}

fn connect(group: &EventLoopGroup, seen: &Seen) -> Result<Channel<Bytes>> {
    let seen = seen.clone();
    let client = ClientBootstrap::new(group)
        .pipeline(move |_peer| Pipeline::codec(RawBytes).handler(Recorder::new(&seen)));
    client.connect("server:7000").wait()
}

/// Returns all input of a client as one text, with its end.
fn text(seen: &Seen) -> String {
    seen.with(|all| all.iter().map(|(_, what)| what.as_str()).collect())
}

/// Returns when the client has seen its end.
fn end_of(seen: &Seen) -> Duration {
    seen.with(|all| all.last().map_or(Duration::ZERO, |(at, _)| *at))
}

/// Closes at its age with a last message, as the default does without one.
struct Polite;

impl Handler for Polite {
    type Read = Bytes;
    type Write = Bytes;

    fn read(&mut self, ctx: &mut Context<'_, Self>, bytes: Bytes) -> Result {
        ctx.write(bytes)
    }

    fn shutdown(&mut self, ctx: &mut Context<'_, Self>) -> Result {
        assert_eq!(ctx.shutdown_cause(), Some(ShutdownCause::MaxAge));
        ctx.write("bye".into())?;
        ctx.close();
        Ok(())
    }
}
