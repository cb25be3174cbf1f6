//! A PostgreSQL server in a temporary directory, shared by the tests of this binary.

use crate::support::process::{are_installed, skip};
use netwheel::durable::{PostgresStore, PostgresStoreBuilder, postgres::Client};
use std::{
    fs,
    io::{BufRead, BufReader, Write},
    net::TcpListener,
    path::PathBuf,
    process::{Child, ChildStdin, ChildStdout, Command, Stdio},
    sync::{Mutex, OnceLock},
};

/// The shell that starts the server, and stops it when its input ends: with this process, however
/// that ends. Each line of its input ends the server at once, and starts it again.
///
/// `initdb` takes longer than a server needs for the tests, so its result is kept in the directory
/// for temporary files of the target directory, for each version and user. It appears there by a
/// rename, because several test programs may make it at the same time.
///
/// A server must not run as root. Nothing survives a crash of the machine, so syncs and images of
/// full pages are off. The user `scram` needs TLS and a password.
const SUPERVISOR: &str = r#"
set -e
programs=$1
port=$2
run=env
directory=$(mktemp -d)
copy=
trap 'rm -rf "$directory" ${copy:+"$copy"}' EXIT
if [ "$(id -u)" = 0 ]; then
    run="setpriv --reuid=nobody --regid=nogroup --clear-groups"
    chown nobody:nogroup "$directory"
fi
template=$3/postgres-$(id -u)-$("$programs/initdb" --version | tr -c 'A-Za-z0-9.\n' _)
cd "$directory"
if [ -d "$template" ]; then
    cp -r --reflink=auto "$template/data" data
    if [ "$(id -u)" = 0 ]; then
        chown -R nobody:nogroup data
    fi
else
    $run "$programs/initdb" --pgdata=data --auth=trust --username=postgres --no-sync --no-locale \
        --encoding=UTF8 >log 2>&1 || { cat log >&2; exit 1; }
    copy=$(mktemp -d "$template.XXXXXX")
    cp -r data "$copy"
    # Fails if another program was faster.
    mv -T "$copy" "$template" 2>/dev/null || true
fi
(umask 077 && printf '%s' "$KEY" | $run sh -c 'cat >data/key.pem')
printf '%s' "$CERTIFICATE" | $run sh -c 'cat >data/certificate.pem'
$run sed -i '1i hostssl all scram all scram-sha-256\nhost all scram all reject' data/pg_hba.conf
serve() {
    $run "$programs/postgres" -D data -p "$port" -h 127.0.0.1 -k "$directory" -c fsync=off \
        -c full_page_writes=off -c max_connections=200 -c track_commit_timestamp=on -c ssl=on -c ssl_cert_file=certificate.pem \
        -c ssl_key_file=key.pem -c log_min_messages=warning >>log 2>&1 </dev/null &
    pid=$!
    until "$programs/pg_isready" -q -h 127.0.0.1 -p "$port"; do
        kill -0 "$pid" 2>/dev/null || { cat log >&2; exit 1; }
        sleep 0.05
    done
    echo ready
}
serve
while read -r _; do
    kill -QUIT "$pid"
    wait "$pid" || true
    serve
done
kill -QUIT "$pid"
wait "$pid" || true
"#;

pub(crate) struct Server {
    port: u16,
    /// In DER, for `localhost`.
    #[cfg(feature = "tls")]
    certificate: Vec<u8>,
    /// The pipes to the supervisor.
    pipes: Mutex<(ChildStdin, BufReader<ChildStdout>)>,
    _supervisor: Child,
}

/// Returns the server. If PostgreSQL is not installed, the test is skipped, except in CI.
pub(crate) fn server() -> Option<&'static Server> {
    static SERVER: OnceLock<Option<Server>> = OnceLock::new();
    SERVER.get_or_init(Server::start).as_ref()
}

impl Server {
    /// Starts a server of its own for a test. `None` if PostgreSQL is not installed.
    pub(crate) fn start() -> Option<Self> {
        if !are_installed(&["setpriv"]) {
            return None;
        }
        let Some(programs) = programs() else {
            skip("PostgreSQL is not installed");
            return None;
        };
        // Another process may take the port before the server does.
        let started = (0..5).find_map(|_| Self::start_on(free_port(), &programs));
        Some(started.expect("PostgreSQL starts"))
    }

    fn start_on(port: u16, programs: &PathBuf) -> Option<Self> {
        let made = rcgen::generate_simple_self_signed(["localhost".to_owned()]).unwrap();
        let mut supervisor = Command::new("sh")
            .args(["-c", SUPERVISOR, "sh"])
            .arg(programs)
            .arg(port.to_string())
            .arg(env!("CARGO_TARGET_TMPDIR"))
            .env("KEY", made.signing_key.serialize_pem())
            .env("CERTIFICATE", made.cert.pem())
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let mut line = String::new();
        let mut output = BufReader::new(supervisor.stdout.take().unwrap());
        output.read_line(&mut line).unwrap();
        if line.starts_with("ready") {
            return Some(Server {
                port,
                #[cfg(feature = "tls")]
                certificate: made.cert.der().to_vec(),
                pipes: Mutex::new((supervisor.stdin.take().unwrap(), output)),
                _supervisor: supervisor,
            });
        }
        supervisor.wait().unwrap();
        None
    }

    /// Ends the server as a crash would, and starts it again.
    pub(crate) fn restart(&self) {
        let mut pipes = self.pipes.lock().unwrap();
        let (input, output) = &mut *pipes;
        writeln!(input).unwrap();
        let mut line = String::new();
        output.read_line(&mut line).unwrap();
        assert_eq!(line.trim(), "ready");
    }

    pub(crate) fn port(&self) -> u16 {
        self.port
    }

    #[cfg(feature = "tls")]
    pub(crate) fn certificate(&self) -> Vec<u8> {
        self.certificate.clone()
    }

    /// Returns the parameters of a connection.
    pub(crate) fn config(&self) -> String {
        config(self.port)
    }

    /// Connects a client.
    pub(crate) fn client(&self) -> Client {
        let config: netwheel::durable::postgres::Config = self.config().parse().unwrap();
        config.connect(netwheel::durable::postgres::NoTls).unwrap()
    }

    /// Returns a builder for a store in a schema of the test.
    pub(crate) fn builder(&self, schema: &str) -> PostgresStoreBuilder {
        PostgresStore::builder(&self.config()).schema(schema)
    }
}

/// Returns the parameters of a connection to a port, which may be a proxy.
pub(crate) fn config(port: u16) -> String {
    format!("host=127.0.0.1 port={port} user=postgres dbname=postgres")
}

pub(crate) fn free_port() -> u16 {
    TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port()
}

/// Returns the directory with the newest installed server. Debian does not add it to the path.
fn programs() -> Option<PathBuf> {
    let versions = fs::read_dir("/usr/lib/postgresql").ok()?;
    let directories = versions.filter_map(|version| Some(version.ok()?.path().join("bin")));
    directories.filter(|directory| directory.join("initdb").exists()).max()
}
