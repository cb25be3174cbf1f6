//! What connections cost a server in memory (14.3, 14.5): little each while they are idle, and nothing when they are gone.
//!
//! The server is a process of its own, so that it is measured without its clients, as the kernel counts its pages. Linux
//! only. The kernel's own memory for a socket is not in these numbers.

#![cfg(target_os = "linux")]

use crate::support::{
    loops::{end, one_loop, turn_until},
    process::{Process, play, plays},
    resources::{anonymous, raise_descriptor_limit},
    tcp::{ANY_PORT, patient, read_n},
};
use netwheel::{codec::LengthField, prelude::*, stage::Json};
use serde::{Deserialize, Serialize};
use std::{
    io::{self, Write},
    net::{Ipv4Addr, SocketAddr, TcpStream},
    sync::{Mutex, MutexGuard, PoisonError},
    time::Duration,
};

const KIB: usize = 1024;

/// Connections by which the slope is taken.
const FEW: usize = 1_000;
const MANY: usize = 15_000;

/// Descriptors are the test program's, and pages are counted best when nothing else runs.
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

/// The child. For each number in its input it waits until it has so many connections, and says how large it is.
#[test]
fn session_server() {
    if !plays("session_server") {
        return;
    }
    raise_descriptor_limit();
    let group = one_loop();
    let server = ServerBootstrap::new(&group)
        .backlog(4096)
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
    /// Each host has ports of its own, however many of them wait for their time to be over.
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

    /// Makes it so many, each of which has said something and was answered.
    #[track_caller]
    fn grow_to(&mut self, connections: usize) -> usize {
        let request = frame(br#"{"Say":{"text":"hello"}}"#);
        let reply = frame(br#"{"Said":{"text":"hello"}}"#);
        let there = self.peers.len();
        for _ in there..connections {
            // The kernel looks for a port the longer the more of a host's are taken.
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

    /// All leave.
    #[track_caller]
    fn leave(&mut self) -> usize {
        self.peers.clear();
        self.host += 1;
        self.size()
    }

    /// How large the server is, when it has all connections and has read all bytes.
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
        eprintln!("only {many} connections, for want of descriptors");
    }
    many
}

/// 14.3: a slot, a pipeline and a watch for quiet, and no buffers: 380 bytes, with room for another allocator's ways.
#[test]
fn rss_slope_per_connection() {
    let _alone = alone();
    let many = many();
    let mut sessions = Sessions::start();
    let few = sessions.grow_to(FEW);
    let size = sessions.grow_to(many);
    let each = (size - few) / (many - FEW);
    println!("{each} bytes for each of {many} connections");
    assert!((200..=450).contains(&each), "{each} bytes for each of {many} connections");

    // Half a frame is what is kept besides, no buffer of the size of a read.
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

/// As many as come and go in a round.
const PEERS: usize = 2_000;

/// Ten times they all come and go: how large the server is before, and after each time.
fn ten_times(mut sessions: Sessions) -> (usize, Vec<usize>) {
    assert!(raise_descriptor_limit() > PEERS + 200, "too few descriptors: raise `ulimit -n`");
    // What the first connections make the program touch, the loop's read buffers for one, is the program's own.
    sessions.grow_to(200);
    let start = sessions.leave();
    let mut after = Vec::new();
    for _ in 0..10 {
        let full = sessions.grow_to(PEERS);
        assert!(full > start + 200 * PEERS, "they do cost something");
        after.push(sessions.leave());
    }
    drop(sessions.child.take_stdin());
    println!("{start}, then {after:?}");
    (start, after)
}

/// 14.5: it is flat. How much of what is free goes back to the system is the allocator's business: one small piece in use
/// keeps all below it. That all of it is given back to the allocator is in `allocations/heap_returns.rs`.
#[test]
fn rss_returns() {
    let _alone = alone();
    let (_, after) = ten_times(Sessions::start());
    assert!(after[9] <= after[1] + 512 * KIB, "it grows: {after:?}");
}
