//! `ServiceHandler`: the handler of a connection whose requests go to a service.
//!
//! A call begins on the loop if the executor supports that. It is polled there while its parts are
//! ready and the channel is writable. A call that is pending moves to the executor and stays there.
//! The next request begins on the loop again.

use super::{
    body_feed::{BodyFeed, Unasked},
    http_service::HttpService,
    remainder::{Finished, Remainder},
    request_body::RequestBody,
    routed::Routed,
    service_call::ServiceCall,
    service_settings::ServiceSettings,
};
use crate::{
    channel::InputGuard,
    error::{Error, Result},
    http::{Headers, Part, Request, RequestId, Response, StatusCode, chunk_weight},
    pipeline::{Context, Handler},
};
use bytes::Bytes;
use http_types::HeaderMap;
use std::{
    fmt,
    pin::Pin,
    sync::Arc,
    task::{Poll, Waker},
};

/// The handler of a connection whose requests go to a service, from
/// [`TowerServer::handler`](super::TowerServer::handler).
///
/// It belongs behind [`HttpServer::pipeline`](crate::http::HttpServer::pipeline).
pub struct ServiceHandler<S: HttpService> {
    /// `None` during a call.
    service: Option<S>,
    settings: Arc<ServiceSettings>,
    progress: Progress,
    /// A request whose body is arriving in this read.
    gathering: Option<Box<Gathering>>,
    /// The body of the current request, if parts of it are missing.
    feed: Option<BodyFeed>,
    /// A call that continues when the channel is writable.
    call: Option<Pin<Box<ServiceCall<S>>>>,
    /// Reading is paused, because the service has dropped the body.
    pause: Option<InputGuard>,
}

/// Whether a request is being answered.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Progress {
    Idle,
    /// By the service.
    Busy,
    /// Not by the service, so its body is dropped.
    Elsewhere,
}

/// A request before the service is called. A body that arrives with the head is complete then.
struct Gathering {
    request: http_types::Request<RequestBody>,
    length: Option<u64>,
    first: Option<Bytes>,
}

type Ctx<'a, S> = Context<'a, ServiceHandler<S>>;

impl<S: HttpService> ServiceHandler<S> {
    pub(super) fn new(service: S, settings: Arc<ServiceSettings>) -> Self {
        ServiceHandler {
            service: Some(service),
            settings,
            progress: Progress::Idle,
            gathering: None,
            feed: None,
            call: None,
            pause: None,
        }
    }

    // ---- the request ----

    fn read_head(&mut self, ctx: &mut Ctx<'_, S>, request: &Request) -> Result {
        self.progress = Progress::Elsewhere;
        if let Some(route) = &self.settings.route
            && route(&mut ctx.erase(), request)? == Routed::Answered
        {
            return Ok(());
        }
        let Ok(mut converted) = http_types::Request::<()>::try_from(request) else {
            return ctx.write(Response::from(StatusCode::BAD_REQUEST).close().into());
        };
        converted.extensions_mut().insert(ctx.peer());
        let converted = converted.map(|()| RequestBody::empty());
        self.progress = Progress::Busy;
        let body = request.announced_body();
        if !body.is_streamed() {
            return self.begin(ctx, converted);
        }
        let gathering = Gathering { request: converted, length: body.length(), first: None };
        self.gathering = Some(Box::new(gathering));
        match request.id().filter(|_| request.expects_continue()) {
            // Nothing arrives before the service asks for it.
            Some(id) => self.begin_unasked(ctx, id),
            None => Ok(()),
        }
    }

    /// Calls the service with a body that the client sends when the service polls it.
    fn begin_unasked(&mut self, ctx: &mut Ctx<'_, S>, id: RequestId) -> Result {
        self.feed_gathered(ctx);
        let handler = ctx.handler_ref();
        let ask = Box::new(move || handler.execute(move |me, ctx| me.ask_client(ctx, id)).is_ok());
        if let Some(feed) = &self.feed {
            feed.ask_when_polled(Unasked { pause: ctx.pause_reading(), ask });
        }
        self.begin_gathered(ctx)
    }

    /// Sends `100 Continue` if the body was polled.
    fn ask_client(&mut self, ctx: &mut Ctx<'_, S>, id: RequestId) -> Result {
        if self.feed.as_ref().is_some_and(BodyFeed::take_asked) {
            ctx.write(Response::new(StatusCode::CONTINUE).for_request(id).into())?;
        }
        Ok(())
    }

    fn read_body(&mut self, ctx: &mut Ctx<'_, S>, bytes: Bytes) {
        match &mut self.gathering {
            Some(gathering) if self.feed.is_none() && gathering.first.is_none() => {
                gathering.first = Some(bytes);
                return;
            }
            Some(_) => self.feed_gathered(ctx),
            None => {}
        }
        let Some(feed) = &self.feed else { return };
        if feed.is_dropped() {
            // The rest is not needed, and the client may stop sending it when it has the response.
            self.pause = Some(ctx.pause_reading());
            return;
        }
        let held = ctx.hold_input(chunk_weight(&bytes));
        feed.push(bytes, held);
    }

