//! Other implementations of HTTP/1.1, against our parser and against the example `http_server`.

mod attacks;
mod compare;
mod curl;
mod differential;
mod example;
mod load;
mod mutations;
mod ours;
mod parsers;
mod proxies;
mod requests;
mod slow;
