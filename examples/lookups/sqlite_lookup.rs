//! A server that looks users up in an SQLite database.
//!
//! ```text
//! cargo run --release --manifest-path examples/lookups/Cargo.toml --bin sqlite_lookup
//! nc 127.0.0.1 7010            # type 1, 2 or 3: a user's number
//! ```
//!
//! A query blocks its thread, so it must not run on an event loop. `ctx.offload` runs it on a
//! thread of the worker pool, and the answer comes back to the handler. Ctrl-C stops the server.

use bytes::Bytes;
use clap::Parser;
use netwheel::{codec::Line, prelude::*, shutdown::ShutdownOptions, worker_pool::WorkerPool};
use rusqlite::{Connection, OptionalExtension};
use std::{
    net::SocketAddr,
    path::PathBuf,
    sync::{Arc, Mutex, PoisonError, mpsc},
    time::Duration,
};

/// Looks users up in an SQLite database.
#[derive(Parser)]
struct Options {
    /// Address to listen on; port 0 selects a free port.
    #[arg(long, default_value = "127.0.0.1:7010")]
    listen: SocketAddr,
    /// Database file; created with three users if it does not exist.
    #[arg(long, default_value = "users.sqlite")]
    database: PathBuf,
}

/// The table of users, and connections to it that are not in use.
struct Users {
    path: PathBuf,
    idle: Mutex<Vec<Connection>>,
}

impl Users {
    /// Opens the database, and creates the table if it is missing.
    fn open(path: PathBuf) -> rusqlite::Result<Self> {
        let connection = Connection::open(&path)?;
        connection.execute_batch(
            "CREATE TABLE IF NOT EXISTS users (id INTEGER PRIMARY KEY, name TEXT NOT NULL);
             INSERT OR IGNORE INTO users VALUES (1, 'Ada'), (2, 'Grace'), (3, 'Edsger');",
        )?;
        Ok(Users { path, idle: Mutex::new(vec![connection]) })
    }

    fn idle(&self) -> std::sync::MutexGuard<'_, Vec<Connection>> {
        self.idle.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns the name of a user. Blocks the calling thread. Opens at most one connection for each
    /// thread that calls it at the same time.
    fn name_of(&self, id: i64) -> rusqlite::Result<Option<String>> {
        let kept = self.idle().pop();
        let connection = kept.map_or_else(|| Connection::open(&self.path), Ok)?;
        let name = connection
            .prepare_cached("SELECT name FROM users WHERE id = ?1")?
            .query_row([id], |row| row.get(0))
            .optional()?;
        self.idle().push(connection);
        Ok(name)
    }
}

/// Answers each line, a user's number, with the user's name.
struct Lookup {
    users: Arc<Users>,
}

impl Handler for Lookup {
    type Read = Bytes;
    type Write = Bytes;

    fn read(&mut self, ctx: &mut Context<'_, Self>, line: Bytes) -> Result {
        let Some(id) = std::str::from_utf8(&line).ok().and_then(|id| id.trim().parse().ok()) else {
            return ctx.write("not a number".into());
        };
        let users = self.users.clone();
        // One query of a connection at a time: answers keep the order of the questions, and a
        // client cannot fill the queue of the pool.
        let paused = ctx.pause_reading();
        ctx.offload(
            move || users.name_of(id),
            move |_, ctx, name| {
                drop(paused);
                // The outer error is a panic of the query, which closes the channel.
                ctx.write(match name? {
                    Ok(Some(name)) => name.into(),
                    Ok(None) => "unknown".into(),
                    Err(error) => {
                        log::warn!("user {id}: {error}");
                        "database error".into()
                    }
                })
            },
        )?;
        Ok(())
    }
}

/// Starts the server on a group with a pool of four threads for queries.
fn start(listen: SocketAddr, database: PathBuf) -> Result<(EventLoopGroup, Server)> {
    let users = Arc::new(Users::open(database).map_err(Error::other)?);
    let workers = WorkerPool::builder().threads(4).max_pending(1000).build()?;
    let group = EventLoopGroup::builder().threads(2).name("lookup").workers(&workers).build()?;
    let server = ServerBootstrap::new(&group)
        .pipeline(move |_peer| {
            Pipeline::codec(Line::new().max_len(64)).handler(Lookup { users: users.clone() })
        })
        .bind(listen)?;
    Ok((group, server))
}

fn main() -> Result {
    let options = Options::parse();
    let (stop, stopped) = mpsc::channel();
    ctrlc::set_handler(move || stop.send(()).unwrap_or_default()).map_err(Error::other)?;
    let (group, server) = start(options.listen, options.database)?;
    println!("listening on {}", server.local_address());
    stopped.recv().map_err(Error::other)?;
    group
        .shutdown(ShutdownOptions::new().quiet_period(Duration::ZERO).timeout(Duration::from_secs(5)))
        .wait()
        .map(drop)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::{
        io::{BufRead, BufReader, Write},
        net::TcpStream,
    };

    #[test]
    fn questions_are_answered_in_order() {
        let path = std::env::temp_dir().join(format!("netwheel-lookup-{}.sqlite", std::process::id()));
        let _ = std::fs::remove_file(&path);
        let (group, server) = start("127.0.0.1:0".parse().unwrap(), path.clone()).unwrap();
        let address: SocketAddr = server.local_address().to_string().parse().unwrap();
        let clients: Vec<_> = (0..8)
            .map(|_| {
                std::thread::spawn(move || {
                    let mut stream = TcpStream::connect(address).unwrap();
                    stream.write_all(b"1\n2\nx\n3\n4\n").unwrap();
                    let answers = BufReader::new(stream).lines().take(5);
                    answers.collect::<std::io::Result<Vec<_>>>().unwrap()
                })
            })
            .collect();
        for client in clients {
            assert_eq!(client.join().unwrap(), ["Ada", "Grace", "not a number", "Edsger", "unknown"]);
        }
        group
            .shutdown(ShutdownOptions::new().quiet_period(Duration::ZERO).timeout(Duration::from_secs(5)))
            .wait()
            .unwrap();
        std::fs::remove_file(path).unwrap();
    }
}
