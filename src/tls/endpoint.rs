//! What can make a TLS filter: the settings of a server or of a client.

use crate::{
    error::Result,
    pipeline::{Context, Handler},
};

/// The TLS settings of one end of a connection: [`TlsServer`](super::TlsServer) or
/// [`TlsClient`](super::TlsClient). Sealed.
pub trait TlsEndpoint: sealed::MakeFilter {}

pub(crate) mod sealed {
    use crate::{
        channel::{Peer, filter::Filter},
        error::Result,
    };

    pub trait MakeFilter {
        /// Creates the filter of a connection to this peer.
        #[doc(hidden)]
        fn make_filter(&self, peer: &Peer) -> Result<Box<dyn Filter>>;

        /// Creates the filter of an upgrade, behind which only TLS may follow.
        #[doc(hidden)]
        fn make_upgrade(&self, peer: &Peer) -> Result<Box<dyn Filter>> {
            self.make_filter(peer)
        }
    }
}

impl<H: Handler> Context<'_, H> {
    /// Starts TLS on this connection, after a command like STARTTLS.
    ///
    /// A server answers the command first: messages written before this call are sent as plaintext.
    /// Messages written afterwards are encrypted and wait for the handshake. Both ends take the
    /// part that their settings say, whichever has connected. See
    /// [`start_filter`](Context::start_filter) for the order of events; bytes that follow the
    /// command in plaintext close the channel, also with
    /// [`or_plaintext`](super::TlsServer::or_plaintext).
    ///
    /// # Errors
    /// [`Error::Setting`](crate::Error::Setting) if a client has no server name. Otherwise the
    /// errors of [`start_filter`](Context::start_filter).
    ///
    /// ```no_run
    /// use netwheel::{bytes::Bytes, prelude::*, tls::TlsServer};
    ///
    /// struct Session {
    ///     tls: TlsServer,
    /// }
    ///
    /// impl Handler for Session {
    ///     type Read = Bytes;
    ///     type Write = Bytes;
    ///
    ///     fn read(&mut self, ctx: &mut Context<'_, Self>, line: Bytes) -> Result {
    ///         if line.eq_ignore_ascii_case(b"STARTTLS") && ctx.tls().is_none() {
    ///             ctx.write("220 ready".into())?;
    ///             return ctx.start_tls(&self.tls);
    ///         }
    ///         ctx.write(line)
    ///     }
    /// }
    /// ```
    #[doc(alias = "starttls")]
    pub fn start_tls(&mut self, settings: &impl TlsEndpoint) -> Result {
        let filter = settings.make_upgrade(&self.peer())?;
        self.start_filter(filter)
    }
}
