//! tokio: one task for each connection, frames with tokio-util's codec; on the current thread, or
//! on several.
//!
//! A server for measurements, not for use: output to a member that does not read is unbounded.

mod options;

use bytes::{Bytes, BytesMut};
use clap::Parser;
use futures_util::{SinkExt, StreamExt};
use options::{Mode, Options};
use std::{
    io,
    pin::pin,
    sync::{Arc, Mutex},
    time::Duration,
};
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::{TcpListener, TcpStream},
    runtime::Builder,
    sync::mpsc::{UnboundedSender, unbounded_channel},
    task::spawn,
    time::{Instant, sleep},
};
use tokio_util::codec::{Framed, LengthDelimitedCodec};

/// Idle time after which a connection is closed (`echo-frames-idle`).
const IDLE: Duration = Duration::from_secs(60);

/// Maximum number of frames between two flushes.
const BATCH: usize = 256;

/// Buffer size of a read in raw mode.
const READ: usize = 16 * 1024;

/// Initial size of each of the two buffers of a codec: the default of tokio-util. The output is
/// flushed when it exceeds this size.
const BUFFER: usize = 8 * 1024;

/// tokio, measured by the load generator.
#[derive(Parser)]
struct TokioOptions {
    #[command(flatten)]
    common: Options,
    /// Initial size of each of the two buffers of the codec, in bytes.
    #[arg(long, default_value_t = BUFFER)]
    buffer: usize,
}

async fn echo_raw(mut stream: TcpStream) -> io::Result<()> {
    let mut buffer = vec![0; READ];
    loop {
        let n = stream.read(&mut buffer).await?;
        if n == 0 {
            return Ok(());
        }
        stream.write_all(&buffer[..n]).await?;
    }
}

async fn answer<S>(sink: &mut S, batch: Vec<io::Result<BytesMut>>) -> io::Result<()>
where
    S: SinkExt<Bytes, Error = io::Error> + Unpin,
{
    for frame in batch {
        sink.feed(frame?.freeze()).await?;
    }
    sink.flush().await
}

fn framed(stream: TcpStream, buffer: usize) -> Framed<TcpStream, LengthDelimitedCodec> {
    let mut framed = Framed::with_capacity(stream, LengthDelimitedCodec::new(), buffer);
    // Not the initial size, so that a burst of frames has one write with each size.
    framed.set_backpressure_boundary(BUFFER);
    framed
}

async fn echo_frames(stream: TcpStream, buffer: usize) -> io::Result<()> {
    let (mut sink, stream) = framed(stream, buffer).split();
    let mut batches = stream.ready_chunks(BATCH);
    while let Some(batch) = batches.next().await {
        answer(&mut sink, batch).await?;
    }
    Ok(())
}

/// Like `echo_frames`, with a timeout that every read postpones.
async fn echo_frames_idle(stream: TcpStream, buffer: usize) -> io::Result<()> {
    let (mut sink, stream) = framed(stream, buffer).split();
    let mut batches = stream.ready_chunks(BATCH);
    let mut idle = pin!(sleep(IDLE));
    loop {
        tokio::select! {
            biased;
            batch = batches.next() => {
                let Some(batch) = batch else { return Ok(()) };
                idle.as_mut().reset(Instant::now() + IDLE);
                answer(&mut sink, batch).await?;
            }
            () = &mut idle => return Err(io::ErrorKind::TimedOut.into()),
        }
    }
}

type Members = Arc<Mutex<Vec<UnboundedSender<Bytes>>>>;

async fn member(stream: TcpStream, members: Members, buffer: usize) -> io::Result<()> {
    let poisoned = |_| io::Error::other("a member has panicked");
    let (mut sink, mut stream) = framed(stream, buffer).split();
    let (sender, mut frames) = unbounded_channel::<Bytes>();
    members.lock().map_err(poisoned)?.push(sender);
    let writer = spawn(async move {
        let mut batch = Vec::with_capacity(BATCH);
        while frames.recv_many(&mut batch, BATCH).await > 0 {
            for frame in batch.drain(..) {
                sink.feed(frame).await?;
            }
            sink.flush().await?;
        }
        io::Result::Ok(())
    });
    while let Some(Ok(frame)) = stream.next().await {
        let frame = frame.freeze();
        members.lock().map_err(poisoned)?.retain(|member| member.send(frame.clone()).is_ok());
    }
    writer.abort();
    Ok(())
}

async fn serve(options: Options, buffer: usize) -> io::Result<()> {
    let listener = TcpListener::from_std(options.listen()?)?;
    let members = Members::default();
    loop {
        let Ok((stream, _)) = listener.accept().await else { continue };
        stream.set_nodelay(true)?;
        drop(match options.mode {
            Mode::EchoRaw => spawn(echo_raw(stream)),
            Mode::EchoFrames => spawn(echo_frames(stream, buffer)),
            Mode::EchoFramesIdle => spawn(echo_frames_idle(stream, buffer)),
            Mode::Broadcast => spawn(member(stream, members.clone(), buffer)),
            // Refused at the start.
            Mode::Http | Mode::Ws | Mode::WsBroadcast => return Err(io::ErrorKind::Unsupported.into()),
        });
    }
}

fn main() -> io::Result<()> {
    let all = [Mode::EchoRaw, Mode::EchoFrames, Mode::EchoFramesIdle, Mode::Broadcast];
    let TokioOptions { common, buffer } = TokioOptions::parse();
    let options = common.checked(64, &all)?;
    let mut builder = match options.threads() {
        1 => Builder::new_current_thread(),
        _ => Builder::new_multi_thread(),
    };
    let runtime = builder.worker_threads(options.threads()).enable_all().build()?;
    runtime.block_on(async {
        if options.threads() == 1 {
            serve(options, buffer).await
        } else {
            spawn(serve(options, buffer)).await?
        }
    })
}
