//! Futures of a handler on an executor: `Context::spawn`.

use crate::context::{Session, open, session, text};
use bytes::Bytes;
use netwheel::{
    Completer, Completion, Error, EventLoopGroup, SendError,
    channel::{ChannelOptions, TaskKey},
    executor::Spawn,
    prelude::*,
    testing::EmbeddedChannel,
};
use std::{
    pin::Pin,
    sync::{
        Arc, Mutex,
        atomic::{AtomicUsize, Ordering},
        mpsc::channel,
    },
    task::{Poll, Wake, Waker},
};

type Boxed = Pin<Box<dyn Future<Output = ()> + Send>>;

/// Keeps futures until the test polls them, or refuses them. Counts wake-ups.
#[derive(Clone, Default)]
struct ByHand {
    futures: Arc<Mutex<Vec<Boxed>>>,
    refuses: bool,
    woken: Arc<Wakes>,
}

#[derive(Default)]
struct Wakes(AtomicUsize);

impl Wake for Wakes {
    fn wake(self: Arc<Self>) {
        self.0.fetch_add(1, Ordering::Relaxed);
    }
}

impl Spawn for ByHand {
    fn spawn(&self, future: Boxed) -> Result {
        if self.refuses {
            return Err(Error::ShutDown);
        }
        self.futures.lock().unwrap().push(future);
        Ok(())
    }
}

impl ByHand {
    /// Polls all futures, and drops the completed ones. Returns the number of the others.
    fn poll(&self) -> usize {
        let waker = Waker::from(self.woken.clone());
        let mut futures = self.futures.lock().unwrap();
        futures.retain_mut(|future| {
            future.as_mut().poll(&mut std::task::Context::from_waker(&waker)) == Poll::Pending
        });
        futures.len()
    }

    fn wakes(&self) -> usize {
        self.woken.0.load(Ordering::Relaxed)
    }
}

/// Waits for an input, and counts itself in `alive` until it is dropped.
async fn add_one(input: Completion<u32>, alive: Arc<()>) -> u32 {
    let number = input.await.unwrap_or(0);
    drop(alive);
    number + 1
}

fn write_output(ctx: &mut Context<'_, Session>, input: Completion<u32>, alive: &Arc<()>) -> Result<TaskKey> {
    Ok(ctx.spawn(add_one(input, alive.clone()), |_, ctx, output| {
        ctx.write(output.map_or_else(|error| error.to_string(), |number| number.to_string()).into())
    })?)
}

/// A channel that spawns [`add_one`] for each line, the senders of the inputs, and the count of
/// futures that are alive.
fn spawning(executor: &ByHand) -> (EmbeddedChannel<Bytes>, impl Fn() -> Completer<u32>, Arc<()>) {
    let (inputs, alive) = (channel(), Arc::new(()));
    let mine = alive.clone();
    let mut channel = open(move |ctx, _| {
        let (completer, input) = ctx.completer();
        inputs.0.send(completer).map_err(Error::other)?;
        write_output(ctx, input, &mine).map(drop)
    });
    channel.set_executor(executor.clone());
    (channel, move || inputs.1.recv().unwrap(), alive)
}

/// References to the count besides those of the test and of the handler.
fn living(alive: &Arc<()>) -> usize {
    Arc::strong_count(alive) - 2
}

#[test]
fn the_output_comes_back_to_the_handler() {
    let executor = ByHand::default();
    let (mut channel, input, alive) = spawning(&executor);
    channel.write_inbound(b"1\n2\n").unwrap();
    let (first, second) = (input(), input());
    assert_eq!((executor.poll(), living(&alive)), (2, 2));
    second.complete(Ok(2));
    assert_eq!(executor.poll(), 1);
    first.complete(Ok(1));
    assert_eq!(executor.poll(), 0);
    assert_eq!(text(&mut channel), "", "nothing runs outside of the loop");
    channel.run_pending();
    assert_eq!((text(&mut channel).as_str(), living(&alive)), ("3\n2\n", 0));
}

#[test]
fn a_future_of_a_closed_channel_is_woken_and_dropped() {
    let executor = ByHand::default();
    let (mut channel, input, alive) = spawning(&executor);
    channel.write_inbound(b"polled\n").unwrap();
    assert_eq!(executor.poll(), 1);
    let _never = input();
    channel.write_inbound(b"not polled\n").unwrap();
    let before = executor.wakes();
    channel.close();
    assert_eq!(executor.wakes(), before + 1, "the future that has been polled");
    assert_eq!(executor.poll(), 0);
    assert_eq!(Arc::strong_count(&alive), 1, "the futures and the handler are dropped, and what they held");
}

