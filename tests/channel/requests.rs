//! Answers of a handler to other threads: `HandlerRef::call`, `HandlerRef::request`, and
//! completers.

use crate::support::wait::{PATIENCE, done};
use bytes::Bytes;
use netwheel::{
    ClientBootstrap, Completer, Completion, Error, EventLoopGroup, HandlerRef, codec::Line, prelude::*,
    testing::EmbeddedChannel,
};
use std::{
    collections::VecDeque,
    sync::mpsc::{Receiver, Sender, channel},
    task::Poll,
    thread,
};

/// Sends questions and expects the answers in order. Sends its own reference when it is active.
struct Client {
    pending: VecDeque<Completer<Bytes>>,
    ready: Sender<HandlerRef<Client>>,
    errors: Sender<String>,
}

impl Handler for Client {
    type Read = Bytes;
    type Write = Bytes;

    fn active(&mut self, ctx: &mut Context<'_, Self>) -> Result {
        self.ready.send(ctx.handler_ref()).map_err(Error::other)
    }

    fn read(&mut self, _: &mut Context<'_, Self>, answer: Bytes) -> Result {
        if let Some(completer) = self.pending.pop_front() {
            completer.complete(Ok(answer));
        }
        Ok(())
    }

    fn error(&mut self, _: &mut Context<'_, Self>, error: Error) -> Result {
        self.errors.send(error.to_string()).map_err(Error::other)
    }
}

struct Opened {
    channel: EmbeddedChannel<Bytes>,
    client: HandlerRef<Client>,
    errors: Receiver<String>,
}

fn open() -> Opened {
    let ((ready, references), (sender, errors)) = (channel(), channel());
    let client = Client { pending: VecDeque::new(), ready, errors: sender };
    let channel = EmbeddedChannel::new(Pipeline::codec(Line::new()).handler(client));
    Opened { channel, client: references.recv().unwrap(), errors }
}

fn ask(client: &HandlerRef<Client>, question: &'static str) -> Completion<Bytes> {
    client.request(|me, ctx, completer| {
        ctx.write(question.into())?;
        me.pending.push_back(completer);
        Ok(())
    })
}

fn pending(client: &HandlerRef<Client>, channel: &mut EmbeddedChannel<Bytes>) -> usize {
    let count = client.call(|me, _| Ok(me.pending.len()));
    channel.run_pending();
    done(count).unwrap()
}

#[test]
fn a_call_returns_the_result_of_its_closure() {
    let Opened { mut channel, client, errors } = open();
    let (sum, failed) = (client.call(|_, _| Ok(1 + 1)), client.call(|_, _| Err::<(), _>("no".into())));
    assert!(!sum.is_done(), "the closure runs on the loop");
    channel.run_pending();
    assert_eq!(done(sum).unwrap(), 2);
    assert_eq!(done(failed).unwrap_err().to_string(), "no");
    assert!(errors.try_recv().is_err(), "the error of a call goes to its caller only");
}

#[test]
fn a_request_is_answered_when_the_answer_arrives() {
    let Opened { mut channel, client, .. } = open();
    let (first, second) = (ask(&client, "one"), ask(&client, "two"));
    channel.run_pending();
    assert_eq!(channel.read_outbound(), "one\ntwo\n");
    assert!(!first.is_done());
    channel.write_inbound(b"1\n2\n").unwrap();
    assert_eq!((done(first).unwrap(), done(second).unwrap()), ("1".into(), "2".into()));
}

#[test]
fn a_request_that_fails_reports_to_the_handler_and_cancels_its_caller() {
    let Opened { mut channel, client, errors } = open();
    let failed: Completion = client.request(|_, _, _| Err("no room".into()));
    channel.run_pending();
    assert_eq!(errors.try_recv().unwrap(), "no room");
    assert!(matches!(done(failed), Err(Error::Cancelled)));
}

#[test]
fn calls_and_requests_to_a_closed_channel_fail() {
    let Opened { mut channel, client, .. } = open();
    let (kept, queued) = (ask(&client, "kept"), client.call(|_, _| Ok(())));
    channel.run_pending();
    let dropped: Completion = client.call(|_, _| Ok(()));
    channel.fail_inbound(std::io::ErrorKind::ConnectionReset.into());
    channel.run_pending();
    assert!(done(queued).is_ok());
    assert!(matches!(done(dropped), Err(Error::Closed)), "dropped in the queue");
    assert!(matches!(done(client.call(|_, _| Ok(()))), Err(Error::Closed)), "refused");
    assert!(matches!(done(ask(&client, "late")), Err(Error::Closed)), "refused");
    drop(channel);
    assert!(matches!(done(kept), Err(Error::Cancelled)), "dropped with the handler");
}

#[test]
fn a_dropped_call_does_not_run_and_a_detached_one_does() {
    let Opened { mut channel, client, .. } = open();
    drop(ask(&client, "dropped"));
    let cancelled = ask(&client, "cancelled");
    assert!(cancelled.cancel() && !cancelled.cancel());
    ask(&client, "detached").detach();
    channel.run_pending();
    assert_eq!(channel.read_outbound(), "detached\n");
    assert!(matches!(done(cancelled), Err(Error::Cancelled)));
}

