//! Tasks, shutdown, rebuild and the end of a datagram channel.

use crate::datagrams::Tell;
use crate::support::{
    datagrams::{Event, echo, open, open_with, receive, socket},
    loops::{block, end, one_loop, the_loop, turn_until},
    wait::{self, done},
};
use bytes::Bytes;
use netwheel::{
    DatagramBootstrap, Error, Result,
    datagram::{AnyDatagramHandler, DatagramContext, DatagramHandler},
    time::Delay,
};
use std::{
    net::{SocketAddr, UdpSocket},
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering::SeqCst},
        mpsc,
    },
    time::Duration,
};

#[test]
fn a_closed_channel_refuses_datagrams_and_completes_once() {
    let group = one_loop();
    let (peer, address) = socket();
    let (channel, events) = open(&group, move |ctx, event| {
        if matches!(event, Event::Read(..)) {
            ctx.write_to("last words", address)?;
            ctx.close();
            let refused = ctx.write_to("more", address).unwrap_err();
            assert!(matches!(refused.error(), Error::Closed), "{refused}");
        }
        Ok(())
    });
    assert_eq!(events.next(), Event::Active);
    let release = block(&group);
    peer.send_to(b"one", channel.local_address()).unwrap();
    peer.send_to(b"two", channel.local_address()).unwrap();
    drop(release);
    assert_eq!(receive(&peer).0, b"last words");
    done(channel.closed()).unwrap();
    assert!(!channel.is_open());
    let refused = channel.write_to("more", address).unwrap_err();
    assert_eq!(
        (refused.value().as_ref(), refused.error().to_string()),
        (&b"more"[..], Error::Closed.to_string())
    );
    assert!(matches!(channel.execute(|_| Ok(())), Err(Error::Closed)));
    channel.close();
    let told = events.rest();
    assert_eq!(told.len(), 2, "{told:?}");
    assert_eq!(told[1], Event::Inactive);
    turn_until(&group, |metrics| metrics.datagram_channels == 0);
    // Its port is free again.
    UdpSocket::bind(channel.local_address()).unwrap();
    end(&group);
}

#[test]
fn a_datagram_that_arrives_behind_the_end_of_its_channel_fails_with_closed() {
    let group = one_loop();
    let (_peer, address) = socket();
    let (tell, told) = mpsc::channel();
    let (_channel, _events) = open(&group, move |ctx, event| {
        if matches!(event, Event::Active) {
            let tell = tell.clone();
            // Timers run behind the tasks of a turn.
            ctx.schedule(Duration::ZERO, move |_, ctx| {
                tell.send(ctx.channel().write_tracked_to("late", address).unwrap()).unwrap();
                ctx.close();
                Ok(())
            });
        }
        Ok(())
    });
    let error = done(wait::receive(&told)).unwrap_err();
    assert!(matches!(error, Error::Closed), "{error}");
    end(&group);
}

/// A task from another thread gets the operations that a handler has, except the handler itself.
#[test]
fn a_task_of_a_handle_schedules_and_a_generic_function_serves_both_contexts() {
    fn finish<H: DatagramHandler>(ctx: &mut DatagramContext<'_, H>) {
        ctx.schedule(Duration::ZERO, |_, ctx| {
            ctx.schedule(Delay::coarse(Duration::ZERO), |_, ctx| {
                ctx.channel().close();
                Ok(())
            });
            Ok(())
        });
    }
    let group = one_loop();
    let (by_handler, _events) = open(&group, |ctx, event| {
        if matches!(event, Event::Active) {
            finish(ctx);
        }
        Ok(())
    });
    let (by_handle, _others) = open(&group, |_, _| Ok(()));
    let execute = |ctx: &mut DatagramContext<'_, AnyDatagramHandler>| {
        finish(ctx);
        Ok(())
    };
    by_handle.execute(execute).unwrap();
    done(by_handler.closed()).unwrap();
    done(by_handle.closed()).unwrap();
    end(&group);
}

