//! Tests with services whose steps the test decides, on channels without sockets.

mod ends;
mod requests;
mod responses;
mod support;
