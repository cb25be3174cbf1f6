//! The storms that are played.

use crate::{
    Options,
    process::{Cpus, Running},
    servers::{Program, Server},
    workshop::Workshop,
};
use std::{fs, io, path::Path, process::Command};

/// Time for which a client of a storm of handshakes waits: all of them have to get in.
const PATIENT: &str = "60s";

pub(crate) struct Storm {
    pub(crate) name: String,
    /// Whether the pictures show it.
    pub(crate) is_drawn: bool,
    /// WebSocket with TLS, instead of lines over TCP.
    tls: bool,
    login_micros: u64,
    /// Arguments of `im_bots`.
    arguments: Vec<String>,
}

impl Storm {
    /// Returns the storms of a round.
    pub(crate) fn all(options: &Options) -> Vec<Storm> {
        let common = |clients: u32, more: &[&str]| {
            let mut arguments = vec!["--storm".to_owned()];
            let numbers = [
                ("--clients", clients.to_string()),
                ("--established", options.established.to_string()),
                ("--rate", options.rate.to_string()),
                ("--calm", format!("{}s", options.calm)),
                ("--probes", (clients / 4).clamp(16, 1000).to_string()),
            ];
            arguments.extend(numbers.into_iter().flat_map(|(name, value)| [name.to_owned(), value]));
            arguments.extend(more.iter().map(|&text| text.to_owned()));
            arguments
        };
        let offered = options.offered.to_string();
        let logins = |manners: &String, tls: bool| Storm {
            name: format!("logins{}, {manners} clients", if tls { " with TLS" } else { "" }),
            is_drawn: !tls && options.manners.first() == Some(manners),
            tls,
            login_micros: options.login_micros,
            arguments: common(options.clients, &["--manners", manners, "--offered", &offered]),
        };
        let handshakes = (options.handshakes > 0).then(|| Storm {
            name: "handshakes".to_owned(),
            is_drawn: false,
            tls: true,
            login_micros: 0,
            arguments: common(options.handshakes, &["--manners", "hinted", "--give-up", PATIENT]),
        });
        let plain = options.manners.iter().map(|manners| logins(manners, false));
        let encrypted = options.manners.first().map(|manners| logins(manners, true));
        plain.chain(encrypted).chain(handshakes).collect()
    }

    /// Returns whether the server has the protocol of the storm.
    pub(crate) fn suits(&self, server: &Server) -> bool {
        self.tls || server.program != Program::Tungstenite
    }

    pub(crate) fn title(&self, server: &Server) -> String {
        format!("A storm at {}", server.about)
    }

    /// Plays the storm. The clients write their files to `folder`.
    ///
    /// # Errors
    /// If the server or the clients fail.
    pub(crate) fn play(
        &self,
        server: &Server,
        workshop: &Workshop,
        cpus: &Cpus,
        folder: &Path,
    ) -> io::Result<()> {
        // A result of an earlier storm must not pass for one of this.
        let _ = fs::remove_dir_all(folder);
        let command = |port| workshop.command(server, port, self.tls, self.login_micros);
        let running = Running::start(cpus, command)?;
        let mut clients = Command::new(&workshop.bots);
        clients.args(&self.arguments).args(["--connect", &running.address.to_string()]);
        if self.tls {
            clients.arg("--wss").arg("--tls-ca").arg(&workshop.certificate);
        }
        clients.arg("--out").arg(folder);
        // The faults of the server are in the files.
        let printed = cpus.run_clients(&mut clients)?;
        if folder.join("storm.csv").exists() {
            return Ok(());
        }
        Err(io::Error::other(format!("the clients have no result: {printed}")))
    }
}
