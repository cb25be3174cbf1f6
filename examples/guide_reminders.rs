//! A server with reminders that survive a restart: the program of the guide's chapter on durable
//! timers.
//!
//! ```text
//! cargo run --features durable-sqlite --example guide_reminders -- /tmp/reminders.db
//! nc 127.0.0.1 7000            # IN 60 the tea is ready
//! ```

use bytes::Bytes;
use netwheel::{
    codec::Line,
    durable::{Due, DurableTimers, Late, Retry, SqliteStore, TimerId, Topic},
    prelude::*,
    shutdown::ShutdownOptions,
};
use serde::{Deserialize, Serialize};
use std::time::Duration;

/// The payload of a reminder, stored as JSON.
#[derive(Serialize, Deserialize)]
struct Reminder {
    text: String,
}

/// Opens the file with the reminders, and sets the handler for due reminders.
fn open(path: &str, group: &EventLoopGroup, clients: &ChannelGroup<Bytes>) -> Result<DurableTimers> {
    let readers = clients.clone();
    let remind = move |due: Due<Reminder>| {
        if readers.is_empty() {
            return due.fail("nobody is connected");
        }
        match readers.broadcast(format!("reminder: {}", due.payload().text).into()) {
            Ok(_) => due.done(),
            Err(refused) => due.fail(refused),
        }
    };
    let readers = clients.clone();
    let greet = move |due: Due<()>| {
        drop(readers.broadcast("good morning".into()));
        due.done();
    };
    let patient = Retry::backoff(1000).initial(Duration::from_millis(500)).max_delay(Duration::from_secs(60));
    let timers = DurableTimers::builder(SqliteStore::open(path)?)
        .topic(Topic::new("remind", Late::RunOnce, patient, remind))
        .topic(Topic::new("morning", Late::Skip, Retry::never(), greet))
        .start(group)?;
    // Started at each start of the program, stored once.
    timers.cron("morning", "0 9 * * MON-FRI", "Europe/Paris", &())?.start().wait()?;
    Ok(timers)
}

/// One client.
struct Session {
    timers: DurableTimers,
    clients: ChannelGroup<Bytes>,
}

impl Session {
    fn remind(&mut self, ctx: &mut Context<'_, Self>, arguments: &str) -> Result {
        let parsed = arguments.split_once(' ').and_then(|(time, text)| Some((time.parse().ok()?, text)));
        let Some((seconds, text)) = parsed else {
            return ctx.write("error: IN <seconds> <text>".into());
        };
        let reminder = Reminder { text: text.to_owned() };
        let stored = self.timers.at("remind", Duration::from_secs(seconds), &reminder).start();
        // The client gets its answer when the reminder is on disk.
        ctx.on_complete(stored, |_, ctx, stored| match stored {
            Ok(id) => ctx.write(format!("stored {id}").into()),
            Err(error) => ctx.write(format!("error: {error}").into()),
        });
        Ok(())
    }

    fn cancel(&mut self, ctx: &mut Context<'_, Self>, argument: &str) -> Result {
        let Ok(id) = argument.parse() else {
            return ctx.write("error: CANCEL <number>".into());
        };
        let cancelled = self.timers.cancel(TimerId::new(id));
        ctx.on_complete(cancelled, |_, ctx, cancelled| match cancelled {
            Ok(true) => ctx.write("cancelled".into()),
            Ok(false) => ctx.write("error: no such reminder".into()),
            Err(error) => ctx.write(format!("error: {error}").into()),
        });
        Ok(())
    }
}

impl Handler for Session {
    type Read = Bytes;
    type Write = Bytes;

    fn active(&mut self, ctx: &mut Context<'_, Self>) -> Result {
        self.clients.join(ctx.channel());
        ctx.write("welcome; send IN <seconds> <text>, CANCEL <number>".into())
    }

    fn read(&mut self, ctx: &mut Context<'_, Self>, line: Bytes) -> Result {
        let line = String::from_utf8_lossy(&line);
        match line.split_once(' ') {
            Some(("IN", arguments)) => self.remind(ctx, arguments),
            Some(("CANCEL", argument)) => self.cancel(ctx, argument),
            _ => ctx.write("error: unknown command".into()),
        }
    }
}

fn main() -> Result {
    let mut arguments = std::env::args().skip(1);
    let path = arguments.next().unwrap_or("reminders.db".to_owned());
    let address = arguments.next().unwrap_or("127.0.0.1:7000".to_owned());
    let group = EventLoopGroup::builder().threads(2).build()?;
    let clients = ChannelGroup::new();
    let timers = open(&path, &group, &clients)?;
    for topic in timers.unknown_topics() {
        println!("timers of the topic {topic} wait for a program that knows it");
    }
    let sessions = timers.clone();
    let server = ServerBootstrap::new(&group)
        .pipeline(move |_peer| {
            Pipeline::codec(Line::new().max_len(4096))
                .handler(Session { timers: sessions.clone(), clients: clients.clone() })
        })
        .bind(&*address)?;

    let stop = server.clone();
    ctrlc::set_handler(move || stop.close().detach()).map_err(Error::other)?;
    println!("listening on {}", server.local_address());
    server.closed().wait()?;
    // The handlers of timers write to channels, so the timers are closed before the loops.
    if timers.close().wait_timeout(Duration::from_secs(5)).is_err() {
        println!("a reminder has no answer yet; it fires again after the next start");
    }
    let options = ShutdownOptions::new().quiet_period(Duration::ZERO).timeout(Duration::from_secs(5));
    let report = group.shutdown(options).wait()?;
    println!("{report}");
    Ok(())
}
