//! Byte filters under the driver, over memory and over sockets.

mod memory;
mod sockets;
mod xor;
