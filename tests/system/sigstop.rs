//! A process that is stopped for a while (SIGSTOP): its loop continues where it stopped, does not
//! catch up on missed timers, and its watchdog reports no stall.
//!
//! Linux only, because of `/proc`.

#![cfg(target_os = "linux")]

use crate::support::{
    loops::{Gate, on, settle},
    process::{Process, play, plays},
    wait::{PATIENCE, done, wait_until},
};
use netwheel::{EventLoopGroup, codec::Line, diagnostics::Watchdog, prelude::*, shutdown::ShutdownOptions};
use std::{
    io::{self, Read, Write},
    net::TcpStream,
    process::Command,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering::SeqCst},
        mpsc,
    },
    time::{Duration, Instant},
};

/// More than it takes to start the program that stops the child, and to send it a line.
const LIMIT: Duration = Duration::from_secs(1);
const PERIOD: Duration = Duration::from_secs(1);
/// Time for which the child is stopped: several limits, and several periods, all but one of which
/// are missed.
const STOPPED: Duration = Duration::from_secs(4);
const MISSED: u64 = STOPPED.as_secs() / PERIOD.as_secs() - 1;

/// The child: stops itself in the middle of a turn, and reports its state when it continues.
#[test]
fn stopped_child() {
    if !plays("stopped_child") {
        return;
    }
    let (stalls, told) = mpsc::channel();
    let (ends, over) = mpsc::channel();
    let watchdog = Watchdog::new(LIMIT)
        .on_stall(move |stall| drop(stalls.send(stall.clone())))
        .on_recovery(move |stall| drop(ends.send(stall.clone())));
    let group = EventLoopGroup::builder().threads(2).watchdog(watchdog).build().unwrap();
    let [event_loop, other] = group.event_loops() else { panic!("two loops") };
    let stall = || told.recv_timeout(PATIENCE).expect("the watchdog reports a stall");
    let (ticks, began) = (Arc::new(AtomicU64::new(0)), Instant::now());
    let tick = ticks.clone();
    let timer = event_loop.schedule_periodic(PERIOD, move || {
        tick.fetch_add(1, SeqCst);
        Ok(())
    });
    drop(timer.unwrap());

    let gate = Gate::shut(other);
    assert_eq!(stall().event_loop, other.name());
    let me = event_loop.clone();
    let turn = on(event_loop, move || {
        // The check that sees the other loop continue also sees this loop in its turn, so the
        // watchdog is timing this turn when the process stops.
        drop(gate);
        over.recv_timeout(PATIENCE).unwrap();
        let stop = ["-STOP".to_owned(), std::process::id().to_string()];
        assert!(Command::new("kill").args(stop).status().unwrap().success());
        // The signal may arrive slightly after the program that sent it has returned. Then the
        // process stops in this read.
        io::stdin().read_line(&mut String::new()).unwrap();
        println!("continued");
        // The turn lasts until the watchdog has had time to check.
        io::stdin().read_line(&mut String::new()).unwrap();
        me.metrics().turns
    });
    settle(event_loop);
    let (ticks, periods) = (ticks.load(SeqCst), began.elapsed().as_secs());
    // The timer runs once for all deadlines that passed during the stop.
    assert!(ticks >= 1 && ticks + MISSED <= periods, "{ticks} ticks in {periods} periods");

    // That turn was not reported, although the watchdog works.
    let gate = Gate::shut(event_loop);
    let stall = stall();
    assert!(
        stall.event_loop == event_loop.name() && stall.turn > turn,
        "{stall:?}; it was stopped in turn {turn}"
    );
    drop(gate);
    done(group.shutdown(ShutdownOptions::new().quiet_period(Duration::ZERO).timeout(Duration::ZERO)))
        .unwrap();
    println!("fine");
}

/// Waits until a process is stopped.
fn wait_for_stop(process: u32) {
    let stat = format!("/proc/{process}/stat");
    let is_stopped = || {
        let stat = std::fs::read_to_string(&stat).expect("the child is running");
        stat.rsplit(')').next().is_some_and(|rest| rest.trim_start().starts_with('T'))
    };
    wait_until("the process stops", is_stopped);
}

#[test]
fn a_stopped_process_continues_without_catching_up_or_false_stalls() {
    let mut child = Process::start(&play("stopped_child"));
    wait_for_stop(child.id());
    // Waits for real time to pass, because nothing happens in a stopped process that the test could
    // wait for.
    let said = child.stdout.within(STOPPED);
    assert!(!said.contains("continued"), "{said}");
    child.signal("CONT");
    child.say("are you there?\n");
    child.stdout.wait_for("continued");
    child.say("go on\n");
    child.stdout.wait_for("fine");
    child.succeed();
}

/// Reader idle timeout of the second child, which is shorter than the stop.
const QUIET: Duration = Duration::from_secs(3);
const CLIENTS: usize = 10;

/// The second child: a server that closes idle clients. Runs until the end of its input.
#[test]
fn idle_child() {
    struct Echo;
    impl Handler for Echo {
        type Read = bytes::Bytes;
        type Write = bytes::Bytes;

        fn read(&mut self, ctx: &mut Context<'_, Self>, line: bytes::Bytes) -> Result {
            ctx.write(line)
        }

        fn idle(&mut self, ctx: &mut Context<'_, Self>, _: IdleEvent) -> Result {
            ctx.close();
            Ok(())
        }
    }

    if !plays("idle_child") {
        return;
    }
    let group = EventLoopGroup::builder().threads(1).build().unwrap();
    let idle = IdleTimeouts::new().reader(QUIET);
    let server = ServerBootstrap::new(&group)
        .pipeline(move |_| Pipeline::codec(Line::new()).idle(idle).handler(Echo))
        .bind("127.0.0.1:0")
        .unwrap();
    println!("listening on {}", server.local_address());
    io::stdin().read_to_end(&mut Vec::new()).unwrap();
    done(group.shutdown(ShutdownOptions::new().quiet_period(Duration::ZERO).timeout(Duration::ZERO)))
        .unwrap();
}

#[test]
fn a_client_that_sent_something_while_the_process_was_stopped_is_not_idle() {
    let mut child = Process::start(&play("idle_child"));
    let to = child.stdout.wait_for("listening on ");
    let mut clients: Vec<_> = (0..CLIENTS).map(|_| TcpStream::connect(&to).unwrap()).collect();
    let say = |client: &mut TcpStream, line: &[u8]| client.write_all(line).unwrap();
    let hear = |client: &mut TcpStream, line: &[u8]| {
        client.set_read_timeout(Some(PATIENCE)).unwrap();
        let mut heard = vec![0; line.len()];
        client.read_exact(&mut heard).expect("the server answers");
        assert_eq!(heard, line);
    };
    for client in &mut clients {
        say(client, b"before\n");
        hear(client, b"before\n");
    }
    child.signal("STOP");
    wait_for_stop(child.id());
    clients.iter_mut().for_each(|client| say(client, b"meanwhile\n"));
    // Real time has to pass, as above.
    child.stdout.within(STOPPED);
    child.signal("CONT");
    clients.iter_mut().for_each(|client| hear(client, b"meanwhile\n"));
    child.succeed();
}
