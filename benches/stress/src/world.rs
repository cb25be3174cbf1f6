//! Everything that a round's threads and handlers share.

use crate::{
    filter::Records,
    frame::{Frame, with_codec},
    life::Life,
    link::{End, Link},
    plan::{EndPlan, Index, MAX_THREADS, Plan, Side, Wire},
    player::Player,
    report::{Invariant, Report},
    token::{Kind, Tokens},
};
use bytes::Bytes;
use netwheel::{
    channel::ChannelOptions,
    codec::RawBytes,
    executor::Spawn,
    net::{Address, UnixAddress},
    prelude::*,
    relay::Relay,
    worker_pool::WorkerPool,
};
use std::{
    pin::{Pin, pin},
    sync::{
        Arc, Mutex, OnceLock, PoisonError, RwLock,
        atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering::SeqCst},
    },
    task,
    time::Duration,
};

pub(crate) const CLIENTS: Index = 0;
pub(crate) const RELAYS: Index = 1;
pub(crate) const SERVERS: Index = 2;

pub(crate) struct World {
    pub(crate) plan: Plan,
    pub(crate) report: Arc<Report>,
    pub(crate) tokens: Arc<Tokens>,
    pub(crate) links: Vec<Link>,
    pub(crate) rooms: Vec<Room>,
    pub(crate) groups: Vec<EventLoopGroup>,
    servers: OnceLock<Vec<Server<Address>>>,
    lives: Mutex<Vec<Arc<Life>>>,
    /// A group was asked to shut down, or a server to pause.
    pub(crate) shutting_down: AtomicBool,
    pub(crate) paused_servers: AtomicBool,
    pub(crate) ending: AtomicBool,
}

pub(crate) struct Room {
    pub(crate) members: ChannelGroup<Bytes>,
    /// Held while a member joins; exclusively while the room notes which ends it closes.
    pub(crate) gate: RwLock<()>,
    /// The numbers of each thread's next broadcast.
    pub(crate) next: [AtomicU32; MAX_THREADS],
    /// By reports; and what has arrived.
    pub(crate) reported: AtomicU64,
    pub(crate) unreported: AtomicU64,
    pub(crate) arrived: AtomicU64,
    /// For each end of a link and thread, the number after the last broadcast that has arrived.
    seen: Vec<AtomicU32>,
}

impl Room {
    pub(crate) fn join(&self, channel: &Channel<Bytes>) {
        let _open = self.gate.read().unwrap_or_else(PoisonError::into_inner);
        self.members.join(channel.clone());
    }
}

/// Polls on the workers: a future of this program never waits for long.
struct Executor(WorkerPool);

impl Spawn for Executor {
    fn spawn(&self, future: Pin<Box<dyn Future<Output = ()> + Send>>) -> Result {
        let mut future = Some(future);
        let run = move || {
            let mut future = pin!(future.take().expect("called once"));
            let mut context = task::Context::from_waker(task::Waker::noop());
            while future.as_mut().poll(&mut context).is_pending() {
                std::thread::yield_now();
            }
        };
        self.0.execute(run).map_err(Into::into)
    }
}

impl World {
    /// # Errors
    /// A group cannot be built, or a server cannot bind: the program is at fault.
    pub(crate) fn build(plan: Plan, report: Arc<Report>) -> Result<Arc<Self>> {
        let workers =
            WorkerPool::builder().threads(2).name("work").keep_alive(Duration::from_millis(1)).build()?;
        let names = ["clients", "relays", "servers"];
        let group = |number: Index| {
            let builder = EventLoopGroup::builder()
                .name(names[number])
                .workers(&workers)
                .executor(Executor(workers.clone()))
                .seed(plan.seed);
            plan.groups[number].apply(builder).build()
        };
        let groups = (0..plan.groups.len()).map(group).collect::<Result<Vec<_>>>()?;
        let room = |_| Room {
            members: ChannelGroup::new(),
            gate: RwLock::default(),
            next: Default::default(),
            reported: AtomicU64::new(0),
            unreported: AtomicU64::new(0),
            arrived: AtomicU64::new(0),
            seen: (0..plan.links.len() * 2 * MAX_THREADS).map(|_| AtomicU32::new(0)).collect(),
        };
        let world = Arc::new(World {
            links: (0..plan.links.len()).map(|link| Link::new(link, &plan)).collect(),
            rooms: (0..plan.rooms).map(room).collect(),
            tokens: Tokens::new(report.clone()),
            report,
            groups,
            plan,
            servers: OnceLock::new(),
            lives: Mutex::default(),
            shutting_down: AtomicBool::new(false),
            paused_servers: AtomicBool::new(false),
            ending: AtomicBool::new(false),
        });
        let mut servers: Vec<Server<Address>> = vec![];
        for number in 0..world.plan.servers.len() {
            let server = world.serve(number, &servers)?;
            servers.push(server);
        }
        let _ = world.servers.set(servers);
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

    /// Returns a bootstrap of connections to a server.
    pub(crate) fn client(&self, group: Index, server: Index, options: ChannelOptions) -> ClientBootstrap {
        let bootstrap = ClientBootstrap::new(&self.groups[group]).channel_options(options);
        if self.plan.servers[server].filter { bootstrap.filter(|_| Records::default()) } else { bootstrap }
    }

    pub(crate) fn servers(&self) -> &[Server<Address>] {
        self.servers.get().map_or(&[], Vec::as_slice)
    }

    pub(crate) fn address(&self, server: Index) -> Address {
        self.servers()[server].local_address()
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

    pub(crate) fn new_life(&self) -> Arc<Life> {
        let life = Arc::new(Life::default());
        self.lives.lock().unwrap_or_else(PoisonError::into_inner).push(life.clone());
        life
    }

    pub(crate) fn lives(&self) -> Vec<Arc<Life>> {
        self.lives.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    pub(crate) fn end_plan(&self, end: &End) -> EndPlan {
        self.plan.links[end.link].end(end.side)
    }

    pub(crate) fn join_rooms(&self, end: &End, channel: &Channel<Bytes>) {
        let link = &self.plan.links[end.link];
        let rooms = if end.side == Side::Client { &link.client_rooms } else { &link.server_rooms };
        for room in rooms {
            self.rooms[*room].join(channel);
        }
    }

    pub(crate) fn note_broadcast(&self, end: Option<&End>, frame: Frame) {
        let (Some(room), Some(end)) = (self.rooms.get(frame.link as usize), end) else { return };
        // A broadcast comes out of the peer's end: the numbers are those of this end's input.
        let place = (end.link * 2 + usize::from(end.side == Side::Server)) * MAX_THREADS;
        let seen = &room.seen[place + usize::from(frame.producer)];
        room.arrived.fetch_add(1, SeqCst);
        let before = seen.swap(frame.number + 1, SeqCst);
        if frame.number < before {
            let detail = format!(
                "link {} {:?}: broadcast {} of thread {} in room {} after {}",
                end.link,
                end.side,
                frame.number,
                frame.producer,
                frame.link,
                before - 1
            );
            self.report.violation(Invariant::Order, detail);
        }
    }

    /// Breaks the cycles between handlers, channels and this.
    pub(crate) fn let_go(&self) {
        for link in &self.links {
            link.client.set_handler(None);
            link.server.set_handler(None);
        }
        for room in &self.rooms {
            room.members.retain(|_| false);
        }
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
