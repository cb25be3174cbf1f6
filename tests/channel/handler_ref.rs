//! [`HandlerRef`], a handle with access to the handler: thread, order, errors, and tasks of closed
//! channels.

use crate::support::wait::PATIENCE;
use netwheel::{
    ClientBootstrap, Error, EventLoopGroup, HandlerRef, ServerBootstrap, codec::Line, prelude::*,
    shutdown::ShutdownOptions, testing::EmbeddedChannel,
};
use std::{
    cell::RefCell,
    rc::Rc,
    sync::mpsc::{Sender, channel},
    thread,
    time::Duration,
};

/// Stores messages. Not `Send`, like most handlers.
struct Shelf {
    kept: Rc<RefCell<Vec<String>>>,
    made: Option<Sender<HandlerRef<Shelf>>>,
}

impl Handler for Shelf {
    type Read = bytes::Bytes;
    type Write = bytes::Bytes;

    fn active(&mut self, ctx: &mut Context<'_, Self>) -> Result {
        match self.made.take() {
            Some(made) => made.send(ctx.handler_ref()).map_err(Error::other),
            None => Ok(()),
        }
    }

    fn read(&mut self, ctx: &mut Context<'_, Self>, message: bytes::Bytes) -> Result {
        self.kept.borrow_mut().push(String::from_utf8_lossy(&message).into_owned());
        ctx.write(message)
    }

    fn error(&mut self, _: &mut Context<'_, Self>, error: Error) -> Result {
        self.kept.borrow_mut().push(format!("error: {error:#}"));
        Ok(())
    }
}

type Kept = Rc<RefCell<Vec<String>>>;

fn shelf() -> (EmbeddedChannel<bytes::Bytes>, HandlerRef<Shelf>, Kept) {
    let (made, reference) = channel();
    let kept = Rc::default();
    let handler = Shelf { kept: Rc::clone(&kept), made: Some(made) };
    let channel = EmbeddedChannel::new(Pipeline::codec(Line::new()).handler(handler));
    (channel, reference.recv().unwrap(), kept)
}

fn keep(reference: &HandlerRef<Shelf>, text: &'static str) -> Result {
    reference.execute(move |me, ctx| {
        me.kept.borrow_mut().push(text.to_owned());
        ctx.write(text.into())
    })
}

/// Reports its drop.
struct Token(Sender<()>);

impl Drop for Token {
    fn drop(&mut self) {
        self.0.send(()).unwrap();
    }
}

#[test]
fn tasks_run_with_the_handler_and_in_order_with_writes() {
    let (mut channel, reference, kept) = shelf();
    assert_eq!(reference.channel(), &channel.channel());
    let other = reference.clone();
    thread::spawn(move || {
        keep(&other, "one").unwrap();
        other.channel().write("two".into()).unwrap();
        keep(&other, "three").unwrap();
    })
    .join()
    .unwrap();
    assert_eq!(*kept.borrow(), [""; 0], "nothing runs on the other thread");
    channel.run_pending();
    assert_eq!(*kept.borrow(), ["one", "three"]);
    assert_eq!(channel.read_outbound(), "one\ntwo\nthree\n");
}

#[test]
fn a_task_never_runs_within_a_callback() {
    let (mut channel, reference, kept) = shelf();
    let other = reference.clone();
    reference
        .execute(move |me, _| {
            keep(&other, "inner")?;
            me.kept.borrow_mut().push("outer".to_owned());
            Ok(())
        })
        .unwrap();
    channel.run_pending();
    assert_eq!(*kept.borrow(), ["outer", "inner"]);
}

#[test]
fn a_task_can_schedule_and_cancel() {
    let (mut channel, reference, kept) = shelf();
    reference
        .execute(|_, ctx| {
            let note = |text: &'static str| {
                move |me: &mut Shelf, _: &mut Context<'_, Shelf>| {
                    me.kept.borrow_mut().push(text.to_owned());
                    Ok(())
                }
            };
            ctx.schedule(Duration::from_secs(1), note("kept"));
            let cancelled = ctx.schedule(Duration::from_secs(1), note("cancelled"));
            assert!(ctx.cancel(cancelled));
            Ok(())
        })
        .unwrap();
    channel.run_pending();
    channel.advance(Duration::from_secs(1));
    assert_eq!(*kept.borrow(), ["kept"]);
}

#[test]
fn an_error_of_a_task_goes_to_the_handler() {
    let (mut channel, reference, kept) = shelf();
    reference.execute(|_, _| Err("no room".into())).unwrap();
    channel.run_pending();
    assert_eq!(*kept.borrow(), ["error: no room"]);
    assert!(channel.is_open());
}

#[test]
fn a_task_for_a_closed_channel_is_dropped() {
    let (mut channel, reference, kept) = shelf();
    let (dropped, drops) = std::sync::mpsc::channel();
    let token = Token(dropped.clone());
    reference
        .execute(move |me, _| {
            me.kept.borrow_mut().push("too late".to_owned());
            drop(token);
            Ok(())
        })
        .unwrap();
    channel.fail_inbound(std::io::ErrorKind::ConnectionReset.into());
    channel.run_pending();
    assert_eq!(drops.try_iter().count(), 1);
    let token = Token(dropped);
    let refused = reference.execute(move |_, _| {
        drop(token);
        Ok(())
    });
    assert!(matches!(refused, Err(Error::Closed)));
    assert_eq!(drops.try_iter().count(), 1);
    assert_eq!(*kept.borrow(), ["error: reading failed: connection reset"]);
}

#[test]
fn a_task_reaches_a_handler_on_another_loop() {
    let group = EventLoopGroup::builder().threads(2).build().unwrap();
    let (made, references) = channel();
    let server = ServerBootstrap::new(&group)
        .pipeline(move |_| {
            let handler = Shelf { kept: Rc::default(), made: Some(made.clone()) };
            Pipeline::codec(Line::new()).handler(handler)
        })
        .bind("127.0.0.1:0")
        .unwrap();
    let client = ClientBootstrap::new(&group)
        .pipeline(|_| Pipeline::codec(Line::new()).handler(Shelf { kept: Rc::default(), made: None }));
    let clients: Vec<_> = (0..2).map(|_| client.connect(server.local_address()).wait().unwrap()).collect();
    let first = references.recv_timeout(PATIENCE).unwrap();
    let second = references.recv_timeout(PATIENCE).unwrap();
    let (tell, told) = channel();
    // From the test to the first handler, from there to the second, and back to the test.
    first
        .execute(move |me, _| {
            me.kept.borrow_mut().push("here".to_owned());
            second.execute(move |me, ctx| {
                me.kept.borrow_mut().push("there".to_owned());
                assert!(ctx.channel().in_event_loop());
                tell.send(me.kept.borrow().clone()).map_err(Error::other)
            })
        })
        .unwrap();
    assert_eq!(told.recv_timeout(PATIENCE).unwrap(), ["there"]);
    drop(clients);
    group.shutdown(ShutdownOptions::new().quiet_period(Duration::ZERO).timeout(PATIENCE)).wait().unwrap();
}
