//! `Deadline`: until when the store waits for the server.

use crate::machine::Mutex;
use std::{
    io,
    pin::Pin,
    sync::Arc,
    task::{Context, Poll},
    time::Duration,
};
use tokio::{
    io::{AsyncRead, AsyncWrite, ReadBuf},
    time::{Instant, Sleep, sleep_until},
};

/// A point in time, shared by the store and the stream of its connection.
#[derive(Debug, Clone)]
pub(super) struct Deadline(Arc<Mutex<Instant>>);

impl Deadline {
    /// Creates a deadline that has passed.
    pub(super) fn new() -> Self {
        Deadline(Arc::new(Mutex::new(Instant::now())))
    }

    /// Sets the deadline to the end of `time`, which begins now.
    pub(super) fn set(&self, time: Duration) {
        *self.0.lock() = Instant::now() + time;
    }

    pub(super) fn get(&self) -> Instant {
        *self.0.lock()
    }
}

/// A stream that fails reads after the deadline.
///
/// A client always reads while it waits, also for a send buffer that is full, so every wait ends.
#[derive(Debug)]
pub(super) struct Timed<S> {
    stream: S,
    deadline: Deadline,
    sleep: Pin<Box<Sleep>>,
}

impl<S> Timed<S> {
    /// Wraps a stream. Must be called in the context of a runtime.
    pub(super) fn new(stream: S, deadline: Deadline) -> Self {
        let sleep = Box::pin(sleep_until(deadline.get()));
        Timed { stream, deadline, sleep }
    }

    pub(super) fn stream(&self) -> &S {
        &self.stream
    }
}

impl<S: AsyncRead + Unpin> AsyncRead for Timed<S> {
    fn poll_read(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let this = self.get_mut();
        if let Poll::Ready(result) = Pin::new(&mut this.stream).poll_read(cx, buffer) {
            return Poll::Ready(result);
        }
        let until = this.deadline.get();
        if this.sleep.deadline() != until {
            this.sleep.as_mut().reset(until);
        }
        this.sleep.as_mut().poll(cx).map(|()| Err(io::ErrorKind::TimedOut.into()))
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for Timed<S> {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write(cx, bytes)
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(cx)
    }
}
