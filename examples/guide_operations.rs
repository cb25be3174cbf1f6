//! A server with metrics, a watchdog and a graceful shutdown: the program of the guide's chapter on
//! operations.
//!
//! ```text
//! cargo run --features prometheus --example guide_operations
//! nc 127.0.0.1 7000                      # an echo of lines
//! curl http://127.0.0.1:9100/metrics
//! ```

use bytes::Bytes;
use netwheel::{
    buffer::OutboundBuffer, codec::Line, diagnostics::Watchdog, prelude::*, prometheus,
    shutdown::ShutdownOptions,
};
use std::{sync::mpsc, time::Duration};

/// The head of each answer.
const HEAD: &str = "HTTP/1.1 200 OK\r\n\
    content-type: application/openmetrics-text; version=1.0.0; charset=utf-8\r\n\
    connection: close\r\n\
    \r\n";

/// Reads a request as lines, and writes bytes unchanged.
struct Http(Line);

impl Codec for Http {
    type Read = Bytes;
    type Write = Bytes;

    fn decode(&mut self, input: &mut Bytes) -> Result<Option<Bytes>> {
        self.0.decode(input)
    }

    fn encode(&mut self, message: Bytes, output: &mut OutboundBuffer) -> Result {
        output.put(message);
        Ok(())
    }
}

/// Answers each HTTP request with the metrics, for every path, and closes the connection.
struct Metrics {
    group: EventLoopGroup,
}

impl Handler for Metrics {
    type Read = Bytes;
    type Write = Bytes;

    fn read(&mut self, ctx: &mut Context<'_, Self>, line: Bytes) -> Result {
        if !line.is_empty() {
            return Ok(()); // the request line, or a header
        }
        ctx.write(HEAD.into())?;
        ctx.close_with(prometheus::encode(&self.group)?.into())
    }
}

fn main() -> Result {
    let mut addresses = std::env::args().skip(1);
    let address = addresses.next().unwrap_or("127.0.0.1:7000".to_owned());
    let metrics_address = addresses.next().unwrap_or("127.0.0.1:9100".to_owned());
    let (stop, stopped) = mpsc::channel();
    ctrlc::set_handler(move || stop.send(()).unwrap_or_default()).map_err(Error::other)?;

    let group = EventLoopGroup::builder()
        .threads(2)
        .name("echo")
        .watchdog(Watchdog::new(Duration::from_secs(1)))
        .build()?;
    // A loop of its own, which answers even if the loops of the service are stuck.
    let admin = EventLoopGroup::builder().threads(1).name("admin").build()?;
    let observed = group.clone();
    let metrics = ServerBootstrap::new(&admin)
        .pipeline(move |_peer| {
            Pipeline::codec(Http(Line::new().crlf().max_len(8192)))
                .idle(IdleTimeouts::new().all(Duration::from_secs(10)))
                .handler(Metrics { group: observed.clone() })
        })
        .bind(&*metrics_address)?;
    let server = ServerBootstrap::new(&group)
        .pipeline(|_peer| Pipeline::codec(Line::new()).on_read(|ctx, line| ctx.write(line)))
        .bind(&*address)?;
    println!("listening on {}", server.local_address());
    println!("metrics on {}", metrics.local_address());

    stopped.recv().map_err(Error::other)?;
    // No new connections. Those that wait in the backlog are reset.
    server.close().wait()?;
    let options = ShutdownOptions::new()
        .quiet_period(Duration::ZERO)
        .drain_window(Duration::from_millis(500))
        .timeout(Duration::from_secs(10));
    let report = group.shutdown(options).wait()?;
    println!("{report}");
    if report.forced + report.incomplete > 0 {
        println!("{} channels lost their last bytes", report.forced + report.incomplete);
    }
    admin.shutdown(ShutdownOptions::new().quiet_period(Duration::ZERO)).wait()?;
    Ok(())
}
