//! What the handshake has decided for a connection.

use super::{
    compression::Compression, frame::WebSocketCodec, role::Role, settings::WebSocketSettings,
    stage::WebSocketStage,
};
use crate::{
    channel::Pipeline,
    pipeline::{Framed, PipelineBuilder, Staged},
};
use std::sync::Arc;

/// The codec and the stage of a WebSocket connection. Stages of the program and its handler
/// complete the pipeline.
pub type WebSocketPipeline = PipelineBuilder<Staged<Framed<WebSocketCodec>, WebSocketStage>>;

/// Starts the pipeline of a connection after its handshake.
pub(super) fn pipeline(
    settings: &Arc<WebSocketSettings>,
    role: Role,
    compression: Compression,
) -> WebSocketPipeline {
    let codec = WebSocketCodec::new(settings.clone(), role, compression);
    Pipeline::codec(codec).stage(WebSocketStage::new(settings.clone(), role))
}
