//! A key-value store that Redis clients can use, on `codec::Resp`.
//!
//! ```text
//! cargo run --release --example resp_server
//! redis-cli -p 7379 set colour blue
//! redis-benchmark -p 7379 -P 16 -t ping,set,get
//! ```
//!
//! It knows PING, ECHO, SET (without options), GET, DEL, INCR, HELLO, COMMAND and QUIT. Keys and
//! values are in memory, up to `--max-memory`. Like Redis, it answers on one thread by default.

#[path = "support/output.rs"]
mod output;

use bytes::Bytes;
use clap::Parser;
use netwheel::{
    channel::ChannelOptions,
    codec::{
        Resp, RespError,
        RespValue::{self, Bulk},
    },
    error::PeerError,
    prelude::*,
    shutdown::ShutdownOptions,
};
use output::{Output, complain, say};
use std::{
    collections::HashMap,
    net::SocketAddr,
    process::ExitCode,
    sync::{Arc, Mutex, PoisonError, mpsc},
    time::Duration,
};

/// The memory that an entry takes besides its key and value.
const ENTRY: usize = 128;

/// A key-value store that Redis clients can use.
#[derive(Parser)]
struct Options {
    /// Address to listen on; port 0 selects a free port.
    #[arg(long, default_value = "127.0.0.1:7379")]
    listen: SocketAddr,
    /// Largest size of all keys and values together, in bytes.
    #[arg(long, default_value_t = 256 << 20)]
    max_memory: usize,
    /// Number of event loops, each on its own thread; 0 selects two per processor.
    #[arg(long, default_value_t = 1)]
    threads: usize,
}

/// The keys and values, shared by all connections. A lock is held for one operation only.
struct Store {
    values: HashMap<Bytes, Bytes>,
    used: usize,
    max_memory: usize,
}

impl Store {
    /// Sets a value, unless the store would become too large. Copies both, so that they do not keep
    /// the read buffer.
    fn set(&mut self, key: &[u8], value: &[u8]) -> RespValue {
        let place = self.values.get_mut(key);
        let old = place.as_ref().map_or(0, |old| size(key, old));
        let used = self.used - old + size(key, value);
        if used > self.max_memory {
            return error("OOM command not allowed when used memory > 'maxmemory'.");
        }
        self.used = used;
        let value = Bytes::copy_from_slice(value);
        match place {
            Some(place) => *place = value,
            None => drop(self.values.insert(Bytes::copy_from_slice(key), value)),
        }
        RespValue::Simple(Bytes::from_static(b"OK"))
    }

    fn remove(&mut self, key: &[u8]) -> bool {
        let Some(value) = self.values.remove(key) else { return false };
        self.used -= size(key, &value);
        true
    }

    fn increment(&mut self, key: &[u8]) -> RespValue {
        let number = match self.values.get(key) {
            Some(value) => std::str::from_utf8(value).ok().and_then(|text| text.parse::<i64>().ok()),
            None => Some(0),
        };
        let Some(next) = number.and_then(|number| number.checked_add(1)) else {
            return error("ERR value is not an integer or out of range");
        };
        let set = self.set(key, next.to_string().as_bytes());
        if set.is_error() { set } else { RespValue::Integer(next) }
    }
}

fn size(key: &[u8], value: &[u8]) -> usize {
    key.len() + value.len() + ENTRY
}

fn error(text: impl Into<Bytes>) -> RespValue {
    RespValue::Error(text.into())
}

/// One connection.
struct Client {
    store: Arc<Mutex<Store>>,
    /// Whether the client has asked for RESP3.
    resp3: bool,
}

