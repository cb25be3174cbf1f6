//! Runs the same tests over each stream transport.
//!
//! A file lists its tests in [`over_each_transport`](crate::over_each_transport). The tests use
//! [`anywhere`] and [`connect`] instead of TCP addresses and streams. A thread-local of the test's
//! thread selects the transport.

use super::wait::PATIENCE;
#[cfg(unix)]
use netwheel::net::UnixAddress;
use netwheel::{Server, net::Address};
use std::{
    cell::Cell,
    io::{self, Read, Write},
    net::{Shutdown, SocketAddr, TcpStream},
    time::Duration,
};
#[cfg(unix)]
use std::{
    cell::RefCell,
    fs,
    os::unix::net::UnixStream,
    path::PathBuf,
    sync::atomic::{AtomicUsize, Ordering},
};

/// A stream transport.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) enum Kind {
    Tcp,
    #[cfg(unix)]
    Unix,
}

thread_local! {
    static KIND: Cell<Option<Kind>> = const { Cell::new(None) };
}

/// Makes a test of each function over each transport: `over_tcp::name`, `over_unix::name`.
#[macro_export]
macro_rules! over_each_transport {
    ($($test:ident,)*) => {
        mod over_tcp {
            $(#[test] fn $test() { $crate::support::streams::over($crate::support::streams::Kind::Tcp, super::$test) })*
        }
        #[cfg(unix)]
        mod over_unix {
            $(#[test] fn $test() { $crate::support::streams::over($crate::support::streams::Kind::Unix, super::$test) })*
        }
    };
}

/// Runs a test over one transport.
pub(crate) fn over(kind: Kind, test: fn()) {
    KIND.set(Some(kind));
    #[cfg(unix)]
    let _removed = FilesOfTheTest;
    test();
}

#[cfg(unix)]
thread_local! {
    static FILES: RefCell<Vec<PathBuf>> = const { RefCell::new(Vec::new()) };
}

/// Removes the socket files that the test's servers leave behind if the program ends before their
/// loops have closed them.
#[cfg(unix)]
struct FilesOfTheTest;

#[cfg(unix)]
impl Drop for FilesOfTheTest {
    fn drop(&mut self) {
        for file in FILES.take() {
            let _ = fs::remove_file(file);
        }
    }
}

/// Returns the transport of the running test.
pub(crate) fn kind() -> Kind {
    KIND.get().expect("a test in over_each_transport, on its own thread")
}

/// Returns an unused address for a server: port 0, or a unique path.
pub(crate) fn anywhere() -> Address {
    match kind() {
        Kind::Tcp => SocketAddr::from(([127, 0, 0, 1], 0)).into(),
        #[cfg(unix)]
        Kind::Unix => {
            static NUMBER: AtomicUsize = AtomicUsize::new(0);
            let name =
                format!("netwheel-{}-{}.sock", std::process::id(), NUMBER.fetch_add(1, Ordering::Relaxed));
            let path = std::env::temp_dir().join(name);
            // Left behind by a killed process with the same id.
            let _ = fs::remove_file(&path);
            FILES.with_borrow_mut(|files| files.push(path.clone()));
            UnixAddress::path(path).unwrap().into()
        }
    }
}

/// Connects a blocking client with timeouts.
pub(crate) fn connect(server: &Server<Address>) -> RawStream {
    let stream = match server.local_address() {
        Address::Tcp(address) => RawStream::Tcp(TcpStream::connect(address).unwrap()),
        #[cfg(unix)]
        Address::Unix(address) => RawStream::Unix(UnixStream::connect(address.as_path().unwrap()).unwrap()),
        other => panic!("{other}"),
    };
    stream.set_read_timeout(Some(PATIENCE));
    match &stream {
        RawStream::Tcp(tcp) => {
            tcp.set_write_timeout(Some(PATIENCE)).unwrap();
            tcp.set_nodelay(true).unwrap();
        }
        #[cfg(unix)]
        RawStream::Unix(unix) => unix.set_write_timeout(Some(PATIENCE)).unwrap(),
    }
    stream
}

/// A blocking stream of the standard library.
pub(crate) enum RawStream {
    Tcp(TcpStream),
    #[cfg(unix)]
    Unix(UnixStream),
}

macro_rules! each {
    ($stream:expr, $socket:ident => $what:expr) => {
        match $stream {
            RawStream::Tcp($socket) => $what,
            #[cfg(unix)]
            RawStream::Unix($socket) => $what,
        }
    };
}

impl RawStream {
    /// For tests of TCP itself.
    pub(crate) fn as_tcp(&self) -> &TcpStream {
        match self {
            RawStream::Tcp(tcp) => tcp,
            #[cfg(unix)]
            RawStream::Unix(_) => panic!("over TCP only"),
        }
    }

    pub(crate) fn set_read_timeout(&self, timeout: Option<Duration>) {
        each!(self, socket => socket.set_read_timeout(timeout)).unwrap();
    }

    pub(crate) fn set_nonblocking(&self, on: bool) -> io::Result<()> {
        each!(self, socket => socket.set_nonblocking(on))
    }

    pub(crate) fn shutdown(&self, how: Shutdown) -> io::Result<()> {
        each!(self, socket => socket.shutdown(how))
    }

    pub(crate) fn try_clone(&self) -> io::Result<Self> {
        Ok(match self {
            RawStream::Tcp(tcp) => RawStream::Tcp(tcp.try_clone()?),
            #[cfg(unix)]
            RawStream::Unix(unix) => RawStream::Unix(unix.try_clone()?),
        })
    }
}

impl Read for RawStream {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        each!(self, socket => socket.read(buffer))
    }
}

impl Write for RawStream {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        each!(self, socket => socket.write(bytes))
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}
