//! rs-netty: one task for each connection, with a typed pipeline; on the current thread, or on
//! several.

mod options;

use bytes::{Bytes, BytesMut};
use options::{Mode, Options};
use rs_netty::{
    Context, Handler, TcpServer,
    codec::{ByteArrayDecoder, Decoder, Encoder, LengthFieldBasedFrameDecoder, LengthFieldPrepender},
    pipeline,
};
use std::{io, time::Duration};
use tokio::runtime::Builder;

/// Idle time after which a connection is closed (`echo-frames-idle`).
const IDLE: Duration = Duration::from_secs(60);

/// Maximum length of a frame with its header.
const MAX_FRAME: usize = (1 << 20) + 4;

/// Writes each message back. Each reply needs a flush, because rs-netty has no event for the end of
/// a read.
struct Echo;

impl Handler<Bytes> for Echo {
    type Write = Bytes;

    async fn read(&mut self, ctx: &mut Context<Bytes>, message: Bytes) -> rs_netty::Result<()> {
        // Without `await`: the connection flushes after the handler, and the handler has finished.
        let _flushed = ctx.write_and_flush(message);
        Ok(())
    }
}

/// The crate's decoder and encoder for frames, which are separate types, as one codec.
struct Frames {
    decoder: LengthFieldBasedFrameDecoder,
    encoder: LengthFieldPrepender,
}

impl Frames {
    fn new() -> Self {
        Frames {
            decoder: LengthFieldBasedFrameDecoder::new(MAX_FRAME, 0, 4),
            encoder: LengthFieldPrepender::new(4),
        }
    }
}

impl Decoder for Frames {
    type Item = Bytes;

    fn decode(&mut self, input: &mut BytesMut) -> rs_netty::Result<Option<Bytes>> {
        self.decoder.decode(input)
    }
}

impl Encoder<Bytes> for Frames {
    fn encode(&mut self, frame: Bytes, output: &mut BytesMut) -> rs_netty::Result<()> {
        self.encoder.encode(frame, output)
    }
}

async fn serve(options: Options) -> rs_netty::Result<()> {
    // rs-netty binds by itself, with tokio's backlog; `TCP_NODELAY` is set by default.
    let server = TcpServer::bind(options.address().to_string()).max_frame_size(MAX_FRAME);
    let frames = || pipeline().codec(Frames::new()).handler(Echo);
    match options.mode {
        Mode::EchoFrames => server.pipeline(frames).run().await,
        Mode::EchoFramesIdle => server.idle_timeout(IDLE).pipeline(frames).run().await,
        _ => server.pipeline(|| pipeline().codec(ByteArrayDecoder).handler(Echo)).run().await,
    }
}

fn main() -> io::Result<()> {
    let options = Options::of(64, &[Mode::EchoRaw, Mode::EchoFrames, Mode::EchoFramesIdle])?;
    let mut builder = match options.threads() {
        1 => Builder::new_current_thread(),
        _ => Builder::new_multi_thread(),
    };
    let runtime = builder.worker_threads(options.threads()).enable_all().build()?;
    let served = runtime.block_on(async {
        if options.threads() == 1 { serve(options).await } else { tokio::spawn(serve(options)).await? }
    });
    served.map_err(io::Error::other)
}
