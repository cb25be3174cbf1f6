//! Other implementations of HTTP/1.1, against our parser and against the example `http_server`.

mod attacks;
mod compare;
mod differential;
mod mutations;
mod ours;
mod parsers;
mod requests;
