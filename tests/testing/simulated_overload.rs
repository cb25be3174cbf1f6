//! A server with overload control on a simulated machine: clients that come at once and obey hints,
//! beside established ones.

use netwheel::{
    ChannelContext,
    admission::Work,
    http::{HttpServer, Part},
    net::ListenerOptions,
    prelude::*,
    reconnect::{Backoff, ReconnectEvent, ReconnectingChannel},
    testing::simulation::{Journal, Simulation, sleep},
    time::default_clock,
    websocket::{CloseCode, HandshakeError, Message, WebSocketClient, WebSocketServer, WebSocketSettings},
};
use std::{
    collections::{BTreeMap, BTreeSet},
    ops::ControlFlow,
    sync::{Arc, Mutex},
    time::{Duration, Instant},
};

const SECOND: Duration = Duration::from_secs(1);
const MS: Duration = Duration::from_millis(1);
const TARGET: Duration = Duration::from_millis(50);

/// The time that a login takes: 50 of them fill a second.
const LOGIN: Duration = Duration::from_millis(20);

/// The clients of the storm, which connect at once.
const CLIENTS: usize = 300;

/// The clients that talk before, during and after the storm.
const TALKERS: usize = 5;

/// What the server has seen.
#[derive(Clone, Default)]
struct Seen {
    /// The earliest time at which each client that was refused may come back.
    hints: Arc<Mutex<BTreeMap<String, Instant>>>,
    /// Clients that came back earlier.
    early: Journal<String>,
    logins: Journal<String>,
    refusals: Journal<Duration>,
    /// The level of overload, each tenth of a second.
    levels: Journal<u64>,
}

/// Logs a client in. A text that begins with "login" names the client; other texts are echoed.
fn session(ctx: &mut ChannelContext<'_, Message>, message: Message, seen: &Seen) -> Result {
    let Message::Text(text) = &message else { return Ok(()) };
    let Some(name) = text.strip_prefix("login ") else { return ctx.write(message) };
    let now = default_clock().now();
    if let Some(earliest) = seen.hints.lock().unwrap().remove(name)
        && now < earliest
    {
        seen.early.push(format!("{name} came back {:?} early", earliest - now));
    }
    match ctx.admit(Work::Login) {
        Ok(()) => {
            sleep(LOGIN);
            seen.logins.push(name.to_owned());
            ctx.write(Message::text("welcome"))
        }
        Err(refused) => {
            let hint = Duration::from_millis(refused.retry_after().as_millis() as u64);
            seen.refusals.push(hint);
            seen.hints.lock().unwrap().insert(name.to_owned(), now + hint);
            let reason = format!("retry after {} ms", hint.as_millis());
            ctx.write(Message::close(CloseCode::TRY_AGAIN_LATER, reason))
        }
    }
}

fn serve(seen: &Seen) -> Result {
    let group = EventLoopGroup::builder().threads(1).overload_target(TARGET).build()?;
    let (levels, event_loop) = (seen.levels.clone(), group.next().clone());
    let look = move || {
        levels.push(event_loop.metrics().overload_level);
        Ok(())
    };
    drop(group.next().schedule_periodic(100 * MS, look)?);
    // The program submits logins, so upgrades are not deferrable.
    let (http, seen) = (HttpServer::new().deferrable(|_| false), seen.clone());
    ServerBootstrap::new(&group)
        .listener_options(ListenerOptions::new().backlog(4096))
        .pipeline(move |_peer| {
            let seen = seen.clone();
            http.pipeline().on_read(move |ctx, part| {
                let Part::Head(request) = part else { return Ok(()) };
                let (response, links) = WebSocketServer::new().accept(&request).unwrap().into_parts();
                let seen = seen.clone();
                ctx.write(response.into())?;
                ctx.replace_pipeline(links.on_read(move |ctx, message| session(ctx, message, &seen)))
            })
        })
        .bind("10.0.0.1:80")?
        .closed()
        .wait()
}

/// Starts a client that connects again after each end, and writes `first` on each connection.
/// Passes on texts to `heard`.
fn client(
    group: &EventLoopGroup,
    first: String,
    heard: impl Fn(&str) + Clone + Send + Sync + 'static,
    lost: &Journal<String>,
) -> Result<ReconnectingChannel<Message>> {
    let lost = lost.clone();
    let websocket = WebSocketClient::new("server").with(WebSocketSettings::new().ping_interval(SECOND))?;
    ClientBootstrap::new(group)
        .websocket(websocket, "/", move |accepted| {
            let heard = heard.clone();
            accepted.into_parts().1.on_read(move |_, message| {
                if let Message::Text(text) = message {
                    heard(&text);
                }
                Ok(())
            })
        })
        .reconnect(Backoff::new().initial(SECOND).max_delay(4 * SECOND))
        .on_event(move |event| {
            match event {
                ReconnectEvent::Connected { channel, .. } => {
                    channel.write(Message::text(first.clone())).expect("it is open");
                }
                ReconnectEvent::Lost { .. } => lost.push(first.clone()),
                _ => {}
            }
            ControlFlow::Continue(())
        })
        .retry_if(HandshakeError::is_retryable)
        .connect("server:80")
}

