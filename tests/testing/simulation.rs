//! Whole programs in simulated machines.

use netwheel::{
    codec::Line,
    prelude::*,
    testing::simulation::{
        Exploration, Failure, Faults, Journal, Network, NodeId, Simulation, sleep, sometimes,
    },
    time::default_clock,
};
use std::{
    sync::{Arc, OnceLock},
    time::Duration,
};

/// The first program of the README, as it stands.
mod readme {
    include!("readme_program.rs");

    pub(super) fn run() -> Result {
        main()
    }
}

const SECOND: Duration = Duration::from_secs(1);

/// The seeds of each test that explores. A seed takes 12 to 25 ms of a core in a debug build.
const SEEDS: u64 = 40;

fn echo_server() -> Result {
    let group = EventLoopGroup::builder().threads(2).build()?;
    // Binding may fail while the machine has no descriptors, and the poll may refuse the listener.
    loop {
        let server = ServerBootstrap::new(&group)
            .pipeline(|_peer| Pipeline::codec(Line::new()).on_read(|ctx, line| ctx.write(line)))
            .bind("10.0.0.1:7000");
        match server.and_then(|server| server.closed().wait()) {
            Ok(()) => return Ok(()),
            Err(_) => sleep(SECOND),
        }
    }
}

/// Connects until that works, sends lines, and records the replies. Returns when all lines have
/// come back, over one connection.
fn client(lines: usize, journal: &Journal<String>) -> Result {
    let group = EventLoopGroup::builder().threads(1).build()?;
    loop {
        if one_connection(&group, lines, journal)? {
            return Ok(());
        }
        sometimes("connected again");
        sleep(SECOND);
    }
}

/// Returns whether all lines have come back.
fn one_connection(group: &EventLoopGroup, lines: usize, journal: &Journal<String>) -> Result<bool> {
    journal.push("connecting".to_owned());
    let answers = Journal::new();
    let (heard, all) = (answers.clone(), journal.clone());
    let client = ClientBootstrap::new(group).pipeline(move |_peer| {
        let (heard, all) = (heard.clone(), all.clone());
        Pipeline::codec(Line::new()).on_read(move |_ctx, line| {
            let line = String::from_utf8_lossy(&line).into_owned();
            heard.push(line.clone());
            all.push(line);
            Ok(())
        })
    });
    let Ok(channel) = client.connect("server:7000").wait() else { return Ok(false) };
    for n in 0..lines {
        if channel.write(format!("line {n}").into()).is_err() {
            break;
        }
    }
    for _ in 0..1000 {
        if answers.len() == lines || !channel.is_open() {
            break;
        }
        sleep(Duration::from_millis(100));
    }
    channel.close();
    let _ = channel.closed().wait();
    Ok(answers.len() == lines)
}

/// Lines come back in order, each once per connection.
fn in_order(journal: &[String]) -> Result<(), String> {
    let mut next = 0;
    for line in journal {
        if line == "connecting" {
            next = 0;
        } else if *line == format!("line {next}") {
            next += 1;
        } else {
            return Err(format!("{line} instead of line {next}"));
        }
    }
    Ok(())
}

fn echo(simulation: &mut Simulation, lines: usize) -> (Journal<String>, NodeId) {
    let journal = Journal::new();
    let starts = Journal::new();
    simulation.node("server", "10.0.0.1", move || {
        if !starts.is_empty() {
            sometimes("server started again");
        }
        starts.push(());
        echo_server()
    });
    let heard = journal.clone();
    let client = simulation.node("client", "10.0.0.2", move || client(lines, &heard));
    let checked = journal.clone();
    simulation.check("lines come back in order", move || checked.with(in_order));
    (journal, client)
}

#[test]
fn two_nodes_talk_through_the_simulated_network() {
    let mut simulation = Simulation::new(1);
    let (journal, client) = echo(&mut simulation, 50);
    simulation.run_until_ended(client, 600 * SECOND).unwrap();
    assert_eq!(journal.len(), 51);
    assert!(simulation.elapsed() < SECOND, "{:?}", simulation.elapsed());
}

