//! A pool of channels: H-19 to H-21.

#[path = "support/nobody.rs"]
mod nobody;
#[path = "support/tcp.rs"]
mod tcp;

use bytes::Bytes;
use netwheel::{ChannelPool, PoolBuilder, PoolOrder, PoolTimeout, Pooled, prelude::*, testing::ManualClock};
use nobody::Nobody;
use std::{
    io::ErrorKind,
    net::SocketAddr,
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicUsize, Ordering::SeqCst},
        mpsc,
    },
    time::Duration,
};
use tcp::*;

const fn ms(n: u64) -> Duration {
    Duration::from_millis(n)
}

/// A loop whose time stands still, a server on it, and a pool of channels to that server.
struct Trial {
    group: EventLoopGroup,
    clock: ManualClock,
    _server: Server,
    at_server: Events,
    pool: ChannelPool<Bytes>,
}

type Builder =
    PoolBuilder<Box<dyn Fn(&netwheel::Peer) -> netwheel::ChannelPipeline<Bytes> + Send + Sync>, Bytes>;

impl Trial {
    fn new(settings: impl FnOnce(Builder) -> Builder) -> Self {
        let clock = ManualClock::new();
        let group = EventLoopGroup::builder().threads(1).clock(clock.clone()).build().unwrap();
        let (server, at_server) = serve(&group, Settings::new(), silent);
        let pool = pool(&group, server.local_address(), settings);
        Trial { group, clock, _server: server, at_server, pool }
    }

    /// What the pool says of itself: channels that are out, free ones, acquires that wait.
    fn counts(&self) -> (usize, usize, usize) {
        (self.pool.acquired(), self.pool.free(), self.pool.waiters())
    }

    /// All of the pool's channels that have a socket; the server has as many.
    #[track_caller]
    fn connections(&self, n: u64) {
        turn_until(&self.group, |metrics| metrics.channels == 2 * n);
    }

    #[track_caller]
    fn get(&self) -> Pooled<Bytes> {
        done(self.pool.acquire()).unwrap()
    }

    /// The next child of the server.
    #[track_caller]
    fn child(&self) -> Channel<Bytes> {
        loop {
            if let Event::Active(child) = self.at_server.next() {
                return child;
            }
        }
    }
}

fn pool(
    group: &EventLoopGroup,
    to: SocketAddr,
    settings: impl FnOnce(Builder) -> Builder,
) -> ChannelPool<Bytes> {
    let (bootstrap, _) = client(group, Settings::new(), silent);
    settings(bootstrap.pool()).build(to).unwrap()
}

// ---- H-19 ------------------------------------------------------------------------------------------------

#[test]
fn h_19_the_second_waits_and_gets_the_same_channel() {
    let trial = Trial::new(|pool| pool.size(1));
    let first = trial.get();
    let id = first.id();
    let waiting = [trial.pool.acquire(), trial.pool.acquire()];
    some_turns(&trial.group);
    assert!(waiting.iter().all(|acquire| !acquire.is_done()));
    assert_eq!(trial.counts(), (1, 0, 2));
    trial.pool.release(first).unwrap();
    for acquire in waiting {
        let again = done(acquire).unwrap();
        assert_eq!(again.id(), id, "first come, first served, with the one channel");
        // Dropped, it goes back.
    }
    assert_eq!(trial.counts(), (0, 1, 0));
    some_turns(&trial.group);
    assert_eq!(metrics(&trial.group).timers_pending, 0, "who was served has no timer");
    assert_eq!(metrics(&trial.group).connected, 1);
    end(&trial.group);
}

#[test]
fn h_19_a_new_one_is_made_while_there_is_room() {
    let trial = Trial::new(|pool| pool.size(3));
    let all: Vec<_> = (0..3).map(|_| trial.get()).collect();
    let fourth = trial.pool.acquire();
    some_turns(&trial.group);
    assert!(!fourth.is_done());
    assert_eq!(trial.counts(), (3, 0, 1));
    drop(all);
    drop(done(fourth).unwrap());
    assert_eq!(trial.counts(), (0, 3, 0));
    assert_eq!(metrics(&trial.group).connected, 3);
    end(&trial.group);
}

