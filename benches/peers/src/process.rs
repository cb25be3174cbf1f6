//! Servers and load generator as processes, each on its own CPU.
//!
//! A process inherits the CPUs of the thread that starts it, so it is pinned before its first
//! instruction, and no other program is needed.

use crate::{Pace, scenario::Scenario, workshop::Server};
use rustix::{
    process::{Pid, Resource, Rlimit, Signal, getrlimit, kill_process, setrlimit},
    thread::{CpuSet, sched_getaffinity, sched_setaffinity},
};
use std::{
    collections::BTreeMap,
    fs, io,
    net::{Ipv4Addr, SocketAddr, SocketAddrV4, TcpListener, TcpStream},
    path::Path,
    process::{Child, Command, ExitStatus, Stdio},
    thread,
    time::{Duration, Instant},
};

/// Maximum time for a server to accept connections, or to end.
const PATIENCE: Duration = Duration::from_secs(60);

/// Number of ports to try, because a port that was free before may be in use when the server
/// starts.
const PORTS: usize = 3;

/// Assignment of CPUs.
pub(crate) struct Cpus {
    /// One for each loop.
    pub(crate) server: [usize; 2],
    pub(crate) load: usize,
    /// CPU of the load when the server has two loops.
    load_beside_two: usize,
}

impl Cpus {
    /// Chooses from the CPUs that this process may use: the first for the server (the first two, if
    /// it has two loops), and the second for the load. Beside two loops the load has the third. On
    /// a machine with two CPUs it shares that of the second loop.
    pub(crate) fn choose() -> io::Result<Self> {
        let allowed = sched_getaffinity(None)?;
        let mut cpus = (0..CpuSet::MAX_CPU).filter(|cpu| allowed.is_set(*cpu));
        let first = cpus.next().unwrap_or(0);
        let second = cpus.next().unwrap_or_else(|| {
            eprintln!(
                "peers: there is only one cpu: the load takes the server's time, and the results mean little"
            );
            first
        });
        Ok(Cpus { server: [first, second], load: second, load_beside_two: cpus.next().unwrap_or(second) })
    }

    fn of_load(&self, threads: u16) -> usize {
        if threads > 1 { self.load_beside_two } else { self.load }
    }

    fn of_server(&self, threads: u16) -> &[usize] {
        &self.server[..self.server.len().min(threads.into())]
    }
}

/// Raises the soft limit of descriptors as far as possible, for this process and its children.
/// Returns the limit.
pub(crate) fn descriptor_limit() -> u64 {
    let limit = getrlimit(Resource::Nofile);
    let _ = setrlimit(Resource::Nofile, Rlimit { current: limit.maximum, maximum: limit.maximum });
    getrlimit(Resource::Nofile).current.unwrap_or(u64::MAX)
}

fn spawn_on(cpus: &[usize], command: &mut Command) -> io::Result<Child> {
    let mut set = CpuSet::new();
    cpus.iter().for_each(|cpu| set.set(*cpu));
    let start = || {
        sched_setaffinity(None, &set)?;
        command.spawn()
    };
    thread::scope(|scope| scope.spawn(start).join())
        .map_err(|_| io::Error::other("the starting thread has panicked"))?
}

/// A server that accepts connections. Killed when it is dropped.
pub(crate) struct Running {
    child: Child,
    address: SocketAddrV4,
}

impl Running {
    /// Starts a server.
    ///
    /// # Errors
    /// If it ends, or does not accept connections in time.
    pub(crate) fn start(server: &Server, scenario: &Scenario, cpus: &Cpus) -> io::Result<Self> {
        Self::start_under(&[], server, scenario, cpus)
    }

    /// Starts a server under a tool, whose program and arguments precede those of the server.
    ///
    /// # Errors
    /// See `start`.
    pub(crate) fn start_under(
        tool: &[String],
        server: &Server,
        scenario: &Scenario,
        cpus: &Cpus,
    ) -> io::Result<Self> {
        let mut why = String::new();
        for _ in 0..PORTS {
            match Self::start_on(free_address()?, tool, server, scenario, cpus)? {
                Ok(running) => return Ok(running),
                Err(status) => why = format!("it ended at once: {status}"),
            }
        }
        Err(io::Error::other(why))
    }

