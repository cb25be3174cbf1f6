//! Explorations: runs that differ, failures that shrink and are repeated, and traces.

use bytes::Bytes;
use netwheel::{
    codec::{Line, RawBytes},
    prelude::*,
    testing::simulation::{Exploration, Failure, Faults, Journal, Simulation, chance, sleep},
};
use std::{
    collections::HashSet,
    hash::{BuildHasher, RandomState},
    io,
    sync::{
        Arc, Mutex,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

const SECOND: Duration = Duration::from_secs(1);

fn echo_server() -> Result {
    let group = EventLoopGroup::builder().threads(1).build()?;
    ServerBootstrap::new(&group)
        .pipeline(|_peer| Pipeline::codec(Line::new()).on_read(|ctx, line| ctx.write(line)))
        .bind("10.0.0.1:7000")?
        .closed()
        .wait()
}

/// Sends what `message` returns on a connection of its own.
fn send(message: impl Fn() -> Bytes) -> Result {
    let group = EventLoopGroup::builder().threads(1).build()?;
    let client = ClientBootstrap::new(&group)
        .pipeline(|_peer| Pipeline::codec(RawBytes).on_read(|_ctx, _bytes: Bytes| Ok(())));
    let channel = client.connect("server:7000").wait()?;
    channel.write(message())?;
    sleep(SECOND);
    Ok(())
}

/// Explores one seed of a client that sends what `message` returns.
fn one_message(
    compares_contents: bool,
    message: impl Fn() -> Bytes + Clone + Send + Sync + 'static,
) -> Result<(), Box<Failure>> {
    let explored = Exploration::new(1).run(|simulation| {
        simulation.compare_contents(compares_contents);
        simulation.node("server", "10.0.0.1", echo_server);
        let message = message.clone();
        let client = simulation.node("client", "10.0.0.2", move || send(&message));
        simulation.run_until_ended(client, 10 * SECOND)
    });
    explored.map(drop)
}

/// Returns sixteen letters that differ in each run, as a random number does.
fn random_letters() -> Bytes {
    format!("{:016x}", RandomState::new().hash_one(1)).into()
}

#[test]
fn contents_that_differ_are_found_unless_they_are_left_out() {
    let failure = one_message(true, random_letters).unwrap_err();
    assert!(failure.message.contains("different contents"), "{failure}");
    one_message(false, random_letters).unwrap();
}

#[test]
fn a_message_of_another_length_is_reported_as_that() {
    static LENGTH: AtomicU64 = AtomicU64::new(1);
    let message = || Bytes::from(vec![b'x'; LENGTH.fetch_add(1, Ordering::Relaxed) as usize]);
    let failure = one_message(true, message).unwrap_err();
    assert!(failure.message.contains("another number of bytes"), "{failure}");
}

#[test]
fn the_order_of_a_hash_set_is_reported_as_that() {
    let explored = Exploration::new(1).run(|simulation| {
        let node = simulation.node("one", "10.0.0.1", || {
            let group = EventLoopGroup::builder().threads(1).build()?;
            let servers = (1..=20).map(|port| {
                ServerBootstrap::new(&group)
                    .pipeline(|_peer| Pipeline::codec(RawBytes).on_read(|_ctx, _bytes: Bytes| Ok(())))
                    .bind(format!("10.0.0.1:{port}"))
            });
            let _servers = servers.collect::<Result<Vec<_>>>()?;
            let ports: HashSet<u16> = (1..=20).collect();
            for port in ports {
                let client = ClientBootstrap::new(&group)
                    .pipeline(|_peer| Pipeline::codec(RawBytes).on_read(|_ctx, _bytes: Bytes| Ok(())));
                client.connect(format!("10.0.0.1:{port}")).wait()?.close();
            }
            Ok(())
        });
        simulation.run_until_ended(node, 10 * SECOND)
    });
    let failure = explored.unwrap_err();
    assert!(failure.message.contains("another order"), "{failure}");
}

#[test]
fn equal_events_with_different_outcomes_are_found() {
    let mut runs = 0;
    let explored = Exploration::new(1).run(|simulation| {
        simulation.node("one", "10.0.0.1", || {
            sleep(SECOND);
            Ok(())
        });
        simulation.run_for(3 * SECOND)?;
        runs += 1;
        if runs == 1 { Ok(()) } else { Err(simulation.fail("this is the second run")) }
    });
    let failure = explored.unwrap_err();
    let expected = "the same events and different outcomes: no failure; this is the second run";
    assert!(failure.message.ends_with(expected), "{failure}");
}

#[test]
fn a_thread_that_runs_in_one_run_only_is_reported_as_that() {
    static RUNS: AtomicU64 = AtomicU64::new(0);
    let explored = Exploration::new(1).run(|simulation| {
        simulation.node("one", "10.0.0.1", || {
            (0..10).for_each(|_| sleep(SECOND));
            Ok(())
        });
        simulation.node("two", "10.0.0.2", || {
            // The time differs in each run, like one that a thread of the system decides.
            sleep(SECOND / 2 * (1 + RUNS.fetch_add(1, Ordering::Relaxed) as u32 * 2));
            Ok(())
        });
        simulation.run_for(10 * SECOND)
    });
    let failure = explored.unwrap_err();
    assert!(failure.message.contains("a thread of a program has run in one run only"), "{failure}");
}

#[test]
fn a_failure_has_the_last_events_before_it() {
    let failure = Exploration::new(1).run(|simulation| {
        let ticks = Journal::new();
        let journal = ticks.clone();
        simulation.node("one", "10.0.0.1", move || {
            loop {
                sleep(SECOND);
                journal.push(());
            }
        });
        simulation.check("few ticks", move || match ticks.len() {
            100_000 => Err("too many ticks".to_owned()),
            _ => Ok(()),
        });
        simulation.run_for(200_000 * SECOND)
    });
    let failure = failure.unwrap_err();
    let events: Vec<String> = failure.trace().collect();
    let ran: Vec<u64> = events
        .iter()
        .filter(|event| event.contains("thread-ran"))
        .map(|event| event.split('.').next().unwrap().parse().unwrap())
        .collect();
    assert!(ran.len() > 50 && ran.is_sorted(), "{events:?}");
    assert_eq!(ran.last(), Some(&failure.at.as_secs()), "the last event is the one that fails");
    assert!(events.len() <= 64, "{}", events.len());
    let report = failure.to_string();
    assert!(report.contains(&format!("\n  {}\nrepeat with", events.last().unwrap())), "{report}");
}

#[test]
fn a_failure_has_the_errors_of_all_programs_with_their_causes() {
    let mut simulation = Simulation::new(1);
    let server = simulation.node("server", "10.0.0.1", || {
        let group = EventLoopGroup::builder().threads(1).build()?;
        ServerBootstrap::new(&group)
            .pipeline(|_peer| Pipeline::codec(Line::new()).on_read(|ctx, line| ctx.write(line)))
            .bind("10.0.0.9:7000")?
            .closed()
            .wait()
    });
    simulation.spawn(server, || Err(Error::ShutDown));
    let client = simulation.node("client", "10.0.0.2", || send(|| Bytes::from_static(b"hello\n")));
    let failure = simulation.run_until_ended(client, 10 * SECOND).unwrap_err();
    assert!(failure.message.ends_with("connection refused"), "{failure}");
    let report = failure.to_string();
    let errors: Vec<_> = report.lines().filter(|line| line.starts_with("a program of node")).collect();
    let [bind, connect, spawned] = errors[..] else { panic!("{report}") };
    assert!(bind.starts_with("a program of node server has failed: "), "{bind}");
    assert!(bind.ends_with("address not available"), "{bind}");
    assert!(connect.starts_with("a program of node client"), "{connect}");
    assert_eq!(spawned, "a program of node server has failed: shut down; no more work is accepted");

    let error = Error::from(io::Error::from(io::ErrorKind::ConnectionRefused));
    assert!(Failure::from(error).message.ends_with("connection refused"));
}

/// A client that needs a connection that lasts.
fn needs_a_connection_that_lasts(simulation: &mut Simulation) -> Result<(), Failure> {
    simulation.node("server", "10.0.0.1", echo_server);
    let broken = Journal::new();
    let seen = broken.clone();
    simulation.node("client", "10.0.0.2", move || {
        let group = EventLoopGroup::builder().threads(1).build()?;
        let client = ClientBootstrap::new(&group)
            .pipeline(|_peer| Pipeline::codec(Line::new()).on_read(|_ctx, _line| Ok(())));
        let channel = client.connect("server:7000").wait()?;
        for _ in 0..30 {
            channel.write("still here".into())?;
            sleep(SECOND);
            if !channel.is_open() {
                seen.push(());
            }
        }
        Ok(())
    });
    simulation.check("the connection lasts", move || match broken.is_empty() {
        true => Ok(()),
        false => Err("it has broken".to_owned()),
    });
    simulation.run_for(40 * SECOND)
}

#[test]
fn a_shrunken_failure_is_repeated_by_its_text() {
    let faults = ["connection-reset", "node-stalls", "short-read", "late-edge", "slow-turn"];
    let faults = faults.iter().fold(Faults::none(), |faults, name| faults.rate(name, 200_000));
    let exploration = Exploration::new(20).first_seed(1).all_faults_together().faults(faults);
    let failure = exploration.run(needs_a_connection_that_lasts).unwrap_err();
    let run = failure.replay().unwrap();
    assert!(run.contains(":connection-reset="), "{run}");
    assert_eq!(failure.faults().count(), 1, "{failure}");
    assert!(failure.to_string().contains(&format!("NETWHEEL_SIMULATION='{run}'")), "{failure}");

    // The rates are not needed, and nothing else happens.
    let again = Exploration::new(1).replay(&run).run(needs_a_connection_that_lasts).unwrap_err();
    assert_eq!((again.seed, again.at, &again.message), (failure.seed, failure.at, &failure.message));
    assert_eq!(again.faults().collect::<Vec<_>>(), failure.faults().collect::<Vec<_>>());
    assert_eq!(again.replay(), Some(run.clone()));

    let (seed, _) = run.split_once(':').unwrap();
    let calm = Exploration::new(1).replay(&format!("{seed}:no-faults"));
    assert_eq!(calm.run(needs_a_connection_that_lasts).unwrap().faults().count(), 0);
}

#[test]
fn two_runs_of_a_replay_that_differ_are_repeated_by_its_text() {
    let differs = |exploration: Exploration| {
        let mut runs = 0;
        let explored = exploration.run(|simulation| {
            runs += 1;
            simulation.run_for(runs * SECOND)?;
            if runs == 1 { Ok(()) } else { Err(simulation.fail("this is the second run")) }
        });
        explored.unwrap_err().to_string()
    };
    let report = differs(Exploration::new(1).replay("7:short-read=3,7-9"));
    assert!(report.ends_with("\nrepeat with NETWHEEL_SIMULATION='7:short-read=3,7-9'"), "{report}");
    let report = differs(Exploration::new(1).first_seed(7));
    assert!(report.ends_with("\nrepeat with NETWHEEL_SIMULATION=7"), "{report}");
    // The variable does not change a simulation that no exploration runs.
    let report = Simulation::new(7).fail("a failure").to_string();
    assert!(!report.contains("NETWHEEL_SIMULATION"), "{report}");
}

#[test]
fn a_failure_shrinks_to_the_operations_that_cause_it() {
    /// Fails if the operation "bad" happens after "prepare".
    fn scenario(simulation: &mut Simulation) -> Result<(), Failure> {
        let done = Journal::new();
        let seen = done.clone();
        simulation.node("other", "10.0.0.1", || {
            (0..50).for_each(|_| sleep(if chance("wait", 500_000) { 2 * SECOND } else { SECOND }));
            Ok(())
        });
        simulation.node("one", "10.0.0.2", move || {
            for n in 0..50 {
                for name in ["prepare", "bad", "harmless"] {
                    if chance(name, 100_000) {
                        seen.push((name, n));
                    }
                }
                sleep(SECOND);
            }
            Ok(())
        });
        simulation.check("nothing bad is done", move || {
            done.with(|done| {
                let prepared = done.iter().position(|(name, _)| *name == "prepare");
                let bad = done.iter().rposition(|(name, _)| *name == "bad");
                match (prepared, bad) {
                    (Some(prepared), Some(bad)) if prepared < bad => Err(format!("bad as number {bad}")),
                    _ => Ok(()),
                }
            })
        });
        simulation.run_for(60 * SECOND)
    }
    let failure = Exploration::new(50).first_seed(1).run(scenario).unwrap_err();
    let run = failure.replay().unwrap();
    let operations: Vec<&str> = run.split([':', ';']).skip(1).collect();
    assert_eq!(operations.len(), 3, "{run}");
    assert_eq!(operations[0], "no-faults");
    let is_one =
        |text: &str, name: &str| text.strip_prefix(name).is_some_and(|number| number.parse::<u32>().is_ok());
    assert!(is_one(operations[1], "bad@1=") && is_one(operations[2], "prepare@1="), "{run}");
    let again = Exploration::new(1).replay(&run).run(scenario).unwrap_err();
    assert_eq!((again.at, again.replay()), (failure.at, Some(run)));
}

#[test]
fn a_panic_of_the_scenario_is_a_failure_with_its_seed() {
    let exploration = Exploration::new(3).first_seed(8);
    let failure = exploration.run(|simulation| {
        simulation.node("one", "10.0.0.1", || {
            sleep(SECOND);
            Ok(())
        });
        simulation.run_for(2 * SECOND)?;
        assert_ne!(simulation.seed(), 9, "nine is not allowed");
        Ok(())
    });
    let failure = failure.unwrap_err();
    assert_eq!(failure.seed, 9);
    assert!(failure.message.contains("nine is not allowed"), "{failure}");
}

/// A file in memory.
#[derive(Clone, Default)]
struct Sink(Arc<Mutex<Vec<u8>>>);

impl io::Write for Sink {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.lock().unwrap().extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

#[test]
fn a_trace_is_written_as_json_lines() {
    let sink = Sink::default();
    let mut simulation = Simulation::with_faults(3, &Faults::none().rate("late-edge", 1_000_000));
    simulation.write_trace(sink.clone());
    simulation.keep_trace(usize::MAX);
    simulation.node("server", "10.0.0.1", echo_server);
    let client = simulation.node("client", "10.0.0.2", || send(|| Bytes::from_static(b"hello\n")));
    simulation.run_until_ended(client, 10 * SECOND).unwrap();

    let text = String::from_utf8(sink.0.lock().unwrap().clone()).unwrap();
    let events: Vec<serde_json::Value> =
        text.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    assert_eq!(events.len(), simulation.trace().len());
    assert!(events.is_sorted_by_key(|event| event["at"].as_u64().unwrap()));
    let of = |name: &'static str| events.iter().filter(move |event| event["event"] == name);
    // The client and the server write the same bytes.
    let written: Vec<_> = of("wrote").collect();
    assert_eq!(written.iter().map(|event| event["bytes"].as_u64()).collect::<Vec<_>>(), [Some(6); 2]);
    assert_eq!(written[0]["contents"], written[1]["contents"]);
    assert_eq!(written[0]["node"], 1);
    assert!(of("fault").all(|event| event["kind"] == "late-edge" && event.get("node").is_none()));
    assert_eq!(of("listened").map(|event| event["port"].as_u64()).collect::<Vec<_>>(), [Some(7000)]);
    assert!(of("fault").count() > 0);
}

/// A small program: echoed lines over connections that a seed draws.
fn small_program(seed: u64) -> u64 {
    let mut simulation = Simulation::with_faults(seed, &Faults::without_kills().subset(seed));
    simulation.node("server", "10.0.0.1", echo_server);
    simulation.node("client", "10.0.0.2", || {
        loop {
            if chance("send", 500_000) {
                let _ = send(|| Bytes::from_static(b"line\n"));
            }
            sleep(SECOND);
        }
    });
    simulation.run_for(30 * SECOND).unwrap();
    simulation.trace_hash()
}

/// Debug and release builds have these hashes. They change with the order of events, the draws and
/// the records of a trace. If such a change is intended, copy the new hashes from the message.
#[test]
fn hashes_of_traces_are_those_of_all_builds() {
    let hashes = [1, 2, 3].map(small_program);
    assert_eq!(hashes, [0x6e34cb047f300d0a, 0x8a813fe1566f4865, 0x5d9fc837804dbf62], "{hashes:#x?}");
}