#[test]
fn a_seed_has_one_trace() {
    let hash = |seed| {
        let mut simulation = Simulation::new(seed);
        let (_, client) = echo(&mut simulation, 50);
        simulation.run_until_ended(client, 600 * SECOND).unwrap();
        simulation.trace_hash()
    };
    assert_eq!(hash(3), hash(3));
    assert_ne!(hash(3), hash(4));
}

/// Runs amid faults for a minute, then heals everything and waits for the client.
fn amid_faults(simulation: &mut Simulation) -> Result<(), Failure> {
    simulation.network(Network::new().buffers(400, 300));
    let (_, client) = echo(simulation, 60);
    simulation.run_for(60 * SECOND)?;
    simulation.heal();
    simulation.run_until_ended(client, 3600 * SECOND)
}

#[test]
fn an_echo_server_recovers_from_all_faults() {
    let explored = Exploration::new(SEEDS).faults(Faults::without_kills()).run(amid_faults);
    let explored = explored.unwrap_or_else(|failure| panic!("{failure}"));
    eprintln!("{} events, {:?}", explored.events(), explored.faults().collect::<Vec<_>>());
    assert!(explored.different_runs() as u64 > explored.seeds() / 2);
    assert!(explored.faults().count() > 20 && explored.reached("connected again") > 0);
}

#[test]
fn a_killed_server_is_started_again() {
    let explored = Exploration::new(SEEDS).faults(Faults::all()).run(|simulation| {
        simulation.network(Network::new().buffers(400, 300));
        let (_, client) = echo(simulation, 60);
        simulation.run_for(60 * SECOND)?;
        simulation.heal();
        // The program of the client may have been killed and started again.
        simulation.run_until_ended(client, 3600 * SECOND)
    });
    let explored = explored.unwrap_or_else(|failure| panic!("{failure}"));
    for fault in ["node-killed", "node-loses-power"] {
        assert!(explored.faults().any(|(name, _)| name == fault), "no seed has {fault}");
    }
    assert!(explored.reached("server started again") > 4);
}

#[test]
fn the_end_of_an_earlier_life_is_not_that_of_the_program() {
    let mut simulation = Simulation::new(1);
    let lives = Journal::new();
    let starts = lives.clone();
    let node = simulation.node("one", "10.0.0.1", move || {
        starts.push(());
        if starts.len() > 1 {
            sleep(10 * SECOND);
        }
        Ok(())
    });
    simulation.run_for(SECOND).unwrap();
    simulation.kill(node);
    simulation.restart(node);
    simulation.run_until_ended(node, 20 * SECOND).unwrap();
    assert!(simulation.elapsed() >= 11 * SECOND, "{:?}", simulation.elapsed());
}

#[test]
fn nodes_that_others_cannot_reach_are_refused() {
    for (name, address, why) in [
        ("two", "10.0.0.1", "two nodes have the address 10.0.0.1"),
        ("two", "::ffff:10.0.0.1", "two nodes have the address 10.0.0.1"),
        ("one", "10.0.0.2", "two nodes have the name one"),
        ("localhost", "10.0.0.2", "localhost is each node itself"),
        ("two", "127.0.0.1", "127.0.0.1 is not the address of a node"),
        ("two", "::1", "::1 is not the address of a node"),
        ("two", "::", ":: is not the address of a node"),
        ("two", "224.0.0.1", "224.0.0.1 is not the address of a node"),
    ] {
        let panic = std::panic::catch_unwind(|| {
            let mut simulation = Simulation::new(1);
            simulation.node("one", "10.0.0.1", || Ok(()));
            simulation.node(name, address, || Ok(()));
        });
        let message = panic.expect_err(address);
        let message = message
            .downcast_ref::<String>()
            .map_or_else(|| message.downcast_ref::<&str>().copied().unwrap_or_default(), String::as_str);
        assert_eq!(message, why);
    }
}

