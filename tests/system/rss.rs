//! Memory of a server's connections: little for each idle connection, and none after they have
//! closed.
//!
//! The server runs in a process of its own, so that it is measured without its clients. The kernel
//! counts its pages. Linux only. The kernel's own memory for a socket is not included.

#![cfg(target_os = "linux")]

use crate::support::{
    loops::{end, one_loop, turn_until},
    process::{Process, play, plays},
    resources::{anonymous, raise_descriptor_limit},
    tcp::{ANY_PORT, patient, read_n},
};
use netwheel::{codec::LengthField, net::ListenerOptions, prelude::*, stage::Json};
use serde::{Deserialize, Serialize};
use std::{
    io::{self, Write},
    net::{Ipv4Addr, SocketAddr, TcpStream},
    sync::{Mutex, MutexGuard, PoisonError},
    time::Duration,
};

const KIB: usize = 1024;

/// Numbers of connections between which the slope is measured.
const FEW: usize = 1_000;
const MANY: usize = 15_000;

/// Serializes the tests: descriptors are limited per process, and page counts are more precise when
/// no other test runs.
static ONE_AT_A_TIME: Mutex<()> = Mutex::new(());

fn alone() -> MutexGuard<'static, ()> {
    ONE_AT_A_TIME.lock().unwrap_or_else(PoisonError::into_inner)
}

#[derive(Deserialize)]
enum Request {
    Say { text: String },
}

#[derive(Serialize)]
enum Reply {
    Said { text: String },
    Ping,
}

struct Session;

impl Handler for Session {
    type Read = Request;
    type Write = Reply;

    fn read(&mut self, ctx: &mut Context<'_, Self>, message: Request) -> Result {
        let Request::Say { text } = message;
        ctx.write(Reply::Said { text })
    }

    fn idle(&mut self, ctx: &mut Context<'_, Self>, event: IdleEvent) -> Result {
        match event.state {
            IdleState::Writer => ctx.write(Reply::Ping),
            _ => {
                ctx.close();
                Ok(())
            }
        }
    }
}

/// The child. For each line of its input, it waits for the given number of connections and bytes,
/// and prints its size.
#[test]
fn session_server() {
    if !plays("session_server") {
        return;
    }
    raise_descriptor_limit();
    let group = one_loop();
    let server = ServerBootstrap::new(&group)
        .listener_options(ListenerOptions::new().backlog(4096))
        .pipeline(|_| {
            let minutes = |n: u64| Duration::from_secs(60 * n);
            Pipeline::codec(LengthField::u32().max_len(64 * KIB))
                .idle(IdleTimeouts::new().reader(minutes(60)).writer(minutes(20)))
                .stage(Json::<Request, Reply>::new())
                .handler(Session)
        })
        .bind(ANY_PORT)
        .unwrap();
    println!("listening on {}", server.local_address());
    for line in io::stdin().lines() {
        let (line, number) = (line.unwrap(), |text: &str| text.parse::<u64>().unwrap());
        let (connections, bytes) = line.split_once(' ').unwrap();
        let (connections, bytes) = (number(connections), number(bytes));
        turn_until(&group, |metrics| metrics.channels == connections && metrics.bytes_read >= bytes);
        println!("bytes {}", anonymous());
    }
    end(&group);
}

struct Sessions {
    child: Process,
    address: SocketAddr,
    /// Last byte of the local address. Each address has its own port range, whatever number of its
    /// ports is in TIME_WAIT.
    host: u8,
    peers: Vec<TcpStream>,
    sent: usize,
}

impl Sessions {
    fn start() -> Self {
        let mut child = Process::start(&play("session_server"));
        let address = child.stdout.wait_for("listening on ").parse().unwrap();
        Sessions { child, address, host: 2, peers: Vec::new(), sent: 0 }
    }

    fn connect(&mut self) {
        use socket2::{Domain, Socket, Type};
        let socket = Socket::new(Domain::IPV4, Type::STREAM, None).unwrap();
        socket.bind(&SocketAddr::from((Ipv4Addr::new(127, 0, 0, self.host), 0)).into()).unwrap();
        socket.connect(&self.address.into()).unwrap();
        let stream = TcpStream::from(socket);
        patient(&stream);
        self.peers.push(stream);
    }

