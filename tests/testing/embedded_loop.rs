//! Many channels without sockets that share the services of one loop and one clock.

use crate::support::wait::SECOND;
use bytes::Bytes;
use netwheel::{ChannelGroup, ChannelId, Error, codec::Line, prelude::*, testing::EmbeddedLoop};
use std::{cell::RefCell, rc::Rc, time::Duration};

type Log = Rc<RefCell<Vec<String>>>;

/// Logs its calls with its name. Echoes lines. If a line is a number, writes "later" after that
/// many seconds.
struct Noting {
    name: &'static str,
    log: Log,
}

impl Noting {
    fn note(&self, what: &str) {
        self.log.borrow_mut().push(format!("{} {what}", self.name));
    }
}

impl Handler for Noting {
    type Read = Bytes;
    type Write = Bytes;

    fn active(&mut self, _: &mut Context<'_, Self>) -> Result {
        self.note("active");
        Ok(())
    }

    fn read(&mut self, ctx: &mut Context<'_, Self>, line: Bytes) -> Result {
        if let Some(seconds) = std::str::from_utf8(&line).ok().and_then(|text| text.parse().ok()) {
            let asked = ctx.now();
            ctx.schedule(Duration::from_secs(seconds), move |me, ctx| {
                me.note(&format!("after {:?}", ctx.now() - asked));
                ctx.write(Bytes::from_static(b"later"))
            });
            return Ok(());
        }
        ctx.write(line)
    }

    fn idle(&mut self, _: &mut Context<'_, Self>, _: IdleEvent) -> Result {
        self.note("idle");
        Ok(())
    }

    fn inactive(&mut self, _: &mut Context<'_, Self>) -> Result {
        self.note("inactive");
        Ok(())
    }
}

impl Drop for Noting {
    fn drop(&mut self) {
        self.note("dropped");
    }
}

fn open(event_loop: &mut EmbeddedLoop, name: &'static str, log: &Log) -> ChannelId {
    let idle = IdleTimeouts::new().reader(10 * SECOND);
    event_loop.open(Pipeline::codec(Line::new()).idle(idle).handler(Noting { name, log: log.clone() }))
}

fn take(log: &Log) -> Vec<String> {
    std::mem::take(&mut log.borrow_mut())
}

#[test]
fn each_channel_has_its_own_stream() {
    let (mut event_loop, log) = (EmbeddedLoop::new(), Log::default());
    let (a, b) = (open(&mut event_loop, "a", &log), open(&mut event_loop, "b", &log));
    assert_eq!(take(&log), ["a active", "b active"]);
    assert_ne!(a, b);
    event_loop.write_inbound(a, b"from").unwrap();
    event_loop.write_inbound(b, b"to b\n").unwrap();
    event_loop.write_inbound(a, b" a\n").unwrap();
    assert_eq!(event_loop.read_outbound(a), &b"from a\n"[..]);
    assert_eq!(event_loop.read_outbound(b), &b"to b\n"[..]);
    assert!(event_loop.read_outbound(a).is_empty());
}

#[test]
fn timers_of_all_channels_run_in_order_of_time() {
    let (mut event_loop, log) = (EmbeddedLoop::new(), Log::default());
    let (a, b) = (open(&mut event_loop, "a", &log), open(&mut event_loop, "b", &log));
    event_loop.advance(SECOND);
    event_loop.write_inbound(a, b"4\n").unwrap();
    event_loop.write_inbound(b, b"3\n").unwrap();
    assert_eq!(event_loop.timers(), 4);
    assert_eq!(event_loop.next_timer(), Some(3 * SECOND));
    take(&log);
    event_loop.advance(4 * SECOND);
    assert_eq!(take(&log), ["b after 3s", "a after 4s"]);
    assert_eq!(
        (event_loop.read_outbound(a), event_loop.read_outbound(b)),
        ("later\n".into(), "later\n".into())
    );
    event_loop.write_inbound(b, b"\n").unwrap();
    event_loop.advance(6 * SECOND + Duration::from_millis(1));
    assert_eq!(take(&log), ["a idle"], "b received bytes four seconds later");
}

#[test]
fn a_close_sends_pending_bytes_and_keeps_the_channel_until_it_is_removed() {
    let (mut event_loop, log) = (EmbeddedLoop::new(), Log::default());
    let (a, b) = (open(&mut event_loop, "a", &log), open(&mut event_loop, "b", &log));
    event_loop.write_inbound(a, b"last words\n").unwrap();
    take(&log);
    event_loop.close(a);
    assert_eq!(take(&log), ["a inactive", "a dropped"]);
    assert!(event_loop.is_closed(a) && event_loop.is_open(b));
    assert!(matches!(event_loop.write_inbound(a, b"x\n"), Err(Error::Closed)));
    assert_eq!(event_loop.read_outbound(a), &b"last words\n"[..]);
    event_loop.remove(a);
    event_loop.remove(b);
    assert_eq!(take(&log), ["b inactive", "b dropped"], "an open channel is closed first");
    assert_eq!((event_loop.channels(), event_loop.timers()), (0, 0));
}

#[test]
fn a_stale_id_does_not_reach_a_new_channel_in_the_same_slot() {
    let (mut event_loop, log) = (EmbeddedLoop::new(), Log::default());
    let old = open(&mut event_loop, "old", &log);
    event_loop.remove(old);
    let new = open(&mut event_loop, "new", &log);
    take(&log);
    assert!(matches!(event_loop.write_inbound(old, b"x\n"), Err(Error::Closed)));
    event_loop.close(old);
    event_loop.end_inbound(old);
    event_loop.remove(old);
    assert!(event_loop.is_closed(old) && event_loop.is_open(new));
    assert!(event_loop.read_outbound(new).is_empty());
    let mut other = EmbeddedLoop::new();
    open(&mut other, "other", &log);
    assert!(other.is_closed(new), "an id of another loop is not valid here");
}

