//! Results of offloaded work and the loop that receives them: a full queue, a shutdown.

use crate::offload::{open, until};
use crate::support::{
    journal::Log,
    loops::{Gate, end, single},
    wait::{PATIENCE, done, receive},
};
use bytes::Bytes;
use netwheel::{
    ClientBootstrap, codec::Line, prelude::*, shutdown::ShutdownOptions, worker_pool::WorkerPool,
};
use std::{
    io::Write,
    net::TcpListener,
    sync::{
        Mutex,
        mpsc::{Receiver, Sender, channel},
    },
    time::Duration,
};

#[test]
fn a_result_reaches_the_channel_even_if_the_queue_of_its_loop_is_full() {
    let pool = WorkerPool::builder().threads(1).build().unwrap();
    let builder = EventLoopGroup::builder().max_pending_tasks(16).workers(&pool);
    let (group, event_loop) = single(builder);
    let log = Log::new();
    let (release, released) = channel::<()>();
    let mut released = Some(released);
    let (_channel, mut peer) = open(&group, &log, move |ctx, _, log| {
        let released = released.take().unwrap();
        let work = move || {
            let _ = released.recv_timeout(PATIENCE);
        };
        ctx.offload(work, |me, _, done| {
            me.log.push("answered".to_owned());
            done
        })?;
        log.push("offloaded".to_owned());
        Ok(())
    });
    peer.write_all(b"go\n").unwrap();
    log.wait_len(1);
    let gate = Gate::shut(&event_loop);
    while event_loop.execute(|| ()).is_ok() {}
    drop(release);
    until(&pool, |metrics| metrics.finished == 1);
    drop(gate);
    log.wait_len(2);
    assert_eq!(log.all(), ["offloaded", "answered"]);
    end(&group);
}

/// Keeps its channel open during a shutdown until the result has arrived.
struct Patient {
    begun: Sender<()>,
    released: Option<Receiver<()>>,
    told: Sender<&'static str>,
}

impl Handler for Patient {
    type Read = Bytes;
    type Write = Bytes;

    fn active(&mut self, ctx: &mut Context<'_, Self>) -> Result {
        let (begun, released) = (self.begun.clone(), self.released.take().unwrap());
        let work = move || {
            begun.send(()).unwrap();
            let _ = released.recv_timeout(PATIENCE);
        };
        ctx.schedule(Duration::from_secs(3600), |_, _| Ok(()));
        ctx.offload(work, |me, ctx, done| {
            me.told.send("answer").unwrap();
            ctx.close();
            done
        })?;
        Ok(())
    }

    fn read(&mut self, _: &mut Context<'_, Self>, _: Bytes) -> Result {
        Ok(())
    }

    fn shutdown(&mut self, _: &mut Context<'_, Self>) -> Result {
        self.told.send("shutdown").map_err(Error::other)
    }

    fn inactive(&mut self, _: &mut Context<'_, Self>) -> Result {
        self.told.send("inactive").map_err(Error::other)
    }
}

#[test]
fn a_graceful_shutdown_waits_for_a_result_if_the_handler_does() {
    let group = EventLoopGroup::builder().threads(1).build().unwrap();
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let (release, released) = channel();
    let ((begun, begins), (told, tells)) = (channel(), channel());
    let handler = Mutex::new(Some(Patient { begun, released: Some(released), told }));
    let client = ClientBootstrap::new(&group)
        .pipeline(move |_| Pipeline::codec(Line::new()).handler(handler.lock().unwrap().take().unwrap()));
    done(client.connect(listener.local_addr().unwrap())).unwrap();
    receive(&begins);
    let end = group.shutdown(ShutdownOptions::new().quiet_period(Duration::ZERO).timeout(PATIENCE));
    assert_eq!(receive(&tells), "shutdown");
    drop(release);
    assert_eq!([receive(&tells), receive(&tells)], ["answer", "inactive"]);
    done(end).unwrap();
}
