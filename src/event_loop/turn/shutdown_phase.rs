//! The steps of a shutdown in the turns of a loop. `shutdown` describes their order.
//!
//! Invariants: every open channel is notified once, at the latest when the loop ends. The channel
//! notifies pipelines that take over later. A shutdown that has begun opens a channel for a
//! connection that was accepted before the request, and for an outgoing one while accepted channels
//! are left. A turn notifies at most 1024 channels, before its tasks and timers. Runs on the loop's
//! thread.

use super::Turn;
use crate::{
    channel::{Due, Scheduled},
    error::{caught, drop_guarded},
    event_loop::{
        mail::LoopMail,
        shared::LifeState,
        shutdown::{FoundChannels, Shutdown},
        source::{AtShutdown, Source},
        sources::Slot,
    },
    id::Key,
    sync::LoopPhase,
};

/// The maximum number of channels that are notified in one turn, so that a million channels do not
/// make an endless turn.
const NOTIFIED_PER_TURN: usize = 1024;

impl Turn {
    /// Begins the shutdown before the loop has reached the request in its queue, so that mail in
    /// front of it does not delay the shutdown.
    #[inline]
    pub(super) fn look_for_shutdown(&mut self) {
        if self.shutdown.is_none() && self.shared.state() >= LifeState::ShuttingDown {
            self.begin_shutdown();
        }
    }

    /// Handles the request in the queue, or a reminder.
    pub(super) fn reach_shutdown(&mut self) {
        self.begin_shutdown();
        if let Some(shutdown) = &mut self.shutdown {
            shutdown.reach_mail();
        }
        if self.begin_outgoing_if_due() {
            self.notify_channels();
        }
    }

    fn begin_shutdown(&mut self) {
        if self.shutdown.is_some() {
            return;
        }
        let Some(request) = self.shared.take_shutdown_request() else { return };
        // The reminder of another request may arrive before the requesting thread does this. From
        // here on, no listener opens.
        self.shared.advance(LifeState::ShuttingDown);
        // The loop may not have read the clock since.
        self.io.services.now = self.io.services.now.max(request.1);
        self.shared.metrics.fold(&mut self.io.services.tally);
        let (accepted, at_once) = self.begin_with(|source| !source.is_outgoing());
        let mut found = FoundChannels { open: accepted.len(), accepted, accepted_left: 0 };
        for key in self.sources.keys() {
            if let Some(slot) = self.sources.channel(key) {
                let is_outgoing = slot.is_outgoing();
                found.accepted_left += usize::from(!is_outgoing);
                let is_open = is_outgoing && matches!(slot.begin_shutdown(), AtShutdown::Drain);
                found.open += usize::from(is_open);
            }
        }
        let now = self.io.services.now;
        let mut shutdown = Shutdown::new(request, now, &self.shared.metrics, found);
        self.cancel_tasks(&mut shutdown, |task| !task.lasts());
        self.shutdown = Some(shutdown);
        for key in at_once {
            self.guarded_once(Some(key), |turn| turn.notify(key));
        }
        self.notify_channels();
    }

    /// Cancels scheduled tasks of the loop.
    fn cancel_tasks(&mut self, shutdown: &mut Shutdown, is_chosen: impl Fn(&dyn Scheduled) -> bool) {
        let is_chosen = |due: &Due| matches!(due, Due::Task(task) if is_chosen(&**task));
        for due in self.io.services.queue.take_if(is_chosen) {
            if let Due::Task(task) = due {
                // Tasks that were cancelled by their handles have been counted.
                self.io.services.tally.timers_cancelled += u64::from(task.is_waiting());
                shutdown.cancel(&*task);
            }
        }
    }

    /// Begins the shutdown of the chosen sources. Ends sources that neither drain nor are notified.
    /// Returns the open channels, and the channels to notify at once.
    fn begin_with(&mut self, is_chosen: impl Fn(&dyn Source) -> bool) -> (Vec<Key>, Vec<Key>) {
        let (mut channels, mut at_once) = (Vec::new(), Vec::new());
        for key in self.sources.keys() {
            let Some(source) = self.sources.get(key).map(Slot::as_source) else { continue };
            if !is_chosen(source) {
                continue;
            }
            match source.begin_shutdown() {
                AtShutdown::Drain => channels.push(key),
                AtShutdown::Notify => at_once.push(key),
                AtShutdown::End(result) => {
                    // This drops values of the program, which may panic. The shutdown continues
                    // nevertheless.
                    self.guarded_once(None, |turn| turn.end_source(key, result));
                }
                AtShutdown::Stay => {}
            }
        }
        (channels, at_once)
    }

