//! Pools of connections, runtimes and roles: where a store can be opened.

use super::server::{config, free_port, server};
use crate::support::{process::are_installed, wait::wait_until};
use netwheel::{
    Error,
    durable::{PostgresStore, StoreError, TimerStore},
};
use std::{
    collections::BTreeSet,
    fs,
    net::TcpStream,
    process::{Child, Command, Stdio},
};

/// A pgbouncer in front of the server.
struct Pool {
    port: u16,
    process: Child,
    _directory: tempfile::TempDir,
}

impl Pool {
    fn new(server: u16, mode: &str) -> Self {
        // Another process may take the port before the pool does.
        let started = (0..5).find_map(|_| Self::start_on(free_port(), server, mode));
        started.expect("pgbouncer starts")
    }

    fn start_on(port: u16, server: u16, mode: &str) -> Option<Self> {
        let directory = tempfile::tempdir().unwrap();
        let settings = format!(
            "[databases]\n* = host=127.0.0.1 port={server}\n[pgbouncer]\nlisten_addr = 127.0.0.1\n\
            listen_port = {port}\nauth_type = any\npool_mode = {mode}\nunix_socket_dir =\n\
            ignore_startup_parameters = extra_float_digits\n"
        );
        // It does not run as root, and the directory of a test is its owner's alone.
        let file = directory.path().join("pool.ini");
        fs::write(&file, settings.replace("* =", "postgres = user=postgres dbname=postgres")).unwrap();
        let mut command = match Command::new("id").arg("-u").output().unwrap().stdout.as_slice() {
            b"0\n" => {
                Command::new("chmod").arg("-R").arg("a+rX").arg(directory.path()).status().unwrap();
                let mut command = Command::new("setpriv");
                command.args(["--reuid=nobody", "--regid=nogroup", "--clear-groups", "pgbouncer"]);
                command
            }
            _ => Command::new("pgbouncer"),
        };
        let process = command.arg(&file).stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
        let mut pool = Pool { port, process, _directory: directory };
        let mut has_ended = false;
        wait_until("the pool listens", || {
            has_ended = pool.process.try_wait().unwrap().is_some();
            has_ended || TcpStream::connect(("127.0.0.1", port)).is_ok()
        });
        (!has_ended).then_some(pool)
    }
}

impl Drop for Pool {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

#[test]
fn a_pool_in_transaction_mode_is_refused() {
    let Some(server) = server() else { return };
    if !are_installed(&["pgbouncer"]) {
        return;
    }
    let pool = Pool::new(server.port(), "transaction");
    let builder = PostgresStore::builder(&config(pool.port)).schema("pooled");
    let Err(Error::Other(cause)) = builder.open() else { panic!("it was opened") };
    let error = cause.downcast_ref::<StoreError>().unwrap();
    assert!(error.to_string().contains("a pool in transaction mode"), "{error}");
    let sql = "SELECT count(*) FROM pg_namespace WHERE nspname = 'pooled'";
    assert_eq!(server.client().query_one(sql, &[]).unwrap().get::<_, i64>(0), 0, "nothing was created");
}

#[test]
fn a_pool_in_session_mode_works() {
    let Some(server) = server() else { return };
    if !are_installed(&["pgbouncer"]) {
        return;
    }
    let pool = Pool::new(server.port(), "session");
    let mut store = PostgresStore::builder(&config(pool.port)).schema("sessions").open().unwrap();
    store.attach(&["topic".to_owned()]).unwrap();
    assert_eq!(store.renew(&BTreeSet::new()).unwrap().unwrap().partitions.len(), 64);
}

#[test]
fn a_store_is_opened_used_and_dropped_inside_a_runtime() {
    let Some(server) = server() else { return };
    let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
    runtime.block_on(async {
        let mut store = server.builder("in_runtime").open().unwrap();
        store.attach(&["topic".to_owned()]).unwrap();
        assert!(store.renew(&BTreeSet::new()).unwrap().is_some());
        drop(store);
        let nobody = PostgresStore::builder("host=127.0.0.1 port=1 user=u").open();
        assert!(nobody.is_err());
    });
}

/// It may neither create schemas in the database nor see those of others.
#[test]
fn a_role_that_owns_its_schema_needs_no_other_permission() {
    let Some(server) = server() else { return };
    let role = "CREATE ROLE modest LOGIN; CREATE SCHEMA modest AUTHORIZATION modest";
    server.client().batch_execute(role).unwrap();
    let config = server.config().replace("user=postgres", "user=modest");
    let open = || PostgresStore::builder(&config).schema("modest").open();
    let mut store = open().unwrap();
    store.attach(&["topic".to_owned()]).unwrap();
    assert!(store.renew(&BTreeSet::new()).unwrap().is_some());
    open().unwrap();
    let other = PostgresStore::builder(&config).schema("of_others").open();
    let Err(Error::Other(cause)) = other else { panic!("it was created") };
    let error = cause.downcast_ref::<StoreError>();
    assert!(
        matches!(error, Some(StoreError::Server(text)) if text.contains("permission denied")),
        "{error:?}"
    );
}
