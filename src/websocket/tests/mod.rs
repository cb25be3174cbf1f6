//! Tests of the codec and the stage.

mod broadcasts;
mod control;
#[cfg(feature = "deflate")]
mod deflate;
mod differential;
mod frames;
mod handshake;
mod limits;
mod pings;
mod sockets;
mod splits;
mod support;
mod text;

/// The size that docs/performance.md states. An idle connection takes less than 500 bytes together
/// with the slot, the watch and the timer of its channel.
#[test]
#[cfg(target_pointer_width = "64")]
fn the_state_of_a_connection_stays_small() {
    use super::{frame::WebSocketCodec, stage::WebSocketStage};
    let (codec, stage) = (size_of::<WebSocketCodec>(), size_of::<WebSocketStage>());
    assert!(codec <= 40, "WebSocketCodec: {codec} bytes");
    assert!(stage <= 56, "WebSocketStage: {stage} bytes");
}
