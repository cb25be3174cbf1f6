//! The attacks. Each runs for its time and returns a remark for the table.

use crate::{crowd::Crowd, innocents::Innocents, server::Server, wire::Wire};
use netwheel::Result;
use std::{
    net::SocketAddr,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    thread,
    time::{Duration, Instant},
};

/// Sleep time of an attacker when the kernel accepts no more bytes.
const REST: Duration = Duration::from_millis(1);
/// Idle timeout of the server in the `pause` attack.
const SHORT_IDLE: &str = "2s";
/// Time for which that server is stopped.
const PAUSE: Duration = Duration::from_secs(4);

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Attack {
    None,
    JoinLeaveFlood,
    Stampede,
    FastTalker,
    TinyRequests,
    SlowConsumers,
    Pause,
    UnreadLog,
    SlowLogin,
    Unacknowledged,
    Lookups,
}

/// Parameters of an attack.
pub(crate) struct Scene<'a> {
    pub(crate) server: &'a Server,
    pub(crate) innocents: &'a Innocents,
    pub(crate) address: SocketAddr,
    /// Length of the attack.
    pub(crate) time: Duration,
    /// End of the attack.
    pub(crate) until: Instant,
    pub(crate) members: u32,
    pub(crate) connections: u32,
    pub(crate) interrupted: &'a Arc<AtomicBool>,
}

impl Attack {
    pub(crate) const ALL: [Attack; 11] = [
        Attack::None,
        Attack::JoinLeaveFlood,
        Attack::Stampede,
        Attack::FastTalker,
        Attack::TinyRequests,
        Attack::SlowConsumers,
        Attack::Pause,
        Attack::UnreadLog,
        Attack::SlowLogin,
        Attack::Unacknowledged,
        Attack::Lookups,
    ];

    pub(crate) fn name(self) -> &'static str {
        match self {
            Attack::None => "none",
            Attack::JoinLeaveFlood => "join-leave-flood",
            Attack::Stampede => "stampede",
            Attack::FastTalker => "fast-talker",
            Attack::TinyRequests => "tiny-requests",
            Attack::SlowConsumers => "slow-consumers",
            Attack::Pause => "pause",
            Attack::UnreadLog => "unread-log",
            Attack::SlowLogin => "slow-login",
            Attack::Unacknowledged => "unacknowledged",
            Attack::Lookups => "lookups",
        }
    }

    pub(crate) fn describe(self) -> &'static str {
        match self {
            Attack::None => "the innocent clients alone",
            Attack::JoinLeaveFlood => "one connection joins and leaves a large room at 30 KB/s",
            Attack::Stampede => "all members of a large room leave and join again at the same instant",
            Attack::FastTalker => "one client talks without a pause in a room with slower readers",
            Attack::TinyRequests => "many connections pipeline the smallest request",
            Attack::SlowConsumers => "clients in a busy room do not read and continue to send",
            Attack::Pause => "the server is stopped for longer than its idle timeout",
            Attack::UnreadLog => "the server's output is not read while clients cause log lines",
            Attack::SlowLogin => "connections send one byte per second and never log in",
            Attack::Unacknowledged => "direct messages of 60 KB that are never acknowledged",
            Attack::Lookups => "many clients keep all lookup threads busy",
        }
    }

    /// Returns whether one second is enough for the attack to have an effect.
    pub(crate) fn is_short(self) -> bool {
        !matches!(self, Attack::None | Attack::Stampede | Attack::Pause | Attack::SlowLogin | Attack::Lookups)
    }

    /// Returns the options of the server for this attack.
    pub(crate) fn server_options(self) -> Vec<(&'static str, &'static str)> {
        match self {
            Attack::Pause => vec![("--idle-timeout", SHORT_IDLE), ("--heartbeat", "500ms")],
            Attack::SlowLogin => vec![("--login-timeout", "3s"), ("--line-timeout", "3s")],
            Attack::SlowConsumers => vec![("--max-outbound", "262144")],
            Attack::UnreadLog => vec![("--stats", "5ms")],
            _ => vec![],
        }
    }

    /// Runs the attack.
    ///
    /// # Errors
    /// Fails if the connections of the attack cannot be established.
    pub(crate) fn run(self, scene: Scene<'_>) -> Result<String> {
        match self {
            Attack::None => {
                scene.rest_of_time();
                Ok(String::new())
            }
            Attack::JoinLeaveFlood => join_leave_flood(scene),
            Attack::Stampede => stampede(scene),
            Attack::FastTalker => fast_talker(scene),
            Attack::TinyRequests => tiny_requests(scene),
            Attack::SlowConsumers => slow_consumers(scene),
            Attack::Pause => pause(scene),
            Attack::UnreadLog => unread_log(scene),
            Attack::SlowLogin => slow_login(scene),
            Attack::Unacknowledged => unacknowledged(scene),
            Attack::Lookups => lookups(scene),
        }
    }
}

