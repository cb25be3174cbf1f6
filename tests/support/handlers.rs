//! The two handlers of bytes that most servers of tests have.

use bytes::Bytes;
use netwheel::prelude::*;

/// Sends everything back.
pub(crate) struct Echo;

impl Handler for Echo {
    type In = Bytes;
    type Out = Bytes;

    fn read(&mut self, ctx: &mut Context<'_, Self>, message: Bytes) -> Result {
        ctx.write(message)
    }
}

/// Reads and forgets.
pub(crate) struct Quiet;

impl Handler for Quiet {
    type In = Bytes;
    type Out = Bytes;

    fn read(&mut self, _: &mut Context<'_, Self>, _: Bytes) -> Result {
        Ok(())
    }
}
