//! The server and the clients as processes, each on its own CPU.

use rustix::{
    process::{Resource, Rlimit, getrlimit, setrlimit},
    thread::{CpuSet, sched_getaffinity, sched_setaffinity},
};
use std::{
    io,
    net::{Ipv4Addr, SocketAddr, SocketAddrV4, TcpListener, TcpStream},
    process::{Child, Command, Stdio},
    thread,
    time::{Duration, Instant},
};

/// Time for a server to accept connections.
const PATIENCE: Duration = Duration::from_secs(60);

/// CPUs of the server and of the clients.
pub(crate) struct Cpus {
    server: usize,
    clients: usize,
}

impl Cpus {
    /// Chooses the first two CPUs that this process may use, and raises the limit of descriptors
    /// for its children.
    ///
    /// # Errors
    /// If the CPUs of this process cannot be read.
    pub(crate) fn choose() -> io::Result<Self> {
        let limit = getrlimit(Resource::Nofile);
        let _ = setrlimit(Resource::Nofile, Rlimit { current: limit.maximum, maximum: limit.maximum });
        let allowed = sched_getaffinity(None)?;
        let mut cpus = (0..CpuSet::MAX_CPU).filter(|cpu| allowed.is_set(*cpu));
        let server = cpus.next().unwrap_or(0);
        let clients = cpus.next().unwrap_or(server);
        if clients == server {
            eprintln!("storm: there is only one cpu: the clients take the server's time");
        }
        Ok(Cpus { server, clients })
    }

    /// Runs a program to its end on the CPU of the clients. Returns its standard output.
    ///
    /// # Errors
    /// If it cannot be started.
    pub(crate) fn run_clients(&self, command: &mut Command) -> io::Result<String> {
        let output = spawn_on(self.clients, command.stdout(Stdio::piped()))?.wait_with_output()?;
        Ok(String::from_utf8_lossy(&output.stdout).into_owned())
    }
}

/// A process inherits the CPUs of the thread that starts it.
fn spawn_on(cpu: usize, command: &mut Command) -> io::Result<Child> {
    let mut set = CpuSet::new();
    set.set(cpu);
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
    pub(crate) address: SocketAddrV4,
}

impl Running {
    /// Starts the server that `command` returns for a port.
    ///
    /// # Errors
    /// If it ends, or does not accept connections in time.
    pub(crate) fn start(cpus: &Cpus, command: impl FnOnce(u16) -> Command) -> io::Result<Self> {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?;
        let address = SocketAddrV4::new(Ipv4Addr::LOCALHOST, listener.local_addr()?.port());
        drop(listener);
        let child = spawn_on(cpus.server, command(address.port()).stdout(Stdio::null()))?;
        let mut running = Running { child, address };
        let began = Instant::now();
        while !accepts(address) {
            if let Some(status) = running.child.try_wait()? {
                return Err(io::Error::other(format!("the server has ended at once: {status}")));
            }
            if began.elapsed() > PATIENCE {
                return Err(io::Error::other("the server does not accept connections"));
            }
            thread::sleep(Duration::from_millis(10));
        }
        Ok(running)
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
