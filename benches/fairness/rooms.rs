//! Latency of a message to a small room while another room of the same loop is flooded.

use crate::{
    record::{Record, Snapshot, latencies, micros},
    stage::{Running, Stage},
};
use bytes::Bytes;
use netwheel::{
    ChannelGroup, Error,
    channel::{ChannelOptions, Overflow},
    codec::Line,
    prelude::*,
};
use std::{
    io::Read,
    net::TcpStream,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    thread,
    time::{Duration, Instant},
};

/// Number of members of the flooded room, and of the other one.
const CROWD: usize = 300;
const FEW: usize = 5;

struct Joins {
    crowd: ChannelGroup<Bytes>,
    few: ChannelGroup<Bytes>,
    is_crowd: Arc<AtomicBool>,
}

impl Handler for Joins {
    type Read = Bytes;
    type Write = Bytes;

    fn active(&mut self, ctx: &mut Context<'_, Self>) -> Result {
        let room = if self.is_crowd.load(Ordering::Relaxed) { &self.crowd } else { &self.few };
        room.join(ctx.channel());
        Ok(())
    }

    fn read(&mut self, _ctx: &mut Context<'_, Self>, _message: Bytes) -> Result {
        Ok(())
    }
}

/// Measures while `thousands` of deliveries per second are offered to the crowd.
pub(crate) fn measure(thousands: u32, time: Duration) -> Result<Record> {
    let stage = Stage::new(50)?;
    let (crowd, few) = (ChannelGroup::new(), ChannelGroup::new());
    let is_crowd = Arc::new(AtomicBool::new(true));
    let rooms = (crowd.clone(), few.clone(), is_crowd.clone());
    let server = ServerBootstrap::new(&stage.group)
        .channel_options(ChannelOptions::new().overflow(Overflow::DropNewest))
        .pipeline(move |_peer| {
            let (crowd, few, is_crowd) = rooms.clone();
            Pipeline::codec(Line::new()).handler(Joins { crowd, few, is_crowd })
        })
        .bind("127.0.0.1:0")?;
    let connect = |room: &ChannelGroup<Bytes>, n: usize| -> Result<Vec<TcpStream>> {
        let failed = |e| Error::other(format!("connecting: {e}"));
        let mut peers = Vec::new();
        for _ in 0..n {
            peers.push(TcpStream::connect(server.local_address()).map_err(failed)?);
        }
        while room.len() < n {
            thread::sleep(Duration::from_millis(1));
        }
        Ok(peers)
    };
    // The crowd does not read, so the loop spends its time on writing and not on waking readers.
    let _crowd = connect(&crowd, CROWD)?;
    is_crowd.store(false, Ordering::Relaxed);
    let mut peers = connect(&few, FEW)?;
    let (begun, mut given) = (Instant::now(), 0);
    let flood = Running::repeat(move |_| {
        let due = begun.elapsed().as_secs_f64() * f64::from(thousands) * 1000.0 / CROWD as f64;
        while (given as f64) < due {
            given += 1;
            // A group with too many waiting deliveries refuses the message.
            let _ = crowd.broadcast(Bytes::from_static(b"flood"));
        }
        thread::sleep(Duration::from_micros(500));
    });
    stage.warm_up();
    let mut histogram = latencies();
    let begin = Snapshot::take(&stage.event_loop);
    let end_of_time = Instant::now() + time;
    while Instant::now() < end_of_time {
        let asked = Instant::now();
        few.broadcast(Bytes::from_static(b"quiet"))?;
        for peer in &mut peers {
            peer.read_exact(&mut [0; 6]).map_err(|e| Error::other(format!("reading: {e}")))?;
        }
        histogram.saturating_record(micros(asked.elapsed()));
        thread::sleep(Duration::from_micros(500));
    }
    let end = Snapshot::take(&stage.event_loop);
    drop(flood);
    stage.end();
    Ok(Record::new(histogram, &begin, &end))
}
