//! The context of a callback, and the context of code that does not know the handler.

use bytes::Bytes;
use netwheel::{
    ChannelContext, Error, Pipeline, codec::Line, prelude::*, testing::EmbeddedChannel, time::Delay,
};
use std::time::Duration;

/// Calls its hook for every message.
pub(crate) struct Session(Box<Hook>);

pub(crate) type Hook = dyn FnMut(&mut Context<'_, Session>, Bytes) -> Result;

impl Handler for Session {
    type Read = Bytes;
    type Write = Bytes;

    fn read(&mut self, ctx: &mut Context<'_, Self>, message: Bytes) -> Result {
        (self.0)(ctx, message)
    }
}

pub(crate) fn session(
    hook: impl FnMut(&mut Context<'_, Session>, Bytes) -> Result + 'static,
) -> Pipeline<Bytes> {
    Pipeline::codec(Line::new()).handler(Session(Box::new(hook)))
}

pub(crate) fn open(
    hook: impl FnMut(&mut Context<'_, Session>, Bytes) -> Result + 'static,
) -> EmbeddedChannel<Bytes> {
    EmbeddedChannel::new(session(hook))
}

/// Works in the callbacks of every handler, and in the tasks of handles.
fn bye<H: Handler<Write = Bytes>>(ctx: &mut Context<'_, H>) -> Result {
    ctx.write("bye".into())?;
    ctx.close();
    Ok(())
}

pub(crate) fn text(channel: &mut EmbeddedChannel<Bytes>) -> String {
    String::from_utf8(channel.read_outbound().to_vec()).unwrap()
}

#[test]
fn arguments_of_a_write_may_use_the_context() {
    let mut channel = open(|ctx, _| {
        ctx.write(ctx.id().to_string().into())?;
        ctx.write(format!("{}", ctx.channel().id() == ctx.id()).into())?;
        ctx.write(ctx.handler_ref().channel().is_open().to_string().into())
    });
    channel.write_inbound(b"x\n").unwrap();
    let id = channel.channel().id();
    assert_eq!(text(&mut channel), format!("{id}\ntrue\ntrue\n"));
}

#[test]
fn a_generic_function_works_in_callbacks_and_in_tasks_of_handles() {
    let mut in_callback = open(|ctx, _| bye(ctx));
    in_callback.write_inbound(b"x\n").unwrap();
    let mut in_task = open(|_, _| Ok(()));
    in_task.channel().execute(bye).unwrap();
    in_task.run_pending();
    for channel in [&mut in_callback, &mut in_task] {
        assert_eq!(text(channel), "bye\n");
        assert!(channel.is_closed());
    }
}

#[test]
fn an_erased_context_schedules_offloads_and_cancels() {
    fn start(ctx: &mut ChannelContext<'_, Bytes>) -> Result {
        ctx.schedule(Duration::from_secs(1), |_, ctx| ctx.write("exact".into()));
        ctx.schedule(Delay::coarse(Duration::from_secs(2)), |_, ctx| ctx.write("coarse".into()));
        let never = ctx.schedule(Duration::from_secs(1), |_, ctx| ctx.write("never".into()));
        assert!(ctx.cancel(never));
        ctx.offload(|| "worker", |_, ctx, answer| ctx.write(answer?.into()))?;
        Ok(())
    }
    let mut channel = open(|ctx, _| start(&mut ctx.erase()));
    channel.write_inbound(b"x\n").unwrap();
    channel.run_pending();
    assert_eq!(text(&mut channel), "worker\n");
    channel.advance(Duration::from_secs(1));
    assert_eq!(text(&mut channel), "exact\n");
    channel.advance(Duration::from_secs(2));
    assert_eq!(text(&mut channel), "coarse\n");
    channel.channel().execute(start).unwrap();
    channel.run_pending();
    assert_eq!(text(&mut channel), "worker\n");
}

#[test]
fn an_error_of_an_erased_task_goes_to_the_handler() {
    let mut channel = open(|_, _| Ok(()));
    channel
        .channel()
        .execute(|ctx| {
            ctx.schedule(Duration::ZERO, |_, _| Err(Error::other("on purpose")));
            Ok(())
        })
        .unwrap();
    channel.run_pending();
    channel.advance(Duration::from_millis(1));
    assert!(channel.is_closed(), "the default of `error` closes the channel");
}

#[test]
fn a_handle_that_is_made_by_a_closing_context_is_closed() {
    let (sender, receiver) = std::sync::mpsc::channel();
    let mut channel = open(move |ctx, _| {
        ctx.close();
        sender.send(ctx.channel()).map_err(Error::other)
    });
    channel.write_inbound(b"x\n").unwrap();
    assert!(!receiver.recv().unwrap().is_open());
}
