//! Durable timers on a manual clock, from the guide's chapter about them.

use netwheel::{
    Error, EventLoopGroup, Result,
    durable::{Due, DurableTimers, Late, Retry, SqliteStore, TimerFilter, TimerState, Topic, rusqlite},
    group::ManualEventLoop,
    testing::ManualClock,
};
use std::{
    path::Path,
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU32, Ordering},
        mpsc::{self, Receiver},
    },
    time::Duration,
};

const HOUR: Duration = Duration::from_secs(3600);
const DAY: Duration = Duration::from_secs(24 * 3600);

/// Runs the loop until a handler has sent something.
fn next<T>(by_hand: &mut ManualEventLoop, received: &Receiver<T>) -> T {
    loop {
        if let Ok(value) = received.try_recv() {
            return value;
        }
        by_hand.run_once(None);
    }
}

/// P-03.
#[test]
fn a_reminder_fires_after_three_days_and_not_before() -> Result {
    let clock = ManualClock::new();
    let mut by_hand = EventLoopGroup::builder().clock(clock.clone()).build_manual()?;
    let (sender, received) = mpsc::channel();
    let remind = move |due: Due<String>| {
        sender.send(due.payload().clone()).unwrap();
        due.done();
    };
    let timers = DurableTimers::builder(SqliteStore::in_memory()?)
        .topic(Topic::new("remind", Late::RunOnce, Retry::never(), remind))
        .start(by_hand.group())?;
    by_hand.run_until(timers.at("remind", 3 * DAY, "tea").start())?;

    clock.advance(3 * DAY - Duration::from_millis(1));
    // The store answers after the loop has seen the new time.
    by_hand.run_until(timers.counts())?;
    assert_eq!(timers.metrics().fired, 0);

    clock.advance(Duration::from_millis(1));
    assert_eq!(next(&mut by_hand, &received), "tea");
    by_hand.run_until(timers.close())
}

const MINUTE: Duration = Duration::from_secs(60);

/// A printer that may be off.
#[derive(Clone, Default)]
struct Printer {
    is_on: Arc<AtomicBool>,
    attempts: Arc<AtomicU32>,
}

impl Printer {
    fn submit(&self, _page: &str) {
        self.attempts.fetch_add(1, Ordering::Relaxed);
    }

    fn has_printed(&self) -> bool {
        self.is_on.load(Ordering::Relaxed)
    }
}

/// Submits a page, and looks a second later whether it was printed. Gives up when the page is ten
/// minutes late, after any number of attempts.
fn print(printer: &Printer, due: Due<String>) {
    if due.lateness() > 10 * MINUTE {
        return due.skip();
    }
    printer.submit(due.payload());
    let (event_loop, printer) = (due.event_loop(), printer.clone());
    let look = move || {
        if printer.has_printed() { due.done() } else { due.fail("the printer is off") }
    };
    // If the loop refuses the task, it drops `due`, and the run has failed.
    drop(event_loop.schedule(Duration::from_secs(1), look));
}

#[test]
fn a_handler_looks_again_on_its_loop_and_gives_up_after_a_total_time() -> Result {
    let clock = ManualClock::new();
    let mut by_hand = EventLoopGroup::builder().clock(clock.clone()).build_manual()?;
    let printer = Printer::default();
    let pages = printer.clone();
    let every_minute = Retry::backoff(1000).initial(MINUTE).max_delay(MINUTE);
    let topic = Topic::new("print", Late::RunOnce, every_minute, move |due| print(&pages, due))
        .run_timeout(Duration::from_secs(30));
    let timers = DurableTimers::builder(SqliteStore::in_memory()?).topic(topic).start(by_hand.group())?;
    for is_on in [true, false] {
        printer.is_on.store(is_on, Ordering::Relaxed);
        by_hand.run_until(timers.at("print", Duration::ZERO, "page").start())?;
        let is_over = || if is_on { timers.metrics().ended == 1 } else { timers.metrics().skipped == 1 };
        while !is_over() {
            clock.advance(Duration::from_secs(1));
            // The store answers after the loop has seen the new time.
            by_hand.run_until(timers.counts())?;
        }
    }
    let metrics = timers.metrics();
    assert_eq!((metrics.timed_out, metrics.dead), (0, 0));
    // Attempts begin a minute after the failure of the one before.
    let attempts = printer.attempts.load(Ordering::Relaxed);
    assert!((1 + 9..=1 + 10).contains(&attempts), "{attempts} attempts");
    by_hand.run_until(timers.close())
}

