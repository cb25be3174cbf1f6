//! System interfaces of the generator: sockets with many source addresses, readiness, descriptors,
//! and resource usage of the server's process.

use rustix::{
    event::epoll,
    io::Errno,
    process::{Resource, Rlimit, getrlimit, setrlimit},
    time::{ClockId, Timespec, clock_gettime},
};
use socket2::{Domain, Socket, Type};
use std::{
    fs, io,
    net::{Ipv4Addr, SocketAddrV4, TcpStream},
    os::fd::OwnedFd,
    time::Duration,
};

/// More than any scenario needs.
const DESCRIPTORS: u64 = 1 << 20;

/// Connections from one source address. An address has about 28,000 ports, and closed connections
/// keep theirs for a minute.
pub(crate) const PER_SOURCE: usize = 10_000;

/// Raises the limit of descriptors as far as possible, and returns it.
pub(crate) fn raise_descriptor_limit() -> u64 {
    let limit = getrlimit(Resource::Nofile);
    let hard = limit.maximum.unwrap_or(DESCRIPTORS);
    let wish = DESCRIPTORS.max(hard);
    let raised = Rlimit { current: Some(DESCRIPTORS), maximum: Some(wish) };
    if setrlimit(Resource::Nofile, raised).is_err() {
        // Only root may exceed the hard limit. Every process may raise its soft limit to it.
        let _ = setrlimit(Resource::Nofile, Rlimit { current: Some(hard), maximum: limit.maximum });
    }
    getrlimit(Resource::Nofile).current.unwrap_or(u64::MAX)
}

/// Returns the n-th source address of the loopback network.
pub(crate) fn source(n: usize) -> Ipv4Addr {
    Ipv4Addr::new(127, 0, 1 + (n / 250 % 250) as u8, 1 + (n % 250) as u8)
}

/// Connects from that address. Blocks, which is safe because on loopback the handshake does not
/// involve the server.
pub(crate) fn connect(to: SocketAddrV4, from: Ipv4Addr) -> io::Result<TcpStream> {
    let socket = Socket::new(Domain::IPV4, Type::STREAM, None)?;
    choose_port_late(&socket)?;
    socket.bind(&SocketAddrV4::new(from, 0).into())?;
    socket.connect(&to.into())?;
    socket.set_tcp_nodelay(true)?;
    Ok(socket.into())
}