#[test]
fn h_19_waiters_are_bounded() {
    let trial = Trial::new(|pool| pool.size(1).max_waiters(2));
    let _held = trial.get();
    let _waiting = [trial.pool.acquire(), trial.pool.acquire()];
    match done(trial.pool.acquire()) {
        Err(Error::Full { what, limit }) => assert_eq!((what, limit), ("waiters of the pool", 2)),
        other => panic!("{other:?}"),
    }
    assert_eq!(trial.counts(), (1, 0, 2));
    end(&trial.group);
}

#[test]
fn h_19_who_waits_for_too_long_fails() {
    let trial = Trial::new(|pool| pool.size(1).acquire_timeout(ms(500)));
    let held = trial.get();
    let waiting = trial.pool.acquire();
    some_turns(&trial.group);
    trial.clock.advance(ms(499));
    some_turns(&trial.group);
    assert!(!waiting.is_done(), "not early");
    trial.clock.advance(ms(1));
    match done(waiting) {
        Err(Error::TimedOut { what: "acquiring a channel", after }) => assert_eq!(after, ms(500)),
        other => panic!("{other:?}"),
    }
    assert_eq!(trial.counts(), (1, 0, 0));
    drop(held);
    assert_eq!(trial.counts(), (0, 1, 0), "nobody is served twice");
    end(&trial.group);
}

#[test]
fn h_19_or_gets_a_new_channel_by_choice() {
    let trial = Trial::new(|pool| pool.size(1).acquire_timeout(ms(500)).on_timeout(PoolTimeout::Open));
    let held = trial.get();
    let waiting = trial.pool.acquire();
    some_turns(&trial.group);
    trial.clock.advance(ms(500));
    let beyond = done(waiting).unwrap();
    assert_ne!(beyond.id(), held.id());
    assert_eq!(trial.counts(), (2, 0, 0));
    trial.connections(2);
    drop(beyond);
    assert_eq!(trial.counts(), (1, 0, 0), "the pool shrinks to its size");
    trial.connections(1);
    drop(held);
    assert_eq!(trial.counts(), (0, 1, 0));
    end(&trial.group);
}

#[test]
fn h_19_zero_is_not_to_wait_at_all() {
    let trial = Trial::new(|pool| pool.size(1).acquire_timeout(ms(0)));
    let held = trial.get();
    let refused = trial.pool.acquire();
    assert!(refused.is_done(), "at once");
    assert!(matches!(done(refused), Err(Error::TimedOut { .. })));
    drop(held);
    drop(trial.get());
    end(&trial.group);

    let trial = Trial::new(|pool| pool.size(1).acquire_timeout(ms(0)).on_timeout(PoolTimeout::Open));
    let both = (trial.get(), trial.get());
    assert_eq!(trial.counts(), (2, 0, 0));
    drop(both);
    assert_eq!(trial.counts(), (0, 1, 0));
    end(&trial.group);
}

#[test]
fn h_19_who_cancels_or_loses_interest_keeps_nothing() {
    let trial = Trial::new(|pool| pool.size(1).max_waiters(20_000));
    let held = trial.get();
    let waiting = trial.pool.acquire();
    some_turns(&trial.group);
    assert_eq!(metrics(&trial.group).timers_pending, 1);
    assert!(waiting.cancel());
    assert_eq!(trial.counts(), (1, 0, 0));
    assert!(matches!(done(waiting), Err(Error::Cancelled)));
    some_turns(&trial.group);
    assert_eq!(metrics(&trial.group).timers_pending, 0);

    // Each of these gets the channel, drops it, and the next has it: a loop, and not a recursion.
    for _ in 0..20_000 {
        drop(trial.pool.acquire());
    }
    let last = trial.pool.acquire();
    assert!(matches!(done(last), Err(Error::Full { .. })));
    drop(held);
    assert_eq!(trial.counts(), (0, 1, 0));
    turn_until(&trial.group, |metrics| metrics.timers_pending == 0);
    end(&trial.group);
}

