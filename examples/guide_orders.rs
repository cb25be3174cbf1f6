//! Orders in PostgreSQL, each with a reminder in the same transaction: a program of the guide's
//! chapter on durable timers. Reminders are sent by a webhook, and several nodes share the work.
//!
//! ```text
//! cargo run --features postgres-019,http --example guide_orders -- \
//!     "host=127.0.0.1 user=shop dbname=shop" 127.0.0.1:7000 hooks.example:80
//! nc 127.0.0.1 7000            # ORDER 17
//! ```

use bytes::Bytes;
use netwheel::{
    codec::Line,
    durable::{
        Due, DurableTimers, Late, PostgresStoreBuilder, Retry, Topic,
        postgres::{Client, Config, NoTls},
    },
    http::{Call, HttpClient, Request},
    pool::ChannelPool,
    prelude::*,
    shutdown::ShutdownOptions,
};
use std::{
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

/// The orders, and connections to their database that are not in use.
struct Shop {
    config: Config,
    idle: Mutex<Vec<Client>>,
    timers: DurableTimers,
    time_to_pay: Duration,
}

impl Shop {
    /// Stores an order together with its reminder, or neither of them.
    fn place(&self, order: i64) -> Result<&'static str> {
        let mut client = self.client()?;
        let mut transaction = client.transaction().map_err(Error::other)?;
        let sql = "INSERT INTO orders (id) VALUES ($1) ON CONFLICT DO NOTHING";
        let is_new = transaction.execute(sql, &[&order]).map_err(Error::other)? == 1;
        self.timers.at("unpaid", self.time_to_pay, &order).key(key(order)).start_in(&mut transaction)?;
        transaction.commit().map_err(Error::other)?;
        self.keep(client);
        Ok(if is_new { "placed" } else { "known" })
    }

    fn pay(&self, order: i64) -> Result<&'static str> {
        let mut client = self.client()?;
        let sql = "UPDATE orders SET state = 'paid' WHERE id = $1 AND state <> 'paid'";
        let paid = client.execute(sql, &[&order]).map_err(Error::other)?;
        self.keep(client);
        Ok(if paid == 1 { "paid" } else { "nothing to pay" })
    }

    fn client(&self) -> Result<Client> {
        let kept = self.idle.lock().unwrap_or_else(PoisonError::into_inner).pop();
        kept.filter(|client| !client.is_closed())
            .map_or_else(|| self.config.connect(NoTls).map_err(Error::other), Ok)
    }

    fn keep(&self, client: Client) {
        self.idle.lock().unwrap_or_else(PoisonError::into_inner).push(client);
    }
}

fn key(order: i64) -> String {
    format!("order-{order}")
}

/// The handler of reminders. Its first question is whether the order is still unpaid.
fn remind_unpaid(webhook: ChannelPool<Call>) -> impl FnMut(Due<i64>) + Send {
    move |due| {
        let (order, webhook) = (*due.payload(), webhook.clone());
        let unpaid = due.timers().transaction(move |transaction| {
            let sql = "SELECT FROM orders WHERE id = $1 AND state = 'unpaid'";
            let found = transaction.postgres()?.query_opt(sql, &[&order]).map_err(Error::other)?;
            Ok(found.is_some())
        });
        unpaid.on_complete(move |unpaid| match unpaid {
            Ok(true) => send(&webhook, order, due),
            Ok(false) => due.done(),
            Err(error) => due.fail(error),
        });
    }
}

/// Calls the webhook. The run is tried again until that has answered with success.
fn send(webhook: &ChannelPool<Call>, order: i64, due: Due<i64>) {
    // The receiver knows a repeated call by its key.
    let request = Request::post("/reminders", format!("{{\"order\":{order}}}"))
        .header("Content-Type", "application/json")
        .header("Idempotency-Key", key(order));
    webhook.request(request).timeout(Duration::from_secs(5)).send().on_complete(
        move |response| match response {
            Ok(response) if response.head.status().is_success() => due.done_with(move |transaction| {
                let sql = "UPDATE orders SET state = 'reminded' WHERE id = $1 AND state = 'unpaid'";
                transaction.postgres()?.execute(sql, &[&order]).map(drop).map_err(Error::other)
            }),
            Ok(response) => due.fail(format!("the webhook answered {}", response.head.status())),
            Err(error) => due.fail(error),
        },
    );
}

/// A client of the shop.
struct Session(Arc<Shop>);

impl Handler for Session {
    type Read = Bytes;
    type Write = Bytes;

    fn read(&mut self, ctx: &mut Context<'_, Self>, line: Bytes) -> Result {
        let shop = self.0.clone();
        // A statement blocks its thread, so it runs on a worker.
        let work = move || match String::from_utf8_lossy(&line).split_once(' ') {
            Some(("ORDER", order)) => shop.place(order.parse().map_err(Error::other)?),
            Some(("PAY", order)) => shop.pay(order.parse().map_err(Error::other)?),
            _ => Ok("error: ORDER <number>, PAY <number>"),
        };
        ctx.offload(work, |_, ctx, answer| match answer? {
            Ok(text) => ctx.write(text.into()),
            Err(error) => ctx.write(format!("error: {error}").into()),
        })?;
        Ok(())
    }
}

fn main() -> Result {
    let mut arguments = std::env::args().skip(1);
    let mut argument = |usual: &str| arguments.next().unwrap_or(usual.to_owned());
    let config: Config = argument("host=127.0.0.1 user=shop dbname=shop").parse().map_err(Error::other)?;
    let (listen, webhook) = (argument("127.0.0.1:7000"), argument("127.0.0.1:7001"));
    let time_to_pay = Duration::from_millis(argument("1800000").parse().map_err(Error::other)?);

    let table = "CREATE TABLE IF NOT EXISTS orders (id bigint PRIMARY KEY, state text DEFAULT 'unpaid')";
    config.connect(NoTls).and_then(|mut client| client.batch_execute(table)).map_err(Error::other)?;
    let group = EventLoopGroup::builder().threads(2).build()?;
    let http = HttpClient::new().host(&webhook);
    let webhook =
        ClientBootstrap::new(&group).pipeline(move |_| http.calls(64 * 1024)).pool().build(&*webhook)?;
    let retry = Retry::backoff(10).initial(Duration::from_millis(500));
    let timers = DurableTimers::builder(PostgresStoreBuilder::from_config(config.clone()).open()?)
        .topic(Topic::new("unpaid", Late::RunOnce, retry, remind_unpaid(webhook)))
        .start(&group)?;
    let shop = Arc::new(Shop { config, idle: Mutex::default(), timers: timers.clone(), time_to_pay });
    let server = ServerBootstrap::new(&group)
        .pipeline(move |_peer| Pipeline::codec(Line::new()).handler(Session(shop.clone())))
        .bind(&*listen)?;

    let stop = server.clone();
    ctrlc::set_handler(move || stop.close().detach()).map_err(Error::other)?;
    println!("listening on {}", server.local_address());
    server.closed().wait()?;
    drop(timers.close().wait_timeout(Duration::from_secs(10)));
    println!("{}", group.shutdown(ShutdownOptions::new().quiet_period(Duration::ZERO)).wait()?);
    Ok(())
}