#[test]
fn a_cancelled_task_drops_its_future() {
    let executor = ByHand::default();
    let (alive, mut key) = (Arc::new(()), None);
    let mine = alive.clone();
    let mut channel = open(move |ctx, _| {
        match key.take() {
            None => {
                let (completer, input) = ctx.completer();
                completer.complete(Ok(1));
                key = Some(write_output(ctx, input, &mine)?);
            }
            Some(key) => assert!(ctx.cancel(key)),
        }
        Ok(())
    });
    channel.set_executor(executor.clone());
    channel.write_inbound(b"spawn\ncancel\n").unwrap();
    assert_eq!((executor.poll(), living(&alive)), (0, 0));
    channel.run_pending();
    assert_eq!(text(&mut channel), "");
}

#[test]
fn a_panic_in_a_future_is_an_error_of_its_task() {
    let executor = ByHand::default();
    let mut channel = open(|ctx, _| {
        ctx.spawn(async { panic!("on purpose") }, |_, ctx, output: Result<()>| {
            let Err(Error::Panicked(message)) = output else { return Err("no panic".into()) };
            ctx.write(message.to_string().into())
        })?;
        Ok(())
    });
    channel.set_executor(executor.clone());
    channel.write_inbound(b"x\n").unwrap();
    assert_eq!(executor.poll(), 0);
    channel.run_pending();
    assert_eq!(text(&mut channel), "on purpose\n");
}

#[test]
fn a_future_that_the_executor_drops_is_cancelled() {
    let executor = ByHand::default();
    let (mut channel, _input, alive) = spawning(&executor);
    channel.write_inbound(b"x\n").unwrap();
    executor.futures.lock().unwrap().clear();
    channel.run_pending();
    assert_eq!(text(&mut channel), format!("{}\n", Error::Cancelled));
    assert_eq!(living(&alive), 0);
}

#[test]
fn a_refused_future_is_returned() {
    fn spawn_seven(
        ctx: &mut Context<'_, Session>,
    ) -> Result<(), SendError<impl Future<Output = u8> + use<>>> {
        ctx.spawn(async { 7 }, |_, _, _| Ok(())).map(drop)
    }
    /// The future of a refusal still works. Writes the output and the reason.
    fn use_elsewhere(ctx: &mut Context<'_, Session>) -> Result {
        let Err(refused) = spawn_seven(ctx) else { return ctx.write("accepted".into()) };
        let (future, error) = refused.into_parts();
        let mut task = std::task::Context::from_waker(Waker::noop());
        let Poll::Ready(output) = std::pin::pin!(future).poll(&mut task) else { unreachable!() };
        ctx.write(format!("{output}: {error}").into())
    }
    let options = ChannelOptions::new().max_scheduled_tasks(1);
    let pipeline = session(|ctx, message| {
        if message == "close" {
            ctx.shutdown_write();
            ctx.close();
            assert!(matches!(spawn_seven(ctx), Err(refused) if matches!(refused.error(), Error::Closed)));
            return Ok(());
        }
        use_elsewhere(ctx)
    });
    let mut channel = EmbeddedChannel::builder(pipeline).channel_options(options).build().unwrap();
    channel.write_inbound(b"none\n").unwrap();
    assert!(text(&mut channel).contains("EventLoopGroup::builder().executor(..)"));
    channel.set_executor(ByHand { refuses: true, ..ByHand::default() });
    channel.write_inbound(b"refused\n").unwrap();
    assert_eq!(text(&mut channel), format!("7: {}\n", Error::ShutDown));
    let executor = ByHand::default();
    channel.set_executor(executor.clone());
    channel.write_inbound(b"1\n2\n").unwrap();
    let lines = text(&mut channel);
    assert!(lines.starts_with("accepted\n7: ") && lines.lines().count() == 2, "{lines}");
    assert_eq!(executor.poll(), 0);
    channel.run_pending();
    channel.write_inbound(b"close\n").unwrap();
    assert!(channel.is_closed());
}

#[test]
fn a_group_without_an_executor_names_the_setting() {
    let mut channel = open(|ctx, _| {
        let refused =
            ctx.spawn(async {}, |_, _, _| Ok(())).map(drop).map_err(|refused| refused.into_parts().1);
        assert!(matches!(refused, Err(Error::Setting(refused)) if refused.setting() == "executor"));
        ctx.write("checked".into())
    });
    channel.write_inbound(b"x\n").unwrap();
    assert_eq!(text(&mut channel), "checked\n");
    let builder = EventLoopGroup::builder().executor(ByHand::default());
    assert!(builder.threads(1).build().is_ok());
}
