//! Builds the programs: `im_server`, `im_bots`, and the server on tokio-tungstenite.

use crate::servers::{CONTROL, Program, Server};
use std::{
    collections::BTreeMap,
    env, fs, io,
    path::{Path, PathBuf},
    process::{Command, Stdio},
};

/// Features of the crate, those with which the gate has built the programs.
const FEATURES: &str = "full";

pub(crate) struct Workshop {
    /// Directory for output of the programs.
    pub(crate) shelf: PathBuf,
    pub(crate) certificate: PathBuf,
    pub(crate) key: PathBuf,
    pub(crate) bots: PathBuf,
    chat: PathBuf,
    /// Whether `im_server` has an option for overload control.
    has_control: bool,
    /// Target of overload control.
    target: &'static str,
    tungstenite: PathBuf,
}

impl Workshop {
    /// Builds all programs. `quick`: without optimisation.
    ///
    /// # Errors
    /// If a program cannot be built.
    pub(crate) fn open(quick: bool) -> io::Result<Self> {
        let here = PathBuf::from(env!("CARGO_MANIFEST_DIR"));
        let root = here.join("../..");
        let examples = ["--features", FEATURES, "--example", "im_server", "--example", "im_bots"];
        // The crate's profile `bench` has the settings of the profile `release` of this workspace.
        let examples = cargo(&root, &examples, if quick { "dev" } else { "bench" })?;
        let own = ["--bin", "storm-tungstenite"];
        let own = cargo(&here, &own, if quick { "dev" } else { "release" })?;
        let tungstenite = find(&own, "storm-tungstenite")?;
        let shelf = tungstenite.parent().unwrap_or(&here).join("storm");
        fs::create_dir_all(&shelf)?;
        let tls = here.join("tls");
        let chat = find(&examples, "im_server")?;
        let help = Command::new(&chat).arg("--help").output()?;
        Ok(Workshop {
            shelf,
            // Programs without optimisation, beside others, are slow at any load.
            target: if quick { "500ms" } else { "50ms" },
            has_control: String::from_utf8_lossy(&help.stdout).contains(CONTROL),
            certificate: tls.join("certificate.pem"),
            key: tls.join("key.pem"),
            bots: find(&examples, "im_bots")?,
            chat,
            tungstenite,
        })
    }

    /// Returns whether the program of this server has the options for it.
    pub(crate) fn is_able(&self, server: &Server) -> bool {
        self.has_control || server.program != (Program::Chat { control: true })
    }

    /// Returns the command that starts a server on this port: for WebSocket with `tls`, else for
    /// lines.
    pub(crate) fn command(&self, server: &Server, port: u16, tls: bool, login_micros: u64) -> Command {
        let micros = login_micros.to_string();
        match server.program {
            Program::Chat { control } => {
                let mut command = Command::new(&self.chat);
                command.args(["--threads", "1", "--http", "none"]);
                let address = format!("127.0.0.1:{port}");
                if tls {
                    command.args(["--listen", "127.0.0.1:0", "--https", &address]);
                    command.arg("--tls-cert").arg(&self.certificate).arg("--tls-key").arg(&self.key);
                } else {
                    command.args(["--listen", &address]);
                }
                command.arg("--login-cost").arg(format!("{micros}us"));
                if self.has_control {
                    command.args([CONTROL, if control { self.target } else { "0s" }]);
                }
                command
            }
            Program::Tungstenite => {
                let mut command = Command::new(&self.tungstenite);
                command.arg(port.to_string()).args(["--login-micros", &micros]);
                command.arg("--certificate").arg(&self.certificate).arg("--key").arg(&self.key);
                command
            }
        }
    }
}

/// Builds programs of a package. Returns their paths by name. Compiler output goes to stderr.
fn cargo(folder: &Path, what: &[&str], profile: &str) -> io::Result<BTreeMap<String, PathBuf>> {
    let mut command = Command::new(env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
    // Uses the versions in the lock files.
    command.args(["build", "--quiet", "--locked", "--message-format=json-render-diagnostics"]);
    command.args(["--profile", profile, "--manifest-path"]).arg(folder.join("Cargo.toml")).args(what);
    let output = command.stderr(Stdio::inherit()).output()?;
    if !output.status.success() {
        return Err(io::Error::other("cargo cannot build the programs"));
    }
    let mut programs = BTreeMap::new();
    for line in String::from_utf8_lossy(&output.stdout).lines() {
        let message: serde_json::Value = serde_json::from_str(line).map_err(io::Error::other)?;
        if let (Some(name), Some(path)) = (message["target"]["name"].as_str(), message["executable"].as_str())
        {
            programs.insert(name.to_owned(), PathBuf::from(path));
        }
    }
    Ok(programs)
}

fn find(built: &BTreeMap<String, PathBuf>, name: &str) -> io::Result<PathBuf> {
    built.get(name).cloned().ok_or_else(|| io::Error::other(format!("cargo has not built {name}")))
}