#[test]
fn h_19_a_channel_whose_acquire_was_cancelled_while_it_was_made_is_free() {
    let trial = Trial::new(|pool| pool.size(1));
    let release = block(&trial.group);
    let acquire = trial.pool.acquire();
    assert_eq!(trial.counts(), (1, 0, 0));
    assert!(acquire.cancel());
    drop(release);
    trial.connections(1);
    assert_eq!(trial.counts(), (0, 1, 0));
    drop(trial.get());
    assert_eq!(metrics(&trial.group).connected, 1);
    end(&trial.group);
}

// ---- H-20 ------------------------------------------------------------------------------------------------

#[test]
fn h_20_a_foreign_channel_is_refused_and_closed() {
    let trial = Trial::new(|pool| pool.size(1));
    let other = pool(&trial.group, trial._server.local_address(), |pool| pool.size(1));
    let channel = done(other.acquire()).unwrap();
    let handle = Channel::clone(&channel);
    match trial.pool.release(channel) {
        Err(Error::Foreign { to }) => assert_eq!(to, "the channel pool"),
        other => panic!("{other:?}"),
    }
    done(handle.closed()).unwrap();
    some_turns(&trial.group);
    assert_eq!(trial.counts(), (0, 0, 0));
    assert_eq!((other.acquired(), other.free()), (0, 0), "its own pool has its place back");
    assert_ne!(done(other.acquire()).unwrap().id(), handle.id());
    end(&trial.group);
}

#[test]
fn h_20_unhealthy_channels_are_not_given_out() {
    let sick = Arc::new(AtomicBool::new(false));
    let (checked, asked) = mpsc::channel();
    let check = {
        let sick = sick.clone();
        move |channel: &Channel<Bytes>| {
            checked.send(channel.id()).unwrap();
            !sick.swap(false, SeqCst)
        }
    };
    let trial = Trial::new(|pool| pool.size(2).health_check(check));
    let (first, second) = (trial.get(), trial.get());
    assert!(asked.try_recv().is_err(), "new ones are healthy");
    let (one, two) = (Channel::clone(&first), Channel::clone(&second));
    drop((first, second));

    // The one on top is sick: the other one is given out.
    sick.store(true, SeqCst);
    let other = trial.get();
    assert_eq!(other.id(), one.id());
    assert_eq!([receive(&asked), receive(&asked)], [two.id(), one.id()]);
    done(two.closed()).unwrap();
    assert_eq!(trial.counts(), (1, 0, 0));
    drop(other);
    // Now the only one is: there is a new one for it.
    sick.store(true, SeqCst);
    let new = trial.get();
    assert!(new.id() != one.id() && new.id() != two.id());
    done(one.closed()).unwrap();
    assert_eq!(trial.counts(), (1, 0, 0));
    trial.connections(1);
    end(&trial.group);
}

#[test]
fn h_20_a_health_check_that_panics_says_no() {
    quiet_panics();
    let trial = Trial::new(|pool| pool.size(1).health_check(|_| panic!("on purpose")));
    let first = trial.get();
    let handle = Channel::clone(&first);
    drop(first);
    assert_ne!(trial.get().id(), handle.id());
    done(handle.closed()).unwrap();
    end(&trial.group);
}

