//! Random calls through a pool to a server that misbehaves. The model: a response belongs to its
//! call, every call ends, and in the end every place of the pool can be used.

use super::pool::{Answer, Site, get, ok};
use crate::{
    bootstrap::{ChannelPool, PooledChannel},
    error::Error,
    http::{Call, FullMessage, NotSent, Request, Response},
    sync::Completion,
    testing::wait::{PATIENCE, wait_until},
};
use fastrand::Rng;
use std::{thread, time::Duration};

/// What the server does, by the first segment of the target.
const KINDS: [&str; 11] = [
    "ok",
    "slow",
    "interim",
    "close",
    "silence",
    "cut",
    "ok-and-close",
    "ok-and-announced-close",
    "ok-and-more",
    "switch",
    "nonsense",
];

fn misbehave(_: usize, _: usize, target: &str) -> Answer {
    let body = ok(target);
    match target.split('/').nth(1).unwrap_or_default() {
        "slow" => {
            // A few turns of other threads, in which the caller may give up.
            (0..200).for_each(|_| thread::yield_now());
            Answer::Bytes(body)
        }
        "interim" => Answer::Bytes(format!("HTTP/1.1 103 Early Hints\r\n\r\n{body}")),
        "close" => Answer::Close,
        "silence" => Answer::Silence,
        "cut" => Answer::BytesAndClose(body[..body.len() - 1].to_owned()),
        "ok-and-close" => Answer::BytesAndClose(body),
        "ok-and-announced-close" => Answer::Bytes(body.replacen("\r\n", "\r\nConnection: close\r\n", 1)),
        "ok-and-more" => Answer::Bytes(body + &ok("another")),
        "switch" => Answer::Bytes("HTTP/1.1 101 Switching Protocols\r\n\r\n".into()),
        "nonsense" => Answer::Bytes("HTTP/1.1 200 OK\nX\n\n".into()),
        _ => Answer::Bytes(body),
    }
}

struct Started {
    target: String,
    answer: Completion<FullMessage<Response>>,
    /// The channel of a call that was not made through `ChannelPool::call`.
    channel: Option<PooledChannel<Call>>,
    is_cancelled: bool,
}

impl Started {
    /// Waits for the end of the call, and compares its response.
    #[track_caller]
    fn check(self, seed: u64) {
        let Started { target, answer, channel, is_cancelled } = self;
        // Otherwise a call that waits for this channel would not end.
        drop(channel);
        match get(answer) {
            Ok(response) => assert_eq!(response.body, target, "seed {seed}: the response of another call"),
            Err(Error::Other(error)) => assert!(error.is::<NotSent>(), "seed {seed}: {target}: {error}"),
            Err(Error::Closed | Error::Io { .. } | Error::TimedOut { .. } | Error::Peer(_)) => {}
            Err(Error::Cancelled) if is_cancelled => {}
            Err(error) => panic!("seed {seed}: {target}: {error:#}"),
        }
    }
}

fn start(pool: &ChannelPool<Call>, random: &mut Rng, number: usize) -> Option<Started> {
    let kind = KINDS[random.usize(..KINDS.len())];
    let target = format!("/{kind}/{number}");
    let limit = if kind == "silence" || random.u8(..4) == 0 {
        Duration::from_micros(random.u64(..20_000))
    } else {
        PATIENCE
    };
    let method = if random.bool() { "GET" } else { "DELETE" };
    let request = Request::new(method, &target);
    if random.u8(..3) > 0 {
        let answer = pool.request(request).timeout(limit).send();
        return Some(Started { target, answer, channel: None, is_cancelled: false });
    }
    let channel = pool.acquire().wait_timeout(Duration::from_millis(1)).ok()?.ok()?;
    let (call, answer) = Call::new(request);
    // The channel may have closed since.
    let _ = channel.write(call.timeout(limit));
    Some(Started { target, answer, channel: Some(channel), is_cancelled: false })
}

fn run(seed: u64) {
    let mut random = Rng::with_seed(seed);
    let size = random.usize(1..=4);
    let site = Site::new(misbehave);
    let (_group, pool) = site.pool(size);
    let mut started: Vec<Started> = Vec::new();
    for number in 0..150 {
        let any = random.usize(..started.len().max(1));
        match random.u8(..10) {
            _ if started.is_empty() => started.extend(start(&pool, &mut random, number)),
            0..=4 => started.extend(start(&pool, &mut random, number)),
            5 => {
                let Started { answer, channel, .. } = started.swap_remove(any);
                // The caller gives up: before or after the channel goes back.
                if random.bool() { drop((answer, channel)) } else { drop((channel, answer)) }
            }
            6 => drop(started[any].channel.take()),
            7 => {
                started.iter_mut().for_each(|call| drop(call.channel.take()));
                started.swap_remove(any).check(seed);
            }
            8 => started.swap_remove(any).answer.detach(),
            _ => started[any].is_cancelled |= started[any].answer.cancel(),
        }
        if started.len() > 30 {
            started.drain(..).for_each(|call| drop(call.answer));
        }
    }
    started.iter_mut().for_each(|call| drop(call.channel.take()));
    started.into_iter().for_each(|call| call.check(seed));
    wait_until(&format!("seed {seed}: all places are free"), || (pool.acquired(), pool.waiters()) == (0, 0));
    // All at the same time. A connection among them may have ended by now, which is not an error.
    let all: Vec<_> = (0..size).map(|_| get(pool.acquire()).unwrap()).collect();
    drop(all);
    for number in 0..size {
        let target = format!("/ok/last-{number}");
        assert_eq!(get(pool.request(Request::get(&target)).send()).unwrap().body, target, "seed {seed}");
    }
}

#[test]
fn random_calls_get_their_own_responses_and_lose_no_place() {
    for seed in 0..12 {
        run(seed);
    }
}

/// Runs seeds until it is stopped.
#[test]
#[ignore = "runs for as many seeds as NETWHEEL_SEEDS says"]
fn more_random_calls_get_their_own_responses() {
    let seeds = std::env::var("NETWHEEL_SEEDS").ok().and_then(|seeds| seeds.parse().ok()).unwrap_or(1000);
    let first = fastrand::u64(..1 << 40);
    println!("seeds from {first}");
    for seed in first..first + seeds {
        run(seed);
    }
}
