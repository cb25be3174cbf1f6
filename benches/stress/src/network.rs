//! The servers and connections of a world, whose handlers are players.

use crate::{
    filter::Records,
    frame::with_codec,
    plan::{Index, Plan, Wire},
    player::{Player, World},
    report::Report,
    token::Kind,
    world::{CLIENTS, RELAYS, SERVERS},
};
use bytes::Bytes;
use netwheel::{
    codec::RawBytes,
    net::{Address, UnixAddress},
    prelude::*,
    relay::Relay,
};
use std::sync::Arc;

impl World {
    /// Builds the groups, links and servers of a plan.
    ///
    /// # Errors
    /// A group cannot be built, or a server cannot bind: the program is at fault.
    pub(crate) fn build(plan: Plan, report: Arc<Report>) -> Result<Arc<Self>> {
        let world = Arc::new(World::new(plan, report)?);
        let mut servers: Vec<Server<Address>> = vec![];
        for number in 0..world.plan.servers.len() {
            let server = world.serve(number, &servers)?;
            servers.push(server);
        }
        world.set_servers(servers);
        Ok(world)
    }

    fn serve(self: &Arc<Self>, number: Index, earlier: &[Server<Address>]) -> Result<Server<Address>> {
        let plan = &self.plan.servers[number];
        let group = if plan.relay_to.is_some() { RELAYS } else { SERVERS };
        let mut bootstrap =
            ServerBootstrap::new(&self.groups[group]).channel_options(plan.channel.options()?);
        if plan.filter {
            bootstrap = bootstrap.filter(|_| Records::default());
        }
        let address = if plan.unix {
            let name = format!("netwheel-stress-{}-{}-{number}", std::process::id(), self.plan.seed);
            Address::Unix(UnixAddress::abstract_name(name)?)
        } else {
            Address::Tcp(([127, 0, 0, 1], 0).into())
        };
        let (wire, same_loop) = (plan.wire, plan.same_loop);
        match plan.relay_to {
            None => {
                let (world, echo) = (Arc::downgrade(self), plan.echo);
                let pipeline = move |_: &Peer| {
                    let world = world.upgrade().ok_or(Error::ShutDown)?;
                    Ok(pipeline(wire, Player::server(&world, echo)))
                };
                bootstrap.pipeline(pipeline).bind(address)
            }
            Some(target) => {
                let client = self.client(RELAYS, target, plan.channel.options()?);
                let to = earlier[target].local_address();
                let dial = move |front: Channel<Bytes>| {
                    let event_loop = front.event_loop();
                    let back = client.clone().pipeline(move |_| relay(wire, Relay::to(front.clone())));
                    match event_loop {
                        Some(event_loop) if same_loop => back.connect_on(&event_loop, to.clone()),
                        _ => back.connect(to.clone()),
                    }
                };
                bootstrap.pipeline(move |_| relay(wire, Relay::dial(dial.clone()))).bind(address)
            }
        }
    }

    pub(crate) fn connect(self: &Arc<Self>, number: Index) {
        let plan = &self.plan.links[number];
        let Ok(options) = plan.channel.options() else { return };
        let (world, end, wire) = (Arc::downgrade(self), self.links[number].client.clone(), plan.wire);
        let token = self.tokens.token(Kind::Connect);
        self.client(CLIENTS, plan.server, options)
            .pipeline(move |_: &Peer| {
                let world = world.upgrade().ok_or(Error::ShutDown)?;
                Ok(pipeline(wire, Player::client(&world, &end)))
            })
            .connect(self.address(plan.server))
            .on_complete(move |_| token.called());
    }
}

pub(crate) fn pipeline<H>(wire: Wire, handler: H) -> Pipeline<Bytes>
where
    H: Handler<Read = Bytes, Write = Bytes>,
{
    with_codec!(wire, |codec| Pipeline::codec(codec).handler(handler))
}

/// A relay of bytes, or of whole messages.
fn relay(wire: Wire, relay: Relay<Bytes>) -> Pipeline<Bytes> {
    match wire {
        Wire::Hinted => Pipeline::codec(RawBytes).handler(relay),
        wire => pipeline(wire, relay),
    }
}
