//! Reminders in PostgreSQL, for users in SQLite.

use netwheel::{
    EventLoopGroup,
    durable::{Due, DurableTimers, Late, PostgresStore, Retry, Topic},
};
use sqlx::{Row, SqlitePool};
use std::time::Duration;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let runtime = tokio::runtime::Builder::new_current_thread().build()?;
    let name: String = runtime.block_on(async {
        let users = SqlitePool::connect("sqlite::memory:").await?;
        sqlx::query("SELECT 'ann'").fetch_one(&users).await?.try_get(0)
    })?;

    let remind = |due: Due<String>| {
        println!("a reminder for {}", due.payload());
        due.done();
    };
    let group = EventLoopGroup::new()?;
    let store = PostgresStore::builder("host=127.0.0.1 user=postgres").open()?;
    let timers = DurableTimers::builder(store)
        .topic(Topic::new("remind", Late::RunOnce, Retry::backoff(5), remind))
        .start(&group)?;
    timers.at("remind", Duration::from_secs(60), &name).start().wait()?;
    timers.close().wait()?;
    Ok(())
}
