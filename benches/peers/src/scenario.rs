//! Scenarios: the mode of the server, and the load.

use crate::peer::Mode;

#[derive(Clone)]
pub(crate) struct Scenario {
    pub(crate) name: &'static str,
    pub(crate) about: &'static str,
    /// Scenarios of a family are interleaved, so that they can be compared with each other.
    family: &'static str,
    pub(crate) mode: Mode,
    /// Number of loops, or threads, of the server.
    pub(crate) threads: u16,
    pub(crate) load: Load,
}

/// Arguments of the load generator.
#[derive(Clone)]
pub(crate) struct Load {
    kind: &'static str,
    connections: usize,
    idle: usize,
    size: usize,
    pipeline: usize,
    senders: usize,
    frames: bool,
    /// Protocol above TCP, if it is not that of echoes and frames.
    protocol: Option<&'static str>,
    /// Kind of the TLS handshakes, if the server uses TLS: `full` or `resumed`.
    tls: Option<&'static str>,
    /// Number of connections that start their handshakes at the same time; `storm` only.
    storm: usize,
    /// Number of operations for counting the cost of one; 0 if the scenario is not counted.
    pub(crate) operations: u64,
}

/// Maximum number of connections with `--test`.
const FEW: usize = 100;

impl Load {
    const fn new(kind: &'static str, connections: usize, size: usize) -> Self {
        Load {
            kind,
            connections,
            idle: 0,
            size,
            pipeline: 1,
            senders: 1,
            frames: false,
            protocol: None,
            tls: None,
            storm: 0,
            operations: 0,
        }
    }

    const fn protocol(mut self, name: &'static str) -> Self {
        self.protocol = Some(name);
        self
    }

    const fn tls(mut self, handshakes: &'static str) -> Self {
        self.tls = Some(handshakes);
        self
    }

    const fn storm(mut self, storm: usize) -> Self {
        self.storm = storm;
        self
    }

    const fn frames(mut self) -> Self {
        self.frames = true;
        self
    }

    const fn pipeline(mut self, depth: usize) -> Self {
        self.pipeline = depth;
        self
    }

    const fn senders(mut self, senders: usize) -> Self {
        self.senders = senders;
        self
    }

    const fn idle(mut self, idle: usize) -> Self {
        self.idle = idle;
        self
    }

    /// Sets the number of operations: a multiple of the messages in flight, so that all connections
    /// do the same work.
    const fn operations(mut self, operations: u64) -> Self {
        self.operations = operations;
        self
    }

    pub(crate) fn shrink(&mut self) {
        self.connections = self.connections.min(FEW);
        self.idle = self.idle.min(FEW);
        self.storm = self.storm.min(FEW);
        self.operations = self.operations.min((self.connections * self.pipeline * 2) as u64);
    }

    /// Returns whether the scenario measures memory.
    pub(crate) fn is_idle(&self) -> bool {
        self.kind == "idle"
    }

    /// Returns whether the scenario measures latencies during a burst of handshakes.
    pub(crate) fn is_storm(&self) -> bool {
        self.kind == "storm"
    }

    /// Returns the number of descriptors that a process needs, including the server's own.
    pub(crate) fn descriptors(&self) -> u64 {
        (self.connections + self.idle + self.storm + 64) as u64
    }

    pub(crate) fn arguments(&self) -> Vec<String> {
        let mut arguments = vec![self.kind.to_string()];
        let mut add = |name: &str, value: usize| arguments.extend([name.to_string(), value.to_string()]);
        add("--connections", self.connections);
        add("--size", self.size);
        for (name, value, default) in [
            ("--idle", self.idle, 0),
            ("--pipeline", self.pipeline, 1),
            ("--senders", self.senders, 1),
            ("--storm", self.storm, 0),
        ] {
            if value != default {
                add(name, value);
            }
        }
        if self.frames {
            arguments.push("--frames".to_string());
        }
        if let Some(name) = self.protocol {
            arguments.extend(["--protocol".to_string(), name.to_string()]);
        }
        if let Some(handshakes) = self.tls {
            arguments.extend(["--tls".to_string(), handshakes.to_string()]);
        }
        arguments
    }
}

const fn scenario(
    family: &'static str,
    name: &'static str,
    about: &'static str,
    mode: Mode,
    load: Load,
) -> Scenario {
    Scenario { name, about, family, mode, threads: 1, load }
}

/// Returns the scenario with two loops, for servers that support them.
const fn two(mut one: Scenario) -> Scenario {
    one.threads = 2;
    one
}

use Mode::{
    Broadcast, EchoFrames, EchoFramesIdle, EchoRaw, EchoTls, Http, Ws, WsBroadcast, WsBroadcastDeflate,
    WsDeflate,
};

const C64_P1: Load = Load::new("echo", 64, 32).frames();
const C16_P64: Load = Load::new("echo", 16, 32).frames().pipeline(64);

