//! One module for each target.

pub(crate) mod client_hello;
pub(crate) mod cron;
pub(crate) mod durable_file;
pub(crate) mod embedded_channel;
pub(crate) mod http_client;
pub(crate) mod http_server;
pub(crate) mod length_field;
pub(crate) mod prometheus;
pub(crate) mod proxy;
pub(crate) mod resp;
pub(crate) mod separators;
pub(crate) mod varint;
pub(crate) mod websocket;
