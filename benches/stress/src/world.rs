//! Everything that a round's threads and handlers share.

use crate::{
    filter::Records,
    frame::Frame,
    life::Life,
    link::{End, Link},
    plan::{EndPlan, Index, MAX_THREADS, Plan, Side},
    report::{Invariant, Report},
    token::Tokens,
};
use bytes::Bytes;
use netwheel::{channel::ChannelOptions, executor::Spawn, net::Address, prelude::*, worker_pool::WorkerPool};
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

pub(crate) struct World<H: Handler> {
    pub(crate) plan: Plan,
    pub(crate) report: Arc<Report>,
    pub(crate) tokens: Arc<Tokens>,
    pub(crate) links: Vec<Link<H>>,
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
    /// Messages that reports count as written, messages of broadcasts without a report, and
    /// received messages.
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

impl<H: Handler> World<H> {
    /// Returns a world without servers.
    ///
    /// # Errors
    /// A group cannot be built: the program is at fault.
    pub(crate) fn new(plan: Plan, report: Arc<Report>) -> Result<Self> {
        let workers =
            WorkerPool::builder().threads(2).name("work").idle_timeout(Duration::from_millis(1)).build()?;
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
        Ok(World {
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
        })
    }

    /// Returns a bootstrap of connections to a server.
    pub(crate) fn client(&self, group: Index, server: Index, options: ChannelOptions) -> ClientBootstrap {
        let bootstrap = ClientBootstrap::new(&self.groups[group]).channel_options(options);
        if self.plan.servers[server].filter { bootstrap.filter(|_| Records::default()) } else { bootstrap }
    }

    /// Takes the servers, once.
    pub(crate) fn set_servers(&self, servers: Vec<Server<Address>>) {
        let _ = self.servers.set(servers);
    }

    pub(crate) fn servers(&self) -> &[Server<Address>] {
        self.servers.get().map_or(&[], Vec::as_slice)
    }

    pub(crate) fn address(&self, server: Index) -> Address {
        self.servers()[server].local_address()
    }

    pub(crate) fn new_life(&self) -> Arc<Life> {
        let life = Arc::new(Life::default());
        self.lives.lock().unwrap_or_else(PoisonError::into_inner).push(life.clone());
        life
    }

    pub(crate) fn lives(&self) -> Vec<Arc<Life>> {
        self.lives.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    pub(crate) fn end_plan(&self, end: &End<H>) -> EndPlan {
        self.plan.links[end.link].end(end.side)
    }

    pub(crate) fn join_rooms(&self, end: &End<H>, channel: &Channel<Bytes>) {
        let link = &self.plan.links[end.link];
        let rooms = if end.side == Side::Client { &link.client_rooms } else { &link.server_rooms };
        for room in rooms {
            self.rooms[*room].join(channel);
        }
    }

    pub(crate) fn note_broadcast(&self, end: Option<&End<H>>, frame: Frame) {
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