impl Client {
    /// Runs a command. The codec admits only arguments that are bulk strings.
    fn answer(&mut self, command: &[u8], arguments: &[RespValue]) -> RespValue {
        let lock = || self.store.lock().unwrap_or_else(PoisonError::into_inner);
        match (command.to_ascii_uppercase().as_slice(), arguments) {
            (b"PING", []) => RespValue::Simple(Bytes::from_static(b"PONG")),
            (b"PING" | b"ECHO", [message]) => message.clone(),
            (b"GET", [Bulk(key)]) => {
                lock().values.get(key).map_or(RespValue::Null, |value| Bulk(value.clone()))
            }
            (b"SET", [Bulk(key), Bulk(value)]) => lock().set(key, value),
            (b"SET", [_, _, ..]) => error("ERR syntax error"),
            (b"DEL", [_, ..]) => {
                let (mut store, keys) = (lock(), arguments.iter().filter_map(RespValue::as_bytes));
                RespValue::Integer(keys.filter(|key| store.remove(key)).count() as i64)
            }
            (b"INCR", [Bulk(key)]) => lock().increment(key),
            (b"HELLO", []) => self.hello(),
            (b"HELLO", [Bulk(version)]) if matches!(&version[..], b"2" | b"3") => {
                self.resp3 = version[..] == *b"3";
                self.hello()
            }
            (b"HELLO", [_]) => error("NOPROTO unsupported protocol version"),
            (b"COMMAND", _) => RespValue::Array(Vec::new()),
            (b"PING" | b"ECHO" | b"GET" | b"SET" | b"DEL" | b"INCR" | b"HELLO", _) => {
                error("ERR wrong number of arguments")
            }
            // The peer chooses the length and the bytes of the name.
            _ => error(format!("ERR unknown command '{}'", command[..command.len().min(64)].escape_ascii())),
        }
    }

    fn hello(&self) -> RespValue {
        let text = |text: &'static str| Bulk(text.into());
        RespValue::Map(vec![
            (text("server"), text("resp_server")),
            (text("version"), text(env!("CARGO_PKG_VERSION"))),
            (text("proto"), RespValue::Integer(if self.resp3 { 3 } else { 2 })),
            (text("mode"), text("standalone")),
        ])
    }
}

impl Handler for Client {
    type Read = RespValue;
    type Write = RespValue;

    fn read(&mut self, ctx: &mut Context<'_, Self>, request: RespValue) -> Result {
        // The codec admits only arrays with at least the command.
        let RespValue::Array(request) = request else { return Ok(()) };
        let [Bulk(command), arguments @ ..] = &request[..] else { return Ok(()) };
        if command.eq_ignore_ascii_case(b"QUIT") {
            return ctx.close_with(RespValue::Simple(Bytes::from_static(b"OK")));
        }
        let reply = self.answer(command, arguments);
        ctx.write(if self.resp3 { reply } else { reply.into_resp2() })
    }

    /// Explains a violation of the protocol to the peer. Keeps the connection if the next request
    /// can be decoded.
    fn error(&mut self, ctx: &mut Context<'_, Self>, cause: Error) -> Result {
        let (text, recoverable) = match &cause {
            Error::Peer(PeerError::Protocol { cause, .. }) => {
                let violation = cause.as_error().downcast_ref::<RespError>();
                (cause.as_error().to_string(), violation.is_some_and(RespError::is_recoverable))
            }
            Error::Peer(fault @ PeerError::TooLong { .. }) => (fault.to_string(), true),
            _ => return Err(cause),
        };
        let reply = error(format!("ERR Protocol error: {text}"));
        if recoverable { ctx.write(reply) } else { ctx.close_with(reply) }
    }
}

fn main() -> ExitCode {
    let options = Options::parse();
    // An unread or broken output pipe stops neither a loop nor the shutdown.
    let output = Output::start();
    let result = run(&options);
    if let Err(error) = &result {
        complain!("resp_server: {error:#}");
    }
    output.finish();
    if result.is_ok() { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

fn run(options: &Options) -> Result {
    let (stop, stopped) = mpsc::channel();
    ctrlc::set_handler(move || stop.send(()).unwrap_or_default()).map_err(Error::other)?;
    let group = EventLoopGroup::builder().threads(options.threads).name("resp").build()?;
    let store = Store { values: HashMap::new(), used: 0, max_memory: options.max_memory };
    let store = Arc::new(Mutex::new(store));
    let codec = Resp::server().inline_commands();
    let server = ServerBootstrap::new(&group)
        // A client that sends requests and does not read the replies is not read either.
        .channel_options(ChannelOptions::new().read_while_writable(true))
        .pipeline(move |_peer| {
            Pipeline::codec(codec.clone()).handler(Client { store: store.clone(), resp3: false })
        })
        .bind(options.listen)?;
    say!("listening on {}", server.local_address());
    stopped.recv().map_err(Error::other)?;
    group
        .shutdown(ShutdownOptions::new().quiet_period(Duration::ZERO).timeout(Duration::from_secs(5)))
        .wait()?;
    Ok(())
}