#[test]
fn a_mapped_address_is_that_of_a_node() {
    let mut simulation = Simulation::new(1);
    simulation.node("server", "::ffff:10.0.0.1", echo_server);
    let client = simulation.node("client", "10.0.0.2", || client(1, &Journal::new()));
    simulation.run_until_ended(client, 10 * SECOND).unwrap();
}

#[test]
fn a_program_that_has_returned_can_be_awaited_again() {
    let mut simulation = Simulation::new(1);
    let node = simulation.node("one", "10.0.0.1", || Ok(()));
    simulation.run_until_ended(node, SECOND).unwrap();
    simulation.run_until_ended(node, SECOND).unwrap();

    let node = simulation.node("two", "10.0.0.2", || Err(Error::Closed));
    for _ in 0..2 {
        let failure = simulation.run_until_ended(node, SECOND).unwrap_err();
        assert_eq!(failure.message, "the program has failed: the channel is closed");
    }
}

#[test]
fn what_is_not_reproducible_is_found() {
    use std::sync::atomic::{AtomicU64, Ordering};
    static RUNS: AtomicU64 = AtomicU64::new(1);
    let explored = Exploration::new(1).run(|simulation| {
        simulation.node("one", "10.0.0.1", || {
            // A number that differs in each run, like the address of a value.
            let n = RUNS.fetch_add(1, Ordering::Relaxed);
            sleep(Duration::from_millis(n));
            Ok(())
        });
        simulation.run_for(SECOND)
    });
    let failure = explored.unwrap_err();
    assert!(failure.message.contains("two runs of the seed differ at event"), "{failure}");
    assert!(failure.message.contains("the same event has another time"), "{failure}");
}

#[test]
fn the_program_of_the_readme_runs_as_it_stands() {
    let program = include_str!("readme_program.rs").trim();
    assert!(include_str!("../../README.md").contains(program), "the README has another program now");
    let mut simulation = Simulation::new(1);
    let node = simulation.node("server", "10.0.0.1", readme::run);
    let heard = Journal::new();
    let journal = heard.clone();
    // The program listens on the loopback address, so its client is on the same node.
    simulation.spawn(node, move || {
        let group = EventLoopGroup::builder().threads(1).build()?;
        sleep(SECOND);
        let heard = journal.clone();
        let client = ClientBootstrap::new(&group).pipeline(move |_peer| {
            let heard = heard.clone();
            Pipeline::codec(Line::new()).on_read(move |_ctx, line| {
                heard.push(String::from_utf8_lossy(&line).into_owned());
                Ok(())
            })
        });
        let channel = client.connect("localhost:7000").wait()?;
        channel.write("hello".into())?;
        channel.closed().wait().map(drop)
    });
    simulation.run_until("the idle client is told", 120 * SECOND, || heard.len() == 2).unwrap();
    heard.with(|heard| assert_eq!(heard, ["hello", "bye after 1 lines"]));
    assert!(simulation.elapsed() >= 60 * SECOND, "{:?}", simulation.elapsed());
}

#[test]
fn each_waiter_learns_why_a_listener_has_failed() {
    let faults = Faults::none().rate("registration-fails", 1_000_000);
    let mut simulation = Simulation::with_faults(1, &faults);
    let node = simulation.node("one", "10.0.0.1", || {
        let group = EventLoopGroup::builder().threads(2).build()?;
        let server = ServerBootstrap::new(&group)
            .listener_per_loop(true)
            .pipeline(|_peer| Pipeline::codec(Line::new()).on_read(|ctx, line| ctx.write(line)))
            .bind("10.0.0.1:7000")?;
        let before = server.closed();
        for closed in [before.wait(), server.closed().wait()] {
            assert!(matches!(closed, Err(Error::Io { .. })), "{closed:?}");
        }
        Ok(())
    });
    simulation.run_until_ended(node, 10 * SECOND).unwrap();
}

