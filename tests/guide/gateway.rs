//! Two channels on one loop without sockets, from the guide's chapter about testing.

use bytes::Bytes;
use netwheel::{ChannelGroup, Pipeline, Result, codec::Line, testing::EmbeddedLoop};

#[test]
fn a_message_reaches_the_other_members() -> Result {
    let room = ChannelGroup::<Bytes>::new();
    let mut event_loop = EmbeddedLoop::new();
    let mut open = || {
        let room = room.clone();
        event_loop.open(Pipeline::codec(Line::new()).on_read(move |ctx, line| {
            room.join(ctx.channel());
            room.broadcast_except(ctx.id(), line)?;
            Ok(())
        }))
    };
    let (ann, bob) = (open(), open());

    event_loop.write_inbound(ann, b"hi\n")?;
    event_loop.write_inbound(bob, b"hi\n")?;
    event_loop.run_pending();
    assert_eq!(event_loop.read_outbound(ann), "hi\n", "bob's greeting");
    assert_eq!(event_loop.read_outbound(bob), "", "bob was not a member when ann said hi");

    event_loop.remove(bob);
    assert_eq!(room.len(), 1, "a channel leaves its groups when it closes");
    Ok(())
}
