//! Submission of mail to a loop, and the wakeups that follow.
//!
//! A submitter queues its mail first, and then reads the published sleep. If the write to the waker
//! fails 16 times, the submitter publishes the sleep again, so that the next submitter writes
//! (`wakes_failed`).
//!
//! Invariants: accepted mail is in the queue before the loop is woken for it. Only the first of
//! many submitters writes to the waker. Any thread may call everything here.

use super::{LoopShared, life::LifeState};
use crate::{
    admission::Work,
    channel::{Delivery, Mail, MailSender},
    clock::TimeSource,
    error::{Error, Overloaded, Result, SendError, caught},
    event_loop::{PollWaker, mail::LoopMail},
    id::Key,
    log_throttle::{LogAt, WAKES_FAILED, log_throttled},
    machine::race_point,
    sync::{Asleep, loop_id},
};
use log::Level;
use std::time::Duration;

impl LoopShared {
    /// Puts mail into the queue. Starts the loop's thread if this is the first mail, and wakes the
    /// thread if it sleeps beyond `when` (0 for now).
    ///
    /// # Errors
    /// The mail if the queue is full or closed.
    pub(crate) fn submit(&self, mail: LoopMail, when: u64) -> Result<(), SendError<LoopMail>> {
        self.submit_with(when, mail, |mail| mail)
    }

    /// Like [`LoopShared::submit`], but ignores the limit of the queue. For mail that releases a
    /// resource.
    pub(crate) fn submit_always(&self, mail: LoopMail) -> Result<(), SendError<LoopMail>> {
        self.submit_always_with(mail, |mail| mail)
    }

    /// Like [`LoopShared::submit_with`], but waits up to `timeout` for space in the queue. Must not
    /// be called on the loop's own thread.
    ///
    /// # Errors
    /// `value` if the queue stayed full, or is closed.
    pub(crate) fn submit_timeout<V>(
        &self,
        value: V,
        make: impl Fn(V) -> LoopMail,
        timeout: Duration,
    ) -> Result<(), SendError<V>> {
        if let Err(reason) = self.must_live() {
            return Err(SendError::new(value, reason));
        }
        let put = self.mailbox.put_timeout(value, make, timeout, || self.wake_if_asleep(0));
        self.wake_for_mail(0);
        put
    }

    /// Like [`LoopShared::submit`], but makes the mail from `value` only after the queue has
    /// accepted it.
    ///
    /// # Errors
    /// `value` if the queue is full or closed.
    #[inline]
    pub(crate) fn submit_with<V>(
        &self,
        when: u64,
        value: V,
        make: impl FnOnce(V) -> LoopMail,
    ) -> Result<(), SendError<V>> {
        if let Err(reason) = self.must_live() {
            return Err(SendError::new(value, reason));
        }
        race_point();
        let put = self.mailbox.put_with(value, make);
        self.wake_for_mail(when);
        put.map_err(|(why, value)| SendError::new(value, self.mailbox.reason(why)))
    }

    /// Like [`LoopShared::submit_always`], but makes the mail from `value` only after the queue has
    /// accepted it.
    ///
    /// # Errors
    /// `value` if the queue is closed.
    pub(crate) fn submit_always_with<V>(
        &self,
        value: V,
        make: impl FnOnce(V) -> LoopMail,
    ) -> Result<(), SendError<V>> {
        if let Err(reason) = self.must_live() {
            return Err(SendError::new(value, reason));
        }
        race_point();
        let put = self.mailbox.put_always_with(value, make);
        self.wake_for_mail(0);
        put
    }

    /// Starts the loop's thread before the first mail. Fails if the queue is closed.
    #[inline]
    fn must_live(&self) -> Result {
        match self.state() {
            LifeState::Started | LifeState::ShuttingDown => Ok(()),
            LifeState::NotStarted => self.start_for_mail(),
            LifeState::ShutDown | LifeState::Terminated => Err(Error::ShutDown),
        }
    }

    #[cold]
    fn start_for_mail(&self) -> Result {
        self.start()?;
        // The loop may have been shut down before it was started.
        if self.state() >= LifeState::ShutDown { Err(Error::ShutDown) } else { Ok(()) }
    }

    /// Wakes the loop for mail that must be handled at `when`, even if the mail was refused.
    #[inline]
    fn wake_for_mail(&self, when: u64) {
        race_point();
        let now = when > 0 && self.mailbox.is_crowded();
        self.wake_if_asleep(if now { 0 } else { when });
        race_point();
    }

    /// Puts mail into the queue without limit. Does not wake the loop unless the queue is crowded.
    pub(crate) fn submit_quietly(&self, mail: LoopMail) {
        // A loop that has ended does not need cleanup.
        let _ = self.mailbox.put_always(mail);
        if self.mailbox.is_crowded() {
            self.wake_if_asleep(0);
        }
    }

    #[inline]
    pub(crate) fn wake_if_asleep(&self, when: u64) {
        if !self.in_event_loop()
            && let Some(asleep) = self.wake_up.must_wake(when)
        {
            self.wake(asleep);
        }
    }

    #[cold]
    fn wake(&self, asleep: Asleep) {
        self.metrics.wakes_written.add_shared(1);
        let Err(e) = self.waker.wake() else { return };
        // The next submitter tries again. Until then the mail waits for the loop's next deadline.
        self.wake_up.restore(asleep);
        self.metrics.wakes_failed.add_shared(1);
        let (at, name) = (LogAt { log: &self.log, now: self.time.now() }, &self.name);
        caught(|| log_throttled!(at, WAKES_FAILED, Level::Error, "{name}: cannot wake the loop: {e:#}"));
    }

    /// Directs later wakes to another poll.
    pub(crate) fn swap_waker(&self, waker: PollWaker) {
        self.waker.swap(waker);
    }

    /// Parks the loop's thread until the published sleep is ended, for at most `limit`.
    #[cold]
    pub(in crate::event_loop) fn park(&self, limit: Option<Duration>) {
        self.waker.park(limit, || self.wake_up.is_asleep());
        self.wake_up.awake();
    }

    #[inline]
    pub(crate) fn is_in_event_loop(&self) -> bool {
        loop_id::current() == Some(self.id)
    }
}

impl MailSender for LoopShared {
    fn deliver(&self, to: Key, mail: Mail) -> Result<(), (Mail, Error)> {
        let always = mail.is_always_taken();
        let make = |mail| LoopMail::Channel(to, mail);
        let sent = if always { self.submit_always_with(mail, make) } else { self.submit_with(0, mail, make) };
        sent.map_err(SendError::into_parts)
    }

    fn deliver_quietly(&self, to: Key, mail: Mail) {
        self.submit_quietly(LoopMail::Channel(to, mail));
    }

    fn broadcast(&self, delivery: Box<Delivery>) -> Result<(), (Box<Delivery>, Error)> {
        self.submit_with(0, delivery, LoopMail::Broadcast).map_err(SendError::into_parts)
    }

    fn admit_bulk(&self) -> Result<(), Overloaded> {
        self.limits.as_ref().map_or(Ok(()), |limits| limits.admit(Work::Bulk))
    }

    fn time(&self) -> &TimeSource {
        &self.time
    }

    fn in_event_loop(&self) -> bool {
        self.is_in_event_loop()
    }
}
