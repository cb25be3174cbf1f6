//! `im_server` with a page.

use crate::support::{
    process::{Process, example},
    tcp::{ANY_PORT, connect, read_all},
};
use std::{
    io::Write,
    net::{SocketAddr, TcpListener},
};

/// Returns an address at which a server can be started again. It stays free in the meantime: all
/// other tests use another address of the loopback network.
pub(crate) fn lasting_address() -> String {
    TcpListener::bind("127.0.0.2:0").unwrap().local_addr().unwrap().to_string()
}

/// A running `im_server`.
pub(crate) struct Server {
    process: Process,
    /// The address for lines.
    pub(crate) lines: SocketAddr,
    /// The URL of the page.
    pub(crate) page: String,
}

impl Server {
    pub(crate) fn start(http: &str, arguments: &[&str]) -> Self {
        let program = example("im_server");
        let own = [program.to_str().unwrap(), "--listen", ANY_PORT, "--http", http, "--threads", "2"];
        let mut process = Process::start(&[&own, arguments].concat());
        let lines = process.stdout.wait_for("listening on ").parse().unwrap();
        let page = process.stdout.wait_for("chat in a browser: ");
        Server { process, lines, page }
    }

    /// Returns a counter of all loops, from their metrics.
    #[track_caller]
    pub(crate) fn counter(&self, name: &str) -> u64 {
        let address = self.page.trim_start_matches("http://").trim_end_matches('/');
        let mut stream = connect(address.parse().unwrap());
        stream.write_all(b"GET /metrics HTTP/1.0\r\n\r\n").unwrap();
        let text = String::from_utf8(read_all(&mut stream)).unwrap();
        let name = format!("netwheel_{name}_total{{");
        let counts = text.lines().filter(|line| line.starts_with(&name));
        let counts: Vec<u64> = counts.map(|line| line.rsplit_once(' ').unwrap().1.parse().unwrap()).collect();
        assert_eq!(counts.len(), 2, "one for each loop: {text}");
        counts.iter().sum()
    }

    pub(crate) fn signal(&self, name: &str) {
        self.process.signal(name);
    }

    #[track_caller]
    pub(crate) fn stop(self) {
        self.signal("INT");
        self.process.succeed();
    }
}
