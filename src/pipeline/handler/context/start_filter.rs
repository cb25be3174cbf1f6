//! Starting a byte filter on a connection that exists (STARTTLS).

use super::Context;
use crate::{channel::filter::Filter, error::Result, pipeline::handler::Handler};

impl<H: Handler> Context<'_, H> {
    /// Starts a byte filter above the existing filters of the channel, for example TLS after a
    /// command like STARTTLS.
    ///
    /// It takes over at the end of the turn. Messages that are written before this call are not
    /// sealed by it; later ones are, and wait until it is established. No message is delivered in
    /// between. `active` is not called again. `handshake_timeout` applies.
    ///
    /// Input that follows the command before the filter takes over is not decrypted input, and an
    /// attacker may have put it there. So it is neither delivered nor passed to the filter: `error`
    /// gets [`PeerError::Corrupted`](crate::error::PeerError::Corrupted), and the channel closes. A
    /// [`PeerError`](crate::error::PeerError) of the handshake has the same effect.
    ///
    /// # Errors
    /// [`Error::Closed`](crate::Error::Closed) if the channel is closing or its output has ended,
    /// and [`Error::Other`](crate::Error::Other) if another filter is not established.
    #[doc(alias = "starttls")]
    pub fn start_filter(&mut self, filter: impl Filter) -> Result {
        self.state.start_filter(self.services, Box::new(filter))
    }
}
