//! `ClientConnection`: the handler of one client.

use super::{
    process::ProcessCondition,
    pubsub::ClientId,
    service::{AfterRequest, ClientRequest, serve},
    session::{ClientSession, Wake},
    settings::DEFAULT_USER,
    state::State,
};
use crate::{
    channel::InputGuard,
    codec::RespValue,
    error::{Error, PeerError, Result},
    machine::Mutex,
    pipeline::{Context, Handler},
};
use bytes::Bytes;
use std::{
    sync::Arc,
    time::{Duration, SystemTime},
};

/// The time after which writes are safe with [`Persistence::EverySecond`](super::Persistence).
const SYNC_INTERVAL: Duration = Duration::from_secs(1);

pub(super) type SharedState = Arc<Mutex<State>>;

pub(super) struct ClientConnection {
    shared: SharedState,
    /// The call of `bind` that has made the connection.
    start: u64,
    /// The process that serves the connection, and the number of it there.
    served: Option<(u64, ClientId)>,
    /// A request that waits for the end of a hold, and the pause of reading until then.
    held: Option<(Vec<Bytes>, InputGuard)>,
}

impl ClientConnection {
    pub(super) fn new(shared: SharedState, start: u64) -> Self {
        ClientConnection { shared, start, served: None, held: None }
    }

    /// Runs a request, or holds it.
    fn request(&mut self, ctx: &mut Context<'_, Self>, args: Vec<Bytes>) -> Result {
        let Some((process, client)) = self.served else { return Ok(()) };
        let now_micros = unix_micros(ctx.exact_wall_time());
        let shared = self.shared.clone();
        let mut state = shared.lock();
        if !state.is_running(process) {
            drop(state);
            ctx.reset();
            return Ok(());
        }
        if state.process.conditions.has(ProcessCondition::Held) {
            drop(state);
            self.held = Some((args, ctx.pause_reading()));
            return Ok(());
        }
        let next = serve(&mut state, ClientRequest { client, now_micros }, &args);
        let woken: Vec<Wake> = state
            .process
            .pubsub
            .take_woken()
            .into_iter()
            .filter(|other| *other != client)
            .filter_map(|other| state.process.sessions.get(&other).map(|session| session.wake.clone()))
            .collect();
        drop(state);
        schedule_sync(&shared);
        woken.iter().for_each(|wake| wake());
        match next {
            AfterRequest::Cut => ctx.reset(),
            AfterRequest::Continue => self.send(ctx)?,
            AfterRequest::Close => {
                self.send(ctx)?;
                // The client must not count as a subscriber any more when it sees the end.
                self.leave();
                ctx.close();
            }
        }
        Ok(())
    }

    /// Sends the values in the outbox.
    fn send(&mut self, ctx: &mut Context<'_, Self>) -> Result {
        let Some((process, client)) = self.served else { return Ok(()) };
        let values = {
            let mut state = self.shared.lock();
            if state.is_running(process) { state.process.pubsub.take(client) } else { None }
        };
        match values {
            Some(values) => values.into_iter().try_for_each(|value| ctx.write(value)),
            None => {
                // The process has ended, or the client does not read.
                ctx.reset();
                Ok(())
            }
        }
    }

    /// Removes the connection from the process.
    fn leave(&mut self) {
        if let Some((process, client)) = self.served.take() {
            let mut state = self.shared.lock();
            if state.process.number == process {
                state.process.disconnect(client);
            }
        }
    }

    /// Sends messages, and continues after a hold.
    fn wake(&mut self, ctx: &mut Context<'_, Self>) -> Result {
        self.send(ctx)?;
        match self.held.take() {
            Some((args, _pause)) => self.request(ctx, args),
            None => Ok(()),
        }
    }
}

impl Handler for ClientConnection {
    type Read = RespValue;
    type Write = RespValue;

    fn active(&mut self, ctx: &mut Context<'_, Self>) -> Result {
        let handle = ctx.handler_ref();
        let wake: Wake = Arc::new(move || {
            // A loop with a full queue cannot deliver messages in order, so the connection ends.
            if handle.execute(Self::wake).is_err() {
                handle.channel().close_now();
            }
        });
        let mut state = self.shared.lock();
        if state.start != self.start || !state.disk.is_running(state.process.number) {
            drop(state);
            ctx.reset();
            return Ok(());
        }
        let user = state.settings.password.is_none().then(|| DEFAULT_USER.to_owned());
        let client = state.process.connect(ClientSession::new(wake, user));
        self.served = Some((state.process.number, client));
        Ok(())
    }

    fn read(&mut self, ctx: &mut Context<'_, Self>, request: RespValue) -> Result {
        // The codec admits only arrays of bulk strings, with at least the command. Copies do not
        // keep the read buffer.
        let RespValue::Array(request) = request else { return Ok(()) };
        let args = request.iter().filter_map(RespValue::as_bytes).map(|arg| Bytes::copy_from_slice(arg));
        self.request(ctx, args.collect())
    }

    /// Explains a violation of the protocol to the peer.
    fn error(&mut self, ctx: &mut Context<'_, Self>, cause: Error) -> Result {
        let text = match &cause {
            Error::Peer(PeerError::Protocol { cause, .. }) => cause.as_error().to_string(),
            Error::Peer(fault @ PeerError::TooLong { .. }) => fault.to_string(),
            _ => return Err(cause),
        };
        ctx.close_with(RespValue::Error(format!("ERR Protocol error: {text}").into()))
    }

    fn inactive(&mut self, _ctx: &mut Context<'_, Self>) -> Result {
        self.leave();
        Ok(())
    }
}

/// Schedules a sync if the last write needs one.
pub(super) fn schedule_sync(shared: &SharedState) {
    let mut state = shared.lock();
    if !state.needs_sync() {
        return;
    }
    let (process, event_loop) = (state.process.number, state.event_loop.clone());
    drop(state);
    let later = shared.clone();
    let task = move || sync(&later, process);
    let scheduled = event_loop.map(|event_loop| event_loop.schedule(SYNC_INTERVAL, task));
    // A loop that has ended or is full does not sync later, and nothing else would.
    if !matches!(scheduled, Some(Ok(_))) {
        sync(shared, process);
    }
}

/// Makes the writes of a process safe.
fn sync(shared: &SharedState, process: u64) {
    let mut state = shared.lock();
    if state.process.number == process {
        state.awaits_sync = false;
        state.disk.sync(process);
    }
}

pub(super) fn unix_micros(time: SystemTime) -> i64 {
    let since = time.duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
    i64::try_from(since.as_micros()).unwrap_or(i64::MAX)
}
