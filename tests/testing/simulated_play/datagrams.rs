//! Datagram channels on links that lose nothing: each accepted datagram arrives once.

use super::{
    kit::{Draw, MS, Play, SECOND, lock},
    settings,
};
use bytes::{Buf, BufMut, Bytes, BytesMut};
use netwheel::{
    datagram::{DatagramChannel, DatagramContext, DatagramHandler},
    prelude::*,
    testing::simulation::{Failure, Simulation, sleep, sometimes},
};
use std::{
    collections::BTreeMap,
    net::SocketAddr,
    sync::{
        Arc, Mutex,
        atomic::{AtomicU32, Ordering::SeqCst},
    },
};

/// Counts of the datagrams of one sender.
#[derive(Default)]
struct Facts {
    /// The answers that have arrived, by number.
    answers: Mutex<BTreeMap<u32, u32>>,
    received: AtomicU32,
    confirmed: AtomicU32,
}

/// Sends each datagram back. Its limit of pending bytes is never reached.
struct Mirror {
    play: Play,
    received: Arc<Facts>,
    is_active: bool,
    is_over: bool,
}

impl DatagramHandler for Mirror {
    fn active(&mut self, _ctx: &mut DatagramContext<'_, Self>) -> Result {
        self.play.must(!self.is_active, || "active is called twice".to_owned());
        self.is_active = true;
        Ok(())
    }

    fn read(&mut self, ctx: &mut DatagramContext<'_, Self>, datagram: Bytes, from: SocketAddr) -> Result {
        self.play.must(self.is_active && !self.is_over, || "a datagram outside of the life".to_owned());
        self.received.received.fetch_add(1, SeqCst);
        Ok(ctx.write_to(datagram, from)?)
    }

    fn error(&mut self, _ctx: &mut DatagramContext<'_, Self>, error: Error) -> Result {
        self.play.violation(format!("the mirror fails: {error:#}"));
        Ok(())
    }

    fn inactive(&mut self, _ctx: &mut DatagramContext<'_, Self>) -> Result {
        self.play.must(!self.is_over, || "inactive is called twice".to_owned());
        self.is_over = true;
        Ok(())
    }
}

/// Records the answers.
struct Sender {
    play: Play,
    facts: Arc<Facts>,
}

impl DatagramHandler for Sender {
    fn read(
        &mut self,
        _ctx: &mut DatagramContext<'_, Self>,
        mut datagram: Bytes,
        _from: SocketAddr,
    ) -> Result {
        let number = datagram.get_u32();
        let is_even = datagram.iter().all(|byte| *byte == number as u8);
        self.play.must(is_even, || format!("datagram {number} is not what was sent"));
        *lock(&self.facts.answers).entry(number).or_default() += 1;
        Ok(())
    }

    fn error(&mut self, _ctx: &mut DatagramContext<'_, Self>, error: Error) -> Result {
        self.play.violation(format!("a sender fails: {error:#}"));
        Ok(())
    }
}

const SENDERS: usize = 2;

pub(super) fn play(simulation: &mut Simulation) -> Result<(), Failure> {
    // No fault of this play loses datagrams, so its programs may be strict.
    let play = Play::new(simulation, true);
    let facts: Arc<[Arc<Facts>]> = (0..SENDERS).map(|_| Arc::default()).collect();
    let (shared, mirrored) = (play.clone(), Arc::<Facts>::default());
    let received = mirrored.clone();
    let server = simulation.node("mirror", "10.0.0.1", move || mirror(&shared, &received));
    let mut nodes = vec![server];
    for (n, facts) in facts.iter().enumerate() {
        let (shared, facts) = (play.clone(), facts.clone());
        let send = move || send(&shared, &facts);
        nodes.push(simulation.node(&format!("sender-{n}"), &format!("10.0.0.{}", n + 2), send));
    }
    play.end(simulation, server, &nodes)
}

fn mirror(play: &Play, received: &Arc<Facts>) -> Result {
    let mut draw = Draw::new();
    let group = settings::group(&mut draw).build()?;
    let (shared, received) = (play.clone(), received.clone());
    let channel = DatagramBootstrap::new(&group)
        .datagrams_per_turn(draw.pick(&[1, 2, 64]))
        .handler(move || Mirror {
            play: shared.clone(),
            received: received.clone(),
            is_active: false,
            is_over: false,
        })
        .bind("10.0.0.1:9")?;
    play.wait_for(SENDERS);
    close(play, &channel);
    settings::end(play, &group, "the mirror")
}

fn close(play: &Play, channel: &DatagramChannel) {
    let token = play.token("the end of a datagram channel");
    channel.closed().on_complete(move |_| token.called());
    channel.close();
    play.eventually(|| "a datagram channel closes".to_owned(), || channel.closed().is_done());
    play.must(!channel.is_open(), || "a closed datagram channel is open".to_owned());
    let refused = channel.write_to(Bytes::from_static(b"late"), channel.local_address()).is_err();
    play.must(refused, || "a closed datagram channel accepts datagrams".to_owned());
}

fn send(play: &Play, facts: &Arc<Facts>) -> Result {
    let mut draw = Draw::new();
    let group = settings::group(&mut draw).build()?;
    let (shared, of_handler) = (play.clone(), facts.clone());
    let is_connected = draw.chance(50);
    let mirror: SocketAddr = ([10, 0, 0, 1], 9).into();
    let bootstrap = DatagramBootstrap::new(&group)
        .max_outbound(draw.pick(&[1, 1000, 1 << 20]))
        .datagrams_per_turn(draw.pick(&[1, 64]));
    let bootstrap = if is_connected { bootstrap.connect(mirror) } else { bootstrap };
    let channel = bootstrap
        .handler(move || Sender { play: shared.clone(), facts: of_handler.clone() })
        .bind("0.0.0.0:0")?;
    sleep(10 * MS);
    let (mut accepted, mut tracked) = (0_u32, 0);
    for _ in 0..3 + draw.below(10) {
        for _ in 0..=draw.below(12) {
            let mut bytes = BytesMut::new();
            bytes.put_u32(accepted);
            bytes.put_bytes(accepted as u8, draw.pick(&[0, 1, 100, 1200]));
            let to = (!is_connected || draw.chance(50)).then_some(mirror);
            let sent = if draw.chance(40) {
                let sent = match to {
                    Some(to) => channel.write_tracked_to(bytes, to),
                    None => channel.write_tracked(bytes),
                };
                sent.map(|confirmed| {
                    tracked += 1;
                    let (token, facts) = (play.token("a tracked datagram"), facts.clone());
                    let play = play.clone();
                    confirmed.on_complete(move |result| {
                        token.called();
                        play.must(result.is_ok(), || format!("an accepted datagram fails: {result:?}"));
                        facts.confirmed.fetch_add(1, SeqCst);
                    });
                })
            } else {
                match to {
                    Some(to) => channel.write_to(bytes, to),
                    None => channel.write(bytes),
                }
            };
            match sent {
                Ok(()) => accepted += 1,
                Err(_) => sometimes("a datagram was refused"),
            }
        }
        sleep(draw.millis(30));
    }
    let answers = || lock(&facts.answers).values().sum::<u32>();
    let is_complete = || answers() >= accepted && facts.confirmed.load(SeqCst) == tracked;
    play.eventually(|| format!("{} of {accepted} answers arrive", answers()), is_complete);
    sleep(SECOND);
    let once = lock(&facts.answers).iter().all(|(number, count)| *number < accepted && *count == 1);
    play.must(once, || "a datagram has arrived twice".to_owned());
    close(play, &channel);
    settings::end(play, &group, "a sender")?;
    play.finished();
    Ok(())
}
