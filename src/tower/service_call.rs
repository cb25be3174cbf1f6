//! `ServiceCall`: one request with its response, as a sequence of parts.
//!
//! Pure: polls the service, its future and its body, and returns the parts of the response. The
//! handler and the executor write them.
//!
//! Invariants: a body is polled only when a part is asked for. After the last part or an error,
//! nothing is polled any more.

use super::{
    head::{declared_length, response_head, trailers_of},
    http_service::HttpService,
    request_body::RequestBody,
    request_facts::RequestFacts,
};
use crate::{
    error::{Error, Result},
    http::{Body, Headers, Part, Response},
};
use bytes::{Buf, Bytes};
use http_body::{Body as _, Frame};
use http_types::Request;
use pin_project_lite::pin_project;
use std::{
    pin::Pin,
    task::{Context, Poll, ready},
};

pin_project! {
    /// A request that a service answers. Polled for the parts of the response.
    #[project = Projection]
    pub(super) struct ServiceCall<S: HttpService> {
        service: Option<S>,
        facts: RequestFacts,
        // Bytes that were polled together with the head.
        next: Option<Bytes>,
        // The bytes of the body that are left, if its length was announced.
        left: Option<u64>,
        #[pin]
        state: State<S>,
    }
}

pin_project! {
    #[project = StateProjection]
    enum State<S: HttpService> {
        // Waits until the service is ready.
        Waiting { request: Option<Request<RequestBody>> },
        Calling { #[pin] future: S::Future },
        Streaming { #[pin] body: S::ResponseBody },
        // The body is complete, and its end was not returned.
        Ending { trailers: Headers },
        Done,
    }
}

impl<S: HttpService> ServiceCall<S> {
    pub(super) fn new(service: S, request: Request<RequestBody>) -> Self {
        let facts = RequestFacts::of(&request);
        let state = State::Waiting { request: Some(request) };
        ServiceCall { service: Some(service), facts, next: None, left: None, state }
    }

    /// Returns whether the last part was returned, or an error.
    pub(super) fn is_done(&self) -> bool {
        self.next.is_none() && matches!(self.state, State::Done)
    }

    /// Takes the service, for the next request.
    pub(super) fn take_service(self: Pin<&mut Self>) -> Option<S> {
        self.project().service.take()
    }

    /// Returns the next part of the response.
    ///
    /// # Errors
    /// [`Error::Other`] if the service, its future or its body has failed, or [`Error::Cancelled`]
    /// if the call has ended.
    pub(super) fn poll_part(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Result<Part<Response>>> {
        let polled = self.as_mut().poll_state(cx);
        if let Poll::Ready(Err(_)) = polled {
            let mut this = self.project();
            *this.next = None;
            this.state.set(State::Done);
        }
        polled
    }

    fn poll_state(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Result<Part<Response>>> {
        let mut this = self.as_mut().project();
        if let Some(bytes) = this.next.take() {
            return Poll::Ready(Ok(Part::Body(bytes)));
        }
        loop {
            match this.state.as_mut().project() {
                StateProjection::Waiting { request } => {
                    let Some(service) = this.service else { return Poll::Ready(Err(Error::Cancelled)) };
                    ready!(service.poll_ready(cx)).map_err(Error::other)?;
                    let Some(request) = request.take() else { return Poll::Ready(Err(Error::Cancelled)) };
                    let future = service.call(request);
                    this.state.set(State::Calling { future });
                }
                StateProjection::Calling { future } => {
                    let response = ready!(future.poll(cx)).map_err(Error::other)?;
                    return Poll::Ready(self.begin(cx, response).map(Part::Head));
                }
                StateProjection::Streaming { body } => {
                    let frame = ready!(body.poll_frame(cx)).transpose().map_err(Error::other)?;
                    if let Some(bytes) = take_frame(&mut this, frame)? {
                        return Poll::Ready(Ok(Part::Body(bytes)));
                    }
                }
                StateProjection::Ending { trailers } => {
                    let end = Part::End(std::mem::take(trailers));
                    this.state.set(State::Done);
                    return Poll::Ready(Ok(end));
                }
                StateProjection::Done => return Poll::Ready(Err(Error::Cancelled)),
            }
        }
    }

    /// Begins the response. Its first bytes are sent with the head if they are ready.
    ///
    /// # Errors
    /// An error if the response is not valid, or its body fails. Nothing was sent, so the client
    /// gets a status.
    fn begin(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        response: http_types::Response<S::ResponseBody>,
    ) -> Result<Response> {
        let mut this = self.project();
        let (parts, body) = response.into_parts();
        let (head, declared) = (response_head(&parts), declared_length(&parts.headers));
        this.facts.check(head.status())?;
        if this.facts.suppresses_body(head.status()) {
            // The headers of a response to HEAD are those for GET, and so is the length.
            let length = declared.or_else(|| body.size_hint().exact().filter(|_| this.facts.is_head));
            this.state.set(match length {
                None | Some(0) => State::Done,
                Some(_) => State::Ending { trailers: Headers::new() },
            });
            return Ok(head.body(match length {
                None => Body::Empty,
                Some(0) => Body::Full(Bytes::new()),
                Some(length) => Body::Sized(length),
            }));
        }
        let length = body.size_hint().exact().or(declared);
        if length == Some(0) {
            this.state.set(State::Done);
            return Ok(head);
        }
        *this.left = length;
        this.state.set(State::Streaming { body });
        let announced = length.map_or(Body::Streamed, Body::Sized);
        let StateProjection::Streaming { body } = this.state.as_mut().project() else {
            return Err(Error::Cancelled);
        };
        let Poll::Ready(frame) = body.poll_frame(cx) else { return Ok(head.body(announced)) };
        let bytes = take_frame(&mut this, frame.transpose().map_err(Error::other)?)?;
        match &*this.state {
            State::Ending { trailers } if trailers.is_empty() => {
                let bytes = bytes.unwrap_or_default();
                if let Some(left) = this.left.filter(|left| *left > 0) {
                    return Err(Error::other(format!("the body is {left} bytes shorter than its length")));
                }
                this.state.set(State::Done);
                Ok(head.body(bytes))
            }
            _ => {
                *this.next = bytes;
                Ok(head.body(announced))
            }
        }
    }
}

/// Takes the bytes of a frame, and notes the end of the body.
///
/// # Errors
/// [`Error::Other`] if the body is longer than announced.
fn take_frame<S: HttpService>(
    call: &mut Projection<'_, S>,
    frame: Option<Frame<ResponseData<S>>>,
) -> Result<Option<Bytes>> {
    let Some(frame) = frame else {
        call.state.set(State::Ending { trailers: Headers::new() });
        return Ok(None);
    };
    let mut data = match frame.into_data() {
        Ok(data) => data,
        Err(frame) => {
            let may_have = call.left.is_none() && call.facts.accepts_trailers;
            let trailers = frame.into_trailers().ok().filter(|_| may_have);
            let trailers = trailers.map_or_else(Headers::new, |map| trailers_of(&map));
            call.state.set(State::Ending { trailers });
            return Ok(None);
        }
    };
    // Without a copy if the data are `Bytes`.
    let bytes = data.copy_to_bytes(data.remaining());
    let is_last = match call.left {
        Some(left) => {
            *left = left
                .checked_sub(bytes.len() as u64)
                .ok_or_else(|| Error::other("the body is longer than its length"))?;
            *left == 0
        }
        None => matches!(&*call.state, State::Streaming { body } if body.is_end_stream()),
    };
    if is_last {
        call.state.set(State::Ending { trailers: Headers::new() });
    }
    Ok(Some(bytes).filter(|bytes| !bytes.is_empty()))
}

type ResponseData<S> = <<S as HttpService>::ResponseBody as http_body::Body>::Data;