/// Makes the kernel choose the port at the connect instead of at the bind, so that connections to
/// different servers may share one. This is `IP_BIND_ADDRESS_NO_PORT` of ip(7), which no safe crate
/// provides.
#[allow(unsafe_code)]
fn choose_port_late(socket: &Socket) -> io::Result<()> {
    use std::os::fd::AsRawFd;
    let on: libc::c_int = 1;
    let size = size_of::<libc::c_int>() as libc::socklen_t;
    let option = libc::IP_BIND_ADDRESS_NO_PORT;
    // SAFETY: `on` lives longer than the call, which reads `size` bytes of it and keeps no pointer.
    let done = unsafe {
        libc::setsockopt(socket.as_raw_fd(), libc::IPPROTO_IP, option, (&raw const on).cast(), size)
    };
    if done == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

/// Returns the CPU seconds that this process has used.
pub(crate) fn own_cpu() -> f64 {
    let used = clock_gettime(ClockId::ProcessCPUTime);
    used.tv_sec as f64 + used.tv_nsec as f64 / 1e9
}

/// Resource usage of a process; zeros if it cannot be read.
#[derive(Clone, Copy, Default)]
pub(crate) struct Usage {
    /// More precise than the sum of the other two, which are in clock ticks.
    pub(crate) cpu_s: f64,
    pub(crate) user_s: f64,
    pub(crate) sys_s: f64,
    pub(crate) rss_kib: f64,
    pub(crate) peak_rss_kib: f64,
}

/// Reads `/proc/PID/stat` and `/proc/PID/status`; see proc_pid_stat(5).
pub(crate) fn usage(pid: Option<u32>) -> Usage {
    let mut usage = Usage::default();
    let Some(pid) = pid else { return usage };
    if let Ok(stat) = fs::read_to_string(format!("/proc/{pid}/stat")) {
        // The name is in parentheses and may contain blanks. The first field after it is the third.
        let fields: Vec<&str> =
            stat.rsplit_once(')').map_or("", |(_, rest)| rest).split_whitespace().collect();
        let seconds = |field: usize| {
            let ticks = fields.get(field - 3).and_then(|ticks| ticks.parse::<f64>().ok());
            ticks.unwrap_or(0.0) / rustix::param::clock_ticks_per_second() as f64
        };
        (usage.user_s, usage.sys_s) = (seconds(14), seconds(15));
    }
    // The ticks are rounded down, so they exceed the other value only if threads have ended, which
    // have no directory any more.
    usage.cpu_s = scheduled(pid).unwrap_or(0.0).max(usage.user_s + usage.sys_s);
    if let Ok(status) = fs::read_to_string(format!("/proc/{pid}/status")) {
        let kib = |key: &str| {
            let line = status.lines().find_map(|line| line.strip_prefix(key));
            line.and_then(|line| line.split_whitespace().next()?.parse().ok()).unwrap_or(0.0)
        };
        (usage.rss_kib, usage.peak_rss_kib) = (kib("VmRSS:"), kib("VmHWM:"));
    }
    usage
}

/// Returns the seconds for which the threads of a process have run: the sum of the first number in
/// their `schedstat`, which is in nanoseconds. `None` if the kernel does not count them.
fn scheduled(pid: u32) -> Option<f64> {
    let mut nanos = 0;
    for task in fs::read_dir(format!("/proc/{pid}/task")).ok()? {
        // A thread may end while this reads.
        let Ok(text) = fs::read_to_string(task.ok()?.path().join("schedstat")) else { continue };
        nanos += text.split_whitespace().next()?.parse::<u64>().ok()?;
    }
    Some(nanos as f64 / 1e9)
}

/// Level-triggered readiness.
pub(crate) struct Epoll {
    epoll: OwnedFd,
    events: Vec<epoll::Event>,
}

/// Readiness of a connection.
#[derive(Clone, Copy)]
pub(crate) struct Ready {
    pub(crate) token: usize,
    /// Readable, or at its end.
    pub(crate) read: bool,
    pub(crate) write: bool,
}

impl Epoll {
    pub(crate) fn new() -> io::Result<Self> {
        let epoll = epoll::create(epoll::CreateFlags::CLOEXEC)?;
        Ok(Epoll { epoll, events: Vec::with_capacity(1024) })
    }

    pub(crate) fn add(&self, stream: &TcpStream, token: usize) -> io::Result<()> {
        let data = epoll::EventData::new_u64(token as u64);
        Ok(epoll::add(&self.epoll, stream, data, epoll::EventFlags::IN)?)
    }

    /// Adds or removes interest in writability.
    pub(crate) fn want_write(&self, stream: &TcpStream, token: usize, wanted: bool) -> io::Result<()> {
        let data = epoll::EventData::new_u64(token as u64);
        let both = epoll::EventFlags::IN | epoll::EventFlags::OUT;
        let flags = if wanted { both } else { epoll::EventFlags::IN };
        Ok(epoll::modify(&self.epoll, stream, data, flags)?)
    }

    /// Waits for at most 100 ms. Returns the number of ready connections.
    pub(crate) fn wait(&mut self) -> io::Result<usize> {
        self.poll(Duration::from_millis(100))
    }

    /// Waits for at most that time, which is rounded up to milliseconds by old kernels. Returns the
    /// number of ready connections.
    pub(crate) fn poll(&mut self, timeout: Duration) -> io::Result<usize> {
        let timeout =
            Timespec { tv_sec: timeout.as_secs() as i64, tv_nsec: i64::from(timeout.subsec_nanos()) };
        self.events.clear();
        match epoll::wait(&self.epoll, rustix::buffer::spare_capacity(&mut self.events), Some(&timeout)) {
            Ok(ready) => Ok(ready),
            Err(Errno::INTR) => Ok(0),
            Err(e) => Err(e.into()),
        }
    }

    pub(crate) fn ready(&self, n: usize) -> Ready {
        let event = self.events[n];
        let flags = event.flags;
        Ready {
            token: event.data.u64() as usize,
            read: !(flags - epoll::EventFlags::OUT).is_empty(),
            write: flags.contains(epoll::EventFlags::OUT),
        }
    }
}
