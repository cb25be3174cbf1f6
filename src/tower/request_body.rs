//! `RequestBody`: the body of a request, as the service sees it.

use super::body_feed::{BodyEnd, FeedState};
use crate::{
    error::{Error, Result},
    sync::Locked,
};
use bytes::Bytes;
use http_body::{Body, Frame, SizeHint};
use std::{
    fmt,
    pin::Pin,
    sync::Arc,
    task::{Context, Poll},
};

/// The body of a request, for a service that a [`TowerServer`](super::TowerServer) runs.
///
/// Its frames are the bytes as they arrive, and the trailers of a chunked body. What has arrived
/// and waits for the service counts as [held input](crate::Context::hold_input): beyond the high
/// mark of [`ChannelOptions::inbound_mark`](crate::channel::ChannelOptions::inbound_mark), the
/// client is not read from until the service has taken enough. Each frame counts with its bytes and
/// 64 more.
///
/// Dropping the body before its end stops reading until the response is complete. The rest is then
/// discarded up to [`HttpSettings::max_discarded`](crate::http::HttpSettings::max_discarded), or the connection
/// closes.
///
/// A body whose client goes away, or that is read after the response was complete, fails with
/// [`Error::Closed`] behind the bytes that have arrived.
#[derive(Default)]
pub struct RequestBody(Source);

#[derive(Default)]
enum Source {
    #[default]
    Empty,
    /// A body that had arrived when the service was called.
    Whole(Bytes),
    Stream(Arc<Locked<FeedState>>),
}

impl RequestBody {
    /// Returns an empty body.
    pub fn empty() -> Self {
        Self::default()
    }

    /// Returns the body that the loop feeds.
    pub(super) fn stream(shared: Arc<Locked<FeedState>>) -> Self {
        RequestBody(Source::Stream(shared))
    }
}

impl From<Bytes> for RequestBody {
    fn from(bytes: Bytes) -> Self {
        RequestBody(if bytes.is_empty() { Source::Empty } else { Source::Whole(bytes) })
    }
}

impl Body for RequestBody {
    type Data = Bytes;
    type Error = Error;

    fn poll_frame(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>>>> {
        let shared = match &mut self.0 {
            Source::Empty => return Poll::Ready(None),
            Source::Whole(bytes) => {
                let bytes = std::mem::take(bytes);
                self.0 = Source::Empty;
                return Poll::Ready(Some(Ok(Frame::data(bytes))));
            }
            Source::Stream(shared) => shared,
        };
        let (polled, ask) = shared.change(|state| {
            let ask = state.unasked.take().map(|unasked| {
                state.asked = Some(unasked.pause);
                unasked.ask
            });
            let (polled, unused) = poll_stream(state, cx);
            ((polled, ask), unused)
        });
        // If the queue of the loop is full, the pause ends here: the server notices that it reads.
        if ask.is_some_and(|ask| !ask()) {
            shared.change(|state| ((), state.asked.take()));
        }
        polled
    }

    fn is_end_stream(&self) -> bool {
        match &self.0 {
            Source::Empty => true,
            Source::Whole(_) => false,
            Source::Stream(shared) => {
                shared.read(|state| state.chunks.is_empty() && matches!(state.end, Some(BodyEnd::Complete)))
            }
        }
    }

    fn size_hint(&self) -> SizeHint {
        match &self.0 {
            Source::Empty => SizeHint::with_exact(0),
            Source::Whole(bytes) => SizeHint::with_exact(bytes.len() as u64),
            Source::Stream(shared) => {
                shared.read(|state| state.left).map_or_else(SizeHint::new, SizeHint::with_exact)
            }
        }
    }
}

/// Takes the next frame. The second result is dropped after the unlock.
fn poll_stream(
    state: &mut FeedState,
    cx: &Context<'_>,
) -> (Poll<Option<Result<Frame<Bytes>>>>, impl Sized + use<>) {
    if let Some((chunk, held)) = state.chunks.pop_front() {
        state.left = state.left.map(|left| left.saturating_sub(chunk.len() as u64));
        return (Poll::Ready(Some(Ok(Frame::data(chunk)))), (held, None));
    }
    let polled = match state.end.take() {
        None => {
            let waker = state.waker.replace(cx.waker().clone());
            return (Poll::Pending, (None, waker));
        }
        Some(BodyEnd::Complete) => Poll::Ready(None),
        Some(BodyEnd::Trailers(trailers)) => Poll::Ready(Some(Ok(Frame::trailers(trailers)))),
        Some(BodyEnd::Cut(error)) => Poll::Ready(Some(Err(error))),
    };
    // Each end is reported once, and the body is over then.
    state.end = Some(BodyEnd::Complete);
    (polled, (None, None))
}

impl Drop for RequestBody {
    fn drop(&mut self) {
        let Source::Stream(shared) = &self.0 else { return };
        shared.change(|state| {
            state.is_dropped = true;
            ((), (std::mem::take(&mut state.chunks), state.waker.take()))
        });
    }
}

impl fmt::Debug for RequestBody {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RequestBody").field("size", &self.size_hint()).finish_non_exhaustive()
    }
}
