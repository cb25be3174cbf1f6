//! The filters of a channel, from their start until they are established, and their failure.
//!
//! A channel with filters starts with a placeholder instead of a pipeline. When all filters are
//! established, the pipeline is made and `active` is called. A filter that an active channel starts
//! (STARTTLS) takes over at the end of the turn: until then nothing is read or delivered. Whenever
//! an active channel has filters that are not established, `handshake_timeout` runs.
//!
//! Invariants: nothing of the program is called before the filters are established. After a failure
//! nothing is opened or sealed; pending output of the filters (an alert) is still written.

use super::super::{
    ChannelCore, ChannelState, ReadDemand, any_pipeline::AnyPipeline, links::Placeholder,
    pipeline_settings::PipelineSettings, services::LoopServices,
};
use crate::{
    admission::Work,
    channel::{
        ChannelTimer, Due, Establish, Pending, Readiness, TimerToken,
        close_cause::CloseCause,
        config::ChannelConfig,
        filter::{Filter, Filters, Opened, Resume},
        peer::Peer,
    },
    error::{Error, Overloaded, PeerError, Result},
    id::ChannelId,
    log_throttle::{HANDSHAKES, NOT_OPENED, log_throttled},
};
use log::Level;
use std::{sync::Arc, time::Duration};

impl ChannelState {
    /// Returns whether an overloaded loop may refuse the handshake of the channel: it was accepted,
    /// and its handler has not been called.
    pub(crate) fn may_shed_handshake(&self) -> bool {
        self.status.has(ReadDemand::HANDSHAKING) && !self.config.outgoing && !self.status.is_active()
    }

    /// Returns whether the first read of the handshake was admitted.
    pub(crate) fn has_begun_handshake(&self) -> bool {
        self.extras.filters().is_some_and(|filters| filters.was_admitted)
    }
}

impl ChannelCore {
    /// Creates a channel whose pipeline is made when the filters are established.
    pub(crate) fn handshaking(
        id: ChannelId,
        config: Arc<ChannelConfig>,
        filters: Filters,
        establish: Box<dyn Establish>,
        services: &mut LoopServices,
    ) -> Self {
        let addresses = (filters.peer().local_address(), filters.peer().address());
        let settings = PipelineSettings::default();
        let pipeline = AnyPipeline { links: Box::new(Placeholder::new(establish)), settings };
        let mut core = ChannelCore::new(id, config, pipeline, addresses, services);
        core.state.extras.set_filters(filters);
        core
    }

    /// Starts the filters.
    pub(crate) fn begin_filters(&mut self, services: &mut LoopServices) {
        let key = self.state.key();
        let Some(filters) = self.state.extras.filters_mut() else { return };
        filters.attach(key, &services.sender);
        self.state.arm_handshake(services);
        let ended = self.state.status.input_ended();
        let begun = self.state.with_filters(services, |filters, lent| {
            filters.begin(lent)?;
            // Nothing is kept that these calls could open.
            let opened = &mut Opened::new(&mut []);
            // A handshake that the peer can no longer answer fails at once. A filter below may have
            // found the end of its stream while the connection is open.
            if ended { filters.end_of_input(opened, lent) } else { filters.pass_end(opened, lent) }
        });
        match begun {
            Ok(()) => self.proceed_with_handshake(services),
            Err(error) => self.fail_filters(services, error),
        }
    }

    /// Continues after the filters were called: makes the pipeline once all are established.
    #[inline]
    pub(crate) fn proceed_with_handshake(&mut self, services: &mut LoopServices) {
        // Nearly all calls are later than the handshake.
        let is_complete = self.state.status.is_active()
            && !self.state.status.has(ReadDemand::HANDSHAKING)
            && self
                .state
                .extras
                .filters()
                .is_some_and(|filters| filters.deadline.is_none() && !filters.has_announcement());
        if !is_complete {
            self.proceed(services);
        }
    }

    #[inline(never)]
    fn proceed(&mut self, services: &mut LoopServices) {
        let starts = !self.state.status.is_active();
        if self.state.status.closes_at_once() || starts && !self.state.status.is_open() {
            return;
        }
        if let Err(error) = self.admit_announced(services) {
            self.fail_filters(services, error);
            // A client that is not admitted must not keep its place while it lingers.
            return self.state.request_close_now(CloseCause::Failed);
        }
        let Some(filters) = self.state.extras.filters_mut() else { return };
        if !filters.is_established() {
            // A filter may have been inserted on an active channel. One that a callback has added
            // starts later.
            if !filters.has_failed() && !filters.has_added() {
                self.state.arm_handshake(services);
            }
            return;
        }
        if let Some(deadline) = filters.deadline.take() {
            services.cancel_timer(deadline);
            // Messages or the end of the output may have waited for the handshake.
            self.state.want_attention(services);
        }
        if starts {
            self.establish(services);
        }
    }

