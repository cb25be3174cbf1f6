//! An echo server with an idle timeout: the program of the guide's first chapter.
//!
//! ```text
//! cargo run --example guide_echo
//! nc 127.0.0.1 7000
//! ```

use bytes::Bytes;
use netwheel::{codec::Line, prelude::*};
use std::time::Duration;

struct Echo {
    lines: u64,
}

impl Handler for Echo {
    type Read = Bytes;
    type Write = Bytes;

    fn active(&mut self, ctx: &mut Context<'_, Self>) -> Result {
        ctx.write("hello; what you type comes back".into())
    }

    fn read(&mut self, ctx: &mut Context<'_, Self>, line: Bytes) -> Result {
        self.lines += 1;
        if line == "quit" {
            return ctx.close_with("bye".into());
        }
        ctx.write(line)
    }

    fn idle(&mut self, ctx: &mut Context<'_, Self>, _: IdleEvent) -> Result {
        ctx.close_with(format!("closing: nothing received for a minute, {} lines before", self.lines).into())
    }
}

fn main() -> Result {
    let address = std::env::args().nth(1).unwrap_or("127.0.0.1:7000".to_owned());
    let group = EventLoopGroup::new()?;
    let server = ServerBootstrap::new(&group)
        .pipeline(|_peer| {
            Pipeline::codec(Line::new().max_len(1024))
                .idle(IdleTimeouts::new().reader(Duration::from_secs(60)))
                .handler(Echo { lines: 0 })
        })
        .bind(&*address)?;
    println!("listening on {}", server.local_address());
    server.closed().wait()
}
