//! The body of a response, as it arrives.
//!
//! Invariants: the bytes are delivered once, in their order, also if a completion is dropped with
//! its result. A consumer waits only if no part does, so nothing overtakes a part. At most
//! [`BodyStream::MAX_BUFFERED`] bytes and one read wait here: the connection is not read while they
//! wait. No lock is held while code of the program runs. Any thread may use the stream.

use crate::{
    error::{Error, Result},
    http::{Headers, Response, body::chunk_weight},
    machine::Mutex,
    sync::{Completer, Completion, Unwanted, cancellable},
};
use bytes::Bytes;
use std::{collections::VecDeque, fmt, sync::Arc};

/// A response whose body is read as it arrives, from
/// [`Call::streamed`](crate::http::Call::streamed).
#[derive(Debug)]
pub struct StreamedResponse {
    /// The head.
    pub head: Response,
    /// The body, also if it is empty.
    pub body: BodyStream,
}

/// The body of a [`StreamedResponse`].
///
/// The connection is not read while 64 KiB wait here, so a slow consumer slows down the server. The
/// server is not late in the meantime. Otherwise it has to make progress within
/// [`response_timeout`](crate::http::HttpSettings::response_timeout).
///
/// Dropping the stream before its end discards the connection, so the server stops sending.
///
/// ```
/// # use netwheel::{http::{Call, HttpClient, HttpServer, Part, Request, Response}, prelude::*};
/// # fn main() -> Result {
/// # let group = EventLoopGroup::builder().threads(1).build()?;
/// # let http = HttpServer::new();
/// # let server = ServerBootstrap::new(&group)
/// #     .pipeline(move |_peer| http.pipeline().on_read(|ctx, part| match part {
/// #         Part::Head(_) => ctx.write(Response::ok("hello").into()),
/// #         _ => Ok(()),
/// #     }))
/// #     .bind("127.0.0.1:0")?;
/// # let address = server.local_address();
/// # let http = HttpClient::new().host("example.org");
/// # let pool = ClientBootstrap::new(&group).pipeline(move |_peer| http.calls(1024)).pool().build(address)?;
/// let mut response = pool.request(Request::get("/")).stream().wait()?;
/// let mut length = 0;
/// while let Some(bytes) = response.body.next().wait()? {
///     length += bytes.len();
/// }
/// assert_eq!(length, 5);
/// # Ok(())
/// # }
/// ```
pub struct BodyStream {
    shared: Arc<Shared>,
}

/// The end of a [`BodyStream`] that the connection fills. Dropping it fails the stream.
pub(super) struct BodySender {
    shared: Arc<Shared>,
}

struct Shared {
    state: Mutex<State>,
    /// The loop of the connection.
    event_loop: u32,
    /// Wakes the stage of the connection.
    wake: Box<dyn Fn() + Send + Sync>,
}

#[derive(Default)]
struct State {
    parts: VecDeque<Bytes>,
    /// The memory of `parts` in bytes.
    buffered: usize,
    end: Option<Result<Headers>>,
    waiting: Option<Completer<Option<Bytes>>>,
    /// Whether a thread is in `settle`, with a part that may have to be put back.
    is_settling: bool,
    /// Whether the connection waits until the consumer has taken bytes.
    is_paused: bool,
    is_dropped: bool,
}

impl Shared {
    /// Gives the consumer that waits the next part, or the end behind the last part. If another
    /// thread is doing that, it continues with the consumer that waits then.
    fn settle(&self) {
        let mut resumes = false;
        let mut state = self.state.lock();
        if std::mem::replace(&mut state.is_settling, true) {
            return;
        }
        while let Some(completer) = state.waiting.take() {
            if let Some(bytes) = state.parts.pop_front() {
                state.buffered -= chunk_weight(&bytes);
                drop(state);
                let is_taken = completer.deliver(Ok(Some(bytes.clone())));
                state = self.state.lock();
                if !is_taken {
                    state.put_back(bytes);
                } else if state.is_paused && state.buffered < BodyStream::MAX_BUFFERED / 2 {
                    state.is_paused = false;
                    resumes = true;
                }
            } else if let Some(end) = &state.end {
                let end = end.as_ref().map(|_| None).map_err(Clone::clone);
                drop(state);
                completer.complete(end);
                state = self.state.lock();
            } else {
                state.waiting = Some(completer);
                break;
            }
        }
        state.is_settling = false;
        drop(state);
        if resumes {
            (self.wake)();
        }
    }
}

impl State {
    /// Puts back a part that was not taken.
    fn put_back(&mut self, bytes: Bytes) {
        if !self.is_dropped {
            self.buffered += chunk_weight(&bytes);
            self.parts.push_front(bytes);
        }
    }
}

