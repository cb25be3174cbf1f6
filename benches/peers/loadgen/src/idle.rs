//! Many connections that echo once and then stay idle, to measure the server's memory and CPU time
//! for them.

use crate::{
    Options,
    message::Message,
    report::Report,
    sys::{PER_SOURCE, connect, source, usage},
    tls::Tls,
    web::Web,
    wire::Wire,
};
use std::{
    io::{self, ErrorKind, Read, Write},
    thread::sleep,
    time::{Duration, Instant},
};

/// Maximum time for a reply.
const PATIENCE: Duration = Duration::from_secs(30);

/// Connections that stay idle.
pub(crate) struct Idle {
    wires: Vec<Wire>,
    /// Wrong replies.
    pub(crate) errors: u64,
}

impl Idle {
    /// Opens `count` connections, each of which echoes one message.
    pub(crate) fn open(options: &Options, count: usize) -> io::Result<Self> {
        let message = Message::new(options.size, options.frames)?;
        let (mut bytes, mut back) = (Vec::new(), vec![0; message.len()]);
        let (tls, mut web) = (options.client()?, options.web());
        let mut idle = Idle { wires: Vec::with_capacity(count), errors: 0 };
        for n in 0..count {
            let mut stream = connect(options.addr, source(n / PER_SOURCE))?;
            stream.set_read_timeout(Some(PATIENCE))?;
            if let Some(web) = &mut web {
                web.open(&mut stream)?;
            }
            let mut wire = Wire::new(stream, tls.as_ref().map(Tls::connection).transpose()?);
            bytes.clear();
            message.append(&mut bytes, n as u32, 0);
            let right = match &mut web {
                Some(web) => echo(&mut wire, web, &bytes)?,
                None => {
                    wire.write_all(&bytes)?;
                    wire.read_exact(&mut back)?;
                    back == bytes
                }
            };
            idle.errors += u64::from(!right);
            idle.wires.push(wire);
        }
        Ok(idle)
    }

    /// Returns the number of connections that are closed or have received unexpected bytes.
    pub(crate) fn disturbed(&self) -> io::Result<u64> {
        let mut disturbed = 0;
        for Wire { stream, .. } in &self.wires {
            stream.set_nonblocking(true)?;
            let quiet = matches!(stream.peek(&mut [0]), Err(e) if e.kind() == ErrorKind::WouldBlock);
            disturbed += u64::from(!quiet);
        }
        Ok(disturbed)
    }
}

/// Sends a message and waits for the reply. Returns whether it is right.
fn echo(wire: &mut Wire, web: &mut Web, payload: &[u8]) -> io::Result<bool> {
    let (mut message, mut reply, mut buffer) = (Vec::new(), Vec::new(), [0; 4096]);
    web.append(&mut message, payload)?;
    wire.write_all(&message)?;
    let is_http = web.is_http();
    loop {
        match wire.read(&mut buffer)? {
            0 => return Err(ErrorKind::UnexpectedEof.into()),
            n => reply.extend_from_slice(&buffer[..n]),
        }
        if let Some((length, back)) = web.split(&reply)? {
            return Ok(length == reply.len() && (is_http || back == payload));
        }
    }
}

pub(crate) fn run(options: &Options) -> io::Result<Report> {
    let before = usage(options.pid);
    let began = Instant::now();
    let idle = Idle::open(options, options.connections)?;
    let opening = began.elapsed().as_secs_f64();
    sleep(Duration::from_secs_f64(options.warmup));
    let held = Instant::now();
    let from = usage(options.pid);
    sleep(Duration::from_secs_f64(options.seconds));
    let to = usage(options.pid);
    let held = held.elapsed().as_secs_f64();
    let cpu = to.cpu_s - from.cpu_s;
    let connections = options.connections as f64;
    let mut report = Report::default();
    report.put("opened_per_s", connections / opening);
    report.put("rss_bytes_per_conn", (to.rss_kib - before.rss_kib) * 1024.0 / connections.max(1.0));
    report.put("server_rss_kib", to.rss_kib);
    report.put("server_base_rss_kib", before.rss_kib);
    report.put("idle_cpu_pct", cpu / held * 100.0);
    report.put("errors", (idle.errors + idle.disturbed()?) as f64);
    Ok(report)
}
