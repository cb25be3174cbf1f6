//! `TlsFilter`: TLS as a byte filter.
//!
//! Invariants: plaintext passes only after the handshake. All output of a call is appended before
//! the call returns, so an alert precedes the close.

use super::{TlsCertificates, TlsInfo, offload::Handshake, session::Session};
use crate::{
    Error, Result,
    error::PeerError,
    filter::{Filter, FilterContext, FilterState, FilterWaker},
    worker_pool::WorkerPool,
};
use rustls::{ClientConfig, ServerConfig, pki_types::ServerName};
use std::{fmt, sync::Arc};

/// A filter that speaks TLS, as a server or as a client.
pub(crate) struct TlsFilter {
    place: Place,
    /// Workers for the handshake. `None` without offloading, and once the handshake is complete.
    workers: Option<WorkerPool>,
    established: bool,
}

/// Where the session is.
enum Place {
    Here(Box<Session>),
    WithWorker(Handshake),
    /// A worker panicked while it had the session.
    Lost,
}

impl TlsFilter {
    /// Creates the filter of a server. It refuses hosts for which `certificates` has none. With
    /// `workers`, the expensive steps of the handshake run there.
    ///
    /// # Errors
    /// If rustls refuses the configuration.
    pub(crate) fn server(
        config: Arc<ServerConfig>,
        certificates: Option<TlsCertificates>,
        workers: Option<WorkerPool>,
    ) -> Result<Self> {
        Session::server(config, certificates).map(|session| Self::new(session, workers))
    }

    /// Creates the filter of a client that expects a certificate for `name`.
    ///
    /// # Errors
    /// If rustls refuses the configuration.
    pub(crate) fn client(
        config: Arc<ClientConfig>,
        name: ServerName<'static>,
        workers: Option<WorkerPool>,
    ) -> Result<Self> {
        Session::client(config, name).map(|session| Self::new(session, workers))
    }

    fn new(session: Session, workers: Option<WorkerPool>) -> Self {
        TlsFilter { place: Place::Here(Box::new(session)), workers, established: false }
    }

    /// Appends the ClientHello of a client.
    pub(super) fn begin(&mut self, output: &mut Vec<u8>) -> Result {
        self.session()?.start(output)
    }

    /// Processes `input` here or with a worker, which calls `wake` when `read` is to be called
    /// again. Returns the number of consumed bytes.
    pub(super) fn process(
        &mut self,
        input: &mut [u8],
        plain: &mut dyn FnMut(&[u8]),
        output: &mut Vec<u8>,
        mut wake: impl FnMut() -> Box<dyn FnOnce() + Send>,
    ) -> Result<usize> {
        let mut at = 0;
        loop {
            let input = &mut input[at..];
            match std::mem::replace(&mut self.place, Place::Lost) {
                Place::Lost => return Err(Error::Closed),
                Place::WithWorker(handshake) => {
                    let Some(step) = handshake.take() else {
                        self.place = Place::WithWorker(handshake);
                        return Ok(at);
                    };
                    let step = step?;
                    self.place = Place::Here(step.session);
                    input[..step.input.len()].copy_from_slice(&step.input);
                    plain(&step.plain);
                    output.extend_from_slice(&step.output);
                    at += step.consumed?;
                }
                Place::Here(mut session) => {
                    if let Some(workers) = &self.workers
                        && session.is_expensive(input)
                    {
                        match Handshake::submit(workers, session, input, wake()) {
                            Ok(handshake) => {
                                self.place = Place::WithWorker(handshake);
                                return Ok(at);
                            }
                            // A full pool: the loop does the work.
                            Err(returned) => session = returned,
                        }
                    }
                    let consumed = session.read(input, plain, output);
                    self.place = Place::Here(session);
                    return Ok(at + consumed?);
                }
            }
        }
    }