/// Shares its handle with the test, and joins a group.
struct Member {
    group: ChannelGroup<Bytes>,
    handle: Rc<RefCell<Option<Channel<Bytes>>>>,
}

impl Handler for Member {
    type Read = Bytes;
    type Write = Bytes;

    fn active(&mut self, ctx: &mut Context<'_, Self>) -> Result {
        self.group.join(ctx.channel());
        *self.handle.borrow_mut() = Some(ctx.channel());
        Ok(())
    }

    fn read(&mut self, _: &mut Context<'_, Self>, line: Bytes) -> Result {
        Ok(self.group.broadcast(line).map(drop)?)
    }
}

#[test]
fn handles_and_groups_reach_their_channels() {
    let mut event_loop = EmbeddedLoop::builder().wheel_tick(SECOND).build().unwrap();
    let group = ChannelGroup::new();
    let mut handles = Vec::new();
    let mut ids = Vec::new();
    for _ in 0..3 {
        let handle = Rc::new(RefCell::new(None));
        let member = Member { group: group.clone(), handle: handle.clone() };
        ids.push(event_loop.open(Pipeline::codec(Line::new()).handler(member)));
        handles.push(handle.borrow_mut().take().unwrap());
    }
    let sender = handles[1].clone();
    std::thread::spawn(move || sender.write(Bytes::from_static(b"from a thread")).unwrap()).join().unwrap();
    assert!(event_loop.has_pending());
    event_loop.run_pending();
    let all = |event_loop: &mut EmbeddedLoop| {
        ids.iter().map(|id| event_loop.read_outbound(*id)).collect::<Vec<_>>()
    };
    assert_eq!(all(&mut event_loop), ["", "from a thread\n", ""]);
    event_loop.write_inbound(ids[0], b"to all\n").unwrap();
    assert_eq!(all(&mut event_loop), ["to all\n"; 3]);
    event_loop.remove(ids[2]);
    event_loop.write_inbound(ids[0], b"to both\n").unwrap();
    assert_eq!(all(&mut event_loop), ["to both\n", "to both\n", ""]);
    assert!(handles[2].write(Bytes::new()).is_err());
}

#[test]
fn an_overloaded_loop_refuses_broadcasts_of_bulk_groups() {
    let mut event_loop = EmbeddedLoop::new();
    let join = |group: &ChannelGroup<Bytes>| Member { group: group.clone(), handle: Rc::default() };
    let groups = [false, true].map(|on| ChannelGroup::builder().bulk(on).build().unwrap());
    let ids = [0, 1].map(|n| event_loop.open(Pipeline::codec(Line::new()).handler(join(&groups[n]))));
    for is_overloaded in [false, true, false] {
        event_loop.set_overloaded(is_overloaded);
        drop(groups[0].broadcast(Bytes::from_static(b"news")).unwrap());
        let refused = groups[1].broadcast(Bytes::from_static(b"typing")).map(drop).err();
        assert_eq!(refused.is_some(), is_overloaded);
        assert!(refused.is_none_or(|refused| matches!(refused.error(), Error::Overloaded(_))));
        event_loop.run_pending();
        let received = ids.map(|id| event_loop.read_outbound(id));
        assert_eq!(received, ["news\n", if is_overloaded { "" } else { "typing\n" }]);
    }
}

/// As on a loop with sockets: `inactive` comes at the end of the turn.
#[test]
fn work_for_another_channel_precedes_the_inactive_of_a_closed_one() {
    let (log, other) = (Log::default(), Rc::new(RefCell::new(None)));
    let mut event_loop = EmbeddedLoop::new();
    let (inner, known) = (log.clone(), other.clone());
    let leaves = Pipeline::codec(Line::new()).handler(Leaves { log: inner, other: known });
    let id = event_loop.open(leaves);
    let (inner, known) = (log.clone(), other.clone());
    event_loop.open(Pipeline::codec(Line::new()).handler(Remains { log: inner, own: known }));
    event_loop.write_inbound(id, b"leave\n").unwrap();
    assert_eq!(take(&log), ["a task of the other", "inactive"]);
}

type Other = Rc<RefCell<Option<HandlerRef<Remains>>>>;

/// Gives the other channel a task, and closes.
struct Leaves {
    log: Log,
    other: Other,
}

impl Handler for Leaves {
    type Read = Bytes;
    type Write = Bytes;

    fn read(&mut self, ctx: &mut Context<'_, Self>, _: Bytes) -> Result {
        let other = self.other.borrow();
        let note = |me: &mut Remains, _: &mut Context<'_, Remains>| {
            me.log.borrow_mut().push("a task of the other".into());
            Ok(())
        };
        other.as_ref().expect("it is open").execute(note)?;
        ctx.close_now();
        Ok(())
    }

    fn inactive(&mut self, _: &mut Context<'_, Self>) -> Result {
        self.log.borrow_mut().push("inactive".into());
        Ok(())
    }
}

struct Remains {
    log: Log,
    own: Other,
}

impl Handler for Remains {
    type Read = Bytes;
    type Write = Bytes;

    fn active(&mut self, ctx: &mut Context<'_, Self>) -> Result {
        *self.own.borrow_mut() = Some(ctx.handler_ref());
        Ok(())
    }

    fn read(&mut self, _: &mut Context<'_, Self>, _: Bytes) -> Result {
        Ok(())
    }
}
