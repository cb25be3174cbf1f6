//! Builds the servers, and reports which ones cannot be built.
//!
//! All Rust code is built alike: the profile `release` of this workspace and the profile `bench` of
//! the crate have the same settings.

use crate::{
    netty,
    peer::{Origin, PEERS, Peer},
};
use std::{
    collections::BTreeMap,
    env, fs, io, iter,
    path::{Path, PathBuf},
    process::{Command, Stdio},
};

pub(crate) struct Workshop {
    /// Folder of this package.
    pub(crate) here: PathBuf,
    /// Directory for programs that are not Rust, and for the output of tools.
    pub(crate) shelf: PathBuf,
    pub(crate) loadgen: PathBuf,
    quick: bool,
}

/// A server that can be started.
pub(crate) struct Server {
    pub(crate) peer: &'static Peer,
    /// Program and first arguments.
    pub(crate) command: Vec<String>,
}

/// Versions of npm's packages.
pub(crate) const WS: &str = "8.23.0";
pub(crate) const BUN: &str = "1.4.4";

/// Name of the generated configuration, in the directory for programs.
const NGINX: &str = "nginx.conf";

impl Server {
    /// Returns the last arguments: the port and the mode. nginx reads the port from a file, which
    /// this writes.
    ///
    /// # Errors
    /// If the file cannot be written.
    pub(crate) fn arguments(&self, port: u16, mode: &str) -> io::Result<Vec<String>> {
        if self.peer.origin != Origin::Nginx {
            return Ok(vec![port.to_string(), mode.to_string()]);
        }
        let file = self.command.last().ok_or_else(|| io::Error::other("no configuration"))?;
        fs::write(file, nginx_configuration(port, file))?;
        Ok(Vec::new())
    }
}

/// One process, and no limit of requests per connection, because the others have none. nginx writes
/// its process id beside its configuration, and removes that file at its end.
fn nginx_configuration(port: u16, file: &str) -> String {
    format!(
        "daemon off;
master_process off;
pid {file}.pid;
error_log stderr crit;
events {{ worker_connections 16384; }}
http {{
  access_log off;
  keepalive_requests 1000000000;
  default_type 'text/plain; charset=utf-8';
  server {{
    listen 127.0.0.1:{port} backlog=4096;
    location = / {{ return 200 'Hello, World!\\n'; }}
  }}
}}
"
    )
}

impl Workshop {
    /// Builds the load generator.
    ///
    /// # Errors
    /// If the load generator cannot be built.
    pub(crate) fn open(quick: bool) -> io::Result<Self> {
        let here = PathBuf::from(env!("CARGO_MANIFEST_DIR"));
        let mut workshop = Workshop { shelf: here.clone(), loadgen: here.clone(), here, quick };
        let built = workshop.cargo(&workshop.here, &["--package", "loadgen"], "release")?;
        workshop.loadgen = find(&built, "loadgen")?;
        workshop.shelf = workshop.loadgen.parent().unwrap_or(&workshop.here).join("peers");
        fs::create_dir_all(&workshop.shelf)?;
        Ok(workshop)
    }

    /// Builds the servers in `names` (all if empty), in the order of the table. Leaves out optional
    /// ones that cannot be built.
    ///
    /// # Errors
    /// If a server that needs only a Rust toolchain cannot be built.
    pub(crate) fn servers(&self, names: &[&str]) -> io::Result<Vec<Server>> {
        let wanted = |peer: &&Peer| names.is_empty() || names.contains(&peer.name);
        let mut servers = Vec::new();
        for peer in PEERS.iter().filter(wanted) {
            eprintln!("peers: building {}", peer.name);
            match self.make(peer) {
                Ok(command) => servers.push(Server { peer, command }),
                Err(e) if peer.is_optional() => eprintln!("peers: {} is left out: {e}", peer.name),
                Err(e) => return Err(io::Error::other(format!("{}: {e}", peer.name))),
            }
        }
        Ok(servers)
    }

    fn make(&self, peer: &Peer) -> io::Result<Vec<String>> {
        match peer.origin {
            Origin::Servers(binary, arguments) => {
                let built =
                    self.cargo(&self.here, &["--package", "peer-servers", "--bin", binary], "release")?;
                Ok(with_arguments(text(&find(&built, binary)?), arguments))
            }
            Origin::Feature(binary, feature) => Ok(vec![self.with_feature(binary, feature)?]),
            Origin::NetwheelTls(arguments) => {
                Ok(with_arguments(self.with_feature("netwheel-tls-server", "netwheel-tls")?, arguments))
            }
            Origin::Netwheel => {
                let root = self.here.join("../..");
                let built = self.cargo(&root, &["--example", "bench_server"], "bench")?;
                Ok(vec![text(&find(&built, "bench_server")?)])
            }
            Origin::Libuv => self.libuv(),
            Origin::Nginx => self.nginx(),
            Origin::Node => self.node(),
            Origin::Bun => self.bun(),
            Origin::Netty => netty::command(&self.here, &self.shelf, None),
            Origin::NettyTls(provider) => netty::command(&self.here, &self.shelf, Some(provider)),
        }
    }