impl Scene<'_> {
    /// Starts the measurement. The preparations are not part of the attack.
    fn begin(&mut self) {
        self.until = Instant::now() + self.time;
        self.innocents.measure_from_now();
    }

    fn is_on(&self) -> bool {
        Instant::now() < self.until && !self.interrupted.load(Ordering::Acquire)
    }

    fn rest_of_time(&self) {
        while self.is_on() {
            thread::sleep(Duration::from_millis(20));
        }
    }

    /// Calls `round` until the attack ends, and sleeps whenever `round` returns `false` (no
    /// progress).
    fn keep_on(&self, mut round: impl FnMut() -> bool) {
        while self.is_on() {
            if !round() {
                thread::sleep(REST);
            }
        }
    }

    fn wires(&self, prefix: &str, count: u32) -> Result<Vec<Wire>> {
        (0..count).map(|n| Wire::login(self.address, &format!("{prefix}-{n}"))).collect()
    }
}

fn join_leave_flood(mut scene: Scene<'_>) -> Result<String> {
    /// Bytes per second.
    const RATE: f64 = 30_000.0;
    let crowd = Crowd::gather(scene.address, "square", scene.members)?;
    crowd.wait_until_quiet();
    let mut wire = Wire::login(scene.address, "flood")?;
    let pair = b"{\"type\":\"join\",\"room\":\"square\"}\n{\"type\":\"leave\",\"room\":\"square\"}\n";
    scene.begin();
    let (start, mut pairs, lines) = (Instant::now(), 0_u64, crowd.lines());
    scene.keep_on(|| {
        let due = start.elapsed().as_secs_f64() * RATE / pair.len() as f64;
        let is_due = (pairs as f64) < due;
        if is_due && wire.send(pair) {
            pairs += 1;
        }
        wire.discard();
        is_due
    });
    let told = (crowd.lines() - lines) as u64 / u64::from(scene.members);
    Ok(format!(
        "{pairs} joins and leaves sent, {told} announcements per member, {} of them closed",
        crowd.closed()
    ))
}

fn stampede(mut scene: Scene<'_>) -> Result<String> {
    let crowd = Crowd::gather(scene.address, "square", scene.members)?;
    crowd.wait_until_quiet();
    scene.begin();
    let lines = crowd.lines();
    crowd.all_say("{\"type\":\"leave\",\"room\":\"square\"}");
    crowd.all_say("{\"type\":\"join\",\"room\":\"square\"}");
    scene.rest_of_time();
    let start = Instant::now();
    crowd.wait_until_quiet();
    let after = start.elapsed().saturating_sub(Duration::from_millis(300));
    let lines = crowd.lines() - lines;
    Ok(format!("{lines} lines to the crowd, the last {:.1} s after the attack", after.as_secs_f64()))
}

