//! `Remainder`: a call that has moved to the executor.

use super::{http_service::HttpService, service_call::ServiceCall};
use crate::{
    channel::Channel,
    error::Result,
    http::{Part, Response},
    sync::Completion,
};
use std::{
    pin::Pin,
    task::{Context, Poll, ready},
};

/// The rest of a call that was pending on the loop. Writes all parts but the last one through
/// a handle of the channel, while that is writable. The last part is its output, so that the
/// handler has the service again before the next request.
pub(super) struct Remainder<S: HttpService> {
    call: Pin<Box<ServiceCall<S>>>,
    channel: Channel<Part<Response>>,
    writable: Option<Completion>,
}

/// The last part of a response, and the service.
pub(super) struct Finished<S> {
    pub(super) last: Part<Response>,
    pub(super) service: Option<S>,
}

impl<S: HttpService> Remainder<S> {
    pub(super) fn new(call: Pin<Box<ServiceCall<S>>>, channel: Channel<Part<Response>>) -> Self {
        Remainder { call, channel, writable: None }
    }

    /// Waits until the channel takes a part.
    fn poll_writable(&mut self, cx: &mut Context<'_>) -> Poll<Result> {
        if self.writable.is_none() && self.channel.is_writable() {
            return Poll::Ready(Ok(()));
        }
        let channel = &self.channel;
        let writable = self.writable.get_or_insert_with(|| channel.writable());
        let result = ready!(Pin::new(writable).poll(cx));
        self.writable = None;
        Poll::Ready(result)
    }
}

impl<S: HttpService> Future for Remainder<S> {
    type Output = Result<Finished<S>>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let this = &mut *self;
        loop {
            ready!(this.poll_writable(cx))?;
            let part = ready!(this.call.as_mut().poll_part(cx))?;
            if this.call.is_done() {
                let service = this.call.as_mut().take_service();
                return Poll::Ready(Ok(Finished { last: part, service }));
            }
            this.channel.write(part)?;
        }
    }
}
