//! Cost of a message for many channels on the loop that runs them, without system calls.
//!
//! In `benches/`: `cargo bench --bench broadcast`. A `ChannelGroup` of members on one loop without
//! sockets (`EmbeddedLoop`), frames of 64 bytes. Measures a broadcast to all members and, for
//! comparison, a write through a handle for each member. The measured time ends when the transport
//! has the bytes. The results are per member.

#![allow(missing_docs, reason = "the criterion macros generate undocumented items")]

use bytes::Bytes;
use criterion::{BenchmarkId, Criterion, Throughput, criterion_group, criterion_main};
use netwheel::{ChannelGroup, codec::LengthField, prelude::*, testing::EmbeddedLoop};
use std::time::{Duration, Instant};

const MEMBERS: [u64; 3] = [10, 100, 1000];

struct Member(ChannelGroup<Bytes>);

impl Handler for Member {
    type Read = Bytes;
    type Write = Bytes;

    fn active(&mut self, ctx: &mut Context<'_, Self>) -> Result {
        assert!(self.0.join(ctx.channel()));
        Ok(())
    }

    fn read(&mut self, _: &mut Context<'_, Self>, _: Bytes) -> Result {
        Ok(())
    }
}

fn broadcast(c: &mut Criterion) {
    let mut group = c.benchmark_group("broadcast of 64 bytes");
    for members in MEMBERS {
        group.throughput(Throughput::Elements(members));
        let room = ChannelGroup::new();
        let mut channels = EmbeddedLoop::new();
        let open = |_| channels.open(Pipeline::codec(LengthField::u32()).handler(Member(room.clone())));
        let ids: Vec<_> = (0..members).map(open).collect();
        let message = Bytes::from(vec![7; 64]);
        let mut timed = |rounds: u64, write: &dyn Fn()| {
            let mut time = Duration::ZERO;
            for _ in 0..rounds {
                let begin = Instant::now();
                write();
                channels.run_pending();
                time += begin.elapsed();
                // Reading the output belongs to the peers, so it is not measured.
                assert!(ids.iter().all(|id| channels.read_outbound(*id).len() == 68));
            }
            time
        };
        group.bench_function(BenchmarkId::new("ChannelGroup::broadcast", members), |b| {
            b.iter_custom(|rounds| timed(rounds, &|| drop(room.broadcast(message.clone()).expect("room"))));
        });
        let handles = room.channels();
        group.bench_function(BenchmarkId::new("Channel::write to each", members), |b| {
            b.iter_custom(|rounds| {
                timed(rounds, &|| {
                    handles.iter().for_each(|member| member.write(message.clone()).expect("room"))
                })
            });
        });
    }
    group.finish();
}

criterion_group!(benches, broadcast);
criterion_main!(benches);
