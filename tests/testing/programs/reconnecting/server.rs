//! A server that counts the connections of each client by its first line.

use super::super::support::{Calm, Draw, MS, SECOND, deploy};
use bytes::Bytes;
use netwheel::{codec::Line, prelude::*, testing::simulation::sleep};
use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex},
    time::Duration,
};

/// The number of connections of each client, by its name.
#[derive(Default)]
pub(super) struct Online(BTreeMap<Bytes, u32>);

impl Online {
    /// Returns whether each of `clients` clients has one connection.
    pub(super) fn is_one_each(&self, clients: usize) -> bool {
        self.0.len() == clients && self.0.values().all(|count| *count == 1)
    }
}

struct Member {
    online: Arc<Mutex<Online>>,
    name: Option<Bytes>,
    draw: Draw,
    calm: Calm,
}

impl Handler for Member {
    type Read = Bytes;
    type Write = Bytes;

    fn active(&mut self, ctx: &mut Context<'_, Self>) -> Result {
        // Some connections do not last.
        if self.draw.one_in(4) && !self.calm.is_now() {
            let time = self.draw.time(3 * SECOND);
            ctx.schedule(time, |me, ctx| {
                if me.draw.one_in(2) {
                    ctx.reset()
                } else {
                    ctx.close()
                }
                Ok(())
            });
        }
        Ok(())
    }

    fn read(&mut self, ctx: &mut Context<'_, Self>, line: Bytes) -> Result {
        if self.name.is_none() {
            *self.online.lock().unwrap().0.entry(line.clone()).or_default() += 1;
            self.name = Some(line.clone());
        }
        ctx.write(line)
    }

    fn idle(&mut self, ctx: &mut Context<'_, Self>, _: IdleEvent) -> Result {
        ctx.close();
        Ok(())
    }

    fn inactive(&mut self, _: &mut Context<'_, Self>) -> Result {
        let Some(name) = self.name.take() else { return Ok(()) };
        let mut online = self.online.lock().unwrap();
        if let Some(count) = online.0.get_mut(&name) {
            *count -= 1;
            if *count == 0 {
                online.0.remove(&name);
            }
        }
        Ok(())
    }
}

pub(super) fn serve(online: &Arc<Mutex<Online>>, calm: &Calm) {
    // Connections of an earlier life have ended with it.
    online.lock().unwrap().0.clear();
    let (mut draw, mut pauses) = (Draw::new(), Draw::new());
    let time = || 5 * SECOND + draw.time(50 * SECOND);
    deploy(calm, time, |group| {
        // A new version takes a while to start.
        sleep(pauses.pick(&[Duration::ZERO, 200 * MS, 10 * SECOND]));
        let (online, calm) = (online.clone(), calm.clone());
        let server =
            ServerBootstrap::new(group)
                .pipeline(move |_peer| {
                    let (online, calm) = (online.clone(), calm.clone());
                    Pipeline::codec(Line::new())
                        .idle(IdleTimeouts::new().reader(20 * SECOND))
                        .handler(Member { online, name: None, draw: Draw::new(), calm })
                })
                .bind("10.0.0.1:7000")?;
        Ok(server.closed())
    });
}