    /// Gives the channel the addresses that a filter has announced, and asks whether they may
    /// connect. The filters above start after that.
    fn admit_announced(&mut self, services: &mut LoopServices) -> Result {
        let Some(filters) = self.state.extras.filters_mut() else { return Ok(()) };
        if !filters.take_announcement() {
            return Ok(());
        }
        let peer = filters.peer().clone();
        self.state.set_addresses(peer.local_address(), peer.address());
        if let Some(establish) = self.links.establish() {
            establish.announced(&peer)?;
        }
        if self.state.extras.filters_mut().is_some_and(|filters| !filters.is_established()) {
            self.resume_filters(services, Resume::Admitted);
        }
        Ok(())
    }

    /// Makes the pipeline and calls `active`.
    fn establish(&mut self, services: &mut LoopServices) {
        match self.install(services) {
            Ok(()) => self.handle_active(services),
            Err(error) => self.fail_to_open(services, error),
        }
    }

    /// Closes a channel whose filters are established, and whose pipeline could not be made.
    #[cold]
    fn fail_to_open(&mut self, services: &mut LoopServices, error: Error) {
        // An attempt to connect reports the error.
        if !self.state.config.outgoing {
            let (id, peer) = (self.state.id(), self.state.peer_address());
            log_throttled!(
                services,
                NOT_OPENED,
                Level::Warn,
                "channel {id}: a connection from {peer:?} is closed: {error:#}"
            );
        }
        // The channel is failing, so a further error is ignored.
        let _ = self.state.with_filters(services, |filters, lent| filters.end_output(lent));
        self.fail_filters(services, error);
    }

    /// Replaces the placeholder by the pipeline of the program.
    fn install(&mut self, services: &mut LoopServices) -> Result {
        let peer = self.state.peer();
        let Some(establish) = self.links.establish() else { return Ok(()) };
        let AnyPipeline { links, mut settings } = establish.pipeline(&peer)?;
        #[cfg(feature = "simulation")]
        let links = crate::channel::core::links::checked(links);
        let mut placeholder = std::mem::replace(&mut self.links, links);
        settings.extras.remove_filters();
        self.state.apply(services, settings);
        if let Some(establish) = placeholder.take_establish() {
            establish.established(&mut || self.handle(services));
        }
        Ok(())
    }

    /// Handles the failure of a filter, or of the start of a channel with filters. A handler that
    /// was never called is not notified. Pending output of the filters is still sent.
    #[cold]
    pub(crate) fn fail_filters(&mut self, services: &mut LoopServices, error: Error) {
        if let Some(filters) = self.state.extras.filters_mut() {
            filters.fail();
        }
        self.state.cancel_handshake(services);
        let cause = CloseCause::of_error(&error);
        self.state.note_cause(cause);
        self.state.outbound.note_error(|| error.clone());
        if self.state.status.is_active() {
            if self.state.status.is_open() {
                self.fail(services, error);
            }
        } else {
            services.tally.channel_errors += 1;
            let id = self.state.id();
            log_throttled!(services, HANDSHAKES, Level::Debug, "channel {id}: not established: {error:#}");
            self.report_failed_handshake(error);
        }
        self.state.request_close(cause);
        self.after(services);
        self.state.want_attention(services);
    }

    /// Returns whether no outbound message is left that can be sent. Failed filters seal none.
    pub(crate) fn has_sent_what_it_can(&mut self) -> bool {
        self.state.outbound.pending_bytes() == 0
            || self.state.extras.filters_mut().is_some_and(|f| f.has_failed())
    }

    /// Closes the channel at once if it is handshaking.
    pub(crate) fn abandon_handshake(&mut self, services: &mut LoopServices, error: Error) {
        if !self.state.status.is_active() {
            self.report_failed_handshake(error);
            self.state.request_close_now(CloseCause::Cut);
            self.state.want_attention(services);
        }
    }

    /// Reports the failure of a new channel. Does nothing for one that was established.
    pub(super) fn report_failed_handshake(&mut self, error: Error) {
        if let Some(establish) = self.links.take_establish() {
            establish.failed(error);
        }
    }

    /// Ends the handshake of a channel that closes without an error of its filters.
    pub(super) fn end_handshake(&mut self, services: &mut LoopServices) {
        self.state.cancel_handshake(services);
        self.report_failed_handshake(Error::Closed);
    }

    /// Handles the end of the time for the handshake.
    pub(in crate::channel::core) fn handle_handshake_timeout(&mut self, services: &mut LoopServices) {
        let Some(filters) = self.state.extras.filters_mut() else { return };
        filters.deadline = None;
        if !filters.is_established() {
            let after = Duration::from_nanos(self.state.config.handshake_timeout);
            self.fail_filters(services, Error::TimedOut { operation: "the handshake", after });
            // A peer that has had its time gets none to linger.
            self.state.request_close_now(CloseCause::TimedOut);
        }
    }

    /// Admits the first read of an accepted connection's handshake.
    ///
    /// # Errors
    /// If the loop is overloaded.
    pub(crate) fn admit_handshake(&mut self, services: &LoopServices) -> Result<(), Overloaded> {
        let may_be_shed = self.state.may_shed_handshake();
        let Some(filters) = self.state.extras.filters_mut() else { return Ok(()) };
        if !may_be_shed || std::mem::replace(&mut filters.was_admitted, true) {
            return Ok(());
        }
        services.admit(Work::Handshake)
    }

