//! Members of topics: connections that join when they are accepted.

use crate::cluster::Node;
use bytes::Bytes;
use netwheel::{
    Server,
    broker::{Position, Subscription, Topic},
    codec::LengthField,
    prelude::*,
};
use std::{
    net::SocketAddr,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
};

struct Member {
    topics: Arc<[Topic<Bytes>]>,
    after: Option<Position>,
}

impl Handler for Member {
    type Read = Bytes;
    type Write = Bytes;

    fn active(&mut self, ctx: &mut Context<'_, Self>) -> Result {
        for topic in self.topics.iter() {
            let subscription = Subscription::new(ctx.channel());
            let subscription = match self.after {
                Some(position) => subscription.after(position),
                None => subscription,
            };
            topic.subscribe(subscription).on_complete(|joined| {
                if let Err(error) = joined {
                    eprintln!("a member could not join: {error}");
                }
            });
        }
        Ok(())
    }

    fn read(&mut self, _: &mut Context<'_, Self>, _: Bytes) -> Result {
        Ok(())
    }
}

/// Accepts connections, each of which joins the next group of topics.
///
/// # Errors
/// If no port is free.
pub(crate) fn serve(
    node: &Node,
    topics: Vec<Vec<Topic<Bytes>>>,
    after: Option<Position>,
) -> Result<(Server, SocketAddr)> {
    let topics: Vec<Arc<[Topic<Bytes>]>> = topics.into_iter().map(Arc::from).collect();
    let accepted = AtomicUsize::new(0);
    let server = ServerBootstrap::new(&node.group)
        .pipeline(move |_peer| {
            let n = accepted.fetch_add(1, Ordering::Relaxed);
            let member = Member { topics: topics[n % topics.len()].clone(), after };
            Pipeline::codec(LengthField::u32()).handler(member)
        })
        .bind("127.0.0.1:0")?;
    let address = server.local_address();
    Ok((server, address))
}

/// Returns the number of bytes of a message of `length` bytes at a member.
pub(crate) fn frame(length: usize) -> u64 {
    length as u64 + 4
}