/// Returns both ends of a stream, which the connection on this loop fills. `wake` is called when
/// the connection has to look at its end.
pub(super) fn body_stream(
    event_loop: u32,
    wake: impl Fn() + Send + Sync + 'static,
) -> (BodySender, BodyStream) {
    let shared = Arc::new(Shared { state: Mutex::default(), event_loop, wake: Box::new(wake) });
    (BodySender { shared: shared.clone() }, BodyStream { shared })
}

impl BodyStream {
    /// The number of bytes from which the connection is not read: 64 KiB. Each part counts 64 bytes
    /// more than it has, for the memory that it takes.
    pub const MAX_BUFFERED: usize = 64 * 1024;

    /// Completes with the next bytes, or with `None` at the end of the body.
    ///
    /// Dropping the completion loses no bytes. A second call while the first one is pending
    /// cancels the first one. Take the result of a completion, or drop it, before the next call.
    /// Until then its bytes count as delivered.
    ///
    /// # Errors
    /// [`Error::Closed`], or the error of the channel, such as
    /// [`PeerError::Truncated`](crate::error::PeerError::Truncated) or [`Error::TimedOut`], if the
    /// body does not arrive completely.
    #[expect(clippy::should_implement_trait, reason = "a completion is no item")]
    pub fn next(&mut self) -> Completion<Option<Bytes>> {
        let shared = Arc::downgrade(&self.shared);
        let (completer, completion) =
            cancellable(Some(self.shared.event_loop), move |unwanted: Unwanted<Option<Bytes>>| {
                if let (Unwanted::Result(Some(bytes)), Some(shared)) = (unwanted, shared.upgrade()) {
                    shared.state.lock().put_back(bytes);
                    shared.settle();
                }
            });
        let earlier = self.shared.state.lock().waiting.replace(completer);
        drop(earlier);
        self.shared.settle();
        completion
    }

    /// Returns the trailers of a chunked body, after its end.
    pub fn trailers(&self) -> Option<Headers> {
        match &self.shared.state.lock().end {
            Some(Ok(trailers)) => Some(trailers.clone()),
            _ => None,
        }
    }
}

impl Drop for BodyStream {
    fn drop(&mut self) {
        let mut state = self.shared.state.lock();
        state.is_dropped = true;
        state.buffered = 0;
        let parts = std::mem::take(&mut state.parts);
        let (waiting, is_cut) = (state.waiting.take(), state.end.is_none());
        drop(state);
        drop((parts, waiting));
        if is_cut {
            (self.shared.wake)();
        }
    }
}

impl fmt::Debug for BodyStream {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let state = self.shared.state.lock();
        let mut debug = f.debug_struct("BodyStream");
        debug.field("buffered", &state.buffered).field("has_ended", &state.end.is_some()).finish()
    }
}

impl BodySender {
    /// Adds bytes. Returns whether the connection must pause until [`is_paused`] returns `false`.
    ///
    /// [`is_paused`]: BodySender::is_paused
    pub(super) fn push(&self, bytes: Bytes) -> bool {
        let mut state = self.shared.state.lock();
        if state.is_dropped {
            return false;
        }
        state.buffered += chunk_weight(&bytes);
        state.parts.push_back(bytes);
        let is_awaited = state.waiting.is_some();
        drop(state);
        if is_awaited {
            self.shared.settle();
        }
        let mut state = self.shared.state.lock();
        state.is_paused |= state.buffered >= BodyStream::MAX_BUFFERED;
        state.is_paused
    }

    pub(super) fn is_paused(&self) -> bool {
        self.shared.state.lock().is_paused
    }

    /// Returns whether the consumer has dropped the stream.
    pub(super) fn is_dropped(&self) -> bool {
        self.shared.state.lock().is_dropped
    }

    /// Ends the stream. The first end counts.
    pub(super) fn end(&self, end: Result<Headers>) {
        self.shared.state.lock().end.get_or_insert(end);
        self.shared.settle();
    }
}

impl Drop for BodySender {
    fn drop(&mut self) {
        self.end(Err(Error::Closed));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts_keep_their_order_whenever_their_completions_are_dropped() {
        let (sender, mut stream) = body_stream(u32::MAX, || {});
        let total = 50_000_u32;
        let connection = std::thread::spawn(move || {
            for n in 0..total {
                sender.push(Bytes::copy_from_slice(&n.to_be_bytes()));
            }
            sender.end(Ok(Headers::new()));
        });
        let mut taken = 0;
        for call in 0.. {
            let next = stream.next();
            if call % 3 < 2 {
                drop(next);
                continue;
            }
            let Some(bytes) = next.wait().unwrap() else { break };
            assert_eq!(*bytes, u32::to_be_bytes(taken));
            taken += 1;
        }
        assert_eq!(taken, total);
        connection.join().unwrap();
    }
}
