//! Byte filters under the driver, over memory and over sockets.

mod expanding;
mod leaving;
mod memory;
mod phases;
mod random;
mod sockets;
mod stacks;
mod upgrades;
mod xor;
