//! Durable timers on a PostgreSQL server: starts, many timers due at once, many pending timers.

use crate::{
    Settings, TEXT, TOPIC,
    bare::{Bare, now_millis},
    report::{Report, spread},
    starts::{compare, start},
};
use netwheel::{
    Error, EventLoopGroup, Result,
    durable::{
        Due, DurableTimers, Late, PostgresStore, Retry, TimerStore, Topic,
        postgres::{Client, Config, NoTls},
    },
};
use std::{
    collections::BTreeSet,
    sync::mpsc::channel,
    thread,
    time::{Duration, Instant},
};

/// The number of timers in a transaction while they are prepared.
const BATCH: u64 = 1000;

/// The longest time until a timer fires.
const PATIENCE: Duration = Duration::from_secs(60);

/// The pending timers are due from an hour on, in the course of 30 days, in another order than that
/// of their ids.
const FILL: &str = "
    INSERT INTO {schema}.timers (partition, topic, state, due, scheduled, attempts, payload, changed_by,
        changed_in)
    SELECT n % 64, topic.id, 0, due, due, 0, $3, 0, pg_current_xact_id()::text::bigint
    FROM {schema}.topics AS topic, generate_series(1, $1::bigint) AS n,
        LATERAL (SELECT $2::bigint + 3600000 + n * 97000291 % 2592000000) AS times (due)";

/// What a schema takes on the disk, with its indexes.
const BYTES: &str = "
    SELECT sum(pg_total_relation_size(c.oid))::bigint FROM pg_class c
    JOIN pg_namespace n ON n.oid = c.relnamespace WHERE n.nspname = $1 AND c.relkind = 'r'";

/// A schema that is removed at the end.
struct Schema<'a> {
    config: &'a str,
    name: String,
}

impl<'a> Schema<'a> {
    fn new(config: &'a str, part: &str) -> Self {
        Schema { config, name: format!("netwheel_bench_{}_{part}", std::process::id()) }
    }

    fn store(&self) -> Result<PostgresStore> {
        PostgresStore::builder(self.config).schema(&self.name).open()
    }

    fn client(&self) -> Result<Client> {
        let config: Config = self.config.parse().map_err(Error::other)?;
        config.connect(NoTls).map_err(Error::other)
    }
}

impl Drop for Schema<'_> {
    fn drop(&mut self) {
        let sql = format!("DROP SCHEMA IF EXISTS {} CASCADE", self.name);
        if let Err(error) =
            self.client().and_then(|mut client| client.batch_execute(&sql).map_err(Error::other))
        {
            eprintln!("the schema {} stays: {error}", self.name);
        }
    }
}

pub(crate) fn measure(settings: &Settings, config: &str, report: &mut Report) -> Result {
    starts(settings, config, report)?;
    burst(settings, config)?;
    size(settings, config)
}

fn starts(settings: &Settings, config: &str, report: &mut Report) -> Result {
    let (schema, bare) = (Schema::new(config, "starts"), Schema::new(config, "bare"));
    let group = EventLoopGroup::builder().threads(1).build()?;
    let timers = start(DurableTimers::builder(schema.store()?), &group)?;
    let mut store = Bare::on(bare.store()?)?;
    compare("postgres", settings, &timers, &mut store, report)?;
    timers.close().wait()
}

/// Timers that are all due when they are opened.
fn burst(settings: &Settings, config: &str) -> Result {
    let schema = Schema::new(config, "burst");
    let mut rates = Vec::new();
    for round in 1..=settings.restarts {
        let mut store = Bare::on(schema.store()?)?;
        for begin in (0..settings.burst).step_by(BATCH as usize) {
            let due = now_millis();
            store.commit((begin..(begin + BATCH).min(settings.burst)).map(|_| due))?;
        }
        drop(store);
        let (sender, fired) = channel();
        let handler = move |due: Due<String>| {
            due.done();
            let _ = sender.send(());
        };
        let group = EventLoopGroup::builder().threads(1).build()?;
        let topic = Topic::new(TOPIC, Late::RunOnce, Retry::never(), handler);
        let timers = DurableTimers::builder(schema.store()?).topic(topic).start(&group)?;
        let mut begun = None;
        for _ in 0..settings.burst {
            fired.recv_timeout(PATIENCE).map_err(|_| Error::other("too few timers fired"))?;
            begun.get_or_insert_with(Instant::now);
        }
        // Includes the last ends.
        timers.close().wait()?;
        let seconds = begun.map_or(f64::NAN, |begun| begun.elapsed().as_secs_f64());
        let metrics = timers.metrics();
        if metrics.ended != settings.burst {
            return Err(Error::other(format!("{} runs ended", metrics.ended)));
        }
        rates.push(settings.burst as f64 / seconds);
        eprintln!(
            "burst, round {round} of {}: {:.0} runs/s, {:.0} claims and ends per transaction",
            settings.restarts,
            rates[round - 1],
            metrics.changes as f64 / metrics.commits as f64
        );
    }
    let [low, median, high] = spread(rates.into_iter());
    println!();
    println!("{} timers due at once: {median:.0} runs/s ({low:.0}..{high:.0})", settings.burst);
    Ok(())
}