#[test]
fn h_20_the_last_comes_first_or_the_first_by_choice() {
    for (order, expected) in [(PoolOrder::Lifo, [2, 1, 0]), (PoolOrder::Fifo, [0, 1, 2])] {
        let trial = Trial::new(|pool| pool.size(3).order(order));
        let all = [trial.get(), trial.get(), trial.get()];
        let ids = all.each_ref().map(|channel| channel.id());
        all.into_iter().for_each(drop);
        let again = [trial.get(), trial.get(), trial.get()];
        assert_eq!(again.each_ref().map(|channel| channel.id()), expected.map(|n| ids[n]), "{order:?}");
        end(&trial.group);
    }
    let trial = Trial::new(|pool| pool.size(2));
    let (_first, second) = (trial.get(), trial.get());
    let id = second.id();
    drop(second);
    assert_eq!(trial.get().id(), id, "the default");
    end(&trial.group);
}

#[test]
fn h_20_a_channel_that_closes_leaves_by_itself() {
    let trial = Trial::new(|pool| pool.size(2));
    let (one, two) = (trial.get(), trial.get());
    let (child_of_one, child_of_two) = {
        let (a, b) = (trial.child(), trial.child());
        if a.peer_address() == one.local_address() { (a, b) } else { (b, a) }
    };
    let (free, out) = (Channel::clone(&one), Channel::clone(&two));
    drop(one);
    assert_eq!(trial.counts(), (1, 1, 0));
    child_of_one.close_now();
    done(free.closed()).unwrap();
    some_turns(&trial.group);
    assert_eq!(trial.counts(), (1, 0, 0), "a free one");

    let waiting = [trial.pool.acquire(), trial.pool.acquire()];
    let [first, second] = waiting;
    let first = done(first).unwrap();
    some_turns(&trial.group);
    assert!(!second.is_done());
    child_of_two.close_now();
    done(out.closed()).unwrap();
    let second = done(second).unwrap();
    assert_eq!(trial.counts(), (2, 0, 0), "one that is out: somebody gets a new one for it");
    trial.pool.release(two).unwrap();
    assert_eq!(trial.counts(), (2, 0, 0), "it was not its own place any more");
    drop((first, second));
    assert_eq!(trial.counts(), (0, 2, 0));
    end(&trial.group);
}

#[test]
fn h_20_a_channel_that_closes_while_it_is_looked_at_is_not_given_out() {
    let calls = Arc::new(AtomicUsize::new(0));
    let hook = {
        let calls = calls.clone();
        move |channel: &Channel<Bytes>| {
            if calls.fetch_add(1, SeqCst) == 1 {
                channel.close_now();
                done(channel.closed()).unwrap();
            }
            Ok(())
        }
    };
    let trial = Trial::new(|pool| pool.size(1).on_acquire(hook));
    let first = trial.get();
    let id = first.id();
    drop(first);
    let second = trial.get();
    assert_ne!(second.id(), id);
    assert!(second.is_open());
    assert_eq!(trial.counts(), (1, 0, 0));
    end(&trial.group);
}

#[test]
fn h_20_a_channel_that_is_discarded_leaves_at_once() {
    let trial = Trial::new(|pool| pool.size(1));
    let first = trial.get();
    let handle = Channel::clone(&first);
    let waiting = trial.pool.acquire();
    let release = block(&trial.group);
    first.discard();
    assert_eq!(trial.counts(), (1, 0, 0), "a new one is made for who waits");
    drop(release);
    assert_ne!(done(waiting).unwrap().id(), handle.id());
    done(handle.closed()).unwrap();
    end(&trial.group);
}

// ---- H-21 ------------------------------------------------------------------------------------------------

#[test]
fn h_21_a_closed_pool() {
    let trial = Trial::new(|pool| pool.size(2));
    let (held, dropped) = (trial.get(), trial.get());
    let handles = [Channel::clone(&held), Channel::clone(&dropped)];
    let waiting = [trial.pool.acquire(), trial.pool.acquire()];
    some_turns(&trial.group);
    trial.pool.close();
    trial.pool.close();
    assert!(trial.pool.is_closed());
    for acquire in waiting {
        assert!(acquire.is_done(), "at once");
        assert!(matches!(done(acquire), Err(Error::Closed)));
    }
    assert!(matches!(done(trial.pool.acquire()), Err(Error::Closed)));
    assert_eq!(trial.counts(), (2, 0, 0), "what is out stays");
    assert!(held.is_open());
    assert!(matches!(trial.pool.release(held), Err(Error::Closed)));
    drop(dropped);
    for handle in handles {
        done(handle.closed()).unwrap();
    }
    assert_eq!(trial.counts(), (0, 0, 0));
    trial.connections(0);
    assert_eq!(metrics(&trial.group).timers_pending, 0);
    end(&trial.group);
}