/// Writes the time on the connections of the talkers, which is echoed.
fn talk(round_trips: &Journal<Duration>, lost: &Journal<String>) -> Result {
    let group = EventLoopGroup::builder().threads(1).build()?;
    let begin = default_clock().now();
    let round_trips = round_trips.clone();
    let heard = move |text: &str| {
        if let Ok(sent) = text.parse() {
            round_trips.push((default_clock().now() - begin).saturating_sub(Duration::from_micros(sent)));
        }
    };
    let talkers: Vec<_> = (0..TALKERS)
        .map(|n| client(&group, format!("talker {n}"), heard.clone(), lost))
        .collect::<Result<_>>()?;
    loop {
        sleep(100 * MS);
        let now = (default_clock().now() - begin).as_micros();
        for channel in talkers.iter().filter_map(ReconnectingChannel::channel) {
            let _ = channel.write(Message::text(now.to_string()));
        }
    }
}

#[test]
fn clients_that_obey_hints_get_in_and_established_ones_stay_connected() {
    for seed in 1..=3 {
        let mut simulation = Simulation::new(seed);
        let seen = Seen::default();
        let of_server = seen.clone();
        simulation.node("server", "10.0.0.1", move || serve(&of_server));
        let (round_trips, lost) = (Journal::new(), Journal::new());
        let of_talkers = (round_trips.clone(), lost.clone());
        simulation.node("talkers", "10.0.0.2", move || talk(&of_talkers.0, &of_talkers.1));
        let (welcomes, sent_away) = (Journal::new(), Journal::new());
        let of_clients = (welcomes.clone(), sent_away.clone());
        let clients = simulation.node("clients", "10.0.0.3", move || {
            let group = EventLoopGroup::builder().threads(1).build()?;
            sleep(3 * SECOND);
            let begin = default_clock().now();
            let welcomes = of_clients.0.clone();
            let heard = move |_: &str| welcomes.push(default_clock().now() - begin);
            let all: Vec<_> = (0..CLIENTS)
                .map(|n| client(&group, format!("login {n}"), heard.clone(), &of_clients.1))
                .collect::<Result<_>>()?;
            while of_clients.0.len() < CLIENTS {
                sleep(SECOND);
            }
            sleep(3 * SECOND);
            assert!(all.iter().all(|client| client.channel().is_some()), "all are connected");
            Ok(())
        });
        simulation.run_until_ended(clients, 120 * SECOND).unwrap_or_else(|failure| panic!("{failure}"));

        let names: BTreeSet<String> = seen.logins.with(|names| names.iter().cloned().collect());
        assert_eq!((names.len(), seen.logins.len()), (CLIENTS, CLIENTS), "each client logs in once");
        assert_eq!(seen.early.with(<[_]>::to_vec), [] as [String; 0]);
        assert_eq!(lost.with(<[_]>::to_vec), [] as [String; 0], "a talker has lost its connection");
        assert!(seen.refusals.len() >= 20, "{} logins were refused", seen.refusals.len());
        assert_eq!(sent_away.len(), seen.refusals.len(), "only refused clients come back");
        let highest = seen.levels.with(|levels| levels.iter().copied().max());
        assert!(highest >= Some(3) && seen.levels.with(|levels| levels.last() == Some(&0)), "{highest:?}");
        let last = welcomes.with(|all| all.iter().copied().max()).unwrap();
        let mut trips = round_trips.with(<[_]>::to_vec);
        trips.sort_unstable();
        let (p99, longest) = (trips[trips.len() * 99 / 100], trips[trips.len() - 1]);
        eprintln!(
            "{} refused, the last one in after {last:?}, round trips {p99:?} and {longest:?}",
            seen.refusals.len()
        );
        let drain = LOGIN * CLIENTS as u32;
        assert!(last < 4 * drain, "the last client is in after {last:?}");
        assert!(p99 < SECOND && longest < 2 * SECOND, "{p99:?} {longest:?}");
    }
}
