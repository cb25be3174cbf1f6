//! The test of the guide's first chapter.

use netwheel::{codec::Line, prelude::*, testing::EmbeddedChannel};
use std::time::Duration;

#[test]
fn lines_are_echoed_and_idle_channels_closed() -> Result {
    let pipeline = Pipeline::codec(Line::new())
        .idle(IdleTimeouts::new().reader(Duration::from_secs(60)))
        .on_read(|ctx, line| ctx.write(line));
    let mut channel = EmbeddedChannel::new(pipeline);

    channel.write_inbound(b"hello\n")?;
    assert_eq!(channel.read_outbound(), "hello\n");

    channel.advance(Duration::from_secs(61));
    assert!(channel.is_closed());
    Ok(())
}
