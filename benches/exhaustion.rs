//! A minute without descriptors: CPU time of the server, log lines, and the time until it serves
//! again.
//!
//! In `benches/`: `cargo bench --bench exhaustion`. The server is a separate process with a limited
//! number of descriptors. Many more clients connect than it can accept, and stay connected. Earlier
//! clients continue to send a few times per second. `tests/system/accept_exhaustion.rs` checks the
//! behaviour that does not depend on time. Linux only, because it reads `/proc`.

#![forbid(unsafe_code)]
#![allow(missing_docs, reason = "a program, not a library")]

use clap::Parser;
use netwheel::{codec::RawBytes, net::ListenerOptions, prelude::*};
use std::{
    fs,
    io::{self, BufRead, BufReader, Read, Write},
    net::{SocketAddr, TcpStream},
    process::{Child, Command, Stdio},
    thread,
    time::{Duration, Instant},
};

type BoxError = Box<dyn std::error::Error + Send + Sync>;

#[derive(Parser)]
#[command(name = "exhaustion")]
struct Settings {
    /// Seconds without descriptors.
    #[arg(long, default_value_t = 60)]
    seconds: u64,
    /// Descriptors that the server may have.
    #[arg(long, default_value_t = 256)]
    descriptors: u64,
    /// Clients that connect after the descriptors are used up.
    #[arg(long, default_value_t = 600)]
    clients: usize,
    /// Runs the server.
    #[arg(long, hide = true)]
    serve: bool,
    /// Checks only that it works, in two seconds.
    #[arg(long)]
    test: bool,
    /// Passed by `cargo bench`; ignored.
    #[arg(long, hide = true)]
    bench: bool,
}

/// Clients that are connected from the start.
const REGULARS: usize = 20;

struct Echo;

impl Handler for Echo {
    type Read = bytes::Bytes;
    type Write = bytes::Bytes;

    fn read(&mut self, ctx: &mut Context<'_, Self>, message: bytes::Bytes) -> Result {
        ctx.write(message)
    }
}

#[cfg(unix)]
fn limit(descriptors: u64) -> Result<(), BoxError> {
    Ok(rlimit::Resource::NOFILE.set(descriptors, rlimit::Resource::NOFILE.get_hard()?)?)
}

#[cfg(not(unix))]
fn limit(descriptors: u64) -> Result<(), BoxError> {
    Err(format!("this system cannot limit a process to {descriptors} descriptors").into())
}

/// Runs the server until its input ends.
fn serve(descriptors: u64) -> Result<(), BoxError> {
    env_logger::Builder::new().filter_level(log::LevelFilter::Info).init();
    limit(descriptors)?;
    let group = EventLoopGroup::builder().threads(1).build()?;
    let server = ServerBootstrap::new(&group)
        .listener_options(ListenerOptions::new().backlog(4096))
        .pipeline(|_| Pipeline::codec(RawBytes).handler(Echo))
        .bind("127.0.0.1:0")?;
    println!("{}", server.local_address());
    io::stdin().read_to_end(&mut Vec::new())?;
    let metrics = group.next().metrics();
    println!("{} accepted, {} failed attempts", metrics.accepted, metrics.accept_errors);
    Ok(())
}

/// Does a round trip of one byte, and returns its duration.
fn ping(peer: &mut TcpStream) -> io::Result<Duration> {
    let begun = Instant::now();
    peer.write_all(b"x")?;
    peer.read_exact(&mut [0])?;
    Ok(begun.elapsed())
}

/// Returns the processor time that a process has used, in hundredths of a second.
fn used(child: &Child) -> Result<u64, BoxError> {
    let stat = fs::read_to_string(format!("/proc/{}/stat", child.id()))?;
    // After the name, which is in parentheses, the state is field 1, and user and system time are
    // fields 12 and 13.
    let behind = stat.rsplit_once(')').ok_or("no name")?.1;
    let fields: Vec<&str> = behind.split_whitespace().collect();
    Ok(fields[11].parse::<u64>()? + fields[12].parse::<u64>()?)
}

fn main() -> Result<(), BoxError> {
    let settings = Settings::parse();
    if settings.serve {
        return serve(settings.descriptors);
    }
    let time = Duration::from_secs(if settings.test { 2 } else { settings.seconds });
    rlimit::increase_nofile_limit(settings.clients as u64 + 100)?;
    let mut server = Command::new(std::env::current_exe()?)
        .args(["--serve", "--descriptors", &settings.descriptors.to_string()])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()?;
    let mut said = BufReader::new(server.stdout.take().ok_or("no output")?);
    let mut log = server.stderr.take().ok_or("no log")?;
    let log = thread::spawn(move || {
        let mut text = String::new();
        log.read_to_string(&mut text).map(|_| text)
    });
    let mut line = String::new();
    said.read_line(&mut line)?;
    let address: SocketAddr = line.trim().parse()?;

    let mut regulars = (0..REGULARS).map(|_| TcpStream::connect(address)).collect::<io::Result<Vec<_>>>()?;
    for regular in &mut regulars {
        regular.set_nodelay(true)?;
        ping(regular)?;
    }
    let mut clients =
        (0..settings.clients).map(|_| TcpStream::connect(address)).collect::<io::Result<Vec<_>>>()?;
    let (begun, before) = (Instant::now(), used(&server)?);
    let mut slowest = Duration::ZERO;
    while begun.elapsed() < time {
        for regular in &mut regulars {
            slowest = slowest.max(ping(regular)?);
        }
        thread::sleep(Duration::from_millis(250));
    }
    let (took, ticks) = (begun.elapsed(), used(&server)? - before);

    // The last client has waited all the time. The others close, and release their descriptors.
    let mut last = clients.pop().ok_or("no client has connected")?;
    let freed = Instant::now();
    clients.clear();
    ping(&mut last)?;
    let recovered = freed.elapsed();

    drop(server.stdin.take());
    let mut counted = String::new();
    said.read_to_string(&mut counted)?;
    server.wait()?;
    let log = log.join().map_err(|_| "the log")??;
    println!(
        "{:.0} s without descriptors, {} clients waiting:\n\
         processor time  {:.2} % of one core\n\
         log             {} lines\n\
         others          {slowest:?} for the slowest echo\n\
         recovery        {recovered:?} after descriptors became available\n\
         {}",
        took.as_secs_f64(),
        settings.clients,
        ticks as f64 / took.as_secs_f64(),
        log.lines().count(),
        counted.trim()
    );
    print!("{log}");
    Ok(())
}
