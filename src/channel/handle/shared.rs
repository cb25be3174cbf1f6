//! The state that the handles of a channel share with its loop.
//!
//! Invariant: the loop writes it and any thread reads it. Handles read copies that the loop keeps
//! up to date.

use super::{
    MailSender,
    close_listeners::CloseListeners,
    pipeline_types::{PipelineTypes, SizeHint},
    producers::Producers,
};
use crate::{
    buffer::WaterMark,
    channel::{close_cause::CloseCause, config::ChannelConfig, exchanges::Exchanges},
    error::{Error, Resource, Result},
    id::ChannelId,
    machine::Mutex,
    sync::{HeldInput, Permits},
};
use std::{
    net::SocketAddr,
    sync::{
        Arc, OnceLock,
        atomic::{AtomicBool, AtomicU32, Ordering},
    },
    time::Duration,
};

/// The state that the handles of a channel share with its loop.
pub(crate) struct ChannelShared {
    pub(in crate::channel) id: ChannelId,
    pub(in crate::channel) sender: Arc<dyn MailSender>,
    pub(super) local_address: Option<SocketAddr>,
    pub(super) peer_address: Option<SocketAddr>,
    open: AtomicBool,
    output_ended: AtomicBool,
    /// How long a reconnecting client waits after the end of the channel, in milliseconds.
    reconnect_after: AtomicU32,
    pub(in crate::channel) producers: Producers,
    pub(in crate::channel) inbound_mark: WaterMark,
    pub(in crate::channel) holding: HeldInput,
    pub(in crate::channel) close_listeners: CloseListeners,
    /// The exchanges of the first pipeline, if its protocol reports them.
    pub(in crate::channel) exchanges: Option<Arc<Exchanges>>,
    /// The permits of tasks that handles have scheduled and that have not run yet.
    tasks: Permits,
    /// The types of the current pipeline, once it was replaced. Handles of other types fail.
    replaced: OnceLock<Box<Mutex<PipelineTypes>>>,
}

impl ChannelShared {
    pub(crate) fn new(
        id: ChannelId,
        sender: Arc<dyn MailSender>,
        addresses: (Option<SocketAddr>, Option<SocketAddr>),
        config: &ChannelConfig,
        size_hint: SizeHint,
        exchanges: Option<Arc<Exchanges>>,
    ) -> Self {
        ChannelShared {
            id,
            sender,
            local_address: addresses.0,
            peer_address: addresses.1,
            open: AtomicBool::new(true),
            output_ended: AtomicBool::new(false),
            reconnect_after: AtomicU32::new(0),
            producers: Producers::new(config, size_hint),
            inbound_mark: config.inbound_mark,
            holding: HeldInput::default(),
            close_listeners: CloseListeners::new(),
            exchanges,
            tasks: Permits::new(config.max_scheduled_tasks),
            replaced: OnceLock::new(),
        }
    }

    /// Leaves all groups, because the new pipeline writes another message type.
    pub(crate) fn leave_groups(&self) {
        self.close_listeners.leave_groups(self.id);
    }

    /// Sets the types of the pipeline that has replaced the first one.
    pub(crate) fn set_types(&self, types: PipelineTypes) {
        let current = self.replaced.get_or_init(|| Box::new(Mutex::new(types)));
        *current.lock() = types;
    }

    /// Returns whether a handle fits the pipeline. Every handle does until the pipeline is
    /// replaced.
    #[inline]
    pub(super) fn fits(&self, fits: impl FnOnce(PipelineTypes) -> bool) -> bool {
        self.replaced.get().is_none_or(|types| fits(*types.lock()))
    }

    /// Publishes that the output has ended, and fails the waiters for writability.
    pub(crate) fn set_output_ended(&self) {
        self.output_ended.store(true, Ordering::Release);
        self.producers.end();
    }

    /// Returns the address of the peer, if the transport has one.
    pub(crate) fn peer_address(&self) -> Option<SocketAddr> {
        self.peer_address
    }

    /// Sets how long a reconnecting client waits after the end of the channel.
    pub(crate) fn set_reconnect_after(&self, delay: Duration) {
        let millis = u32::try_from(delay.as_millis()).unwrap_or(u32::MAX);
        self.reconnect_after.store(millis, Ordering::Release);
    }

    /// Returns how long a reconnecting client waits after the end of the channel.
    pub(crate) fn reconnect_after(&self) -> Duration {
        Duration::from_millis(self.reconnect_after.load(Ordering::Acquire).into())
    }

    pub(crate) fn set_closing(&self) {
        self.open.store(false, Ordering::Release);
        self.producers.end();
    }

    pub(super) fn is_open(&self) -> bool {
        self.open.load(Ordering::Acquire)
    }

    /// Returns the function that estimates the encoded size of a message.
    pub(super) fn size_hint(&self) -> SizeHint {
        match self.replaced.get() {
            None => self.producers.size_hint(),
            Some(types) => types.lock().size_hint,
        }
    }

    pub(in crate::channel) fn takes_writes(&self) -> bool {
        self.open.load(Ordering::Acquire) && !self.output_ended.load(Ordering::Acquire)
    }

    /// Records that the channel is closed: it leaves its groups, then the completions of `closed`
    /// complete.
    pub(crate) fn set_closed(&self, cause: CloseCause) {
        self.set_closing();
        self.close_listeners.run(self.id, cause);
    }

    #[inline]
    pub(in crate::channel) fn would_be_writable(&self, weight: usize, mark: WaterMark) -> bool {
        self.producers.would_be_writable(weight, mark)
    }

    #[inline]
    pub(in crate::channel) fn update(&self, weight: usize, mark: WaterMark, was: bool) -> bool {
        self.producers.update(weight, mark, was)
    }

    pub(in crate::channel) fn notify_writable(&self) {
        self.producers.notify();
    }
}

/// A permit for one task that a handle schedules. Dropping it releases the permit.
pub(crate) struct TaskPermit(Arc<ChannelShared>);

impl TaskPermit {
    /// # Errors
    /// [`Error::Full`] if the limit of tasks is reached.
    pub(super) fn take(shared: &Arc<ChannelShared>) -> Result<Self> {
        if !shared.tasks.take() {
            return Err(Error::Full { resource: Resource::ChannelTasks, limit: shared.tasks.limit() });
        }
        Ok(TaskPermit(shared.clone()))
    }
}

impl Drop for TaskPermit {
    fn drop(&mut self) {
        self.0.tasks.give_back();
    }
}
