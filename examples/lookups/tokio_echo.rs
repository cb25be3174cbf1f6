//! An echo server on tokio alone, to compare with `examples/guide_echo.rs`: the guide's chapter
//! "Coming from tokio" has both.
//!
//! ```text
//! cargo run --release --manifest-path examples/lookups/Cargo.toml --bin tokio_echo
//! nc 127.0.0.1 7012
//! ```

use futures_util::{SinkExt, StreamExt};
use std::time::Duration;
use tokio::{
    net::{TcpListener, TcpStream},
    time::timeout,
};
use tokio_util::codec::{Framed, LinesCodec};

/// The longest line that is accepted, in bytes.
const MAX_LINE: usize = 1024;

async fn echo(stream: TcpStream, idle: Duration) -> Result<(), Box<dyn std::error::Error + Send + Sync>> {
    let mut lines = Framed::new(stream, LinesCodec::new_with_max_length(MAX_LINE));
    // An error of the timeout is the idle event: the connection ends.
    while let Ok(Some(line)) = timeout(idle, lines.next()).await {
        lines.send(line?).await?;
    }
    Ok(())
}

#[tokio::main(flavor = "multi_thread")]
async fn main() -> std::io::Result<()> {
    let listener = TcpListener::bind("127.0.0.1:7012").await?;
    println!("listening on {}", listener.local_addr()?);
    loop {
        let (stream, _peer) = listener.accept().await?;
        tokio::spawn(echo(stream, Duration::from_secs(60)));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tokio::io::{AsyncReadExt, AsyncWriteExt};

    /// Connects a client, and returns its input until the server ends the connection.
    async fn answer(idle: Duration, lines: &[u8], ends: bool) -> String {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let mut client = TcpStream::connect(listener.local_addr().unwrap()).await.unwrap();
        client.write_all(lines).await.unwrap();
        if ends {
            client.shutdown().await.unwrap();
        }
        let server = tokio::spawn(echo(listener.accept().await.unwrap().0, idle));
        let mut answer = String::new();
        client.read_to_string(&mut answer).await.unwrap();
        server.await.unwrap().unwrap();
        answer
    }

    #[tokio::test]
    async fn lines_come_back_until_the_stream_ends() {
        assert_eq!(answer(Duration::from_secs(60), b"one\ntwo\n", true).await, "one\ntwo\n");
    }

    #[tokio::test]
    async fn an_idle_connection_is_closed() {
        assert_eq!(answer(Duration::from_millis(10), b"", false).await, "");
    }
}
