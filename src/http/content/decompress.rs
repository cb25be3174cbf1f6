//! Decompression of bodies.

use crate::{
    Result,
    http::{Body, Headers, HttpError, Part, Request, Response, StatusCode},
    pipeline::{Stage, StageContext},
};
use bytes::{Buf, Bytes};
use flate2::{FlushDecompress, Status};
use std::{collections::VecDeque, fmt, marker::PhantomData};

/// The largest piece of decompressed data that is delivered at once.
const PIECE: usize = 16 * 1024;

/// A [`Stage`] that decompresses bodies with the `Content-Encoding` gzip or deflate, up to a given
/// number of bytes.
///
/// It removes `Content-Encoding` from the head, so the handler cannot tell the difference. Bodies
/// with another coding pass unchanged. Pieces of at most 16 KiB are decompressed when they are
/// delivered, so a small body that expands to a large one takes no memory. A program that stops
/// reading stops the decompression too.
///
/// A body beyond the limit is answered with 413 on a server, and is an
/// [`HttpError::BodyTooLong`] on a client. Invalid data, data behind the end, and a missing end are
/// an [`HttpError::Content`], and are answered with 400. Nothing is decompressed behind a complete
/// response.
///
/// A gzip body may have several members (RFC 1952, section 2.2). Deflate is accepted with and
/// without the zlib header, because some clients omit it (RFC 9110, section 8.4.1.2). An empty body
/// needs no valid data.
///
/// Put it before [`Aggregate`](crate::http::Aggregate). Bodies that are written pass unchanged.
///
/// ```
/// use netwheel::http::{Aggregate, Decompress, HttpServer, Part, Response};
///
/// let pipeline = HttpServer::new()
///     .pipeline()
///     .stage(Decompress::max(1 << 20))
///     .stage(Aggregate::max(1 << 20))
///     .on_read(|ctx, request| ctx.write(Response::ok(request.body).into()));
/// # let _ = pipeline;
/// ```
#[doc(alias = "HttpContentDecompressor")]
pub struct Decompress<H> {
    max: u64,
    state: State,
    heads: PhantomData<fn(H)>,
}

enum State {
    /// The body is not compressed.
    Plain,
    Inflating(Box<Inflating>),
    /// The body was refused; the rest is dropped.
    Refused,
}

struct Inflating {
    coding: Coding,
    /// Made with the first byte of a body or of a gzip member.
    inflate: Option<flate2::Decompress>,
    /// Compressed input that waits.
    input: VecDeque<Bytes>,
    /// Decompressed bytes that may still come.
    budget: u64,
    /// Whether the inflater may have more output without further input.
    has_output: bool,
    /// Whether the compressed data ends here: before its first byte, or behind a complete member.
    may_end: bool,
    /// The end of the message, which follows the decompressed data.
    end: Option<Headers>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Coding {
    Gzip,
    Deflate,
}

impl Coding {
    fn of(name: &[u8]) -> Option<Self> {
        if name.eq_ignore_ascii_case(b"gzip") || name.eq_ignore_ascii_case(b"x-gzip") {
            Some(Coding::Gzip)
        } else {
            name.eq_ignore_ascii_case(b"deflate").then_some(Coding::Deflate)
        }
    }

    /// Returns an inflater for data that begins with this byte.
    fn inflater(self, first: u8) -> flate2::Decompress {
        match self {
            Coding::Gzip => flate2::Decompress::new_gzip(15),
            // The method of zlib is 8, and its window has at most 32 KiB. Data without the header
            // would have to begin with a stored block whose padding is not zero.
            Coding::Deflate => flate2::Decompress::new(first & 0x0F == 8 && first >> 4 <= 7),
        }
    }
}

impl<H> fmt::Debug for Decompress<H> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Decompress").field("max", &self.max).finish_non_exhaustive()
    }
}

impl Decompress<Request> {
    /// Returns a stage of a server for bodies of at most `bytes` decompressed bytes.
    pub fn max(bytes: u64) -> Self {
        Decompress { max: bytes, state: State::Plain, heads: PhantomData }
    }
}