    /// Resets an accepted connection whose handshake has waited for too long.
    pub(crate) fn shed_late_handshake(&mut self, services: &mut LoopServices) {
        let Some(limits) = services.limits.clone() else { return };
        self.shed_handshake(services, limits.refuse(Work::Handshake));
    }

    /// Resets a connection because the loop is overloaded.
    #[cold]
    pub(crate) fn shed_handshake(&mut self, services: &mut LoopServices, refused: Overloaded) {
        self.fail_filters(services, refused.into());
        self.state.request_reset(CloseCause::Failed);
    }

    /// Calls the filters soon, although there may be no new input.
    pub(in crate::channel::core) fn resume_filters(&mut self, services: &mut LoopServices, resume: Resume) {
        let Some(filters) = self.state.extras.filters_mut() else { return };
        filters.request(resume);
        self.state.status.set(Readiness::MAYBE_READABLE);
        self.state.want_attention(services);
    }

    /// Starts the filter that a callback has added, at the end of the turn.
    pub(crate) fn start_added_filter(&mut self, services: &mut LoopServices) {
        if let Some(filters) = self.state.extras.filters_mut() {
            filters.take_added();
        }
        if !self.state.status.is_open() && !self.state.completes_handshake() {
            let plain = self.state.outbound.pending_bytes() > self.state.extras.sealed_bytes();
            let waits = self.state.status.closes_gracefully() && plain;
            if waits && self.state.status.input_ended() {
                // Nobody can answer the handshake that the pending messages need.
                self.fail_filters(services, PeerError::Truncated.into());
            }
            return;
        }
        let more = self.has_more();
        self.state.status.unset(Pending::UNDECODED);
        let kept = self.state.extras.kept_in_filters() > 0;
        if !self.state.inbound.undecoded().is_empty() || more || kept {
            self.state.inbound.drop_undecoded();
            self.fail_filters(services, PeerError::Corrupted("plaintext after the upgrade").into());
            return;
        }
        self.begin_filters(services);
    }
}

impl ChannelState {
    /// Returns whether the channel closes, and messages wait for a handshake.
    #[cold]
    pub(in crate::channel) fn completes_handshake(&self) -> bool {
        self.status.closes_gracefully()
            && !self.status.input_ended()
            && self.outbound.pending_bytes() > 0
            && self.extras.filters().is_some_and(|filters| !filters.is_established() && !filters.has_failed())
    }

    /// Updates the flags of the filters in the status, after each call of a filter.
    pub(in crate::channel) fn note_filters(&mut self) {
        if self.extras.filters().is_some_and(|filters| !filters.is_established()) {
            self.status.set(ReadDemand::HANDSHAKING);
        } else {
            self.status.unset(ReadDemand::HANDSHAKING);
        }
    }

    /// Returns the peer, with what filters have stored about it.
    pub(crate) fn peer(&self) -> Peer {
        let plain =
            || Peer::new(self.peer_address(), self.local_address()).with_host(self.config.host.clone());
        self.extras.peer().cloned().unwrap_or_else(plain)
    }

    /// Adds a filter above the others, which takes over at the end of the turn.
    ///
    /// # Errors
    /// [`Error::Closed`] if the channel is closing, or [`Error::Other`] if other filters are not
    /// established. Also the errors of the filters below for bytes that are written already.
    pub(crate) fn start_filter(&mut self, services: &mut LoopServices, filter: Box<dyn Filter>) -> Result {
        if !self.status.takes_writes() {
            return Err(Error::Closed);
        }
        if !self.extras.has_filters() {
            let peer = self.peer();
            self.extras.forget_peer();
            let mut filters = Filters::new(Vec::new(), peer);
            filters.attach(self.key(), &services.sender);
            self.extras.set_filters(filters);
        }
        if self.extras.filters_mut().is_some_and(|filters| !filters.is_established() || filters.has_failed())
        {
            return Err(Error::other("another filter of this channel is not established"));
        }
        // What is written before the upgrade is not sealed by the new filter.
        self.seal_all(services)?;
        if let Some(filters) = self.extras.filters_mut() {
            filters.add(filter);
        }
        self.note_filters();
        self.want_attention(services);
        Ok(())
    }

    /// Starts `handshake_timeout`, unless it runs already.
    fn arm_handshake(&mut self, services: &mut LoopServices) {
        let (key, timeout) = (self.key(), self.config.handshake_timeout);
        let Some(filters) = self.extras.filters_mut() else { return };
        if filters.deadline.is_none() {
            let due = Due::Channel(TimerToken::new(key, ChannelTimer::Handshake));
            filters.deadline = Some(services.queue.insert(services.now.saturating_add(timeout), due));
        }
    }

    fn cancel_handshake(&mut self, services: &mut LoopServices) {
        if let Some(deadline) = self.extras.filters_mut().and_then(|filters| filters.deadline.take()) {
            services.cancel_timer(deadline);
        }
    }
}