fn hourly(
    path: &Path,
    late: Late,
    by_hand: &ManualEventLoop,
) -> Result<(DurableTimers, Receiver<(u64, Duration)>)> {
    let (sender, received) = mpsc::channel();
    let check = move |due: Due<()>| {
        sender.send((due.missed(), due.lateness())).unwrap();
        due.done();
    };
    let timers = DurableTimers::builder(SqliteStore::open(path)?)
        .topic(Topic::new("hourly", late, Retry::never(), check))
        .start(by_hand.group())?;
    Ok((timers, received))
}

/// P-13.
#[test]
fn a_restart_after_two_and_a_half_hours_runs_once_for_all_missed_runs() -> Result {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("timers.db");
    let clock = ManualClock::new();
    let mut by_hand = EventLoopGroup::builder().clock(clock.clone()).build_manual()?;
    let (timers, _) = hourly(&path, Late::RunOnce, &by_hand)?;
    by_hand.run_until(timers.every("hourly", HOUR, &()).start())?;
    by_hand.run_until(timers.close())?;

    clock.advance(HOUR * 7 / 2); // the first run was due after one hour
    let (timers, received) = hourly(&path, Late::RunOnce, &by_hand)?;
    assert_eq!(next(&mut by_hand, &received), (2, HOUR * 5 / 2));
    by_hand.run_until(timers.close())
}

/// P-06.
#[test]
fn a_row_is_written_once_although_the_first_attempt_fails() -> Result {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("timers.db");
    let clock = ManualClock::new();
    let mut by_hand = EventLoopGroup::builder().clock(clock.clone()).build_manual()?;
    let (sender, attempts) = mpsc::channel();
    let charge = move |due: Due<u32>| {
        let (amount, attempt) = (*due.payload(), due.attempt());
        sender.send(attempt).unwrap();
        due.done_with(move |transaction| {
            let database = transaction.sqlite()?;
            database.execute_batch("CREATE TABLE IF NOT EXISTS charges (amount)").map_err(Error::other)?;
            database.execute("INSERT INTO charges VALUES (?1)", [amount]).map_err(Error::other)?;
            if attempt == 1 {
                return Err(Error::other("rolled back with its row"));
            }
            Ok(())
        });
    };
    let timers = DurableTimers::builder(SqliteStore::open(&path)?)
        .topic(Topic::new("charge", Late::RunOnce, Retry::backoff(3), charge))
        .start(by_hand.group())?;
    by_hand.run_until(timers.at("charge", Duration::ZERO, &25).key("invoice-17").start())?;
    assert_eq!(next(&mut by_hand, &attempts), 1);
    // The next attempt is a second later.
    while timers.metrics().ended == 0 {
        by_hand.run_once(None);
    }
    clock.advance(Duration::from_secs(1));
    assert_eq!(next(&mut by_hand, &attempts), 2);
    by_hand.run_until(timers.close())?;

    let database = rusqlite::Connection::open(&path).map_err(Error::other)?;
    let charges: u32 =
        database.query_row("SELECT count(*) FROM charges", [], |row| row.get(0)).map_err(Error::other)?;
    assert_eq!(charges, 1);
    Ok(())
}

fn start_periodic(timers: &DurableTimers) -> Result {
    timers.every("sample", Duration::from_secs(10), "cpu").key("cpu").start().wait()?;
    timers.every("sample", Duration::from_secs(60), "disk").key("disk").start().wait()?;
    timers.cron("digest", "0 9 * * MON-FRI", "Asia/Shanghai", "")?.start().wait()?;
    Ok(())
}

