//! Clients that make calls through two pools, several at a time.

use super::{
    super::support::{Calm, Draw, MS, SECOND, Violations, until_ok},
    POOL_SIZE, body_for,
    ledger::Ledger,
};
use netwheel::{
    Completion,
    http::{Call, FullMessage, HttpClient, HttpSettings, NotSent, Request, Response, StatusCode},
    pool::{ChannelPool, PooledChannel},
    prelude::*,
    testing::simulation::{sleep, sometimes},
};
use std::{
    sync::{Arc, Mutex},
    time::Duration,
};

/// The acquires that may wait in a pool.
const WAITERS: usize = 4;

pub(super) struct Client {
    pub(super) ledger: Arc<Mutex<Ledger>>,
    pub(super) violations: Violations,
    /// Whether the faults have ended and the servers behave.
    pub(super) healed: Calm,
    /// Whether all calls have to succeed.
    pub(super) calm: Calm,
    /// How much later than its limit a call may end.
    pub(super) slack: Duration,
}

/// A call that has begun.
struct Begun {
    id: u64,
    method: &'static str,
    limit: Duration,
    response: Completion<FullMessage<Response>>,
    /// The channel of a call that is not made with `ChannelPool::request`.
    channel: Option<PooledChannel<Call>>,
}

impl Client {
    pub(super) fn run(&self) -> Result {
        let group = until_ok(|| EventLoopGroup::builder().threads(2).build());
        let pools = ["rogue:80", "honest:80"].map(|address| until_ok(|| pool(&group, address)));
        let mut draw = Draw::new();
        loop {
            let is_calm = self.calm.is_now();
            let pool = &pools[draw.below(2) as usize];
            let mut begun = Vec::new();
            for _ in 0..=draw.below(5) {
                begun.extend(self.begin(pool, &mut draw, is_calm));
                self.check_limits(pool);
                if draw.one_in(3) {
                    sleep(draw.time(20 * MS));
                }
            }
            while !begun.is_empty() {
                let call = begun.swap_remove(draw.below(begun.len() as u64) as usize);
                if !is_calm && draw.one_in(8) {
                    sleep(draw.time(200 * MS));
                    self.give_up(call, &mut draw);
                } else {
                    self.end(call, is_calm);
                }
                self.check_limits(pool);
            }
            self.check_released(pool);
            if is_calm {
                self.ledger.lock().unwrap().calm_rounds += 1;
            }
            // Fewer rounds, when there is less to find.
            let pauses = if self.healed.is_now() {
                [4 * SECOND; 4]
            } else {
                [Duration::ZERO, 30 * MS, SECOND, 4 * SECOND]
            };
            sleep(draw.pick(&pauses));
        }
    }

    fn begin(&self, pool: &ChannelPool<Call>, draw: &mut Draw, is_calm: bool) -> Option<Begun> {
        let method = draw.pick(&["GET", "GET", "GET", "HEAD", "DELETE", "POST"]);
        let limit =
            if is_calm { 20 * SECOND } else { draw.pick(&[200 * MS, SECOND, 8 * SECOND, 40 * SECOND]) };
        let channel = if draw.one_in(4) && !is_calm {
            // A call by hand. Its request begins only if there is a channel for it.
            Some(pool.acquire().wait_timeout(SECOND).ok()?.ok()?)
        } else {
            None
        };
        let id = self.ledger.lock().unwrap().begin(matches!(method, "GET" | "HEAD"));
        let request = Request::new(method, &format!("/{id}"));
        let request = if method == "POST" { request.body(body_for(id)) } else { request };
        let response = match &channel {
            None => pool.request(request).timeout(limit).send(),
            Some(channel) => {
                let (call, response) = Call::new(request);
                // A channel that has closed fails the call.
                let _ = channel.write(call.timeout(limit));
                response
            }
        };
        Some(Begun { id, method, limit, response, channel })
    }

    /// Gives a call up in one of the ways that there are.
    fn give_up(&self, call: Begun, draw: &mut Draw) {
        match draw.below(4) {
            0 => drop((call.response, call.channel)),
            1 => drop((call.channel, call.response)),
            2 => call.response.detach(),
            _ => drop(call.response.cancel()),
        }
    }

    /// Waits for the end of a call, and checks its result.
    fn end(&self, call: Begun, is_calm: bool) {
        let Begun { id, method, limit, response, channel } = call;
        let waited = response.wait_timeout(limit + self.slack).or_else(|response| {
            // A machine that was stopped finds both times passed when it goes on.
            response.wait_timeout(self.slack)
        });
        let Ok(result) = waited else {
            let kind = if channel.is_some() { "by hand" } else { "of the pool" };
            let what = format!("{method} {id} {kind} has not ended {:?} after {limit:?}", self.slack);
            return self.violations.add(what);
        };
        drop(channel);
        match result {
            Ok(response) => self.check_response(id, method, &response),
            Err(error) if is_calm => self.violations.add(format!("call {id} fails in calm: {error:#}")),
            Err(error) => self.check_error(id, &error),
        }
    }

    fn check_response(&self, id: u64, method: &str, response: &FullMessage<Response>) {
        let (own, headers) = (body_for(id), response.head.headers());
        if response.head.status() == StatusCode::REQUEST_TIMEOUT {
            // The clock of the server has jumped within the head of the request.
            return sometimes("refused request");
        }
        let is_part = headers.contains("x-part");
        let is_own = match method {
            "HEAD" => response.body.is_empty(),
            _ if is_part => own.as_bytes().starts_with(&response.body),
            _ => response.body == own,
        };
        let is_own = is_own && headers.text("x-id") == Some(&*id.to_string());
        self.violations.unless(is_own, || format!("call {id} has another response: {response:?}"));
        sometimes(if is_part { "beginning of a response" } else { "own response" });
    }

    fn check_error(&self, id: u64, error: &Error) {
        if NotSent::of(error).is_some() {
            return self.ledger.lock().unwrap().not_sent(id);
        }
        match error {
            Error::Closed | Error::Io { .. } | Error::Cancelled => {}
            Error::TimedOut { .. } => sometimes("timed out"),
            Error::Peer(_) => sometimes("refused response"),
            error => self.violations.add(format!("call {id} ends with {error:#}")),
        }
    }

    fn check_limits(&self, pool: &ChannelPool<Call>) {
        let is_within = || pool.acquired() + pool.free() <= POOL_SIZE && pool.waiters() <= WAITERS;
        // A channel may be counted twice if this thread is preempted between the counts.
        self.violations.unless((0..3).any(|_| is_within()), || format!("more than its limits: {pool:?}"));
    }

    /// Checks that the pool has all its places back after a round.
    fn check_released(&self, pool: &ChannelPool<Call>) {
        // A call that was detached may take its whole time.
        for _ in 0..120 {
            if (pool.acquired(), pool.waiters()) == (0, 0) {
                return;
            }
            sleep(SECOND);
        }
        self.violations.add(format!("a place is lost: {pool:?}"));
    }
}

fn pool(group: &EventLoopGroup, address: &'static str) -> Result<ChannelPool<Call>> {
    let settings = HttpSettings::new().response_timeout(10 * SECOND);
    let http = HttpClient::with(settings)?.host(address);
    ClientBootstrap::new(group)
        .connect_timeout(5 * SECOND)
        .pipeline(move |_peer| http.calls(64 * 1024))
        .pool()
        .size(POOL_SIZE)
        .max_waiters(WAITERS)
        .build(address)
}
