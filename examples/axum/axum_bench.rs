//! The processor time of the application under netwheel, and under `axum::serve` on hyper.
//!
//! ```text
//! cargo run --release --manifest-path examples/axum/Cargo.toml --bin axum_bench
//! ```
//!
//! Each server runs in a process of its own, with one thread for connections. wrk asks both in
//! turn, in several rounds, so that other load of the machine meets both. The result is the
//! processor time of a server's process per request. With `--test`, the rounds are short.

use clap::{Parser, ValueEnum};
use netwheel::{EventLoopGroup, error::BoxError, shutdown::ShutdownOptions};
use netwheel_axum::{app, site};
use rustix::time::{ClockId, clock_gettime};
use std::{
    env,
    io::{self, BufRead, BufReader, Read, Write},
    net::SocketAddr,
    process::{Child, Command, Stdio},
    time::Duration,
};

/// Measures the application under both servers.
#[derive(Parser)]
struct Options {
    /// Runs one server until its input ends, then prints its processor time.
    #[arg(long, hide = true)]
    serve: Option<ServerKind>,
    /// Number of rounds.
    #[arg(long, default_value_t = 9)]
    rounds: usize,
    /// Seconds of each measurement.
    #[arg(long, default_value_t = 3)]
    seconds: u32,
    /// Connections of wrk.
    #[arg(long, default_value_t = 64)]
    connections: u32,
    /// Two rounds of a second: checks that everything runs.
    #[arg(long)]
    test: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum ServerKind {
    Netwheel,
    Hyper,
}

/// A kind of request.
struct Scenario {
    name: &'static str,
    path: &'static str,
    /// A script of wrk.
    script: &'static str,
}

const JSON: &str = r#"wrk.method = "POST"
wrk.body = "[1, 2, 3, 4, 5, 6, 7, 8]"
wrk.headers["Content-Type"] = "application/json""#;

const SCENARIOS: [Scenario; 4] = [
    Scenario { name: "text", path: "/", script: "" },
    Scenario { name: "path parameter", path: "/hello/Ada", script: "" },
    Scenario { name: "JSON in and out", path: "/sum", script: JSON },
    Scenario { name: "waits for another task", path: "/handoff", script: "" },
];

fn main() -> Result<(), BoxError> {
    let mut options = Options::parse();
    if let Some(kind) = options.serve {
        return serve(kind);
    }
    if options.test {
        (options.rounds, options.seconds) = (2, 1);
    }
    println!(
        "CPU microseconds of the server per request: medians of {} rounds, and the ratio with its range",
        options.rounds
    );
    println!("{:24} {:>9} {:>9} {:>7}  range", "scenario", "netwheel", "hyper", "ratio");
    for scenario in &SCENARIOS {
        let mut rounds = Vec::new();
        for round in 0..options.rounds {
            let mut order = [ServerKind::Netwheel, ServerKind::Hyper];
            if round % 2 == 1 {
                order.reverse();
            }
            let [first, second] = order.map(|kind| measure(kind, scenario, &options));
            let (first, second) = (first?, second?);
            rounds.push(if order[0] == ServerKind::Netwheel { (first, second) } else { (second, first) });
        }
        let ours = median(rounds.iter().map(|round| round.0));
        let theirs = median(rounds.iter().map(|round| round.1));
        let ratios: Vec<f64> = rounds.iter().map(|round| round.0 / round.1).collect();
        let least = ratios.iter().copied().fold(f64::INFINITY, f64::min);
        let most = ratios.iter().copied().fold(0.0, f64::max);
        println!(
            "{:24} {ours:9.2} {theirs:9.2} {:7.3}  {least:.3} to {most:.3}",
            scenario.name,
            median(ratios.iter().copied())
        );
    }
    Ok(())
}

fn median(values: impl Iterator<Item = f64>) -> f64 {
    let mut values: Vec<f64> = values.collect();
    values.sort_by(f64::total_cmp);
    values.get(values.len() / 2).copied().unwrap_or(f64::NAN)
}

// ---- the measuring process ----

/// Returns the processor time of a server per request, in microseconds.
fn measure(kind: ServerKind, scenario: &Scenario, options: &Options) -> Result<f64, BoxError> {
    let mut server = Running::start(kind)?;
    let before = server.cpu()?;
    let requests = wrk(server.address, scenario, options)?;
    let used = server.cpu()? - before;
    Ok(used * 1e6 / requests)
}

/// A server in a process of its own.
struct Running {
    child: Child,
    output: BufReader<std::process::ChildStdout>,
    address: SocketAddr,
}

impl Running {
    fn start(kind: ServerKind) -> Result<Self, BoxError> {
        let mut child = Command::new(env::current_exe()?)
            .args(["--serve", if kind == ServerKind::Netwheel { "netwheel" } else { "hyper" }])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()?;
        let mut output = BufReader::new(child.stdout.take().ok_or("no output")?);
        let mut line = String::new();
        output.read_line(&mut line)?;
        let address = line.trim().parse()?;
        Ok(Running { child, output, address })
    }