#[test]
fn periodic_timers_are_started_at_each_start_and_stored_once() -> Result {
    let mut by_hand = EventLoopGroup::builder().clock(ManualClock::new()).build_manual()?;
    let topic = |name| Topic::new(name, Late::Skip, Retry::never(), |due: Due<String>| due.done());
    let timers = DurableTimers::builder(SqliteStore::in_memory()?)
        .topic(topic("sample"))
        .topic(topic("digest"))
        .start(by_hand.group())?;
    start_periodic(&timers)?;
    start_periodic(&timers)?;
    let keys: Vec<_> = by_hand.run_until(timers.list(TimerFilter::new()))?;
    let keys: Vec<_> = keys.into_iter().filter_map(|timer| timer.key).collect();
    assert_eq!(keys, ["cpu", "disk", "periodic"]);
    by_hand.run_until(timers.close())
}

const TIME_TO_PAY: Duration = Duration::from_secs(30 * 60);

/// Orders that are cancelled unless they are paid within half an hour. The table of the orders and
/// the timers are in the same database.
struct Orders {
    timers: DurableTimers,
}

impl Orders {
    fn open(path: &Path, by_hand: &mut ManualEventLoop) -> Result<Self> {
        let cancel_unpaid = |due: Due<i64>| {
            let order = *due.payload();
            due.done_with(move |transaction| {
                // An order that was paid a moment ago stays paid, whichever transaction is first.
                let sql = "UPDATE orders SET state = 'cancelled' WHERE id = ?1 AND state = 'unpaid'";
                transaction.sqlite()?.execute(sql, [order]).map_err(Error::other)?;
                Ok(())
            });
        };
        let timers = DurableTimers::builder(SqliteStore::open(path)?)
            .topic(Topic::new("unpaid", Late::RunOnce, Retry::backoff(10), cancel_unpaid))
            .start(by_hand.group())?;
        let orders = Orders { timers };
        orders.write(by_hand, "CREATE TABLE IF NOT EXISTS orders (id INTEGER PRIMARY KEY, state)", None)?;
        Ok(orders)
    }

    /// Places an order. After a crash, calling this again completes the missing steps.
    fn place(&self, by_hand: &mut ManualEventLoop, id: i64) -> Result {
        self.write(by_hand, "INSERT OR IGNORE INTO orders VALUES (?1, 'unpaid')", Some(id))?;
        let deadline = self.timers.at("unpaid", TIME_TO_PAY, &id).key(format!("order-{id}"));
        by_hand.run_until(deadline.start())?;
        Ok(())
    }

    /// Returns whether the payment was in time.
    fn pay(&self, by_hand: &mut ManualEventLoop, id: i64) -> Result<bool> {
        let sql = "UPDATE orders SET state = 'paid' WHERE id = ?1 AND state = 'unpaid'";
        // The timer is not cancelled: it fires, and finds nothing to do.
        Ok(self.write(by_hand, sql, Some(id))? == 1)
    }

    /// Gives the customer more time.
    fn postpone(&self, by_hand: &mut ManualEventLoop, id: i64) -> Result<bool> {
        let moved = self.timers.move_key("unpaid", &format!("order-{id}"), 2 * TIME_TO_PAY);
        by_hand.run_until(moved)
    }

    /// Runs a statement, and returns the number of rows that it has changed.
    fn write(&self, by_hand: &mut ManualEventLoop, sql: &'static str, id: Option<i64>) -> Result<usize> {
        by_hand.run_until(self.timers.transaction(move |transaction| {
            let parameters = rusqlite::params_from_iter(id);
            transaction.sqlite()?.execute(sql, parameters).map_err(Error::other)
        }))
    }

    fn state(&self, by_hand: &mut ManualEventLoop, id: i64) -> Result<String> {
        by_hand.run_until(self.timers.transaction(move |transaction| {
            let sql = "SELECT state FROM orders WHERE id = ?1";
            transaction.sqlite()?.query_row(sql, [id], |row| row.get(0)).map_err(Error::other)
        }))
    }
}

