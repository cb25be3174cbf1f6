//! Waits that are given up, as in a `select!` of `closed` and the next message. They leave nothing
//! behind, and the tasks that have waited are dropped without a lock of the crate.

use crate::support::{
    datagrams::{open, silent},
    nobody::Nobody,
    servers::Quiet,
    tcp::ANY_PORT,
    wait::{PATIENCE, done},
};
use bytes::Bytes;
use netwheel::{
    Channel, Completer, Completion, EventLoopGroup, codec::RawBytes, prelude::*, reconnect::Backoff,
};
use std::{
    net::TcpListener,
    pin::pin,
    sync::{Arc, Mutex, mpsc},
    task::{Poll, Wake, Waker},
    thread,
};

/// A task that owns a value.
struct Task<T>(#[allow(dead_code, reason = "it is only dropped")] T);

impl<T: Send + Sync + 'static> Wake for Task<T> {
    fn wake(self: Arc<Self>) {}
}

fn poll<F: Future>(future: F, waker: &Waker) -> Poll<F::Output> {
    pin!(future).poll(&mut std::task::Context::from_waker(waker))
}

/// Runs `body` on another thread. Fails if it waits for a lock forever.
#[track_caller]
fn ends(what: &str, body: impl FnOnce() + Send + 'static) {
    let (ended, end) = mpsc::channel::<()>();
    let thread = thread::spawn(move || {
        let _ended = ended;
        body();
    });
    assert_eq!(end.recv_timeout(PATIENCE), Err(mpsc::RecvTimeoutError::Disconnected), "{what} hangs");
    thread.join().unwrap();
}

/// Waits and gives up many times. The wakers may be kept for a bounded number of waits. Then does
/// the same with tasks that wait themselves when they are dropped.
fn assert_gives_up<T: Send + 'static>(
    what: &'static str,
    wait: impl Fn() -> Completion<T> + Send + Sync + 'static,
) {
    let task = Arc::new(Task(()));
    let waker = Waker::from(task.clone());
    for _ in 0..10_000 {
        assert!(poll(wait(), &waker).is_pending(), "{what} completes too early");
    }
    let kept = Arc::strong_count(&task);
    assert!(kept < 100, "{what}: {kept} wakers are kept");

    struct WaitsAgain<F: Fn()>(F);
    impl<F: Fn()> Drop for WaitsAgain<F> {
        fn drop(&mut self) {
            (self.0)();
        }
    }
    ends(what, move || {
        let wait = Arc::new(wait);
        for _ in 0..200 {
            let again = wait.clone();
            let task = Task(Mutex::new(WaitsAgain(move || drop(again()))));
            // The wait has the last reference to the task.
            assert!(poll(wait(), &Arc::new(task).into()).is_pending());
        }
    });
}

#[test]
fn waits_that_are_given_up_leave_nothing_behind_and_hold_no_lock() {
    let group = EventLoopGroup::builder().threads(2).build().unwrap();
    // Connections wait in the queue of the listener.
    let peer = TcpListener::bind(ANY_PORT).unwrap();
    let address = peer.local_addr().unwrap();
    let client = ClientBootstrap::new(&group).pipeline(|_| Pipeline::codec(RawBytes).handler(Quiet));
    let channel: Channel<Bytes> = done(client.connect(address)).unwrap();
    let closed = channel.clone();
    assert_gives_up("Channel::closed", move || closed.closed());
    channel.writable().wait().unwrap();
    channel.write(vec![0; 64 << 20].into()).unwrap();
    assert_gives_up("Channel::writable", move || channel.writable());

    let server = ServerBootstrap::new(&group)
        .pipeline(|_| Pipeline::codec(RawBytes).handler(Quiet))
        .bind(ANY_PORT)
        .unwrap();
    assert_gives_up("Server::closed", move || server.closed());

    let nobody = Nobody::new();
    let reconnecting = client.reconnect(Backoff::new()).connect(nobody.address).unwrap();
    let connecting = reconnecting.clone();
    assert_gives_up("ReconnectingChannel::connected", move || connecting.connected());
    assert_gives_up("ReconnectingChannel::closed", move || reconnecting.closed());

    let (datagrams, _probe) = open(&group, silent);
    assert_gives_up("DatagramChannel::closed", move || datagrams.closed());

    let event_loop = group.next().clone();
    assert_gives_up("EventLoop::terminated", move || event_loop.terminated());
    assert_gives_up("EventLoopGroup::terminated", move || group.terminated());
}

/// The task that waits owns the last reference to the completer: it waits for itself.
#[test]
fn a_completion_drops_the_waker_of_an_earlier_task_without_its_lock() {
    let waiting = |completer: Completer<u8>, completion: &mut Completion<u8>| {
        let waker = Arc::new(Task(Mutex::new(completer))).into();
        assert!(poll(completion, &waker).is_pending());
    };
    let group = EventLoopGroup::builder().threads(1).build().unwrap();
    let (completer, mut completion) = group.next().completer();
    ends("the next poll", move || {
        waiting(completer, &mut completion);
        assert!(poll(&mut completion, Waker::noop()).is_pending());
        assert!(matches!(poll(&mut completion, Waker::noop()), Poll::Ready(Err(netwheel::Error::Cancelled))));
    });
    let (completer, mut completion) = group.next().completer();
    ends("on_complete", move || {
        waiting(completer, &mut completion);
        let (sender, result) = mpsc::channel();
        completion.on_complete(move |result| sender.send(result).unwrap());
        assert!(matches!(result.try_recv(), Ok(Err(netwheel::Error::Cancelled))));
    });
}
