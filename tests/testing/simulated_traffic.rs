//! Traffic of all kinds between simulated machines: short and long connections, bursts that fill
//! the buffers, idle timeouts and shutdowns. The seed decides what each
//! client does.

use crate::support::draw::Draw;
use bytes::Bytes;
use netwheel::{
    channel::{ChannelOptions, CloseCause},
    codec::LengthField,
    prelude::*,
    shutdown::ShutdownOptions,
    testing::simulation::{
        Exploration, Failure, Faults, Journal, Network, Simulation, chance, sleep, sometimes,
    },
};
use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

const SECOND: Duration = Duration::from_secs(1);
const MS: Duration = Duration::from_millis(1);

/// Echoes frames. The end of the input ends the connection after the answers.
struct Echo {
    active: bool,
    inactive: bool,
    faults: Journal<String>,
}

impl Echo {
    fn must(&self, holds: bool, what: &str) {
        if !holds {
            self.faults.push(what.to_owned());
        }
    }
}

impl Handler for Echo {
    type Read = Bytes;
    type Write = Bytes;

    fn active(&mut self, _ctx: &mut Context<'_, Self>) -> Result {
        self.must(!self.active && !self.inactive, "active is the first call, once");
        self.active = true;
        Ok(())
    }

    fn read(&mut self, ctx: &mut Context<'_, Self>, frame: Bytes) -> Result {
        self.must(self.active && !self.inactive, "read is between active and inactive");
        ctx.write(frame)
    }

    fn idle(&mut self, ctx: &mut Context<'_, Self>, _: IdleEvent) -> Result {
        self.must(self.active && !self.inactive, "idle is between active and inactive");
        sometimes("idle connection closed");
        ctx.close();
        Ok(())
    }

    fn inactive(&mut self, _ctx: &mut Context<'_, Self>) -> Result {
        self.must(self.active && !self.inactive, "inactive is the last call, once");
        self.inactive = true;
        Ok(())
    }
}

fn server(faults: &Journal<String>, is_calm: &AtomicBool) -> Result {
    let mut draw = Draw::new();
    loop {
        let group = EventLoopGroup::builder().threads(2).build()?;
        let seen = faults.clone();
        // Small limits, so that turns end in the middle of the work.
        let options = ChannelOptions::new()
            .reads_per_turn(1 + draw.below(3) as usize)
            .read_size(64 << draw.below(8))
            .writes_per_turn(1 + draw.below(2) as usize);
        let bound = ServerBootstrap::new(&group)
            .channel_options(options)
            .accepts_per_turn(1 + draw.below(2) as usize)
            .pipeline(move |_peer| {
                let echo = Echo { active: false, inactive: false, faults: seen.clone() };
                Pipeline::codec(LengthField::u32().max_len(1 << 20))
                    .idle(IdleTimeouts::new().reader(30 * SECOND))
                    .handler(echo)
            })
            .bind("10.0.0.1:7000");
        let Ok(bound) = bound else {
            sleep(SECOND);
            continue;
        };
        // A new version is deployed now and then.
        sleep(SECOND * (10 + draw.below(200) as u32));
        if is_calm.load(Ordering::Relaxed) {
            return bound.closed().wait();
        }
        {
            sometimes("server deployed");
            let options = ShutdownOptions::new().quiet_period(Duration::ZERO).timeout(5 * SECOND);
            let _ = group.shutdown(options).wait();
        }
    }
}

