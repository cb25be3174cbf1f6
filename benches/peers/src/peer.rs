//! The servers to compare. All ratios refer to the first one that supports the mode.

#[derive(Clone, Copy, PartialEq)]
pub(crate) enum Mode {
    EchoRaw,
    EchoFrames,
    EchoFramesIdle,
    Broadcast,
    /// Echoes every byte, and encrypts all of them. Only servers with TLS support it.
    EchoTls,
    /// Answers HTTP/1.1 requests.
    Http,
    /// Echoes WebSocket messages.
    Ws,
    /// Like `Ws`. Only servers with permessage-deflate support it.
    WsDeflate,
    /// Sends every WebSocket message to every connection.
    WsBroadcast,
    /// Like `WsBroadcast`. Only servers with permessage-deflate support it.
    WsBroadcastDeflate,
}

impl Mode {
    /// Returns the mode's name on a server's command line.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Mode::EchoRaw | Mode::EchoTls => "echo-raw",
            Mode::EchoFrames => "echo-frames",
            Mode::EchoFramesIdle => "echo-frames-idle",
            Mode::Broadcast => "broadcast",
            Mode::Http => "http",
            Mode::Ws | Mode::WsDeflate => "ws",
            Mode::WsBroadcast | Mode::WsBroadcastDeflate => "ws-broadcast",
        }
    }
}

