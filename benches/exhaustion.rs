//! A minute without descriptors: what does it cost a server, what does it say, and how soon does it serve again?
//!
//! In `benches/`: `cargo bench --bench exhaustion`.
//! The server is a process of its own that may have so many descriptors and no more; many
//! more clients come than it can let in, and stay. Those who were there before go on talking, a few times in a second.
//! What has to hold whatever the time is in `tests/system/accept_exhaustion.rs`; here are the figures. Linux only: it reads `/proc`.

#![forbid(unsafe_code)]
#![allow(missing_docs, reason = "a program, not a library")]

use clap::Parser;
use netwheel::{Resource, codec::RawBytes, prelude::*};
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
    /// How long there are no descriptors.
    #[arg(long, default_value_t = 60)]
    seconds: u64,
    /// Descriptors that the server may have.
    #[arg(long, default_value_t = 256)]
    descriptors: u64,
    /// Clients that come too late.
    #[arg(long, default_value_t = 600)]
    clients: usize,
    /// Is the server.
    #[arg(long, hide = true)]
    serve: bool,
    /// Only sees whether it works, in two seconds.
    #[arg(long)]
    test: bool,
    /// Given by `cargo bench`; means nothing here.
    #[arg(long, hide = true)]
    bench: bool,
}

/// Clients who are there before.
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
    Err(format!("no process can be given {descriptors} descriptors and no more here").into())
}

/// The server, until its input ends.
fn serve(descriptors: u64) -> Result<(), BoxError> {
    env_logger::Builder::new().filter_level(log::LevelFilter::Info).init();
    limit(descriptors)?;
    let group = EventLoopGroup::builder().threads(1).build()?;
    let server = ServerBootstrap::new(&group)
        .backlog(4096)
        .pipeline(|_| Pipeline::codec(RawBytes).handler(Echo))
        .bind("127.0.0.1:0")?;
    println!("{}", server.local_address());
    io::stdin().read_to_end(&mut Vec::new())?;
    let metrics = group.next().metrics();
    println!("{} accepted, {} tries in vain", metrics.accepted, metrics.accept_errors);
    Ok(())
}

/// One byte there and back, and how long it took.
fn ping(peer: &mut TcpStream) -> io::Result<Duration> {
    let begun = Instant::now();
    peer.write_all(b"x")?;
    peer.read_exact(&mut [0])?;
    Ok(begun.elapsed())
}

/// Processor time that a process has used, in hundredths of a second.
fn used(child: &Child) -> Result<u64, BoxError> {
    let stat = fs::read_to_string(format!("/proc/{}/stat", child.id()))?;
    // Behind the name, which is in brackets: the state is the first, user and system time are the 12th and 13th.
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

    // The last one has waited all the time; the others go, and leave theirs.
    let mut last = clients.pop().ok_or("nobody came")?;
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
         others          {slowest:?} at the slowest echo\n\
         recovery        {recovered:?} after descriptors were free\n\
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
