//! The spread of connections that were accepted at the same time.

use super::{Polite, SECOND, now, serve};
use bytes::Bytes;
use netwheel::{
    channel::MaxConnectionAge,
    codec::RawBytes,
    net::ListenerOptions,
    prelude::*,
    testing::simulation::{Journal, Simulation, sleep},
};
use std::{
    collections::BTreeMap,
    time::{Duration, Instant},
};

/// The connections that one second brings.
const CROWD: usize = 10_000;

/// The age of all connections; the jitter is a tenth of it.
const AGE: Duration = Duration::from_secs(60);

/// Writes a request, and records the reply, the last message and the end.
struct Client {
    number: usize,
    told: Told,
}

#[derive(Clone, Default)]
struct Told {
    /// The times at which connections ended.
    ends: Journal<Instant>,
    /// The time of the first connect.
    begin: Journal<Instant>,
    /// Bytes that came back.
    replies: Journal<usize>,
    /// Clients that have read the last message.
    byes: Journal<usize>,
}

impl Handler for Client {
    type Read = Bytes;
    type Write = Bytes;

    fn active(&mut self, ctx: &mut Context<'_, Self>) -> Result {
        ctx.write(".".into())
    }

    fn read(&mut self, _: &mut Context<'_, Self>, bytes: Bytes) -> Result {
        let text = String::from_utf8_lossy(&bytes).into_owned();
        if let Some(replies) = text.strip_suffix("bye") {
            self.told.byes.push(self.number);
            self.told.replies.push(replies.len());
        } else {
            self.told.replies.push(text.len());
        }
        Ok(())
    }

    fn inactive(&mut self, ctx: &mut Context<'_, Self>) -> Result {
        assert!(ctx.close_cause().is_some_and(|cause| cause.is_clean()));
        self.told.ends.push(now());
        Ok(())
    }
}

/// Lets `CROWD` clients connect within a second, and returns their records.
fn ages_of_a_crowd(age: MaxConnectionAge) -> Told {
    let mut simulation = Simulation::new(7);
    serve(&mut simulation, move |group| {
        ServerBootstrap::new(group)
            .listener_options(ListenerOptions::new().backlog(4096))
            .max_connection_age(age)
            .pipeline(|_peer| Pipeline::codec(RawBytes).handler(Polite))
            .bind("10.0.0.1:7000")
    });
    let told = Told::default();
    let heard = told.clone();
    let client = simulation.node("client", "10.0.0.2", move || {
        let group = EventLoopGroup::builder().threads(1).build()?;
        heard.begin.push(now());
        for batch in 0..20 {
            for n in 0..CROWD / 20 {
                let (number, told) = (batch * CROWD / 20 + n, heard.clone());
                ClientBootstrap::new(&group)
                    .pipeline(move |_peer| {
                        Pipeline::codec(RawBytes).handler(Client { number, told: told.clone() })
                    })
                    .connect("10.0.0.1:7000")
                    .detach();
            }
            sleep(SECOND / 20);
        }
        sleep(200 * SECOND);
        Ok(())
    });
    simulation.run_until_ended(client, 300 * SECOND).unwrap();
    told
}

/// Returns the largest number of ends within a second, wherever it begins.
fn busiest_second(ends: &[Duration]) -> usize {
    let mut ends = ends.to_vec();
    ends.sort_unstable();
    let within = |i: usize| ends[i..].iter().take_while(|end| **end < ends[i] + SECOND).count();
    (0..ends.len()).step_by(10).map(within).max().unwrap_or(0)
}

#[test]
fn no_second_closes_more_than_three_percent_of_a_crowd() {
    let told = ages_of_a_crowd(MaxConnectionAge::new(AGE));
    let begin = told.begin.with(|all| all[0]);
    let ends: Vec<Duration> = told.ends.with(|all| all.iter().map(|end| *end - begin).collect());
    assert_eq!((ends.len(), told.byes.len()), (CROWD, CROWD), "all end, and are told");
    assert_eq!(told.replies.with(|all| all.iter().sum::<usize>()), CROWD, "no reply is lost");
    let busiest = busiest_second(&ends);
    let mut seconds = BTreeMap::<u64, usize>::new();
    ends.iter().for_each(|end| *seconds.entry(end.as_secs()).or_default() += 1);
    eprintln!("busiest second: {busiest}; by second: {seconds:?}");
    assert!(busiest * 100 <= CROWD * 3, "{busiest} of {CROWD} in one second");
    let (first, last) = (ends.iter().min().unwrap(), ends.iter().max().unwrap());
    assert!(*first >= AGE * 9 / 10, "the first one ends after {first:?}");
    assert!(*last <= AGE * 11 / 10 + 42 * SECOND, "the last one ends after {last:?}");
}