    fn read_end(&mut self, ctx: &mut Ctx<'_, S>, trailers: &Headers) -> Result {
        if self.feed.is_none()
            && trailers.is_empty()
            && let Some(gathering) = &mut self.gathering
        {
            *gathering.request.body_mut() = gathering.first.take().unwrap_or_default().into();
            return self.begin_gathered(ctx);
        }
        self.feed_gathered(ctx);
        if let Some(feed) = self.feed.take() {
            feed.end(HeaderMap::try_from(trailers));
        }
        self.begin_gathered(ctx)
    }

    /// Makes the body of a request a stream, unless it is one.
    fn feed_gathered(&mut self, ctx: &mut Ctx<'_, S>) {
        let Some(gathering) = self.gathering.as_mut().filter(|_| self.feed.is_none()) else { return };
        let (feed, shared) = BodyFeed::new(gathering.length);
        *gathering.request.body_mut() = RequestBody::stream(shared);
        if let Some(first) = gathering.first.take() {
            let held = ctx.hold_input(chunk_weight(&first));
            feed.push(first, held);
        }
        self.feed = Some(feed);
    }

    fn begin_gathered(&mut self, ctx: &mut Ctx<'_, S>) -> Result {
        match self.gathering.take() {
            Some(gathering) => self.begin(ctx, gathering.request),
            None => Ok(()),
        }
    }

    // ---- the response ----

    /// Begins the call.
    fn begin(&mut self, ctx: &mut Ctx<'_, S>, request: http_types::Request<RequestBody>) -> Result {
        let Some(service) = self.service.take() else { return Err(Error::Cancelled) };
        let call = Box::pin(ServiceCall::new(service, request));
        if self.settings.polls_on_loop { self.run(ctx, call) } else { self.spawn(ctx, call) }
    }

    /// Writes the parts of the response that are ready, and moves the rest to the executor.
    fn run(&mut self, ctx: &mut Ctx<'_, S>, mut call: Pin<Box<ServiceCall<S>>>) -> Result {
        // Futures that are pending are polled again by the executor.
        let mut polling = std::task::Context::from_waker(Waker::noop());
        while ctx.is_writable() {
            let mut polled = Poll::Pending;
            ctx.poll_here(&mut || polled = call.as_mut().poll_part(&mut polling))?;
            let Poll::Ready(part) = polled else { return self.spawn(ctx, call) };
            let part = part?;
            if call.is_done() {
                return self.finish(ctx, call.as_mut().take_service(), part);
            }
            // The response may need the body, as an echo does, so the client is asked ahead of it.
            // Behind the head it is too late.
            let is_asked = self.feed.as_ref().is_some_and(BodyFeed::take_asked);
            if is_asked && matches!(part, Part::Head(_)) {
                ctx.write(Response::new(StatusCode::CONTINUE).into())?;
            }
            ctx.write(part)?;
        }
        self.call = Some(call);
        Ok(())
    }

    /// Moves a call to the executor.
    fn spawn(&mut self, ctx: &mut Ctx<'_, S>, call: Pin<Box<ServiceCall<S>>>) -> Result {
        let remainder = Remainder::new(call, ctx.channel());
        ctx.spawn(remainder, |me, ctx, result| {
            let Finished { last, service } = result??;
            me.finish(ctx, service, last)
        })?;
        Ok(())
    }

    /// Writes the last part of a response.
    fn finish(&mut self, ctx: &mut Ctx<'_, S>, service: Option<S>, last: Part<Response>) -> Result {
        self.service = service;
        self.end();
        ctx.write(last)
    }

    /// Drops the state of the current call.
    fn end(&mut self) {
        self.progress = Progress::Idle;
        self.gathering = None;
        self.call = None;
        self.feed = None;
        self.pause = None;
    }
}

impl<S: HttpService> Handler for ServiceHandler<S> {
    type Read = Part<Request>;
    type Write = Part<Response>;

    fn read(&mut self, ctx: &mut Ctx<'_, S>, part: Part<Request>) -> Result {
        match part {
            Part::Head(request) => self.read_head(ctx, &request),
            _ if self.progress != Progress::Busy => Ok(()),
            Part::Body(bytes) => {
                self.read_body(ctx, bytes);
                Ok(())
            }
            Part::End(trailers) => self.read_end(ctx, &trailers),
        }
    }

    /// Calls the service if the body has not arrived with the head.
    fn read_complete(&mut self, ctx: &mut Ctx<'_, S>) -> Result {
        self.feed_gathered(ctx);
        self.begin_gathered(ctx)
    }

    fn writability_changed(&mut self, ctx: &mut Ctx<'_, S>, writable: bool) -> Result {
        match self.call.take_if(|_| writable) {
            Some(call) => self.run(ctx, call),
            None => Ok(()),
        }
    }

    /// The server closes an idle connection, and any other one behind its response, which may come
    /// from a route later.
    fn shutdown(&mut self, _: &mut Ctx<'_, S>) -> Result {
        Ok(())
    }

    fn inactive(&mut self, ctx: &mut Ctx<'_, S>) -> Result {
        // What a call holds may need the context of the runtime when it is dropped.
        let mut call = self.call.take();
        if call.is_some() {
            let _ = ctx.poll_here(&mut || drop(call.take()));
        }
        self.end();
        Ok(())
    }
}

impl<S: HttpService> fmt::Debug for ServiceHandler<S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ServiceHandler")
            .field("service", &std::any::type_name::<S>())
            .field("progress", &self.progress)
            .finish_non_exhaustive()
    }
}