    /// Returns the result of the handshake, once, when it is complete.
    pub(super) fn take_info(&mut self) -> Option<TlsInfo> {
        let Place::Here(session) = &mut self.place else { return None };
        if self.established || session.is_handshaking() {
            return None;
        }
        self.established = true;
        self.workers = None;
        session.info()
    }

    /// Encrypts all of `plain`.
    pub(super) fn seal(&mut self, plain: &[u8], output: &mut Vec<u8>) -> Result {
        self.session()?.write(plain, output)
    }

    /// Appends `close_notify`, unless the handshake is not complete.
    pub(super) fn close(&mut self, output: &mut Vec<u8>) {
        if let Place::Here(session) = &mut self.place {
            session.close(output);
        }
    }

    /// Returns the largest number of bytes that `seal` makes of `plain` bytes.
    pub(super) fn sealed_len(&self, plain: usize) -> usize {
        match &self.place {
            Place::Here(session) => session.sealed_len(plain),
            // Nothing is sealed during a handshake.
            _ => plain,
        }
    }

    /// Returns whether the peer has ended its stream with `close_notify`.
    pub(super) fn has_input_ended(&self) -> bool {
        matches!(&self.place, Place::Here(session) if session.is_peer_closed())
    }

    /// Returns whether a worker has the session.
    #[cfg(test)]
    pub(super) fn is_with_worker(&self) -> bool {
        matches!(self.place, Place::WithWorker(_))
    }

    /// Handles the end of the stream below.
    pub(super) fn finish(&mut self) -> Result {
        if self.has_input_ended() { Ok(()) } else { Err(PeerError::Truncated.into()) }
    }

    /// Returns the session, which is here except during a step of the handshake.
    fn session(&mut self) -> Result<&mut Session> {
        match &mut self.place {
            Place::Here(session) => Ok(session),
            _ => Err(Error::Closed),
        }
    }
}

impl Filter for TlsFilter {
    fn start(&mut self, ctx: &mut FilterContext<'_>) -> Result {
        self.begin(ctx.output())
    }

    fn read(&mut self, ctx: &mut FilterContext<'_>, input: &mut [u8]) -> Result<usize> {
        if self.established
            && let Place::Here(session) = &mut self.place
        {
            let (mut plain, output) = ctx.split();
            return session.read(input, &mut plain, output);
        }
        // Without offloading nothing is woken.
        let waker = self.workers.is_some().then(|| ctx.waker());
        let wake = move || {
            let waker = waker.clone();
            Box::new(move || waker.iter().for_each(FilterWaker::wake)) as Box<dyn FnOnce() + Send>
        };
        let consumed = {
            let (mut plain, output) = ctx.split();
            self.process(input, &mut plain, output, wake)
        };
        if let Some(info) = self.take_info() {
            ctx.set_info(info);
        }
        consumed
    }

    fn end_of_input(&mut self, _: &mut FilterContext<'_>, _: usize) -> Result {
        self.finish()
    }

    fn write(&mut self, ctx: &mut FilterContext<'_>, plain: &[u8]) -> Result {
        self.seal(plain, ctx.output())
    }

    fn sealed_len(&self, plain: usize) -> usize {
        TlsFilter::sealed_len(self, plain)
    }

    fn end_output(&mut self, ctx: &mut FilterContext<'_>) -> Result {
        self.close(ctx.output());
        Ok(())
    }

    fn state(&self) -> FilterState {
        match &self.place {
            Place::WithWorker(_) => FilterState::Waiting,
            Place::Here(session) if session.is_peer_closed() => FilterState::InputEnded,
            Place::Here(_) if self.established => FilterState::Established,
            _ => FilterState::Handshaking,
        }
    }
}

impl fmt::Debug for TlsFilter {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let place: &dyn fmt::Debug = match &self.place {
            Place::Here(session) => session,
            Place::WithWorker(_) => &"with a worker",
            Place::Lost => &"lost",
        };
        f.debug_struct("TlsFilter").field("session", place).finish_non_exhaustive()
    }
}
