//! Socket options. They are validated when the bootstrap binds or connects, and set when a socket
//! is opened.

mod listener_options;
pub(crate) mod socket_options;
mod tcp_options;

pub use listener_options::ListenerOptions;
pub use tcp_options::TcpOptions;