    /// Returns the processor seconds that the server has used.
    fn cpu(&mut self) -> Result<f64, BoxError> {
        self.child.stdin.as_mut().ok_or("no input")?.write_all(b"\n")?;
        let mut line = String::new();
        self.output.read_line(&mut line)?;
        Ok(line.trim().parse()?)
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        drop(self.child.stdin.take());
        // It ends by itself when its input ends.
        let _ = self.child.wait();
    }
}

/// Returns the number of requests that wrk has made.
fn wrk(address: SocketAddr, scenario: &Scenario, options: &Options) -> Result<f64, BoxError> {
    let script = env::temp_dir().join(format!("axum_bench-{}.lua", std::process::id()));
    std::fs::write(&script, scenario.script)?;
    let output = Command::new("wrk")
        .args(["-t1", "-c", &options.connections.to_string(), "-d", &format!("{}s", options.seconds), "-s"])
        .arg(&script)
        .arg(format!("http://{address}{}", scenario.path))
        .output()?;
    std::fs::remove_file(&script)?;
    let text = String::from_utf8_lossy(&output.stdout);
    if !output.status.success() || text.contains("Non-2xx") {
        return Err(format!("wrk: {text}{}", String::from_utf8_lossy(&output.stderr)).into());
    }
    // "  123456 requests in 3.00s, 15.06MB read"
    let count = text.lines().find_map(|line| line.trim().split_once(" requests in ")).ok_or("no count")?;
    Ok(count.0.parse()?)
}

// ---- the process of a server ----

fn serve(kind: ServerKind) -> Result<(), BoxError> {
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build()?;
    let local = SocketAddr::from(([127, 0, 0, 1], 0));
    match kind {
        ServerKind::Netwheel => {
            let group = EventLoopGroup::builder().threads(1).executor(runtime.handle().clone()).build()?;
            let server = site::serve(&group, app::router(), local)?;
            let reported = report(&server.local_address().to_string());
            // The loops enter the context of the runtime, so they end before it does.
            let options = ShutdownOptions::new().quiet_period(Duration::ZERO).timeout(Duration::from_secs(1));
            group.shutdown(options).wait()?;
            reported
        }
        ServerKind::Hyper => {
            let listener = runtime.block_on(tokio::net::TcpListener::bind(local))?;
            let address = listener.local_addr()?;
            let app = app::router().into_make_service_with_connect_info::<SocketAddr>();
            runtime.spawn(async move { axum::serve(listener, app).await });
            report(&address.to_string())
        }
    }
}

/// Prints the address, and then the processor time for each byte of input.
fn report(address: &str) -> Result<(), BoxError> {
    println!("{address}");
    let mut byte = [0];
    while io::stdin().read(&mut byte)? == 1 {
        println!("{}", process_time());
    }
    Ok(())
}

/// Returns the processor seconds that this process has used.
fn process_time() -> f64 {
    let used = clock_gettime(ClockId::ProcessCPUTime);
    used.tv_sec as f64 + used.tv_nsec as f64 / 1e9
}
