//! Other implementations of HTTP/1.1, against our parser and against the example `http_server`.

mod curl;
mod differential;
mod example;
mod load;
mod proxies;
mod proxy_example;
mod slow;