    /// Starts the server at that address. Returns its exit status if it ends at once.
    fn start_on(
        address: SocketAddrV4,
        tool: &[String],
        server: &Server,
        scenario: &Scenario,
        cpus: &Cpus,
    ) -> io::Result<Result<Self, ExitStatus>> {
        let mut words = tool.iter().chain(&server.command);
        let mut command = Command::new(words.next().ok_or_else(|| io::Error::other("no command"))?);
        command.args(words).args(server.arguments(address.port(), scenario.mode.name())?);
        command.stdout(Stdio::null());
        if scenario.threads > 1 {
            command.args(["--threads", &scenario.threads.to_string()]);
        }
        let child = spawn_on(cpus.of_server(scenario.threads), &mut command)?;
        let mut running = Running { child, address };
        let began = Instant::now();
        while !accepts(address) {
            if let Some(status) = running.child.try_wait()? {
                return Ok(Err(status));
            }
            if began.elapsed() > PATIENCE {
                return Err(io::Error::other("it does not accept connections"));
            }
            thread::sleep(Duration::from_millis(10));
        }
        Ok(Ok(running))
    }

    /// Runs the load generator. Returns its results, and the CPU time that the hypervisor took in
    /// that time (`steal_s`).
    pub(crate) fn load(
        &self,
        loadgen: &Path,
        scenario: &Scenario,
        cpus: &Cpus,
        pace: &Pace,
    ) -> io::Result<BTreeMap<String, f64>> {
        let (pid, seconds) = (self.child.id().to_string(), pace.seconds.to_string());
        let warmup = pace.warmup.to_string();
        let stolen = steal();
        let mut figures = self.generate(
            loadgen,
            scenario,
            cpus,
            &["--pid", &pid, "--seconds", &seconds, "--warmup", &warmup],
        )?;
        figures.insert("steal_s".to_string(), steal() - stolen);
        Ok(figures)
    }

    /// Makes the load generator do exactly `operations` operations.
    ///
    /// # Errors
    /// If the server fails to do them.
    pub(crate) fn operate(
        &self,
        loadgen: &Path,
        scenario: &Scenario,
        cpus: &Cpus,
        operations: u64,
    ) -> io::Result<()> {
        let figures = self.generate(loadgen, scenario, cpus, &["--operations", &operations.to_string()])?;
        let done = (figures.get("errors"), figures.get("operations"));
        if done == (Some(&0.0), Some(&(operations as f64))) {
            return Ok(());
        }
        Err(io::Error::other(format!(
            "{operations} operations were requested, but the results are {figures:?}"
        )))
    }

    fn generate(
        &self,
        loadgen: &Path,
        scenario: &Scenario,
        cpus: &Cpus,
        extent: &[&str],
    ) -> io::Result<BTreeMap<String, f64>> {
        let mut command = Command::new(loadgen);
        command
            .args(scenario.load.arguments())
            .args(["--json", "--addr", &self.address.to_string()])
            .args(extent);
        let output = spawn_on(&[cpus.of_load(scenario.threads)], command.stdout(Stdio::piped()))?
            .wait_with_output()?;
        // A generator without output has printed the reason to stderr.
        Ok(serde_json::from_slice(&output.stdout)
            .unwrap_or_else(|_| BTreeMap::from([("errors".to_string(), 1.0)])))
    }

    /// Ends the server with SIGTERM and waits for it, because a tool writes its counts at the end.
    ///
    /// # Errors
    /// If it does not end.
    pub(crate) fn end(mut self) -> io::Result<()> {
        kill_process(Pid::from_child(&self.child), Signal::TERM)?;
        let began = Instant::now();
        while self.child.try_wait()?.is_none() {
            if began.elapsed() > PATIENCE {
                return Err(io::Error::other("it does not end"));
            }
            thread::sleep(Duration::from_millis(10));
        }
        Ok(())
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        // If either call fails, the process has ended already.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Returns whether a server listens there. A connection to itself does not count: while the port is
/// free, the kernel may choose it for this end too.
fn accepts(address: SocketAddrV4) -> bool {
    TcpStream::connect(address)
        .and_then(|stream| stream.local_addr())
        .is_ok_and(|own| own != SocketAddr::V4(address))
}

/// Returns an address with a port that is free at the moment.
fn free_address() -> io::Result<SocketAddrV4> {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?;
    Ok(SocketAddrV4::new(Ipv4Addr::LOCALHOST, listener.local_addr()?.port()))
}

/// Returns the seconds for which the hypervisor kept the CPUs from running: the eighth number in
/// the first line of proc_stat(5).
fn steal() -> f64 {
    let stat = fs::read_to_string("/proc/stat").unwrap_or_default();
    let ticks = stat.split_whitespace().nth(8).and_then(|ticks| ticks.parse::<f64>().ok()).unwrap_or(0.0);
    ticks / rustix::param::clock_ticks_per_second() as f64
}