/// Counts are exact except for the start and the end, whose share is small with this many
/// operations.
const COUNTED_C64_P1: Load = C64_P1.operations(64 * 250);
const COUNTED_C16_P64: Load = C16_P64.operations(16 * 64 * 200);

pub(crate) const SCENARIOS: &[Scenario] = &[
    scenario(
        "raw",
        "raw-64B-c1",
        "echo of 64 bytes, 1 connection",
        EchoRaw,
        Load::new("echo", 1, 64).operations(4_000),
    ),
    scenario(
        "raw",
        "raw-64B-c64",
        "echo of 64 bytes, 64 connections",
        EchoRaw,
        Load::new("echo", 64, 64).operations(64 * 250),
    ),
    scenario(
        "raw",
        "raw-64B-c1000",
        "echo of 64 bytes, 1,000 connections",
        EchoRaw,
        Load::new("echo", 1000, 64),
    ),
    scenario(
        "raw",
        "raw-16KiB-c64",
        "echo of 16 KiB, 64 connections",
        EchoRaw,
        Load::new("echo", 64, 16 * 1024).operations(64 * 100),
    ),
    scenario(
        "frames",
        "frames-32B-c16-p64",
        "frames of 32 bytes, 64 in flight on 16 connections",
        EchoFrames,
        COUNTED_C16_P64,
    ),
    scenario(
        "frames",
        "frames-idle-32B-c16-p64",
        "frames of 32 bytes, 64 in flight on 16 connections, idle timeout of 60 s",
        EchoFramesIdle,
        COUNTED_C16_P64,
    ),
    scenario(
        "frames",
        "frames-32B-c64-p1",
        "frames of 32 bytes, 1 in flight on 64 connections",
        EchoFrames,
        COUNTED_C64_P1,
    ),
    scenario(
        "frames",
        "frames-idle-32B-c64-p1",
        "frames of 32 bytes, 1 in flight on 64 connections, idle timeout of 60 s",
        EchoFramesIdle,
        COUNTED_C64_P1,
    ),
    scenario(
        "broadcast",
        "broadcast-100x1",
        "100 members, 1 sender; per delivery",
        Broadcast,
        Load::new("broadcast", 100, 64).operations(100 * 100),
    ),
    scenario(
        "broadcast",
        "broadcast-1000x4",
        "1,000 members, 4 senders; per delivery",
        Broadcast,
        Load::new("broadcast", 1000, 64).senders(4).operations(1000 * 40),
    ),
    scenario(
        "churn",
        "churn",
        "connect, one echo, close; 16 at a time",
        EchoRaw,
        Load::new("churn", 16, 64).operations(16 * 125),
    ),
    scenario(
        "idle",
        "idle-10k-raw",
        "memory of 10,000 idle connections",
        EchoRaw,
        Load::new("idle", 10_000, 64),
    ),
    scenario(
        "idle",
        "idle-10k-frames",
        "memory of 10,000 idle connections, with frames",
        EchoFrames,
        Load::new("idle", 10_000, 64).frames(),
    ),
    scenario(
        "idle",
        "idle-10k-frames-idle",
        "memory of 10,000 idle connections, with frames and an idle timeout of 60 s",
        EchoFramesIdle,
        Load::new("idle", 10_000, 64).frames(),
    ),
    scenario(
        "busy",
        "busy-with-idle-0",
        "frames on 64 connections, without idle connections",
        EchoFramesIdle,
        C64_P1,
    ),
    scenario(
        "busy",
        "busy-with-idle-1000",
        "frames on 64 connections, with 1,000 idle connections",
        EchoFramesIdle,
        C64_P1.idle(1_000),
    ),
    scenario(
        "busy",
        "busy-with-idle-10000",
        "frames on 64 connections, with 10,000 idle connections",
        EchoFramesIdle,
        C64_P1.idle(10_000),
    ),
    scenario("loops", "loops-1", "frames on 64 connections, one loop", EchoFrames, C64_P1),
    two(scenario(
        "loops",
        "loops-2",
        "frames on 64 connections, two loops (beside the load if there are two cpus)",
        EchoFrames,
        C64_P1,
    )),
    scenario(
        "tls",
        "tls-64B-c64",
        "TLS 1.3, echo of 64 bytes, 64 connections",
        EchoTls,
        Load::new("echo", 64, 64).tls("full").operations(64 * 250),
    ),
    scenario(
        "tls",
        "tls-16KiB-c64",
        "TLS 1.3, echo of 16 KiB, 64 connections",
        EchoTls,
        Load::new("echo", 64, 16 * 1024).tls("full").operations(64 * 100),
    ),
    scenario(
        "tls",
        "tls-handshake",
        "connect, full TLS 1.3 handshake (P-256), one echo, close; 16 at a time",
        EchoTls,
        Load::new("churn", 16, 64).tls("full").operations(16 * 25),
    ),
    scenario(
        "tls",
        "tls-resumption",
        "connect, resumed TLS 1.3 handshake, one echo, close; 16 at a time",
        EchoTls,
        Load::new("churn", 16, 64).tls("resumed").operations(16 * 25),
    ),
    scenario(
        "idle-tls",
        "idle-2k-tls",
        "memory of 2,000 idle connections, TLS 1.3",
        EchoTls,
        Load::new("idle", 2_000, 64).tls("full"),
    ),
    scenario(
        "storm",
        "tls-storm",
        "12,800 echoes per second on 64 connections while 1,000 others start handshakes at once",
        EchoTls,
        Load::new("storm", 64, 64).tls("full").storm(1_000),
    ),
    scenario(
        "http",
        "http-c64",
        "HTTP/1.1, GET with a small body, 64 connections",
        Http,
        Load::new("echo", 64, 14).protocol("http").operations(64 * 250),
    ),
    scenario(
        "http",
        "http-pipelined-16-c64",
        "HTTP/1.1, GET with a small body, 16 in flight on 64 connections",
        Http,
        Load::new("echo", 64, 14).protocol("http").pipeline(16).operations(64 * 16 * 50),
    ),
    scenario(
        "ws",
        "ws-64B-c64",
        "WebSocket, echo of 64 bytes, 64 connections",
        Ws,
        Load::new("echo", 64, 64).protocol("websocket").operations(64 * 250),
    ),
    scenario(
        "ws",
        "ws-64KiB-c8",
        "WebSocket, echo of 64 KiB, 8 connections",
        Ws,
        Load::new("echo", 8, 64 * 1024).protocol("websocket").operations(8 * 100),
    ),
    scenario(
        "ws",
        "ws-deflate-1KiB-c64",
        "WebSocket with permessage-deflate, echo of 1 KiB, 64 connections",
        WsDeflate,
        Load::new("echo", 64, 1024).protocol("websocket-deflate").operations(64 * 100),
    ),
    scenario(
        "ws-broadcast",
        "broadcast-1000-64B",
        "frames of 64 bytes to 1,000 members, 1 sender; per delivery",
        Broadcast,
        Load::new("broadcast", 1000, 64).operations(1000 * 40),
    ),
    scenario(
        "ws-broadcast",
        "ws-broadcast-1000-64B",
        "WebSocket, messages of 64 bytes to 1,000 members, 1 sender; per delivery",
        WsBroadcast,
        Load::new("broadcast", 1000, 64).protocol("websocket").operations(1000 * 40),
    ),
    scenario(
        "ws-broadcast",
        "broadcast-1000-4KiB",
        "frames of 4 KiB to 1,000 members, 1 sender; per delivery",
        Broadcast,
        Load::new("broadcast", 1000, 4096).operations(1000 * 40),
    ),
    scenario(
        "ws-broadcast",
        "ws-broadcast-1000-4KiB",
        "WebSocket, messages of 4 KiB to 1,000 members, 1 sender; per delivery",
        WsBroadcast,
        Load::new("broadcast", 1000, 4096).protocol("websocket").operations(1000 * 40),
    ),
    scenario(
        "ws-broadcast",
        "ws-deflate-broadcast-1000-4KiB",
        "WebSocket with permessage-deflate, 4 KiB to 1,000 members, 1 sender; per delivery",
        WsBroadcastDeflate,
        Load::new("broadcast", 1000, 4096).protocol("websocket-deflate").operations(1000 * 40),
    ),
    scenario(
        "idle-ws",
        "idle-2k-ws",
        "memory of 2,000 idle connections, WebSocket",
        Ws,
        Load::new("idle", 2_000, 64).protocol("websocket"),
    ),
    scenario(
        "idle-ws",
        "idle-2k-ws-deflate",
        "memory of 2,000 idle connections, WebSocket with permessage-deflate",
        WsDeflate,
        Load::new("idle", 2_000, 512).protocol("websocket-deflate"),
    ),
];

/// Returns the families, which are measured together, in order.
pub(crate) fn families(scenarios: &[Scenario]) -> Vec<Vec<Scenario>> {
    scenarios.chunk_by(|a, b| a.family == b.family).map(<[Scenario]>::to_vec).collect()
}

/// Returns a scenario's name as the table has it.
pub(crate) fn name(text: &str) -> Option<&'static str> {
    SCENARIOS.iter().map(|scenario| scenario.name).find(|name| *name == text)
}

impl Scenario {
    /// Returns whether the scenario compares numbers of threads, so that servers with one thread
    /// are left out.
    pub(crate) fn compares_threads(&self) -> bool {
        self.family == "loops"
    }

    /// Returns whether every run starts with a new server.
    pub(crate) fn wants_fresh_server(&self) -> bool {
        self.load.is_idle()
    }
}
