//! Filters that read and send PROXY headers.

use super::{header::ProxyHeader, proxy_error::ProxyError, proxy_protocol::ProxyProtocol};
use crate::{
    channel::{
        Peer,
        filter::{Filter, FilterContext, FilterState},
    },
    error::{Error, PeerError, Result},
    pipeline::{Context, Handler},
};

impl From<ProxyError> for Error {
    fn from(error: ProxyError) -> Self {
        PeerError::protocol("PROXY", error).into()
    }
}

impl ProxyProtocol {
    /// Creates the filter of an accepted connection. It must be the first one.
    ///
    /// It finishes with the last byte of the header. Bytes behind the header go to the next filter
    /// or to the codec. The addresses in the header become those of the channel, and the
    /// [`ProxyHeader`] becomes an info of the [`Peer`](crate::Peer). A header without IP addresses
    /// (`LOCAL`, `UNKNOWN`) leaves the real addresses. A direct connection is unchanged.
    ///
    /// ```
    /// use netwheel::{
    ///     codec::Line,
    ///     prelude::*,
    ///     proxy::{ProxyHeader, ProxyProtocol},
    ///     testing::EmbeddedChannel,
    /// };
    ///
    /// let protocol = ProxyProtocol::required().trust_unix_sockets();
    /// let pipeline = Pipeline::codec(Line::new()).on_read(|ctx, line| ctx.write(line));
    /// let mut channel = EmbeddedChannel::builder(pipeline).filter(protocol.filter()).build()?;
    /// channel.write_inbound(b"PROXY TCP4 192.0.2.7 198.51.100.1 4321 443\r\nhello\n")?;
    /// assert_eq!(channel.read_outbound(), "hello\n");
    /// # Ok::<(), netwheel::Error>(())
    /// ```
    pub fn filter(&self) -> ProxyFilter {
        ProxyFilter { role: Role::Reads(self.clone()), finished: false }
    }
}

impl ProxyHeader {
    /// Creates the filter of a client connection that sends this header first. It must be the
    /// first one.
    pub fn filter(&self) -> ProxyFilter {
        ProxyFilter { role: Role::Sends(self.clone()), finished: false }
    }
}

impl Peer {
    /// Returns the PROXY header with which the connection began.
    pub fn proxy(&self) -> Option<&ProxyHeader> {
        self.info()
    }
}

impl<H: Handler> Context<'_, H> {
    /// Returns the PROXY header with which the connection began.
    pub fn proxy(&self) -> Option<&ProxyHeader> {
        self.filter_info()
    }
}

/// A filter that reads or sends the header of a connection, and then leaves the channel.
///
/// [`ProxyProtocol::filter`] and [`ProxyHeader::filter`] create it.
#[derive(Debug)]
pub struct ProxyFilter {
    role: Role,
    finished: bool,
}

#[derive(Debug)]
enum Role {
    Reads(ProxyProtocol),
    Sends(ProxyHeader),
}

impl Filter for ProxyFilter {
    fn start(&mut self, ctx: &mut FilterContext<'_>) -> Result {
        self.finished = match &self.role {
            Role::Reads(protocol) => !protocol.expects_header(ctx.peer().address())?,
            Role::Sends(header) => {
                header.encode(ctx.output());
                true
            }
        };
        Ok(())
    }

    fn read(&mut self, ctx: &mut FilterContext<'_>, input: &mut [u8]) -> Result<usize> {
        let Role::Reads(protocol) = &self.role else { return Ok(0) };
        let Some((header, length)) = protocol.parse(input)? else { return Ok(0) };
        if let Some((source, destination)) = header.addresses() {
            ctx.announce(source, destination);
        }
        ctx.set_info(header);
        self.finished = true;
        Ok(length)
    }

    fn state(&self) -> FilterState {
        if self.finished { FilterState::Finished } else { FilterState::Handshaking }
    }
}