/// One connection: sends frames of drawn sizes, and expects each of them back in order.
fn connection(group: &EventLoopGroup, draw: &mut Draw, faults: &Journal<String>, is_calm: bool) -> Result {
    // A timer from another thread is due before the loop would wake up by itself.
    let after = MS * (1 + draw.below(400) as u32);
    let task = group.next().schedule(after, || ())?;
    if task.completion().wait_timeout(after + 20 * SECOND).is_err() {
        faults.push("a timer is more than 20 s late".to_owned());
    }
    let heard = Journal::new();
    let journal = heard.clone();
    let client = ClientBootstrap::new(group).connect_timeout(10 * SECOND).pipeline(move |_peer| {
        let journal = journal.clone();
        Pipeline::codec(LengthField::u32().max_len(1 << 20)).on_read(move |_ctx, frame: Bytes| {
            journal.push(frame);
            Ok(())
        })
    });
    let Ok(channel) = client.connect("server:7000").wait() else {
        sometimes("connect failed");
        return Ok(());
    };
    let mut sent: Vec<Bytes> = Vec::new();
    for _ in 0..draw.below(6) {
        for _ in 0..=draw.below(8) {
            if !is_calm && !chance("frame", 980_000) {
                continue;
            }
            let size = [0, 1, 100, 3000, 40_000][draw.below(5) as usize];
            let frame = Bytes::from(vec![sent.len() as u8; size]);
            if channel.write(frame.clone()).is_err() {
                break;
            }
            sent.push(frame);
        }
        match draw.below(4) {
            0 => sleep(MS * draw.below(2000) as u32),
            1 if !is_calm => sleep(35 * SECOND),
            _ => {}
        }
    }
    let closes = draw.below(3).max(u64::from(is_calm));
    if closes > 0 {
        for _ in 0..200 {
            if heard.len() == sent.len() || !channel.is_open() {
                break;
            }
            sleep(100 * MS);
        }
    }
    if is_calm && heard.len() != sent.len() {
        faults.push(format!("{} of {} answers although all is calm", heard.len(), sent.len()));
    }
    if closes == 2 {
        channel.close_now();
    } else {
        channel.close();
    }
    let cause = channel.closed().wait_timeout(200 * SECOND);
    let Ok(cause) = cause else {
        faults.push("a channel that was told to close has not closed".to_owned());
        return Ok(());
    };
    if matches!(cause, Ok(CloseCause::Clean)) {
        sometimes("closed in order");
    }
    heard.with(|heard| {
        if !sent.starts_with(heard) {
            faults.push(format!("{} answers are no prefix of the {} frames", heard.len(), sent.len()));
        }
    });
    Ok(())
}

fn client(faults: &Journal<String>, done: &Journal<()>, is_calm: &AtomicBool) -> Result {
    let group = EventLoopGroup::builder().threads(1).build()?;
    let mut draw = Draw::new();
    loop {
        let is_calm = is_calm.load(Ordering::Relaxed);
        // A failed seed shrinks to the connections and frames that matter.
        if is_calm || chance("connection", 980_000) {
            connection(&group, &mut draw, faults, is_calm)?;
        }
        done.push(());
        sleep(MS * draw.below(500) as u32);
    }
}

fn traffic(simulation: &mut Simulation) -> Result<(), Failure> {
    simulation.network(Network::new().buffers(3000, 2000));
    let (faults, done) = (Journal::new(), Journal::new());
    let is_calm = Arc::new(AtomicBool::new(false));
    let (seen, calm) = (faults.clone(), is_calm.clone());
    simulation.node("server", "10.0.0.1", move || server(&seen, &calm));
    for n in 2..6 {
        let (faults, done, calm) = (faults.clone(), done.clone(), is_calm.clone());
        simulation
            .node(&format!("client-{n}"), &format!("10.0.0.{n}"), move || client(&faults, &done, &calm));
    }
    let checked = faults.clone();
    simulation.check("handlers and frames", move || {
        checked.with(|faults| faults.first().map_or(Ok(()), |first| Err(first.clone())))
    });
    simulation.check_reads(20 * SECOND);
    simulation.run_for(120 * SECOND)?;
    simulation.heal();
    // What is under way ends, and a server that is being deployed is back.
    simulation.run_for(300 * SECOND)?;
    is_calm.store(true, Ordering::Relaxed);
    simulation.run_for(SECOND)?;
    let before = done.len();
    simulation.run_until("connections are served again", 600 * SECOND, || done.len() > before + 8)?;
    Ok(())
}

#[test]
fn traffic_survives_all_faults() {
    let explored = Exploration::new(1).faults(Faults::all()).run(traffic);
    let explored = explored.unwrap_or_else(|failure| panic!("{failure}"));
    eprintln!(
        "{} events, {} states, {:?}, {} pairs",
        explored.events(),
        explored.states(),
        explored.faults().collect::<Vec<_>>(),
        explored.pairs().count()
    );
    if explored.seeds() < 20 {
        return;
    }
    for state in ["idle connection closed", "server deployed", "connect failed", "closed in order"] {
        assert!(explored.reached(state) > 0, "no seed reached: {state}");
    }
}