/// Source of a server's program.
#[derive(Clone, Copy, PartialEq)]
pub(crate) enum Origin {
    /// A binary of `servers/`, and its first arguments.
    Servers(&'static str, &'static [&'static str]),
    /// A binary of `servers/` that requires a feature of that package.
    Feature(&'static str, &'static str),
    /// The example of the crate itself.
    Netwheel,
    /// A binary of `servers/` with netwheel and TLS, and its first arguments.
    NetwheelTls(&'static [&'static str]),
    Libuv,
    /// An installed nginx, with a generated configuration.
    Nginx,
    /// npm's package `ws` on an installed node.
    Node,
    /// A program of `servers/javascript` on npm's package of Bun.
    Bun,
    /// Netty on its epoll transport, with the jars of `netty.sh`.
    Netty,
    /// Netty with TLS by this provider: `jdk`, or `openssl` for BoringSSL.
    NettyTls(&'static str),
}

pub(crate) struct Peer {
    pub(crate) name: &'static str,
    pub(crate) about: &'static str,
    pub(crate) origin: Origin,
    pub(crate) modes: &'static [Mode],
    /// Maximum number of serving threads.
    pub(crate) threads: u16,
    /// Seconds of load before the first round, for just-in-time compilers.
    pub(crate) warm_up: f64,
}

const ALL: &[Mode] = &[Mode::EchoRaw, Mode::EchoFrames, Mode::EchoFramesIdle, Mode::Broadcast];
const NO_IDLE: &[Mode] = &[Mode::EchoRaw, Mode::EchoFrames, Mode::Broadcast];
const NO_BROADCAST: &[Mode] = &[Mode::EchoRaw, Mode::EchoFrames, Mode::EchoFramesIdle];
const FRAMES: &[Mode] = &[Mode::EchoFrames, Mode::EchoFramesIdle];
const ECHO: &[Mode] = &[Mode::EchoRaw, Mode::EchoFrames];
const TLS: &[Mode] = &[Mode::EchoTls];

const HTTP: &[Mode] = &[Mode::Http];
const WS: &[Mode] = &[Mode::Ws];
const ALL_WS: &[Mode] = &[Mode::Ws, Mode::WsDeflate, Mode::WsBroadcast, Mode::WsBroadcastDeflate];

pub(crate) const PEERS: &[Peer] = &[
    peer("epoll", "raw epoll, the limit", Origin::Servers("epoll-server", &[]), ALL),
    peer("mio", "raw mio", Origin::Servers("mio-server", &[]), NO_IDLE),
    Peer { threads: 64, ..peer("netwheel", "examples/bench_server.rs of this crate", Origin::Netwheel, ALL) },
    peer("libuv", "libuv, in C", Origin::Libuv, NO_IDLE),
    peer("monoio", "monoio on io_uring", Origin::Feature("monoio-server", "monoio"), ECHO),
    Peer { threads: 64, ..peer("tokio", "tokio and tokio-util", Origin::Servers("tokio-server", &[]), ALL) },
    peer(
        "tokio-128",
        "tokio and tokio-util, with buffers of 128 bytes",
        Origin::Servers("tokio-server", &["--buffer", "128"]),
        FRAMES,
    ),
    Peer {
        threads: 64,
        ..peer(
            "rs-netty",
            "rs-netty, typed pipelines on tokio",
            Origin::Feature("rs-netty-server", "rs-netty"),
            NO_BROADCAST,
        )
    },
    Peer {
        threads: 64,
        warm_up: 12.0,
        ..peer("netty", "Netty 4.2 on its epoll transport, in Java", Origin::Netty, ALL)
    },
    peer(
        "epoll-rustls",
        "raw epoll and rustls, the limit with TLS",
        Origin::Servers("epoll-rustls-server", &[]),
        TLS,
    ),
    Peer { threads: 64, ..peer("netwheel-tls", "netwheel with TLS", Origin::NetwheelTls(&[]), TLS) },
    Peer {
        threads: 64,
        ..peer(
            "netwheel-offload",
            "netwheel with TLS, handshakes on a worker",
            Origin::NetwheelTls(&["--offload"]),
            TLS,
        )
    },
    Peer {
        threads: 64,
        ..peer("tokio-rustls", "tokio and tokio-rustls", Origin::Servers("tokio-rustls-server", &[]), TLS)
    },
    Peer {
        threads: 64,
        warm_up: 12.0,
        ..peer("netty-jdk", "Netty's SslHandler on the JDK's engine", Origin::NettyTls("jdk"), TLS)
    },
    Peer {
        threads: 64,
        warm_up: 12.0,
        ..peer("netty-boringssl", "Netty's SslHandler on BoringSSL", Origin::NettyTls("openssl"), TLS)
    },
    peer(
        "epoll-httparse",
        "raw epoll and httparse, the limit with HTTP",
        Origin::Servers("epoll-web-server", &[]),
        HTTP,
    ),
    peer(
        "epoll-ws",
        "WebSocket by hand on raw epoll, the limit",
        Origin::Servers("epoll-web-server", &[]),
        WS,
    ),
    peer("netwheel-http", "netwheel with HTTP", Origin::Feature("netwheel-web-server", "netwheel-web"), HTTP),
    peer(
        "netwheel-ws",
        "netwheel with WebSocket",
        Origin::Feature("netwheel-web-server", "netwheel-web"),
        ALL_WS,
    ),
    peer("hyper", "hyper on tokio", Origin::Feature("hyper-server", "hyper"), HTTP),
    peer("nginx", "nginx with `return 200`", Origin::Nginx, HTTP),
    peer("tungstenite", "tokio-tungstenite", Origin::Feature("tungstenite-server", "tungstenite"), WS),
    peer(
        "tokio-websockets",
        "tokio-websockets",
        Origin::Feature("tokio-websockets-server", "tokio-websockets"),
        WS,
    ),
    peer(
        "fastwebsockets",
        "fastwebsockets, upgraded by hyper",
        Origin::Feature("fastwebsockets-server", "fastwebsockets"),
        WS,
    ),
    Peer { warm_up: 6.0, ..peer("ws", "npm's ws on node", Origin::Node, ALL_WS) },
    Peer { warm_up: 6.0, ..peer("bun", "uWebSockets in Bun", Origin::Bun, ALL_WS) },
];

const fn peer(name: &'static str, about: &'static str, origin: Origin, modes: &'static [Mode]) -> Peer {
    Peer { name, about, origin, modes, threads: 1, warm_up: 0.0 }
}

/// Returns a server's name as the table has it.
pub(crate) fn name(text: &str) -> Option<&'static str> {
    PEERS.iter().map(|peer| peer.name).find(|name| *name == text)
}

impl Peer {
    /// Returns whether the server depends on something besides a Rust toolchain (a compiler, a
    /// library, io_uring), so that it is left out if that is missing.
    pub(crate) fn is_optional(&self) -> bool {
        !matches!(self.origin, Origin::Servers(..) | Origin::Netwheel | Origin::NetwheelTls(_))
    }

    /// Returns whether the program is compiled to native code ahead of time, so that its
    /// instructions can be counted.
    pub(crate) fn is_native(&self) -> bool {
        !matches!(self.origin, Origin::Netty | Origin::NettyTls(_) | Origin::Node | Origin::Bun)
    }
}
