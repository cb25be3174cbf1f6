use bytes::Bytes;
use netwheel::{codec::Line, prelude::*};
use std::time::Duration;

struct Echo {
    lines: u64,
}

impl Handler for Echo {
    type Read = Bytes;
    type Write = Bytes;

    fn read(&mut self, ctx: &mut Context<'_, Self>, line: Bytes) -> Result {
        self.lines += 1;
        ctx.write(line)
    }

    fn idle(&mut self, ctx: &mut Context<'_, Self>, _: IdleEvent) -> Result {
        ctx.close_with(format!("bye after {} lines", self.lines).into())
    }
}

fn main() -> Result {
    let group = EventLoopGroup::new()?;
    let server = ServerBootstrap::new(&group)
        .pipeline(|_peer| {
            Pipeline::codec(Line::new().max_len(1024))
                .idle(IdleTimeouts::new().reader(Duration::from_secs(60)))
                .handler(Echo { lines: 0 })
        })
        .bind("127.0.0.1:7000")?;
    server.closed().wait()
}