    /// Builds a binary of `servers/` that requires a feature. Returns its path.
    fn with_feature(&self, binary: &str, feature: &str) -> io::Result<String> {
        let what = ["--package", "peer-servers", "--features", feature, "--bin", binary];
        Ok(text(&find(&self.cargo(&self.here, &what, "release")?, binary)?))
    }

    /// Builds a package. Returns the paths of its programs by name. Compiler output goes to stderr.
    fn cargo(&self, folder: &Path, what: &[&str], profile: &str) -> io::Result<BTreeMap<String, PathBuf>> {
        let mut command = Command::new(env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
        // Uses the versions in the lock files.
        command.args(["build", "--quiet", "--locked", "--message-format=json-render-diagnostics"]);
        command.arg("--profile").arg(if self.quick { "dev" } else { profile });
        command.arg("--manifest-path").arg(folder.join("Cargo.toml")).args(what);
        let output = command.stderr(Stdio::inherit()).output()?;
        if !output.status.success() {
            return Err(io::Error::other("cargo cannot build it"));
        }
        let mut programs = BTreeMap::new();
        for line in String::from_utf8_lossy(&output.stdout).lines() {
            let message: serde_json::Value = serde_json::from_str(line).map_err(io::Error::other)?;
            if let (Some(name), Some(path)) =
                (message["target"]["name"].as_str(), message["executable"].as_str())
            {
                programs.insert(name.to_string(), PathBuf::from(path));
            }
        }
        Ok(programs)
    }

    fn libuv(&self) -> io::Result<Vec<String>> {
        let program = self.shelf.join("uv-server");
        let source = self.here.join("servers/libuv/server.c");
        quietly(Command::new("cc").args(["-O2", "-o"]).arg(&program).arg(source).arg("-luv"))?;
        Ok(vec![text(&program)])
    }

    fn nginx(&self) -> io::Result<Vec<String>> {
        let program = ["/usr/sbin/nginx", "/usr/bin/nginx", "/usr/local/sbin/nginx"]
            .into_iter()
            .find(|program| Path::new(program).exists())
            .ok_or_else(|| io::Error::other("it is not installed"))?;
        let file = self.shelf.join(NGINX);
        let shelf = self.shelf.display();
        Ok(vec![
            program.to_string(),
            "-e".into(),
            "stderr".into(),
            "-p".into(),
            format!("{shelf}"),
            "-c".into(),
            text(&file),
        ])
    }

    fn node(&self) -> io::Result<Vec<String>> {
        let package = self.npm("ws", WS)?;
        quietly(Command::new("node").arg("--version"))?;
        Ok(vec!["node".to_string(), self.javascript("ws.js"), text(&package)])
    }

    fn bun(&self) -> io::Result<Vec<String>> {
        let program = self.npm("@oven/bun-linux-x64", BUN)?.join("bin/bun");
        quietly(Command::new(&program).arg("--version"))?;
        Ok(vec![text(&program), self.javascript("bun.js")])
    }

    fn javascript(&self, name: &str) -> String {
        text(&self.here.join("servers/javascript").join(name))
    }

    /// Installs a package of npm, and returns its directory.
    fn npm(&self, name: &str, version: &str) -> io::Result<PathBuf> {
        let package = self.shelf.join("node_modules").join(name);
        if !package.exists() {
            let what = format!("{name}@{version}");
            let arguments = ["install", "--no-audit", "--no-fund", "--ignore-scripts", &what, "--prefix"];
            quietly(Command::new("npm").args(arguments).arg(&self.shelf))?;
        }
        Ok(package)
    }
}

fn find(built: &BTreeMap<String, PathBuf>, name: &str) -> io::Result<PathBuf> {
    built.get(name).cloned().ok_or_else(|| io::Error::other(format!("cargo has not built {name}")))
}

fn with_arguments(program: String, arguments: &[&str]) -> Vec<String> {
    iter::once(program).chain(arguments.iter().map(ToString::to_string)).collect()
}

fn text(path: &Path) -> String {
    path.to_string_lossy().into_owned()
}

/// Runs a compiler. The first line of its output is the error.
pub(crate) fn quietly(command: &mut Command) -> io::Result<()> {
    let output = command
        .output()
        .map_err(|e| io::Error::other(format!("{}: {e}", command.get_program().to_string_lossy())))?;
    if output.status.success() {
        return Ok(());
    }
    let words = String::from_utf8_lossy(&output.stderr);
    Err(io::Error::other(words.lines().next().unwrap_or("its compiler failed").to_string()))
}
