//! The head of a message: finding its end, parsing it, and the framing of the body.

mod facts;
mod framing;
mod parse;
mod scanner;

pub(super) use facts::HeadFacts;
pub(super) use framing::{Framing, RequestKind, announced_framing, request_framing, response_framing};
pub(crate) use parse::forbidden_trailer;
pub(super) use parse::{RequestHead, check_request, parse_response, parse_trailers};
pub(super) use scanner::{HeadLimits, HeadScanner, Scan};
