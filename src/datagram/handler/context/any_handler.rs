//! The stand-in for a handler of datagrams whose type is not known.

use super::DatagramContext;
use crate::{datagram::handler::DatagramHandler, error::Result};
use bytes::Bytes;
use std::net::SocketAddr;

/// Stands for a handler of unknown type.
///
/// It is the handler type of the context that the tasks of
/// [`DatagramChannel::execute`](crate::datagram::DatagramChannel::execute) get. It has no state.
/// Programs cannot create one: the tasks that such a context schedules get it in place of the
/// handler.
#[derive(Debug)]
pub struct AnyDatagramHandler(());

impl AnyDatagramHandler {
    pub(super) fn new() -> Self {
        AnyDatagramHandler(())
    }
}

impl DatagramHandler for AnyDatagramHandler {
    /// Does nothing. Never called, because no channel has this handler.
    fn read(&mut self, _: &mut DatagramContext<'_, Self>, _: Bytes, _: SocketAddr) -> Result {
        Ok(())
    }
}