fn size(settings: &Settings, config: &str) -> Result {
    let schema = Schema::new(config, "size");
    let begun = Instant::now();
    drop(Bare::on(schema.store()?)?);
    let bytes = fill(&schema, settings.pending)?;
    eprintln!("size: {} timers in {:.1} s", settings.pending, begun.elapsed().as_secs_f64());
    let (mut opens, mut fires, mut renewals) = (Vec::new(), Vec::new(), Vec::new());
    for round in 1..=settings.restarts {
        Bare::on(schema.store()?)?.commit(std::iter::once(now_millis()))?;
        let (sender, fired) = channel();
        let handler = move |due: Due<String>| {
            let _ = sender.send(Instant::now());
            due.done();
        };
        let group = EventLoopGroup::builder().threads(1).build()?;
        let begun = Instant::now();
        let store = schema.store()?;
        opens.push(begun.elapsed().as_secs_f64() * 1000.0);
        let topic = Topic::new(TOPIC, Late::RunOnce, Retry::never(), handler);
        let timers = DurableTimers::builder(store).topic(topic).start(&group)?;
        let first = fired.recv_timeout(PATIENCE).map_err(|_| Error::other("no timer fired"))?;
        fires.push((first - begun).as_secs_f64() * 1000.0);
        timers.close().wait()?;
        renewals.push(renewal(&schema)?);
        eprintln!(
            "size, round {round} of {}: opened in {:.1} ms, first fire after {:.1} ms, renewal {:.1} ms",
            settings.restarts,
            opens[round - 1],
            fires[round - 1],
            renewals[round - 1]
        );
    }
    let row = |name: &str, values: Vec<f64>| {
        let [low, median, high] = spread(values.into_iter());
        println!("| {name} | {median:.1} ({low:.1}..{high:.1}) |");
    };
    println!();
    println!("| {} pending timers | |", settings.pending);
    println!("|---|---:|");
    println!("| tables and indexes, bytes for each timer | {:.0} |", bytes / settings.pending.max(1) as f64);
    row("`open`, ms", opens);
    row("from `open` to the first fire, ms", fires);
    row("requests of a node every second: renewal, changes of others, counts, ms", renewals);
    Ok(())
}

/// Stores pending timers, and returns the bytes of the schema.
fn fill(schema: &Schema<'_>, pending: u64) -> Result<f64> {
    let mut client = schema.client()?;
    let pending = i64::try_from(pending).unwrap_or(i64::MAX);
    let payload = format!("\"{TEXT}\"").into_bytes();
    let run = || {
        client.execute(&FILL.replace("{schema}", &schema.name), &[&pending, &now_millis(), &payload])?;
        client.batch_execute(&format!("VACUUM ANALYZE {}.timers", schema.name))?;
        client.query_one(BYTES, &[&schema.name])?.try_get::<_, i64>(0)
    };
    let bytes = { run }();
    Ok(bytes.map_err(Error::other)? as f64)
}

/// Returns the milliseconds that the periodic requests of a node take, which it makes every second.
fn renewal(schema: &Schema<'_>) -> Result<f64> {
    const REPETITIONS: u32 = 20;
    let mut store = schema.store()?;
    store.attach(&[TOPIC.to_owned()])?;
    let near = now_millis() + 60_000;
    let mut renew = || -> Result {
        store.renew(&BTreeSet::new())?;
        store.changed_by_others(near, 8 << 20)?;
        store.counts()?;
        Ok(())
    };
    // The first ones take the partitions and prepare the statements.
    (0..3).try_for_each(|_| renew())?;
    let mut took = Duration::ZERO;
    for _ in 0..REPETITIONS {
        thread::sleep(Duration::from_millis(10));
        let begun = Instant::now();
        renew()?;
        took += begun.elapsed();
    }
    store.release()?;
    Ok(took.as_secs_f64() * 1000.0 / f64::from(REPETITIONS))
}