#[test]
fn h_21_free_channels_are_closed_with_the_pool_or_its_last_handle() {
    let trial = Trial::new(|pool| pool.size(1));
    drop(trial.get());
    trial.connections(1);
    trial.pool.close();
    trial.connections(0);
    let another = pool(&trial.group, trial._server.local_address(), |pool| pool.size(2));
    let (free, out) = (done(another.acquire()).unwrap(), done(another.acquire()).unwrap());
    drop(free);
    drop(another);
    some_turns(&trial.group);
    trial.connections(2);
    drop(out);
    trial.connections(0);
    end(&trial.group);
}

#[test]
fn h_21_closed_while_a_channel_is_made() {
    let trial = Trial::new(|pool| pool.size(1));
    let release = block(&trial.group);
    let acquire = trial.pool.acquire();
    trial.pool.close();
    drop(release);
    assert!(matches!(done(acquire), Err(Error::Closed)));
    assert_eq!(trial.counts(), (0, 0, 0));
    trial.connections(0);
    end(&trial.group);
}

#[test]
fn h_21_a_hook_that_fails_fails_the_acquire_and_leaks_nothing() {
    quiet_panics();
    let calls = Arc::new(AtomicUsize::new(0));
    let hook = {
        let calls = calls.clone();
        move |_: &Channel<Bytes>| match calls.fetch_add(1, SeqCst) {
            // A new channel, and one that was used.
            0 | 4 => Err("not this one".into()),
            1 | 6 => panic!("on purpose"),
            _ => Ok(()),
        }
    };
    let trial = Trial::new(|pool| pool.size(1).on_acquire(hook));
    let outcome = || match done(trial.pool.acquire()) {
        Ok(channel) => {
            drop(channel);
            "given"
        }
        Err(Error::Other(e)) if e.to_string() == "not this one" => "refused",
        Err(Error::Panicked(e)) if e == "on purpose" => "panicked",
        other => panic!("{other:?}"),
    };
    let outcomes: Vec<_> = (0..8).map(|_| (outcome(), trial.counts())).collect();
    let (none, one) = ((0, 0, 0), (0, 1, 0));
    let (given, refused, panicked) = (("given", one), ("refused", none), ("panicked", none));
    assert_eq!(outcomes, [refused, panicked, given, given, refused, given, panicked, given]);
    trial.connections(1);
    end(&trial.group);
}

#[test]
fn h_21_a_hook_that_fails_for_one_leaves_the_channels_place_to_the_next() {
    let calls = Arc::new(AtomicUsize::new(0));
    let hook = {
        let calls = calls.clone();
        move |_: &Channel<Bytes>| if calls.fetch_add(1, SeqCst) == 1 { Err("no".into()) } else { Ok(()) }
    };
    let trial = Trial::new(|pool| pool.size(1).on_acquire(hook));
    let held = trial.get();
    let [fails, succeeds] = [trial.pool.acquire(), trial.pool.acquire()];
    drop(held);
    assert!(done(fails).is_err());
    let channel = done(succeeds).unwrap();
    assert!(channel.is_open());
    assert_eq!(trial.counts(), (1, 0, 0));
    end(&trial.group);
}

#[test]
fn h_21_nobody_answers_and_everybody_who_waits_hears_of_it() {
    let group = one_loop();
    let nobody = Nobody::new();
    let pool = pool(&group, nobody.address, |pool| pool.size(1));
    let acquires: Vec<_> = (0..20).map(|_| pool.acquire()).collect();
    for acquire in acquires {
        assert_eq!(done(acquire).unwrap_err().io_kind(), Some(ErrorKind::ConnectionRefused));
    }
    assert_eq!((pool.acquired(), pool.free(), pool.waiters()), (0, 0, 0));
    end(&group);
}

