//! `TlsFilter`: TLS as a byte filter.
//!
//! Invariants: plaintext passes only after the handshake. All output of a call is appended before
//! the call returns, so an alert precedes the close.

use super::{info::TlsInfo, offload::Handshake, session::Session, tls_certificates::TlsCertificates};
use crate::{
    channel::filter::{Filter, FilterContext, FilterState},
    error::{Error, PeerError, Result},
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
    /// An error if rustls refuses the configuration.
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
    /// An error if rustls refuses the configuration.
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

    /// Processes `input` here or with a worker, which wakes the filter when `read` is to be called
    /// again. Returns the number of consumed bytes.
    fn process(&mut self, ctx: &mut FilterContext<'_>, input: &mut [u8]) -> Result<usize> {
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
                    ctx.deliver(&step.plain);
                    ctx.output().extend_from_slice(&step.output);
                    at += step.consumed?;
                }
                Place::Here(mut session) => {
                    if let Some(workers) = &self.workers
                        && session.is_expensive(input)
                    {
                        let waker = ctx.waker();
                        match Handshake::submit(workers, session, input, move || waker.wake()) {
                            Ok(handshake) => {
                                self.place = Place::WithWorker(handshake);
                                return Ok(at);
                            }
                            // A full pool: the loop does the work.
                            Err(returned) => session = returned,
                        }
                    }
                    let (mut plain, output) = ctx.split();
                    let consumed = session.read(input, &mut plain, output);
                    self.place = Place::Here(session);
                    return Ok(at + consumed?);
                }
            }
        }
    }

    /// Returns the result of the handshake, once, when it is complete.
    fn take_info(&mut self) -> Option<TlsInfo> {
        let Place::Here(session) = &mut self.place else { return None };
        if self.established || session.is_handshaking() {
            return None;
        }
        self.established = true;
        self.workers = None;
        session.info()
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
    /// Sends the ClientHello of a client.
    fn start(&mut self, ctx: &mut FilterContext<'_>) -> Result {
        self.session()?.start(ctx.output())
    }

    fn read(&mut self, ctx: &mut FilterContext<'_>, input: &mut [u8]) -> Result<usize> {
        if self.established
            && let Place::Here(session) = &mut self.place
        {
            let (mut plain, output) = ctx.split();
            return session.read(input, &mut plain, output);
        }
        let consumed = self.process(ctx, input);
        if let Some(info) = self.take_info() {
            ctx.set_info(info);
        }
        consumed
    }

    fn end_of_input(&mut self, _: &mut FilterContext<'_>, _: usize) -> Result {
        match self.state() {
            FilterState::InputEnded => Ok(()),
            _ => Err(PeerError::Truncated.into()),
        }
    }

    fn write(&mut self, ctx: &mut FilterContext<'_>, plain: &[u8]) -> Result {
        self.session()?.write(plain, ctx.output())
    }

    fn sealed_len(&self, plain: usize) -> usize {
        match &self.place {
            Place::Here(session) => session.sealed_len(plain),
            // Nothing is sealed during a handshake.
            _ => plain,
        }
    }

    /// Sends `close_notify`, unless the handshake is not complete.
    fn end_output(&mut self, ctx: &mut FilterContext<'_>) -> Result {
        if let Place::Here(session) = &mut self.place {
            session.close(ctx.output());
        }
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