#[test]
fn the_handler_sees_that_a_request_was_cancelled() {
    let Opened { mut channel, client, .. } = open();
    let (kept, dropped) = (ask(&client, "kept"), ask(&client, "dropped"));
    channel.run_pending();
    drop(dropped);
    client
        .execute(|me, _| {
            me.pending.retain(|completer| !completer.is_cancelled());
            Ok(())
        })
        .unwrap();
    assert_eq!(pending(&client, &mut channel), 1);
    channel.write_inbound(b"answer\n").unwrap();
    assert_eq!(done(kept).unwrap(), "answer");
}

#[test]
fn a_cancel_callback_runs_once_and_only_for_a_cancel() {
    let Opened { mut channel, client, .. } = open();
    let (sender, cancelled) = channel_of_names();
    let request = |name: &'static str| {
        let sender = sender.clone();
        client.request::<Bytes>(move |me, _, mut completer| {
            completer.on_cancel(|| panic!("replaced by the next callback"));
            completer.on_cancel(move || sender.send(name).unwrap());
            me.pending.push_back(completer);
            Ok(())
        })
    };
    let (answered, dropped, cut, detached) =
        (request("answered"), request("dropped"), request("cut"), request("detached"));
    channel.run_pending();
    drop(dropped);
    assert_eq!(cancelled.try_iter().collect::<Vec<_>>(), ["dropped"]);
    assert!(cut.cancel());
    assert_eq!(cancelled.try_iter().collect::<Vec<_>>(), ["cut"]);
    detached.detach();
    channel.write_inbound(b"1\n2\n3\n4\n").unwrap();
    assert_eq!(done(answered).unwrap(), "1");
    drop((cut, client, channel));
    assert_eq!(cancelled.try_iter().count(), 0);
}

fn channel_of_names() -> (Sender<&'static str>, Receiver<&'static str>) {
    channel()
}

#[test]
fn a_cancel_callback_of_a_cancelled_completer_runs_at_once() {
    let group = EventLoopGroup::builder().threads(1).build().unwrap();
    let (mut completer, completion) = group.next().completer::<()>();
    drop(completion);
    let (sender, called) = channel_of_names();
    completer.on_cancel(move || sender.send("called").unwrap());
    assert_eq!(called.try_recv(), Ok("called"));
    completer.complete(Ok(()));
}

#[test]
fn waiting_on_the_loop_that_answers_is_an_error() {
    let group = EventLoopGroup::builder().threads(1).build().unwrap();
    let event_loop = group.next();
    let (sender, results) = channel();
    let (_completer, completion) = event_loop.completer::<()>();
    event_loop.execute(move || sender.send(completion.wait()).unwrap()).unwrap();
    assert!(matches!(results.recv_timeout(PATIENCE).unwrap(), Err(Error::WouldDeadlock)));

    let Opened { mut channel, client, .. } = open();
    let inner = client.clone();
    let nested = client.call(move |_, _| inner.call(|_, _| Ok(())).wait());
    channel.run_pending();
    assert!(matches!(done(nested), Err(Error::WouldDeadlock)));
}

#[test]
fn a_completer_of_a_context_works_from_another_thread() {
    let Opened { mut channel, client, .. } = open();
    let pair = client.call(|_, ctx| Ok(ctx.completer::<u8>()));
    channel.run_pending();
    let (completer, mut completion) = done(pair).unwrap();
    let mut task = std::task::Context::from_waker(std::task::Waker::noop());
    assert!(matches!(std::pin::pin!(&mut completion).poll(&mut task), Poll::Pending));
    thread::spawn(move || completer.complete(Ok(7))).join().unwrap();
    assert_eq!(done(completion).unwrap(), 7);
}

#[test]
fn over_sockets_many_threads_share_a_client() {
    let group = EventLoopGroup::builder().threads(2).build().unwrap();
    let server = crate::support::servers::serve_with(
        &group,
        crate::support::servers::Settings::new(),
        Line::new(),
        |ctx, event| match event {
            crate::support::recorder::Event::Read(message) => ctx.write(message.clone()),
            _ => Ok(()),
        },
    )
    .0;
    let ((ready, references), (errors, _)) = (channel(), channel());
    let client = ClientBootstrap::new(&group).pipeline(move |_| {
        let (ready, errors) = (ready.clone(), errors.clone());
        Pipeline::codec(Line::new()).handler(Client { pending: VecDeque::new(), ready, errors })
    });
    let channel = done(client.connect(server.local_address())).unwrap();
    let client = references.recv_timeout(PATIENCE).unwrap();
    let threads: Vec<_> = (0..4)
        .map(|thread| {
            let client = client.clone();
            thread::spawn(move || {
                for n in 0..50 {
                    let question = format!("{thread}.{n}");
                    let text: Bytes = question.clone().into();
                    let answer = client.request(|me, ctx, completer| {
                        ctx.write(text)?;
                        me.pending.push_back(completer);
                        Ok(())
                    });
                    assert_eq!(done(answer).unwrap(), question);
                }
            })
        })
        .collect();
    threads.into_iter().for_each(|thread| thread.join().unwrap());
    channel.close();
    done(channel.closed()).unwrap();
    assert!(matches!(done(ask(&client, "late")), Err(Error::Closed)));
}