#[test]
fn h_21_a_loop_with_as_many_connections_as_it_may_have_leaks_no_place() {
    let group = EventLoopGroup::builder().threads(1).max_connections(1).build().unwrap();
    let servers = one_loop();
    let (server, _at_server) = serve(&servers, Settings::new(), silent);
    let pool = pool(&group, server.local_address(), |pool| pool.size(2));
    let only = done(pool.acquire()).unwrap();
    assert!(matches!(done(pool.acquire()), Err(Error::Full { .. })));
    assert_eq!((pool.acquired(), pool.free()), (1, 0));
    drop(only);
    drop(done(pool.acquire()).unwrap());
    end(&group);
    end(&servers);
}

#[test]
fn h_21_the_loops_are_shut_down() {
    let trial = Trial::new(|pool| pool.size(1));
    let held = trial.get();
    let waiting = trial.pool.acquire();
    some_turns(&trial.group);
    end(&trial.group);
    assert!(matches!(done(waiting), Err(Error::ShutDown)));
    assert!(!held.is_open());
    drop(held);
    assert_eq!(trial.counts(), (0, 0, 0));
    assert!(matches!(done(trial.pool.acquire()), Err(Error::ShutDown)));
    assert_eq!(trial.counts(), (0, 0, 0));
}

// ---- threads ---------------------------------------------------------------------------------------------

#[test]
fn many_threads_share_few_channels_and_no_two_have_the_same() {
    const SIZE: usize = 3;
    let trial = Trial::new(|pool| pool.size(SIZE));
    let (out, most) = (AtomicUsize::new(0), AtomicUsize::new(0));
    std::thread::scope(|scope| {
        for n in 0..8 {
            let (pool, out, most) = (&trial.pool, &out, &most);
            scope.spawn(move || {
                for round in 0..200 {
                    let acquire = pool.acquire();
                    if (n + round) % 7 == 0 {
                        acquire.cancel();
                        continue;
                    }
                    let channel = done(acquire).unwrap();
                    most.fetch_max(out.fetch_add(1, SeqCst) + 1, SeqCst);
                    assert!(channel.is_open());
                    if (n + round) % 13 == 0 {
                        out.fetch_sub(1, SeqCst);
                        channel.discard();
                        continue;
                    }
                    out.fetch_sub(1, SeqCst);
                    drop(channel);
                }
            });
        }
    });
    some_turns(&trial.group);
    assert!(most.load(SeqCst) <= SIZE);
    turn_until(&trial.group, |_| trial.pool.acquired() == 0);
    assert_eq!(trial.pool.waiters(), 0);
    trial.connections(trial.pool.free() as u64);
    end(&trial.group);
}

#[test]
fn on_the_loop_itself_it_is_not_waited_for() {
    let trial = Trial::new(|pool| pool.size(1));
    let pool = trial.pool.clone();
    let result = on_loop(&trial.group, move || pool.acquire().wait().map(drop));
    assert!(matches!(result, Err(Error::WouldDeadlock)));
    end(&trial.group);
}

#[test]
fn settings_out_of_range_are_refused_by_name() {
    let group = one_loop();
    let (bootstrap, _events) = client(&group, Settings::new(), silent);
    match bootstrap.pool().size(0).build(ANY_PORT) {
        Err(Error::Setting(refused)) => assert_eq!(refused.setting, "size"),
        other => panic!("{other:?}"),
    }
    end(&group);
}

/// Panics that a test makes on purpose do not fill the output.
fn quiet_panics() {
    std::panic::set_hook(Box::new(|info| {
        if !info.to_string().contains("on purpose") {
            eprintln!("{info}");
        }
    }));
}
