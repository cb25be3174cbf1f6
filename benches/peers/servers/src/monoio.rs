//! monoio on io_uring: one thread, one task for each connection. It supports neither broadcast nor
//! idle timeouts.
//!
//! A server for measurements, not for use: it is unbounded.

mod frames;
mod options;

use frames::Partial;
use monoio::{
    IoUringDriver, RuntimeBuilder,
    io::{AsyncReadRent, AsyncWriteRentExt},
    net::{TcpListener, TcpStream},
};
use options::{Mode, Options};
use std::io;

/// Buffer size of a read.
const READ: usize = 16 * 1024;

/// Entries of the ring.
const ENTRIES: u32 = 4096;

async fn echo_raw(mut stream: TcpStream) -> io::Result<()> {
    let mut buffer = Vec::with_capacity(READ);
    loop {
        let (n, read) = stream.read(buffer).await;
        if n? == 0 {
            return Ok(());
        }
        let (done, written) = stream.write_all(read).await;
        done?;
        buffer = written;
        buffer.clear();
    }
}

async fn echo_frames(mut stream: TcpStream) -> io::Result<()> {
    let mut buffer = Vec::with_capacity(READ);
    let (mut partial, mut out) = (Partial::default(), Vec::new());
    loop {
        let (n, read) = stream.read(buffer).await;
        if n? == 0 {
            return Ok(());
        }
        partial.take(&read, &mut out)?;
        buffer = read;
        buffer.clear();
        if !out.is_empty() {
            let (done, written) = stream.write_all(out).await;
            done?;
            out = written;
            out.clear();
        }
    }
}

fn main() -> io::Result<()> {
    let options = Options::of(1, &[Mode::EchoRaw, Mode::EchoFrames])?;
    let mut runtime = RuntimeBuilder::<IoUringDriver>::new().with_entries(ENTRIES).build()?;
    runtime.block_on(async move {
        let listener = TcpListener::from_std(options.listen()?)?;
        loop {
            let Ok((stream, _)) = listener.accept().await else { continue };
            stream.set_nodelay(true)?;
            if options.mode == Mode::EchoRaw {
                drop(monoio::spawn(echo_raw(stream)));
            } else {
                drop(monoio::spawn(echo_frames(stream)));
            }
        }
    })
}