#[test]
fn scheduled_tasks_run_with_the_handler_and_end_with_the_channel() {
    let group = one_loop();
    let ran = Arc::new(AtomicUsize::new(0));
    let count = ran.clone();
    let bootstrap = DatagramBootstrap::new(&group).max_scheduled_tasks(3);
    let (channel, events) = open_with(bootstrap, move |ctx, event| {
        if !matches!(event, Event::Active) {
            return Ok(());
        }
        let (one, two, never) = (count.clone(), count.clone(), count.clone());
        ctx.schedule(Duration::ZERO, move |_, ctx| {
            one.fetch_add(1, SeqCst);
            ctx.schedule(Delay::coarse(Duration::ZERO), move |_, ctx| {
                two.fetch_add(10, SeqCst);
                ctx.close();
                Ok(())
            });
            Ok(())
        });
        let cancelled =
            ctx.schedule(Delay::coarse(Duration::ZERO), move |_, _| Err("a cancelled task ran".into()));
        assert!(ctx.cancel(cancelled) && !ctx.cancel(cancelled));
        ctx.schedule(Duration::from_secs(3600), move |_, _| {
            never.fetch_add(100, SeqCst);
            Ok(())
        });
        ctx.schedule(Duration::from_secs(3600), |_, _| Ok(()));
        ctx.schedule(Duration::from_secs(3600), |_, _| Err("this one is too many".into()));
        Ok(())
    });
    done(channel.closed()).unwrap();
    let told = events.rest();
    let full = Event::Error("the limit of 3 scheduled tasks of a channel is reached".into(), None);
    assert_eq!(told, [Event::Active, full, Event::Inactive]);
    end(&group);
    assert_eq!((ran.load(SeqCst), Arc::strong_count(&ran)), (11, 1), "tasks that did not run are dropped");
}

/// E-75.
#[test]
fn periodic_tasks_repeat_until_they_end_themselves_or_the_channel_closes() {
    let group = one_loop();
    let (sender, runs) = mpsc::channel();
    let (channel, events) = open(&group, move |ctx, event| {
        if !matches!(event, Event::Active) {
            return Ok(());
        }
        assert!(matches!(ctx.schedule_periodic(Duration::ZERO, |_, _| Ok(())), Err(Error::Setting(_))));
        let (fails, stops, ticks) = (sender.clone(), sender.clone(), sender.clone());
        ctx.schedule_periodic(Duration::from_millis(1), move |_, _| {
            let _ = fails.send("fails");
            Err("on purpose".into())
        })?;
        let mut left = 2;
        ctx.schedule_periodic(Duration::from_millis(1), move |_, _| {
            let _ = stops.send("stops");
            left -= 1;
            if left == 0 { Err(Error::Cancelled) } else { Ok(()) }
        })?;
        let mut left = 5;
        ctx.schedule_periodic(Duration::from_millis(2), move |_, ctx| {
            let _ = ticks.send("ticks");
            left -= 1;
            if left == 0 {
                ctx.close();
            }
            Ok(())
        })?;
        Ok(())
    });
    done(channel.closed()).unwrap();
    end(&group);
    let mut ran: Vec<_> = runs.try_iter().collect();
    ran.sort_unstable();
    assert_eq!(ran, ["fails", "stops", "stops", "ticks", "ticks", "ticks", "ticks", "ticks"]);
    let failed = Event::Error("on purpose".into(), None);
    assert_eq!(events.rest(), [Event::Active, failed, Event::Inactive]);
}

#[test]
fn a_shutdown_notifies_the_handler_and_reports_the_channel() {
    let group = one_loop();
    let (_peer, address) = socket();
    let (channel, events) = open(&group, move |ctx, event| {
        if *event == Event::Shutdown {
            // The channel is closed when the callback runs.
            ctx.write_to("goodbye", address).unwrap_err();
        }
        Ok(())
    });
    assert_eq!(events.next(), Event::Active);
    end(&group);
    done(channel.closed()).unwrap();
    assert_eq!(events.rest(), [Event::Shutdown, Event::Inactive]);
    let refused = channel.write_to("more", address).unwrap_err();
    assert!(matches!(refused.error(), Error::Closed), "{refused}");
    let bind = DatagramBootstrap::new(&group).handler(|| Tell(mpsc::channel().0)).bind("127.0.0.1:0");
    assert!(matches!(bind, Err(Error::ShutDown)), "{bind:?}");
}

#[test]
fn a_rebuilt_poll_still_watches_the_channel() {
    let group = one_loop();
    let (channel, events) = open(&group, echo);
    let (peer, _) = socket();
    assert_eq!(events.next(), Event::Active);
    let report = done(the_loop(&group).rebuild_poll().unwrap());
    if cfg!(windows) {
        return;
    }
    assert_eq!(report.unwrap().moved, 1);
    peer.send_to(b"hello", channel.local_address()).unwrap();
    assert_eq!(receive(&peer).0, b"hello");
    end(&group);
}

#[test]
fn a_panicking_handler_factory_costs_only_its_channel() {
    struct Never;
    impl DatagramHandler for Never {
        fn read(&mut self, _: &mut DatagramContext<'_, Self>, _: Bytes, _: SocketAddr) -> Result {
            Ok(())
        }
    }
    let group = one_loop();
    let make = || -> Never { panic!("on purpose") };
    let channel = DatagramBootstrap::new(&group).handler(make).bind("127.0.0.1:0").unwrap();
    done(channel.closed()).unwrap();
    assert!(!channel.is_open());
    let (alive, _events) = open(&group, echo);
    let (peer, _) = socket();
    peer.send_to(b"hello", alive.local_address()).unwrap();
    assert_eq!(receive(&peer).0, b"hello");
    end(&group);
}
