//! What a program says about reading from outside of the handler.

use bytes::Bytes;
use netwheel::prelude::*;

/// Asks for a read.
#[track_caller]
pub(crate) fn read(channel: &Channel<Bytes>) {
    channel
        .execute(|scope| {
            scope.read();
            Ok(())
        })
        .unwrap();
}

#[track_caller]
pub(crate) fn set_auto_read(channel: &Channel<Bytes>, on: bool) {
    channel
        .execute(move |scope| {
            scope.set_auto_read(on);
            Ok(())
        })
        .unwrap();
}
