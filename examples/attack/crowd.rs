//! Members of the attacked room. They read everything and send only on request.

use bytes::Bytes;
use netwheel::{codec::Line, net::Address, prelude::*, shutdown::ShutdownOptions};
use std::{
    net::SocketAddr,
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicUsize, Ordering},
    },
    thread,
    time::{Duration, Instant},
};

/// Maximum number of connections being opened.
const IN_FLIGHT: usize = 128;
/// Time limit for all members to connect and join.
const PATIENCE: Duration = Duration::from_secs(120);

#[derive(Default)]
struct Counts {
    ready: AtomicUsize,
    closed: AtomicUsize,
    lines: AtomicUsize,
    members: Mutex<Vec<Channel<Bytes>>>,
}

pub(crate) struct Crowd {
    group: EventLoopGroup,
    counts: Arc<Counts>,
}

impl Crowd {
    /// Connects clients that log in and join `room`, and waits until all of them are members.
    ///
    /// # Errors
    /// Fails if a connection fails, or if not all clients are members after two minutes.
    pub(crate) fn gather(address: SocketAddr, room: &str, size: u32) -> Result<Self> {
        let crowd = Crowd::log_in(address, room, size)?;
        crowd.all_say(&format!("{{\"type\":\"join\",\"room\":\"{room}\"}}"));
        crowd.wait_for(|counts| counts.ready.load(Ordering::Acquire) >= 2 * size as usize)?;
        Ok(crowd)
    }

    /// Connects clients that log in with the name prefix `prefix` and join no room.
    ///
    /// # Errors
    /// See [`gather`](Crowd::gather).
    pub(crate) fn log_in(address: SocketAddr, prefix: &str, size: u32) -> Result<Self> {
        let group = EventLoopGroup::builder().threads(1).name("crowd").build()?;
        let counts = Arc::<Counts>::default();
        let crowd = Crowd { group, counts };
        for number in 0..size as usize {
            let counts = crowd.counts.clone();
            let user = format!("{prefix}-{number}");
            crowd.wait_for(|counts| number < counts.ready.load(Ordering::Acquire) + IN_FLIGHT)?;
            ClientBootstrap::new(&crowd.group)
                .pipeline(move |_peer| {
                    let member = Member { user: user.clone(), counts: counts.clone() };
                    Pipeline::codec(Line::new().max_len(4 * 1024 * 1024)).handler(member)
                })
                .connect(Address::from(address))
                .on_complete(|result| {
                    if let Err(e) = result {
                        log::warn!("a member of the crowd cannot connect: {e:#}");
                    }
                });
        }
        crowd.wait_for(|counts| counts.ready.load(Ordering::Acquire) >= size as usize)?;
        Ok(crowd)
    }

    /// Makes every member send `line`.
    pub(crate) fn all_say(&self, line: &str) {
        let members = self.counts.members.lock().unwrap_or_else(PoisonError::into_inner);
        for member in members.iter() {
            let _ = member.write(Bytes::copy_from_slice(line.as_bytes()));
        }
    }

    /// Returns the number of members that the server has closed.
    pub(crate) fn closed(&self) -> usize {
        self.counts.closed.load(Ordering::Acquire)
    }

    /// Returns the number of lines received by all members together.
    pub(crate) fn lines(&self) -> usize {
        self.counts.lines.load(Ordering::Acquire)
    }

    /// Waits until nothing has arrived for 300 ms.
    pub(crate) fn wait_until_quiet(&self) {
        let until = Instant::now() + PATIENCE;
        let mut last = usize::MAX;
        while last != self.lines() && Instant::now() < until {
            last = self.lines();
            thread::sleep(Duration::from_millis(300));
        }
    }

    fn wait_for(&self, done: impl Fn(&Counts) -> bool) -> Result {
        let until = Instant::now() + PATIENCE;
        while !done(&self.counts) {
            if Instant::now() > until {
                let ready = self.counts.ready.load(Ordering::Acquire);
                return Err(format!("the crowd was not complete in time: {ready} steps done").into());
            }
            thread::sleep(Duration::from_millis(1));
        }
        Ok(())
    }
}

impl Drop for Crowd {
    fn drop(&mut self) {
        self.group
            .shutdown(ShutdownOptions::new().quiet_period(Duration::ZERO).timeout(Duration::from_millis(500)))
            .detach();
    }
}

struct Member {
    user: String,
    counts: Arc<Counts>,
}

impl Handler for Member {
    type Read = Bytes;
    type Write = Bytes;

    fn active(&mut self, ctx: &mut Context<'_, Self>) -> Result {
        let members = &self.counts.members;
        members.lock().unwrap_or_else(PoisonError::into_inner).push(ctx.channel());
        ctx.write(format!("{{\"type\":\"login\",\"user\":\"{}\"}}", self.user).into())
    }

    fn read(&mut self, ctx: &mut Context<'_, Self>, line: Bytes) -> Result {
        self.counts.lines.fetch_add(1, Ordering::Relaxed);
        // The first `joined` is the member's own.
        let is_own =
            |line: &[u8]| memchr::memmem::find(line, format!("\"{}\"", self.user).as_bytes()).is_some();
        let answered = line.starts_with(b"{\"type\":\"welcome\"")
            || line.starts_with(b"{\"type\":\"joined\"") && is_own(&line);
        if answered {
            self.counts.ready.fetch_add(1, Ordering::AcqRel);
        } else if &line[..] == b"{\"type\":\"ping\"}" {
            ctx.write(Bytes::from_static(b"{\"type\":\"pong\"}"))?;
        }
        Ok(())
    }

    fn inactive(&mut self, _: &mut Context<'_, Self>) -> Result {
        self.counts.closed.fetch_add(1, Ordering::AcqRel);
        Ok(())
    }
}