impl Decompress<Response> {
    /// Returns a stage of a client for bodies of at most `bytes` decompressed bytes.
    pub fn max_response(bytes: u64) -> Self {
        Decompress { max: bytes, state: State::Plain, heads: PhantomData }
    }
}

impl Inflating {
    /// Returns the state for a body with these headers, if it is compressed.
    fn new(headers: &Headers, max: u64) -> Option<Self> {
        let mut codings = headers.all("content-encoding");
        let (Some(coding), None) = (codings.next(), codings.next()) else { return None };
        Some(Inflating {
            coding: Coding::of(coding)?,
            inflate: None,
            input: VecDeque::new(),
            budget: max,
            has_output: false,
            may_end: true,
            end: None,
        })
    }

    /// Returns whether [`next`](Inflating::next) has something to do.
    fn has_more(&self) -> bool {
        self.has_output || !self.input.is_empty() || self.end.is_some()
    }

    /// Returns the next piece, or the end of the message. Returns `None` if more input is needed.
    fn next<H>(&mut self) -> Result<Option<Part<H>>, HttpError> {
        let mut piece = Vec::new();
        while self.has_output || !self.input.is_empty() {
            let input = self.input.front().map_or(&[][..], |input| input);
            let inflate = match (&mut self.inflate, input.first()) {
                (Some(inflate), _) => inflate,
                (None, Some(first)) if self.may_end => self.inflate.insert(self.coding.inflater(*first)),
                _ => return Err(HttpError::Content("data behind the end")),
            };
            piece.reserve_exact(PIECE - piece.len());
            let (before, filled) = (inflate.total_in(), piece.len());
            let status = inflate
                .decompress_vec(input, &mut piece, FlushDecompress::None)
                .map_err(|_| HttpError::Content("invalid compressed data"))?;
            // At most the length of `input`.
            let consumed = (inflate.total_in() - before) as usize;
            if let Some(input) = self.input.front_mut() {
                input.advance(consumed);
                if input.is_empty() {
                    self.input.pop_front();
                }
            }
            let is_complete = status == Status::StreamEnd;
            self.may_end = is_complete;
            self.has_output = !is_complete && piece.len() == piece.capacity();
            let produced = (piece.len() - filled) as u64;
            self.budget = self.budget.checked_sub(produced).ok_or(HttpError::BodyTooLong)?;
            if consumed == 0 && produced == 0 && !is_complete && !self.input.is_empty() {
                return Err(HttpError::Content("invalid compressed data"));
            }
            // Another member may follow in gzip.
            if is_complete && self.coding == Coding::Gzip {
                self.inflate = None;
            } else if is_complete && !self.input.is_empty() {
                return Err(HttpError::Content("data behind the end"));
            }
            if piece.len() >= PIECE {
                break;
            }
        }
        if !piece.is_empty() {
            return Ok(Some(Part::Body(piece.into())));
        }
        match self.end.take() {
            Some(_) if !self.may_end => Err(HttpError::Content("the end is missing")),
            Some(trailers) => Ok(Some(Part::End(trailers))),
            None => Ok(None),
        }
    }
}

impl<H> Decompress<H> {
    /// Begins with a head whose body is decompressed. Returns whether it is compressed.
    fn begin(&mut self, headers: &mut Headers, body: &Body) -> bool {
        let inflating = if body.is_streamed() { Inflating::new(headers, self.max) } else { None };
        let Some(inflating) = inflating else {
            self.state = State::Plain;
            return false;
        };
        headers.remove("content-encoding");
        headers.remove("content-length");
        self.state = State::Inflating(Box::new(inflating));
        true
    }

    /// Handles a part behind a head.
    fn part(&mut self, part: Part<H>) -> Result<Option<Part<H>>, HttpError> {
        match &mut self.state {
            State::Plain => return Ok(Some(part)),
            State::Refused => return Ok(None),
            State::Inflating(inflating) => match part {
                Part::Body(bytes) => inflating.input.push_back(bytes),
                Part::End(trailers) => inflating.end = Some(trailers),
                Part::Head(_) => {}
            },
        }
        self.next()
    }

