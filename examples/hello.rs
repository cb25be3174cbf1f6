//! The smallest server: sends each line back.
//!
//! ```text
//! cargo run --release --example hello
//! nc 127.0.0.1 7000        # type a line; Ctrl-C ends either side
//! ```
//!
//! Try `ctx.write(line.to_ascii_uppercase().into())` in the closure, or add
//! `.idle(IdleTimeouts::new().reader(std::time::Duration::from_secs(10)))` before `.on_read` to
//! close quiet connections. `echo_server.rs` has a handler, which most programs need.

use netwheel::{codec::Line, prelude::*};

fn main() -> Result {
    let group = EventLoopGroup::new()?;
    let server = ServerBootstrap::new(&group)
        .pipeline(|_| Pipeline::codec(Line::new()).on_read(|ctx, line| ctx.write(line)))
        .bind("127.0.0.1:7000")?;
    server.closed().wait()
}