fn fast_talker(mut scene: Scene<'_>) -> Result<String> {
    /// Bytes per second that each slower member reads.
    const READS: usize = 200_000;
    let mut slower = Vec::new();
    for n in 0..20 {
        let mut wire = Wire::login(scene.address, &format!("slower-{n}"))?;
        wire.send(b"{\"type\":\"join\",\"room\":\"square\"}\n");
        slower.push(wire);
    }
    let mut talker = Wire::login(scene.address, "talker")?;
    talker.send(b"{\"type\":\"join\",\"room\":\"square\"}\n");
    let line = format!("{{\"type\":\"say\",\"room\":\"square\",\"text\":\"{}\"}}\n", "x".repeat(4000));
    scene.begin();
    let (start, mut said, mut reads) = (Instant::now(), 0_u64, 0);
    scene.keep_on(|| {
        let moved = talker.send(line.as_bytes());
        said += u64::from(moved);
        talker.discard();
        // A read takes up to 256 KiB.
        while reads * 262_144 < start.elapsed().as_secs_f64() as usize * READS {
            reads += 1;
            for wire in &mut slower {
                wire.discard();
            }
        }
        moved
    });
    drop(talker);
    // Read the connections to their end to find out which the server has closed.
    Wire::drain(&mut slower, b"", Duration::from_secs(5));
    let closed = slower.iter().filter(|wire| wire.has_ended()).count();
    Ok(format!("{said} messages of 4 KB sent, {closed} of {} slower members closed", slower.len()))
}

fn tiny_requests(mut scene: Scene<'_>) -> Result<String> {
    /// Bytes per answer.
    const PONG: f64 = 16.0;
    let mut wires = scene.wires("tiny", scene.connections)?;
    let chunk = b"{\"type\":\"ping\"}\n".repeat(100);
    scene.begin();
    let start = Instant::now();
    scene.keep_on(|| {
        let mut moved = false;
        for wire in &mut wires {
            moved |= wire.send(&chunk);
            wire.discard();
        }
        moved
    });
    let heard: u64 = wires.iter().map(Wire::heard).sum();
    let rate = heard as f64 / PONG / start.elapsed().as_secs_f64();
    let closed = wires.iter().filter(|wire| wire.has_ended()).count();
    Ok(format!("{} connections, {rate:.0} answers per second, {closed} closed", wires.len()))
}

fn slow_consumers(mut scene: Scene<'_>) -> Result<String> {
    /// Messages per second of 60 KB each, which is more than 3 MB per second per member.
    const RATE: f64 = 60.0;
    /// Time without reading: long enough for the server to close them, and shorter than the time
    /// for which it lingers.
    const DEAF: Duration = Duration::from_secs(4);
    let mut deaf = scene.wires("deaf", scene.connections.min(50))?;
    let mut talkers = scene.wires("talker", 20)?;
    for wire in deaf.iter_mut().chain(&mut talkers) {
        wire.send(b"{\"type\":\"join\",\"room\":\"square\"}\n");
    }
    let line = format!("{{\"type\":\"say\",\"room\":\"square\",\"text\":\"{}\"}}\n", "x".repeat(60_000));
    scene.begin();
    let (start, mut said, mut pings) = (Instant::now(), 0_u64, 0_u64);
    scene.keep_on(|| {
        let due = (start.elapsed().as_secs_f64() * RATE) as u64;
        let (says, pinging) = (said < due, pings < due);
        if says {
            let next = said as usize % talkers.len();
            talkers[next].send(line.as_bytes());
            said += 1;
        }
        if pinging {
            pings += 1;
            for wire in &mut deaf {
                wire.send(b"{\"type\":\"ping\"}\n");
            }
        }
        for wire in &mut talkers {
            wire.discard();
        }
        if start.elapsed() > DEAF {
            for wire in &mut deaf {
                wire.discard();
            }
        }
        says || pinging
    });
    drop(talkers);
    Wire::drain(&mut deaf, b"{\"type\":\"ping\"}\n", Duration::from_secs(5));
    let closed = deaf.iter().filter(|wire| wire.has_ended()).count();
    let told = deaf.iter().filter(|wire| wire.ends_with("\"reason\":\"slow_consumer\"")).count();
    Ok(format!("{closed} of {} slow consumers closed, {told} received the farewell", deaf.len()))
}