    /// Begins to notify outgoing channels if no accepted channel of the group is left. Returns
    /// whether it did.
    fn begin_outgoing_if_due(&mut self) -> bool {
        let is_due = self.shutdown.as_mut().is_some_and(Shutdown::outgoing_is_due);
        if self.shutdown.as_ref().is_some_and(Shutdown::accepted_have_ended) {
            self.shared.drop_later_shares();
        }
        if is_due {
            self.begin_outgoing();
            self.update_gauges_in_shutdown();
        }
        is_due
    }

    fn begin_outgoing(&mut self) {
        let (channels, at_once) = self.begin_with(|source| source.is_outgoing());
        if let Some(mut shutdown) = self.shutdown.take() {
            self.cancel_tasks(&mut shutdown, |_| true);
            shutdown.begin_outgoing(channels);
            self.shutdown = Some(shutdown);
        }
        for key in at_once {
            self.guarded_once(Some(key), |turn| turn.notify(key));
        }
    }

    /// Notifies a channel that was accepted before the request, and has opened since. The handshake
    /// of its filters may be complete.
    pub(super) fn notify_late(&mut self, key: Key, has_filters: bool) {
        let Some(slot) = self.sources.channel(key) else { return };
        let is_active = matches!(slot.begin_shutdown(), AtShutdown::Drain);
        if let Some(shutdown) = &mut self.shutdown {
            shutdown.note_opened(false, is_active && !has_filters);
            self.guarded_once(Some(key), |turn| turn.notify(key));
        }
    }

    /// Notes that a channel leaves its slot. The end of the last accepted one is awaited.
    pub(super) fn note_end_of(&mut self, key: Key) {
        if let Some(shutdown) = &mut self.shutdown
            && self.sources.channel(key).is_some_and(|slot| !slot.is_outgoing())
        {
            shutdown.note_accepted_ended();
        }
    }

    /// Notifies the channels that are due in the window, up to the limit of a turn. Returns whether
    /// there were any. Runs before the timers, so that a timer that is due at the same time does
    /// not run.
    #[inline]
    pub(super) fn notify_channels(&mut self) -> bool {
        self.shutdown.is_some() && self.notify_due_channels()
    }

    #[inline(never)]
    fn notify_due_channels(&mut self) -> bool {
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
        self.with_source(key, |source, ctx| source.shut_down(ctx));
    }

    /// Runs at the end of a turn. Returns whether it was the last.
    #[inline(always)]
    pub(super) fn proceed_with_shutdown(&mut self) -> bool {
        if self.shutdown.is_none() {
            return false;
        }
        self.begin_outgoing_if_due();
        let event_sources = self.shared.metrics.event_sources.read() as usize;
        let Some(shutdown) = &mut self.shutdown else { return false };
        shutdown.end_turn(&self.io.services.time);
        let mut now = self.io.services.now;
        let lingering = self.sources.lingering();
        // Handlers on other loops may still open outgoing connections here.
        let empty = !shutdown.takes_outgoing()
            && self.sources.len() == lingering + event_sources
            && self.inbox.is_empty();
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
        if self.shutdown.as_ref().is_some_and(Shutdown::takes_outgoing) {
            self.begin_outgoing();
        }
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
        // Sources have cancelled their timers. A task that is left belongs to the program.
        self.io.services.queue.clear().into_iter().for_each(drop_guarded);
        self.shared.metrics.fold(&mut self.io.services.tally);
        if let Some(shutdown) = self.shutdown.take() {
            let report = shutdown.report(self.io.services.time.now(), &self.shared.metrics);
            caught(|| log::info!("{}: shut down: {report}", self.shared.name));
            self.shared.set_report(report);
        }
        self.update_gauges_in_shutdown();
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
        let unclean_before = self.shared.metrics.closes_unclean.read();
        let Some((transition, forced)) = self.with_source(key, |source, ctx| source.close(ctx)) else {
            return;
        };
        if forced && let Some(shutdown) = &mut self.shutdown {
            shutdown.note_forced(unclean_before, &self.shared.metrics);
        }
        self.make_transition(key, transition);
    }
}
