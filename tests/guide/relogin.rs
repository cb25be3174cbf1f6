//! A client that reconnects, on a manually driven loop, from the guide's chapters about timers and
//! about testing.

use netwheel::{codec::Line, prelude::*, reconnect::Backoff, testing::ManualClock};
use std::time::Duration;

#[test]
fn a_client_reconnects_after_its_delay() -> Result {
    let clock = ManualClock::new();
    let mut by_hand = EventLoopGroup::builder().clock(clock.clone()).build_manual()?;
    let group = by_hand.group().clone();
    let server = ServerBootstrap::new(&group)
        .pipeline(|_peer| Pipeline::codec(Line::new()).on_read(|ctx, line| ctx.write(line)))
        .bind("127.0.0.1:0")?;
    let delay = Duration::from_secs(10);
    let client = ClientBootstrap::new(&group)
        .pipeline(|_peer| Pipeline::codec(Line::new()).on_read(|ctx, line| ctx.write(line)))
        .reconnect(Backoff::new().initial(delay).jitter(false))
        .connect(server.local_address())?;

    let first = by_hand.run_until(client.connected())?;
    first.close();
    by_hand.run_until(first.closed())?;

    let again = client.connected();
    clock.advance(delay - Duration::from_millis(1));
    while by_hand.run_once(Duration::ZERO) > 0 {}
    assert!(!again.is_done(), "ten seconds have not passed");

    clock.advance(Duration::from_millis(1));
    let second = by_hand.run_until(again)?;
    assert_ne!(first.id(), second.id());
    client.close();
    Ok(())
}
