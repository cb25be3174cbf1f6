//! `RedisServer`: a `redis-server` in a temporary directory. `Usage`: the work that it has done.

use crate::wait::until;
use netwheel::{Error, Result};
use std::{
    fs,
    io::{BufRead, BufReader, Read, Write},
    net::{TcpListener, TcpStream},
    ops::Sub,
    path::PathBuf,
    process::{Child, Command, Stdio},
};

pub(crate) fn is_installed() -> bool {
    let found = Command::new("redis-server").arg("--version").stdout(Stdio::null()).status();
    found.is_ok_and(|status| status.success())
}

pub(crate) struct RedisServer {
    port: u16,
    directory: PathBuf,
    process: Child,
}

impl RedisServer {
    /// Starts a server on a free port, with `appendfsync everysec`.
    ///
    /// # Errors
    /// If it cannot be started.
    pub(crate) fn start() -> Result<Self> {
        let failed = |e| Error::io("starting redis-server", e);
        let free = TcpListener::bind("127.0.0.1:0").and_then(|listener| listener.local_addr());
        let port = free.map_err(failed)?.port();
        let directory = std::env::temp_dir().join(format!("netwheel-broker-{}-{port}", std::process::id()));
        fs::create_dir_all(&directory).map_err(failed)?;
        let mut command = Command::new("redis-server");
        command.args(["--bind", "127.0.0.1", "--port", &port.to_string(), "--save", ""]);
        command.args(["--appendonly", "yes", "--appendfsync", "everysec"]);
        let process = command.arg("--dir").arg(&directory).stdout(Stdio::null()).spawn().map_err(failed)?;
        let server = RedisServer { port, directory, process };
        until("redis-server listens", || server.connect().is_ok())?;
        Ok(server)
    }

    pub(crate) fn url(&self) -> String {
        format!("redis://127.0.0.1:{}", self.port)
    }

    fn connect(&self) -> std::io::Result<TcpStream> {
        TcpStream::connect(("127.0.0.1", self.port))
    }

    /// Begins a measurement. The server has to be at rest.
    ///
    /// # Errors
    /// If the server does not answer.
    pub(crate) fn begin(&self) -> Result<Begin> {
        let before = self.total()?;
        let at = self.total()?;
        Ok(Begin { at, question: at - before })
    }

    /// Returns the work since the begin of a measurement, without the question for it.
    ///
    /// # Errors
    /// If the server does not answer.
    pub(crate) fn since(&self, begin: &Begin) -> Result<Usage> {
        Ok(self.total()? - begin.at - begin.question)
    }

    fn total(&self) -> Result<Usage> {
        let text = self.info().map_err(|e| Error::io("asking redis-server", e))?;
        let field = |name: &str| {
            let values = text.lines().filter_map(|line| line.strip_prefix(name)?.strip_prefix(':'));
            values.filter_map(|value| value.parse::<f64>().ok()).sum::<f64>()
        };
        let calls = |script: &str| {
            let calls = text.lines().find_map(|line| line.strip_prefix(script)?.strip_prefix(":calls="));
            calls.and_then(|rest| rest.split(',').next()?.parse().ok()).unwrap_or(0.0)
        };
        Ok(Usage {
            requests: calls("cmdstat_evalsha") + calls("cmdstat_eval"),
            commands: field("total_commands_processed"),
            bytes_in: field("total_net_input_bytes"),
            bytes_out: field("total_net_output_bytes"),
            cpu: field("used_cpu_user") + field("used_cpu_sys"),
        })
    }

    fn info(&self) -> std::io::Result<String> {
        let mut stream = self.connect()?;
        stream.write_all(b"INFO everything\r\n")?;
        let mut input = BufReader::new(stream);
        let mut header = String::new();
        input.read_line(&mut header)?;
        let length = header.trim().trim_start_matches('$').parse();
        let mut text = vec![0; length.map_err(std::io::Error::other)?];
        input.read_exact(&mut text)?;
        String::from_utf8(text).map_err(std::io::Error::other)
    }
}

impl Drop for RedisServer {
    fn drop(&mut self) {
        let ended = self.process.kill().and_then(|()| self.process.wait());
        if let Err(error) = ended.and_then(|_| fs::remove_dir_all(&self.directory)) {
            eprintln!("{} stays: {error}", self.directory.display());
        }
    }
}

/// The begin of a measurement.
pub(crate) struct Begin {
    at: Usage,
    /// The work for one question.
    question: Usage,
}

/// The work of a server.
#[derive(Clone, Copy, Default)]
pub(crate) struct Usage {
    /// Scripts, each of which is one request of a node.
    pub(crate) requests: f64,
    /// Commands, with those of the scripts.
    pub(crate) commands: f64,
    pub(crate) bytes_in: f64,
    pub(crate) bytes_out: f64,
    /// Seconds.
    pub(crate) cpu: f64,
}

impl Sub for Usage {
    type Output = Self;

    fn sub(self, earlier: Self) -> Self {
        Usage {
            requests: self.requests - earlier.requests,
            commands: self.commands - earlier.commands,
            bytes_in: self.bytes_in - earlier.bytes_in,
            bytes_out: self.bytes_out - earlier.bytes_out,
            cpu: self.cpu - earlier.cpu,
        }
    }
}