#[test]
fn callbacks_of_a_killed_program_are_not_called() {
    for loses_power in [false, true] {
        let mut simulation = Simulation::new(1);
        let called = Journal::new();
        let journal = called.clone();
        let node = simulation.node("one", "10.0.0.1", move || {
            let group = EventLoopGroup::builder().threads(1).build()?;
            let server = ServerBootstrap::new(&group)
                .pipeline(|_peer| Pipeline::codec(Line::new()).on_read(|ctx, line| ctx.write(line)))
                .bind("10.0.0.1:7000")?;
            let called = journal.clone();
            called.push("waiting");
            server.closed().on_complete(move |_| called.push("the server has ended"));
            server.closed().wait()
        });
        simulation.run_for(SECOND).unwrap();
        if loses_power {
            simulation.power_off(node)
        } else {
            simulation.kill(node)
        }
        simulation.run_for(SECOND).unwrap();
        called.with(|called| assert_eq!(called, ["waiting"]));
    }
}

#[test]
fn what_a_simulation_does_not_have_is_refused() {
    use netwheel::codec::RawBytes;

    let mut simulation = Simulation::new(1);
    let node = simulation.node("one", "10.0.0.1", || {
        let unsupported = |result: Result<()>, what: &str| match result {
            Err(Error::Io { source, .. }) => {
                assert_eq!(source.kind(), std::io::ErrorKind::Unsupported, "{what}")
            }
            other => panic!("{what}: {other:?}"),
        };
        unsupported(EventLoopGroup::builder().build_manual().map(drop), "a manual loop");
        let group = EventLoopGroup::builder().threads(1).build()?;
        let client = ClientBootstrap::new(&group)
            .pipeline(|_peer| Pipeline::codec(RawBytes).on_read(|_ctx, _bytes| Ok(())));
        let path = netwheel::net::UnixAddress::path("/tmp/of-no-simulation");
        unsupported(client.connect(path?).wait().map(drop), "a Unix socket");
        let file = std::fs::File::open("/dev/null")?;
        let registered = group.next().register(file, netwheel::event_source::Interest::READABLE, |_, _| {
            Ok(netwheel::event_source::SourceAction::Continue)
        });
        unsupported(registered?.wait().map(drop), "a descriptor");
        let listener = std::net::TcpListener::bind("127.0.0.1:0")?;
        let server = ServerBootstrap::new(&group)
            .pipeline(|_peer| Pipeline::codec(RawBytes).on_read(|_ctx, _bytes| Ok(())))
            .adopt(listener);
        unsupported(server.map(drop), "a listener of the system");
        assert!(client.connect("elsewhere.example:80").wait().is_err(), "an unknown name");
        Ok(())
    });
    simulation.run_until_ended(node, SECOND).unwrap();
}

#[test]
fn a_stalled_node_stops_its_programs_and_its_loops() {
    let mut simulation = Simulation::new(1);
    let ticks = Journal::new();
    let of_program = ticks.clone();
    let node = simulation.node("one", "10.0.0.1", move || {
        loop {
            sleep(SECOND);
            of_program.push(());
        }
    });
    simulation.run_for(SECOND * 5 / 2).unwrap();
    assert_eq!(ticks.len(), 2);
    simulation.stall(node, 10 * SECOND);
    simulation.run_for(9 * SECOND).unwrap();
    assert_eq!(ticks.len(), 2);
    simulation.run_for(SECOND * 3 / 2).unwrap();
    assert_eq!(ticks.len(), 3);
}

#[test]
fn a_task_that_arrives_while_its_loop_falls_asleep_runs_at_once() {
    let faults = Faults::none().rate("loop-preempted", 500_000).rate("thread-preempted", 500_000);
    let mut simulation = Simulation::with_faults(1, &faults);
    let shared: Arc<OnceLock<EventLoopGroup>> = Arc::default();
    let of_main = shared.clone();
    let node = simulation.node("one", "10.0.0.1", move || {
        let group = EventLoopGroup::builder().threads(1).build()?;
        // The loop has a timer, so a lost wakeup delays the tasks until then.
        let timer = group.next().schedule(3600 * SECOND, || ())?;
        of_main.get_or_init(|| group);
        sleep(5 * SECOND);
        assert!(timer.cancel());
        Ok(())
    });
    let done = Journal::new();
    // Threads submit tasks while the loop falls asleep behind the tasks of others.
    for _ in 0..3 {
        let (shared, done) = (shared.clone(), done.clone());
        simulation.spawn(node, move || {
            sleep(SECOND);
            let event_loop = shared.get().unwrap().next();
            for n in 0..200 {
                let begun = default_clock().now();
                assert_eq!(event_loop.call(move || n).wait()?, n);
                let waited = default_clock().now() - begun;
                assert!(waited < SECOND / 10, "task {n} has waited for {waited:?}");
                done.push(());
                sleep(SECOND / 1000);
            }
            Ok(())
        });
    }
    simulation.run_until_ended(node, 60 * SECOND).unwrap();
    assert_eq!(done.len(), 600);
}

