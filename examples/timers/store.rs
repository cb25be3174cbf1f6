//! Opens the store that is named on the command line.

#[cfg(feature = "postgres-019")]
use netwheel::durable::{
    PostgresStore,
    postgres::{Config, NoTls},
};
use netwheel::{
    durable::{DurableTimers, DurableTimersBuilder, SqliteStore, StoreError},
    prelude::*,
};
use std::path::Path;

/// Opens a store. Creates one only if that is wanted, so that a mistyped name is noticed.
pub(crate) fn open(name: &str, schema: &str, creates: bool) -> Result<DurableTimersBuilder> {
    if ["postgres://", "postgresql://"].iter().any(|scheme| name.starts_with(scheme)) {
        return server(name, schema, creates);
    }
    let file = Path::new(name);
    if !creates && !file.exists() {
        return Err(Error::other(format!("there is no file {name}")));
    }
    let store = SqliteStore::open(file).map_err(|error| match error {
        StoreError::InUse => Error::other(format!("{name} is in use by a running program; stop it first")),
        StoreError::NotAStore => Error::other(format!("{name} is not a store of timers")),
        error => Error::other(format!("cannot open {name}: {error}")),
    })?;
    Ok(DurableTimers::builder(store))
}

/// Connects to a server, without TLS. Its other nodes can stay running.
#[cfg(feature = "postgres-019")]
fn server(url: &str, schema: &str, creates: bool) -> Result<DurableTimersBuilder> {
    let builder = PostgresStore::builder(url).schema(schema).node("operator");
    let is_missing = || {
        let mut client = url.parse::<Config>()?.connect(NoTls)?;
        client.query("SELECT FROM pg_namespace WHERE nspname = $1", &[&schema]).map(|found| found.is_empty())
    };
    if !creates && is_missing().map_err(Error::other)? {
        return Err(Error::other(format!("there is no schema {schema}")));
    }
    Ok(DurableTimers::builder(builder.open()?))
}

#[cfg(not(feature = "postgres-019"))]
fn server(_url: &str, _schema: &str, _creates: bool) -> Result<DurableTimersBuilder> {
    Err(Error::other("this program was built without the feature postgres-019"))
}
