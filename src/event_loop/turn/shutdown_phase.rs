//! The steps of a shutdown in the turns of a loop. `shutdown` describes their order.
//!
//! Invariants: every open channel is notified once, at the latest when the loop ends. A shutdown
//! that has begun opens no channel. A turn notifies at most 1024 channels, before its tasks and
//! timers. Runs on the loop's thread.

use super::Turn;
use crate::{
    channel::Due,
    error::{caught, drop_guarded},
    event_loop::{mail::LoopMail, shared::LifeState, shutdown::Shutdown, source::AtShutdown},
    id::Key,
    sync::LoopPhase,
};

/// The maximum number of channels that are notified in one turn, so that a million channels do not
/// make an endless turn.
const NOTIFIED_PER_TURN: usize = 1024;

impl Turn {
    pub(super) fn begin_shutdown(&mut self) {
        if self.shutdown.is_some() {
            return;
        }
        let Some(request) = self.shared.shutdown_request() else { return };
        let mut channels = self.sources.keys();
        let mut at_once = Vec::new();
        channels.retain(|key| {
            match self.sources.get(*key).map(|slot| slot.as_source().begin_shutdown()) {
                Some(AtShutdown::Drain) => true,
                Some(AtShutdown::Notify) => {
                    at_once.push(*key);
                    false
                }
                Some(AtShutdown::End(result)) => {
                    // This drops values of the program, which may panic. The shutdown continues
                    // nevertheless.
                    self.guarded_once(None, |turn| turn.end_source(*key, result));
                    false
                }
                Some(AtShutdown::Stay) | None => false,
            }
        });
        let now = self.io.services.now;
        let mut shutdown = Shutdown::new(request, now, &self.shared.metrics, channels);
        for due in self.io.services.queue.take_if(|due| matches!(due, Due::Task(_))) {
            if let Due::Task(task) = due {
                // Tasks that were cancelled by their handles have been counted.
                self.io.services.tally.timers_cancelled += u64::from(task.is_waiting());
                shutdown.cancel(&*task);
            }
        }
        self.shutdown = Some(shutdown);
        for key in at_once {
            self.guarded_once(Some(key), |turn| turn.notify(key));
        }
        self.notify_channels();
    }

    /// Notifies the channels that are due in the window, up to the limit of a turn. Returns whether
    /// there were any. Runs before the timers, so that a timer that is due at the same time does
    /// not run.
    pub(super) fn notify_channels(&mut self) -> bool {
        let now = self.io.services.now;
        let mut notified = 0;
        while notified < NOTIFIED_PER_TURN
            && let Some(shutdown) = &mut self.shutdown
            && let Some(key) = shutdown.pop_due(now)
        {
            self.guarded_once(Some(key), |turn| turn.notify(key));
            notified += 1;
        }
        notified > 0
    }

    fn notify(&mut self, key: Key) {
        let cancelled = self.with_source(key, |source, ctx| source.shut_down(ctx)).unwrap_or(0);
        if let Some(shutdown) = &mut self.shutdown {
            shutdown.note_cancelled(cancelled);
        }
    }

    /// Runs at the end of a turn. Returns whether it was the last.
    pub(super) fn proceed_with_shutdown(&mut self) -> bool {
        let event_sources = self.shared.metrics.event_sources.read() as usize;
        let Some(shutdown) = &mut self.shutdown else { return false };
        shutdown.end_turn(&self.io.services.time);
        let mut now = self.io.services.now;
        let lingering = self.sources.lingering();
        let empty = self.sources.len() == lingering + event_sources && self.inbox.is_empty();
        let end = shutdown.ends_at(empty, lingering, now);
        if now < end {
            // The deadline may have passed since the last poll, so read the clock.
            now = self.io.services.time.now();
            if now < end {
                shutdown.wait_until(end);
                return false;
            }
        }
        self.io.services.now = now.max(self.io.services.now);
        self.finish();
        true
    }

    /// Ends the loop immediately: notifies all channels, then closes everything without waiting.
    pub(in crate::event_loop) fn end_now(&mut self) {
        self.begin_shutdown();
        self.finish();
    }

    fn finish(&mut self) {
        self.shared.activity.enter_phase(LoopPhase::Shutdown);
        self.io.max_lingering = 0;
        // Notifies the channels that are not due yet.
        while let Some(key) = self.shutdown.as_mut().and_then(Shutdown::pop) {
            self.guarded_once(Some(key), |turn| turn.notify(key));
        }
        self.shared.advance(LifeState::ShutDown);
        self.shared.mailbox.close();
        // From here on, no more mail is accepted. Accepted mail is handled.
        while self.run_at_end(None) > 0 {}
        self.deliver_without_limit();
        let mut left = self.shared.mailbox.len();
        while left > 0
            && let Some(mail) = self.inbox.take()
        {
            left -= 1;
            self.guarded_once(mail.source(), |turn| turn.run_last(mail));
        }
        self.close_all();
        while let Some(mail) = self.inbox.take() {
            self.guarded_once(mail.source(), |turn| turn.run_last(mail));
        }
        // Drops the retry timers of closed listeners.
        self.io.services.queue.clear().into_iter().for_each(drop_guarded);
        if let Some(shutdown) = self.shutdown.take() {
            let report = shutdown.report(self.io.services.time.now(), &self.shared.metrics);
            caught(|| log::info!("{}: shut down: {report}", self.shared.name));
            self.shared.set_report(report);
        }
        self.update_gauges_at_end();
    }

    fn run_last(&mut self, mail: LoopMail) {
        match mail {
            LoopMail::Task(_)
            | LoopMail::Channel(..)
            | LoopMail::Broadcast(_)
            | LoopMail::Schedule(..)
            | LoopMail::AtTurnEnd(_) => {
                self.handle_mail(mail);
                while self.run_at_end(None) > 0 {}
            }
            LoopMail::Open(_) | LoopMail::Adopt(_) | LoopMail::Source(_) => self.handle_mail(mail),
            LoopMail::Unschedule(_) | LoopMail::Rebuild(_) | LoopMail::Shutdown => {}
        }
    }

    fn close_all(&mut self) {
        for key in self.sources.keys() {
            self.guarded_once(Some(key), |turn| turn.close_last(key));
        }
        self.end_closed();
    }

    fn close_last(&mut self, key: Key) {
        let unsent_before = self.shared.metrics.closes_unsent.read();
        let Some((transition, forced)) = self.with_source(key, |source, ctx| source.close(ctx)) else {
            return;
        };
        if forced && let Some(shutdown) = &mut self.shutdown {
            shutdown.note_forced(unsent_before, &self.shared.metrics);
        }
        self.make_transition(key, transition);
    }
}