    fn next(&mut self) -> Result<Option<Part<H>>, HttpError> {
        let State::Inflating(inflating) = &mut self.state else { return Ok(None) };
        let next = inflating.next();
        match &next {
            Ok(Some(Part::End(_))) => self.state = State::Plain,
            Ok(_) => {}
            Err(_) => self.state = State::Refused,
        }
        next
    }

    /// Drops the rest of the body: its response is complete.
    fn drop_rest(&mut self) {
        if matches!(self.state, State::Inflating(_)) {
            self.state = State::Refused;
        }
    }

    fn has_next(&self) -> bool {
        matches!(&self.state, State::Inflating(inflating) if inflating.has_more())
    }
}

/// Answers a request whose body is refused.
fn refuse(
    ctx: &mut StageContext<'_, Decompress<Request>>,
    error: HttpError,
) -> Result<Option<Part<Request>>> {
    log::debug!("channel {}: {error}", ctx.id());
    let status = if error == HttpError::BodyTooLong { StatusCode::CONTENT_TOO_LARGE } else { error.status() };
    ctx.write(Response::from(status).close().into())?;
    Ok(None)
}

impl Stage for Decompress<Request> {
    type ReadIn = Part<Request>;
    type ReadOut = Part<Request>;
    type WriteIn = Part<Response>;
    type WriteOut = Part<Response>;

    fn read(
        &mut self,
        ctx: &mut StageContext<'_, Self>,
        part: Part<Request>,
    ) -> Result<Option<Part<Request>>> {
        if let Part::Head(mut head) = part {
            let body = head.announced_body().clone();
            if self.begin(head.headers_mut(), &body) {
                head = head.body(Body::Streamed);
            }
            return Ok(Some(Part::Head(head)));
        }
        self.part(part).or_else(|error| refuse(ctx, error))
    }

    fn has_more(&self) -> bool {
        self.has_next()
    }

    fn read_more(&mut self, ctx: &mut StageContext<'_, Self>) -> Result<Option<Part<Request>>> {
        self.next().or_else(|error| refuse(ctx, error))
    }

    fn write(&mut self, ctx: &mut StageContext<'_, Self>, part: Part<Response>) -> Result {
        let completes = match &part {
            Part::Head(response) => {
                !response.status().is_informational() && !response.announced_body().is_streamed()
            }
            Part::Body(_) => false,
            Part::End(_) => true,
        };
        ctx.write(part)?;
        if completes {
            self.drop_rest();
        }
        Ok(())
    }

    fn encoded_len_hint(
        part: &Part<Response>,
        next: impl Fn(&Part<Response>) -> Option<usize>,
    ) -> Option<usize> {
        next(part)
    }
}

impl Stage for Decompress<Response> {
    type ReadIn = Part<Response>;
    type ReadOut = Part<Response>;
    type WriteIn = Part<Request>;
    type WriteOut = Part<Request>;

    fn read(
        &mut self,
        ctx: &mut StageContext<'_, Self>,
        part: Part<Response>,
    ) -> Result<Option<Part<Response>>> {
        if let Part::Head(mut head) = part {
            let body = if head.is_head_only() { Body::Empty } else { head.announced_body().clone() };
            if self.begin(head.headers_mut(), &body) {
                head = head.body(Body::Streamed);
            }
            return Ok(Some(Part::Head(head)));
        }
        self.part(part).map_err(|error| {
            ctx.close();
            error.into()
        })
    }

    fn has_more(&self) -> bool {
        self.has_next()
    }

    fn read_more(&mut self, ctx: &mut StageContext<'_, Self>) -> Result<Option<Part<Response>>> {
        self.next().map_err(|error| {
            ctx.close();
            error.into()
        })
    }

    fn write(&mut self, ctx: &mut StageContext<'_, Self>, part: Part<Request>) -> Result {
        ctx.write(part)
    }

    fn encoded_len_hint(
        part: &Part<Request>,
        next: impl Fn(&Part<Request>) -> Option<usize>,
    ) -> Option<usize> {
        next(part)
    }
}