#[test]
fn an_order_is_cancelled_unless_it_is_paid_in_time() -> Result {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("orders.db");
    let clock = ManualClock::new();
    let mut by_hand = EventLoopGroup::builder().clock(clock.clone()).build_manual()?;
    let orders = Orders::open(&path, &mut by_hand)?;
    orders.place(&mut by_hand, 1)?;
    orders.place(&mut by_hand, 2)?;
    assert!(orders.pay(&mut by_hand, 1)?);
    assert!(orders.postpone(&mut by_hand, 2)?);

    // The shop is closed for maintenance when the time is up.
    by_hand.run_until(orders.timers.close())?;
    clock.advance(2 * TIME_TO_PAY);
    let orders = Orders::open(&path, &mut by_hand)?;
    while orders.timers.metrics().ended < 2 {
        by_hand.run_once(None);
    }
    assert_eq!(orders.state(&mut by_hand, 1)?, "paid");
    assert_eq!(orders.state(&mut by_hand, 2)?, "cancelled");
    assert!(!orders.pay(&mut by_hand, 2)?, "too late");
    by_hand.run_until(orders.timers.close())
}

/// P-09.
#[test]
fn a_dead_letter_is_listed_and_run_again() -> Result {
    let mut by_hand = EventLoopGroup::builder().clock(ManualClock::new()).build_manual()?;
    let (sender, received) = mpsc::channel();
    let send = move |due: Due<String>| {
        sender.send(due.attempt()).unwrap();
        due.fail("the mail server refused it");
    };
    let timers = DurableTimers::builder(SqliteStore::in_memory()?)
        .topic(Topic::new("mail", Late::RunOnce, Retry::never(), send))
        .start(by_hand.group())?;
    by_hand.run_until(timers.at("mail", Duration::ZERO, "hello").start())?;
    next(&mut by_hand, &received);
    while timers.metrics().dead == 0 {
        by_hand.run_once(None);
    }

    let dead = TimerFilter::new().topic("mail").state(TimerState::Dead);
    for letter in by_hand.run_until(timers.list(dead))? {
        println!("{}: {}", letter.id, letter.error.unwrap_or_default());
        assert!(by_hand.run_until(timers.run_now(letter.id))?);
    }
    assert_eq!(next(&mut by_hand, &received), 1);
    by_hand.run_until(timers.close())
}

#[test]
fn waiting_for_a_command_on_the_loop_of_the_timers_is_an_error() -> Result {
    let mut by_hand = EventLoopGroup::builder().clock(ManualClock::new()).build_manual()?;
    let timers = DurableTimers::builder(SqliteStore::in_memory()?)
        .topic(Topic::new("remind", Late::RunOnce, Retry::never(), |due: Due<()>| due.done()))
        .start(by_hand.group())?;
    let id = timers.at("remind", DAY, &()).start().wait()?; // the thread of the store completes it
    assert!(matches!(timers.cancel(id).wait(), Err(Error::WouldDeadlock)));
    assert!(matches!(timers.close().wait(), Err(Error::WouldDeadlock)));
    by_hand.run_until(timers.close())
}

#[test]
fn a_program_without_the_topic_cancels_a_timer() -> Result {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("timers.db");
    let mut by_hand = EventLoopGroup::builder().clock(ManualClock::new()).build_manual()?;
    let kills = |_: Due<()>| unreachable!("the timer is due in a day");
    let timers = DurableTimers::builder(SqliteStore::open(&path)?)
        .topic(Topic::new("deadly", Late::RunOnce, Retry::never(), kills))
        .start(by_hand.group())?;
    let id = by_hand.run_until(timers.at("deadly", DAY, &()).start())?;
    by_hand.run_until(timers.close())?;

    let timers = DurableTimers::builder(SqliteStore::open(&path)?).start(by_hand.group())?;
    assert_eq!(timers.unknown_topics(), ["deadly"]);
    assert!(by_hand.run_until(timers.cancel(id))?);
    assert!(by_hand.run_until(timers.list(TimerFilter::new()))?.is_empty());
    by_hand.run_until(timers.close())
}
