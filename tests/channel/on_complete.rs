//! Completions whose result comes back to a handler: `Context::on_complete`.

use crate::{
    context::{Session, open, session, text},
    support::{
        servers::Quiet,
        wait::{done, receive},
    },
};
use bytes::Bytes;
use netwheel::{
    ClientBootstrap, Completer, Completion, Error, EventLoopGroup,
    channel::{ChannelOptions, TaskKey},
    codec::RawBytes,
    prelude::*,
    testing::EmbeddedChannel,
};
use std::{
    net::TcpListener,
    sync::{
        Mutex,
        mpsc::{Receiver, Sender, channel},
    },
    thread,
};

/// Writes the result of `completion` when it is there.
fn write_result(ctx: &mut Context<'_, Session>, completion: Completion<u32>) -> TaskKey {
    ctx.on_complete(completion, |_, ctx, result| {
        ctx.write(result.map_or_else(|error| error.to_string(), |number| number.to_string()).into())
    })
}

/// Waits for a new completion and returns its key. Sends the completer to the test.
fn wait_for_new(ctx: &mut Context<'_, Session>, completers: &Sender<Completer<u32>>) -> Result<TaskKey> {
    let (completer, completion) = ctx.completer();
    completers.send(completer).map_err(Error::other)?;
    Ok(write_result(ctx, completion))
}

/// A channel that waits for one completion for each line.
fn waiting() -> (EmbeddedChannel<Bytes>, Receiver<Completer<u32>>) {
    let (sender, completers) = channel();
    (open(move |ctx, _| wait_for_new(ctx, &sender).map(drop)), completers)
}

#[test]
fn results_come_back_in_the_order_in_which_they_are_ready() {
    let (mut channel, completers) = waiting();
    channel.write_inbound(b"1\n2\n3\n").unwrap();
    let [first, second, third] = [(); 3].map(|()| completers.try_recv().unwrap());
    second.complete(Ok(2));
    thread::spawn(move || first.complete(Ok(1))).join().unwrap();
    drop(third);
    assert_eq!(text(&mut channel), "", "nothing runs outside of the loop");
    channel.run_pending();
    assert_eq!(text(&mut channel), format!("2\n1\n{}\n", Error::Cancelled));
    assert_eq!(channel.run_pending(), 0);
}

#[test]
fn a_completion_that_is_done_is_delivered_after_the_callback() {
    let mut channel = open(|ctx, _| {
        let (completer, completion) = ctx.completer();
        completer.complete(Ok(7));
        write_result(ctx, completion);
        ctx.write("first".into())
    });
    channel.write_inbound(b"x\n").unwrap();
    channel.run_pending();
    assert_eq!(text(&mut channel), "first\n7\n");
}

#[test]
fn a_cancelled_task_cancels_its_operation_and_drops_its_closure() {
    let (sender, completers) = channel();
    let mut key = None;
    let mut channel = open(move |ctx, _| {
        match key.take() {
            None => key = Some(wait_for_new(ctx, &sender)?),
            Some(key) => assert!(ctx.cancel(key) && !ctx.cancel(key)),
        }
        Ok(())
    });
    channel.write_inbound(b"wait\n").unwrap();
    let completer = completers.recv().unwrap();
    assert!(!completer.is_cancelled());
    channel.write_inbound(b"cancel\n").unwrap();
    assert!(completer.is_cancelled());
    completer.complete(Ok(1));
    channel.run_pending();
    assert_eq!(text(&mut channel), "");
}

#[test]
fn a_closed_channel_cancels_what_it_waits_for() {
    let (mut channel, completers) = waiting();
    channel.write_inbound(b"1\n2\n").unwrap();
    let (pending, done) = (completers.recv().unwrap(), completers.recv().unwrap());
    done.complete(Ok(2));
    channel.close();
    assert!(channel.is_closed() && pending.is_cancelled());
    assert_eq!(text(&mut channel), "", "a result that waits in the queue is dropped");
}

#[test]
fn a_closing_channel_waits_for_nothing() {
    let (sender, completers) = channel();
    let mut channel = open(move |ctx, _| {
        ctx.close();
        let key = wait_for_new(ctx, &sender)?;
        assert!(!ctx.cancel(key));
        Ok(())
    });
    channel.write_inbound(b"x\n").unwrap();
    assert!(completers.recv().unwrap().is_cancelled());
}

#[test]
fn the_limit_of_tasks_counts_completions() {
    let (sender, completers) = channel();
    let options = ChannelOptions::new().max_scheduled_tasks(2);
    let pipeline = session(move |ctx, _| wait_for_new(ctx, &sender).map(drop));
    let mut channel = EmbeddedChannel::builder(pipeline).channel_options(options).build().unwrap();
    channel.write_inbound(b"1\n2\n").unwrap();
    assert!(channel.is_open());
    channel.write_inbound(b"3\n").unwrap();
    assert!(channel.is_closed(), "`error` gets `Full`, and closes the channel by default");
    assert_eq!(completers.try_iter().filter(Completer::is_cancelled).count(), 3);
}

#[test]
fn a_replaced_pipeline_cancels_what_it_waits_for() {
    let (sender, completers) = channel();
    let mut channel = open(move |ctx, _| {
        wait_for_new(ctx, &sender)?;
        ctx.replace_pipeline(Pipeline::codec(RawBytes).handler(Quiet))
    });
    channel.write_inbound(b"x\n").unwrap();
    let completer = completers.recv().unwrap();
    assert!(completer.is_cancelled());
    completer.complete(Ok(1));
    channel.run_pending();
    assert_eq!(text(&mut channel), "");
}

/// A handler that connects to another server when it is active, and reports the result.
struct Gateway {
    group: EventLoopGroup,
    target: std::net::SocketAddr,
    connected: Sender<Result<Channel<Bytes>>>,
}

impl Handler for Gateway {
    type Read = Bytes;
    type Write = Bytes;

    fn active(&mut self, ctx: &mut Context<'_, Self>) -> Result {
        let client = ClientBootstrap::new(&self.group).pipeline(|_| Pipeline::codec(RawBytes).handler(Quiet));
        ctx.on_complete(client.connect(self.target), |me, ctx, channel| {
            assert!(ctx.channel().in_event_loop());
            me.connected.send(channel).map_err(Error::other)
        });
        Ok(())
    }

    fn read(&mut self, _: &mut Context<'_, Self>, _: Bytes) -> Result {
        Ok(())
    }
}

#[test]
fn over_sockets_a_connect_comes_back_to_its_handler() {
    let group = EventLoopGroup::builder().threads(2).build().unwrap();
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let target = listener.local_addr().unwrap();
    let (sender, connected) = channel();
    let sender = Mutex::new(sender);
    let (upstream, gateways) = (group.clone(), group.clone());
    let server = ServerBootstrap::new(&gateways)
        .pipeline(move |_| {
            let connected = sender.lock().unwrap().clone();
            Pipeline::codec(RawBytes).handler(Gateway { group: upstream.clone(), target, connected })
        })
        .bind("127.0.0.1:0")
        .unwrap();
    let client = ClientBootstrap::new(&group).pipeline(|_| Pipeline::codec(RawBytes).handler(Quiet));
    let clients: Vec<_> = (0..4).map(|_| done(client.connect(server.local_address())).unwrap()).collect();
    let upstream: Vec<_> = clients.iter().map(|_| receive(&connected).unwrap()).collect();
    assert!(upstream.iter().all(|channel| channel.peer_address() == Some(target)));
}