fn pause(mut scene: Scene<'_>) -> Result<String> {
    // Let the idle timers run for a while.
    thread::sleep(Duration::from_millis(500));
    scene.server.signal("STOP")?;
    thread::sleep(PAUSE);
    scene.server.signal("CONT")?;
    // Messages sent during the pause must arrive, but they are late in any case.
    thread::sleep(Duration::from_millis(500));
    scene.begin();
    scene.rest_of_time();
    Ok(format!("stopped for {PAUSE:?}, idle timeout {SHORT_IDLE}"))
}

fn unread_log(mut scene: Scene<'_>) -> Result<String> {
    scene.begin();
    let mut tries = 0_u64;
    scene.keep_on(|| {
        // A login, a line that is too long, and a close: each causes a line in the log.
        let Ok(mut wire) = Wire::login(scene.address, &format!("noisy-{tries}")) else { return false };
        wire.send(&[b'x'; 70_000]);
        wire.hear_until("\"type\":\"bye\"", Duration::from_secs(1));
        tries += 1;
        true
    });
    Ok(format!("{tries} connections, RUST_LOG=debug, both pipes unread"))
}

fn slow_login(mut scene: Scene<'_>) -> Result<String> {
    let wires: Result<Vec<_>> = (0..scene.members).map(|_| Wire::connect(scene.address)).collect();
    let mut wires = wires?;
    // Longer than the login timeout of the server.
    scene.time = scene.time.max(Duration::from_secs(6));
    scene.begin();
    let mut there = vec![true; wires.len()];
    while scene.is_on() {
        for (wire, there) in wires.iter_mut().zip(&mut there) {
            wire.send(b" ");
            *there &= wire.discard();
        }
        thread::sleep(Duration::from_secs(1));
    }
    let left = there.iter().filter(|there| **there).count();
    Ok(format!("{left} of {} connections are still open", wires.len()))
}

fn unacknowledged(mut scene: Scene<'_>) -> Result<String> {
    let mut wires = scene.wires("deaf", scene.connections)?;
    let text = "x".repeat(60_000);
    let lines: Vec<_> = (0..wires.len())
        .map(|n| format!("{{\"type\":\"direct\",\"to\":\"deaf-{n}\",\"text\":\"{text}\"}}\n"))
        .collect();
    scene.begin();
    let mut sent = 0_u64;
    scene.keep_on(|| {
        let mut moved = false;
        for (wire, line) in wires.iter_mut().zip(&lines) {
            let taken = wire.send(line.as_bytes());
            sent += u64::from(taken);
            moved |= taken;
            wire.discard();
        }
        moved
    });
    Ok(format!("{sent} direct messages of 60 KB sent"))
}

fn lookups(mut scene: Scene<'_>) -> Result<String> {
    let mut wires = scene.wires("asker", scene.connections)?;
    let mut innocent = Wire::login(scene.address, "innocent-asker")?;
    let lookup = b"{\"type\":\"lookup\",\"user\":\"nobody\"}\n".repeat(4);
    scene.begin();
    let (mut asked, mut worst, mut answered, mut busy) = (None::<Instant>, Duration::ZERO, 0, 0);
    scene.keep_on(|| {
        for wire in &mut wires {
            wire.send(&lookup);
            wire.discard();
        }
        match asked {
            None => {
                innocent.send(b"{\"type\":\"lookup\",\"user\":\"innocent-0\",\"id\":\"mine\"}\n");
                asked = Some(Instant::now());
            }
            Some(since) => {
                let answer = innocent.hear_until("\"id\":\"mine\"", Duration::ZERO);
                if answer.contains("\"id\":\"mine\"") {
                    busy += u32::from(answer.contains("\"type\":\"error\""));
                    answered += u32::from(answer.contains("\"type\":\"profile\""));
                    worst = worst.max(since.elapsed());
                    asked = None;
                }
            }
        }
        false
    });
    let worst = worst.max(asked.map_or(Duration::ZERO, |since| since.elapsed()));
    Ok(format!("an innocent client's lookups: {answered} answered, {busy} busy, at most {worst:.1?}"))
}
