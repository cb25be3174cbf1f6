//! Nodes that are closed while a handler has not answered.

use super::server::{Server, server};
use crate::support::{
    loops::{end, one_loop},
    wait::{done, ms, wait_until},
};
use netwheel::{
    EventLoopGroup,
    durable::{Due, DurableTimers, Late, Retry, TimerId, Topic},
};
use std::{
    sync::{Arc, Mutex},
    time::Duration,
};

/// A node whose handler of "hold" keeps its runs.
struct Node {
    group: EventLoopGroup,
    timers: DurableTimers,
    held: Arc<Mutex<Vec<Due<u32>>>>,
    fired: Arc<Mutex<Vec<u32>>>,
}

impl Node {
    fn new(server: &Server, schema: &str, drain_timeout: Duration) -> Self {
        let group = one_loop();
        // No lease ends during a test, so only partitions that are given back change their owner.
        let builder = server.builder(schema).partitions(8).lease(ms(60_000)).drain_timeout(drain_timeout);
        let (held, fired): (Arc<Mutex<Vec<_>>>, Arc<Mutex<Vec<_>>>) = Default::default();
        let (hold, fire) = (held.clone(), fired.clone());
        let timers = DurableTimers::builder(builder.open().unwrap())
            .topic(Topic::new("hold", Late::RunOnce, Retry::backoff(5), move |due: Due<u32>| {
                hold.lock().unwrap().push(due);
            }))
            .topic(Topic::new("work", Late::RunOnce, Retry::backoff(5), move |due: Due<u32>| {
                fire.lock().unwrap().push(*due.payload());
                due.done();
            }))
            .start(&group)
            .unwrap();
        Node { group, timers, held, fired }
    }

    fn held(&self) -> usize {
        self.held.lock().unwrap().len()
    }

    fn fired(&self) -> usize {
        self.fired.lock().unwrap().len()
    }

    fn answer(&self) {
        self.held.lock().unwrap().drain(..).for_each(Due::done);
    }
}

/// Starts one run that is held, and timers in all partitions, which are not due yet. Returns their
/// ids, and how many of them are not in the partition of the run.
fn start(server: &Server, schema: &str, node: &Node) -> (Vec<TimerId>, usize) {
    done(node.timers.at("hold", Duration::ZERO, &0_u32).start()).unwrap();
    wait_until("the handler is called", || node.held() == 1);
    let later = Duration::from_secs(3600);
    let ids = (0..40_u32).map(|n| done(node.timers.at("work", later, &n).start()).unwrap()).collect();
    let sql = format!(
        "SELECT count(*) FROM {schema}.timers t JOIN {schema}.topics n ON n.id = t.topic
        WHERE n.name = 'work' AND t.partition NOT IN (
            SELECT t.partition FROM {schema}.timers t JOIN {schema}.topics n ON n.id = t.topic
            WHERE n.name = 'hold')"
    );
    let others: i64 = server.client().query_one(&sql, &[]).unwrap().get(0);
    assert!((1..40).contains(&others), "{others} of 40 are elsewhere");
    (ids, usize::try_from(others).unwrap())
}

fn run_now(node: &Node, ids: &[TimerId]) {
    for id in ids {
        done(node.timers.run_now(*id)).unwrap();
    }
}

#[test]
fn a_closing_node_keeps_only_the_partition_of_its_open_run() {
    let Some(server) = server() else { return };
    let old = Node::new(server, "handed_over", ms(600_000));
    let (ids, elsewhere) = start(server, "handed_over", &old);
    let new = Node::new(server, "handed_over", ms(600_000));
    let closed = old.timers.close();
    run_now(&new, &ids);
    wait_until("the others fire", || new.fired() + old.fired() == elsewhere);
    assert!(!closed.is_done());
    assert_eq!((old.timers.metrics().running, new.held()), (1, 0));

    old.answer();
    done(closed).unwrap();
    wait_until("the last partition is handed over", || new.fired() + old.fired() == 40);
    assert_eq!(old.timers.metrics().stale, 0, "the end of the run was stored");
    assert_eq!(new.held(), 0, "the run was not repeated");
    done(new.timers.close()).unwrap();
    end(&old.group);
    end(&new.group);
}

/// The run is repeated on the other node, and its end is refused here.
#[test]
fn a_handler_that_is_stuck_holds_its_partition_for_a_limited_time() {
    let Some(server) = server() else { return };
    let old = Node::new(server, "stuck_handler", ms(500));
    let (ids, _) = start(server, "stuck_handler", &old);
    let new = Node::new(server, "stuck_handler", ms(500));
    let closed = old.timers.close();
    run_now(&new, &ids);
    wait_until("all fire", || new.fired() + old.fired() == 40);
    wait_until("the run is repeated", || new.held() == 1);
    assert!(!closed.is_done());
    new.answer();
    old.answer();
    done(closed).unwrap();
    assert_eq!(old.timers.metrics().stale, 1);
    done(new.timers.close()).unwrap();
    assert_eq!(new.timers.metrics().stale, 0);
    end(&old.group);
    end(&new.group);
}