mod datagrams {
    use super::*;
    use bytes::Bytes;
    use netwheel::datagram::{DatagramContext, DatagramHandler};
    use std::net::SocketAddr;

    /// Sends each datagram back.
    struct Mirror;

    impl DatagramHandler for Mirror {
        fn read(&mut self, ctx: &mut DatagramContext<'_, Self>, datagram: Bytes, from: SocketAddr) -> Result {
            Ok(ctx.write_to(datagram, from)?)
        }
    }

    struct Counts(Journal<Bytes>);

    impl DatagramHandler for Counts {
        fn read(&mut self, _ctx: &mut DatagramContext<'_, Self>, datagram: Bytes, _: SocketAddr) -> Result {
            self.0.push(Bytes::copy_from_slice(&datagram));
            Ok(())
        }
    }

    /// Sends a hundred datagrams to a mirror, and returns the replies.
    fn mirrored(faults: &Faults) -> Journal<Bytes> {
        let mut simulation = Simulation::with_faults(1, faults);
        simulation.node("mirror", "10.0.0.1", || {
            let group = EventLoopGroup::builder().threads(1).build()?;
            DatagramBootstrap::new(&group).handler(|| Mirror).bind("10.0.0.1:9")?.closed().wait().map(drop)
        });
        let answers = Journal::new();
        let heard = answers.clone();
        simulation.node("sender", "10.0.0.2", move || {
            let group = EventLoopGroup::builder().threads(1).build()?;
            let heard = heard.clone();
            let channel =
                DatagramBootstrap::new(&group).handler(move || Counts(heard.clone())).bind("0.0.0.0:0")?;
            sleep(SECOND);
            for n in 0..100_u8 {
                channel.write_to(Bytes::from(vec![n; 100]), "10.0.0.1:9".parse().unwrap())?;
                sleep(SECOND / 100);
            }
            channel.closed().wait().map(drop)
        });
        simulation.keep_trace(usize::MAX);
        simulation.run_for(10 * SECOND).unwrap();
        let has_faults = simulation.trace().iter().any(|event| event.contains(" fault "));
        assert_eq!(has_faults, faults.names().next().is_some(), "faults have happened");
        answers
    }

    #[test]
    fn arrive_in_order_without_faults() {
        mirrored(&Faults::none()).with(|answers| {
            let numbers: Vec<u8> = answers.iter().map(|datagram| datagram[0]).collect();
            assert_eq!(numbers, (0..100).collect::<Vec<u8>>());
        });
    }

    #[test]
    fn are_lost_and_doubled_by_faults() {
        let lost = mirrored(&Faults::none().rate("datagram-lost", 200_000));
        assert!((20..100).contains(&lost.len()), "{}", lost.len());
        let doubled = mirrored(&Faults::none().rate("datagram-twice", 200_000));
        assert!((101..300).contains(&doubled.len()), "{}", doubled.len());
        let blocked = mirrored(&Faults::none().rate("datagram-would-block", 400_000));
        blocked.with(|answers| assert_eq!(answers.len(), 100, "none is lost"));
        let late = mirrored(&Faults::none().rate("datagram-late", 200_000));
        assert_eq!(late.len(), 100);
        late.with(|answers| assert!(!answers.is_sorted(), "none has overtaken another"));
    }
}