    /// Opens connections until there are `connections`, each of which has sent a request and
    /// received a reply. Returns the server's size.
    #[track_caller]
    fn grow_to(&mut self, connections: usize) -> usize {
        let request = frame(br#"{"Say":{"text":"hello"}}"#);
        let reply = frame(br#"{"Said":{"text":"hello"}}"#);
        let there = self.peers.len();
        for _ in there..connections {
            // The kernel takes longer to find a port when more ports of an address are in use.
            if self.peers.len() % 2_000 == 1_999 {
                self.host += 1;
            }
            self.connect();
            self.peers.last_mut().unwrap().write_all(&request).unwrap();
            self.sent += request.len();
        }
        for peer in &mut self.peers[there..] {
            assert_eq!(read_n(peer, reply.len()), reply);
        }
        self.size()
    }

    /// Closes all connections. Returns the server's size.
    #[track_caller]
    fn leave(&mut self) -> usize {
        self.peers.clear();
        self.host += 1;
        self.size()
    }

    /// Returns the server's size when it has all connections and has read all bytes.
    #[track_caller]
    fn size(&mut self) -> usize {
        self.child.say(&format!("{} {}\n", self.peers.len(), self.sent));
        self.child.stdout.wait_for("bytes ").trim().parse().unwrap()
    }
}

fn frame(text: &[u8]) -> Vec<u8> {
    [&(text.len() as u32).to_be_bytes(), text].concat()
}

fn many() -> usize {
    let many = MANY.min(raise_descriptor_limit().saturating_sub(200));
    assert!(many >= 3 * FEW, "only {many} descriptors: raise `ulimit -n`");
    if many < MANY {
        eprintln!("only {many} connections, because of the descriptor limit");
    }
    many
}

/// A slot, a pipeline and an idle timeout, without buffers: 380 bytes. The bounds allow for other
/// allocators.
#[test]
fn memory_per_idle_connection() {
    let _alone = alone();
    let many = many();
    let mut sessions = Sessions::start();
    let few = sessions.grow_to(FEW);
    let size = sessions.grow_to(many);
    let each = (size - few) / (many - FEW);
    println!("{each} bytes for each of {many} connections");
    assert!((200..=450).contains(&each), "{each} bytes for each of {many} connections");

    // In addition, only the half frame is kept, and no buffer of the size of a read.
    for peer in 0..many {
        sessions.peers[peer].write_all(b"\0\0\x01\0{\"Say\"").unwrap();
        sessions.sent += 10;
    }
    let half = sessions.size();
    let more = half.saturating_sub(size) / many;
    println!("{more} bytes more with half a frame each");
    assert!(more <= 128, "{more} bytes more with half a frame each");
    drop(sessions.child.take_stdin());
}

/// Connections that open and close in a round.
const PEERS: usize = 2_000;

/// Opens and closes all connections ten times. Returns the server's size before, and after each
/// time.
fn ten_times(mut sessions: Sessions) -> (usize, Vec<usize>) {
    assert!(raise_descriptor_limit() > PEERS + 200, "too few descriptors: raise `ulimit -n`");
    // Memory that the first connections cause the program to touch, such as the loop's read
    // buffers, is not memory of connections.
    sessions.grow_to(200);
    let start = sessions.leave();
    let mut after = Vec::new();
    for _ in 0..10 {
        let full = sessions.grow_to(PEERS);
        assert!(full > start + 200 * PEERS, "connections do take memory");
        after.push(sessions.leave());
    }
    drop(sessions.child.take_stdin());
    println!("{start}, then {after:?}");
    (start, after)
}

/// The size must not grow. How much free memory returns to the system depends on the allocator,
/// because one small block in use keeps everything below it. `allocations/heap_returns.rs` tests
/// that all of it is returned to the allocator.
#[test]
fn memory_of_closed_connections_is_returned() {
    let _alone = alone();
    let (_, after) = ten_times(Sessions::start());
    assert!(after[9] <= after[1] + 512 * KIB, "the server grows: {after:?}");
}
