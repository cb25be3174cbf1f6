//! The servers that are compared.

/// A server, and how its program is started.
pub(crate) struct Server {
    pub(crate) name: &'static str,
    pub(crate) about: &'static str,
    pub(crate) program: Program,
    /// Name of the picture of its storm.
    pub(crate) picture: Option<&'static str>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Program {
    /// `examples/im_server`, with overload control or without.
    Chat { control: bool },
    /// `tungstenite/main.rs`.
    Tungstenite,
}

/// The option of `im_server` that turns overload control on.
pub(crate) const CONTROL: &str = "--overload-target";

pub(crate) const SERVERS: [Server; 3] = [
    Server {
        name: "netwheel",
        about: "netwheel with overload control",
        program: Program::Chat { control: true },
        picture: Some("storm-control.svg"),
    },
    Server {
        name: "without",
        about: "netwheel without overload control",
        program: Program::Chat { control: false },
        picture: Some("storm-without.svg"),
    },
    Server {
        name: "tungstenite",
        about: "tokio-tungstenite with its usual limits",
        program: Program::Tungstenite,
        picture: None,
    },
];
