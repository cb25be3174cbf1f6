//! Ends channels with a byte filter in every way that docs/endings.md lists, also during the
//! handshake of an upgrade.

use super::{
    rows::{Check, rows},
    table::{CLOSE_TIMEOUT, Ends, LIMIT, Setup, close, is_cause, write},
};
use crate::support::journal::Journal;
use bytes::Bytes;
use netwheel::{
    error::PeerError,
    filter::{Filter, FilterContext, FilterState},
    prelude::*,
    testing::EmbeddedChannel,
};

/// The byte that completes a handshake.
const HELLO: &str = "H";
/// The byte that ends a stream.
const END: u8 = b'E';
/// The byte that is refused.
const INVALID: &str = "X";
const ALERT: &[u8] = b"alert";

/// A filter with a handshake, an end mark and an alert, which changes no byte.
pub(super) struct Marked(FilterState);

impl Marked {
    pub(super) fn handshaking() -> Self {
        Marked(FilterState::Handshaking)
    }

    pub(super) fn established() -> Self {
        Marked(FilterState::Established)
    }
}

impl Filter for Marked {
    fn read(&mut self, ctx: &mut FilterContext<'_>, input: &mut [u8]) -> Result<usize> {
        for byte in &*input {
            match *byte {
                END => self.0 = FilterState::InputEnded,
                b'H' if self.0 == FilterState::Handshaking => self.0 = FilterState::Established,
                b'X' => {
                    ctx.output().extend_from_slice(ALERT);
                    return Err(PeerError::Corrupted("not a byte of this protocol").into());
                }
                byte => ctx.deliver(&[byte]),
            }
        }
        Ok(input.len())
    }

    fn end_of_input(&mut self, _: &mut FilterContext<'_>, _: usize) -> Result {
        if self.0 == FilterState::InputEnded { Ok(()) } else { Err(PeerError::Truncated.into()) }
    }

    fn write(&mut self, ctx: &mut FilterContext<'_>, plain: &[u8]) -> Result {
        ctx.output().extend_from_slice(plain);
        Ok(())
    }

    fn end_output(&mut self, ctx: &mut FilterContext<'_>) -> Result {
        ctx.output().extend_from_slice(&[END]);
        Ok(())
    }

    fn state(&self) -> FilterState {
        self.0
    }
}

type Act = fn(&mut EmbeddedChannel<Bytes>, &Journal<&'static str>);

/// Returns the setup of a row, whether its filter is established from the start, and the actions.
fn scenario(name: &str) -> (Setup, bool, Act) {
    let usual = Setup::usual();
    let half_close = || Setup::options(|options| options.half_close(true));
    match name {
        "`close`, and everything is sent" => (usual, true, |channel, journal| {
            write(channel, journal, 9);
            close(channel);
        }),
        "`close_now`" => (usual, true, |channel, _| {
            channel.execute(Box::new(|ctx| {
                ctx.close_now();
                Ok(())
            }));
        }),
        "the peer sends its end mark" => (usual, true, |channel, _| channel.say("E")),
        "the peer sends its end mark, with `half_close`" => {
            (half_close(), true, |channel, _| channel.say("E"))
        }
        "the peer's stream ends without the end mark" => (usual, true, |channel, _| channel.end()),
        "the filter refuses the input" => (usual, true, |channel, _| channel.say(INVALID)),
        "the peer resets the connection" => (usual, true, |channel, _| channel.reset()),
        "upgrade: the handshake fails" => (usual, false, |channel, journal| {
            write(channel, journal, 9);
            channel.say(INVALID);
        }),
        "upgrade: the handshake takes longer than `handshake_timeout`" => {
            (usual, false, |channel, journal| {
                write(channel, journal, 9);
                channel.pass(LIMIT);
            })
        }
        "upgrade: the peer's stream ends during the handshake" => (usual, false, |channel, journal| {
            write(channel, journal, 9);
            channel.end();
        }),
        "upgrade: the peer resets the connection during the handshake" => {
            (usual, false, |channel, journal| {
                write(channel, journal, 9);
                channel.reset();
            })
        }
        "upgrade: `close` during the handshake, and no message waits" => {
            (usual, false, |channel, _| close(channel))
        }
        "upgrade: `close` during the handshake, and it completes" => (usual, false, |channel, journal| {
            write(channel, journal, 9);
            close(channel);
            channel.say(HELLO);
        }),
        "upgrade: `close` during the handshake, and it fails" => (usual, false, |channel, journal| {
            write(channel, journal, 9);
            close(channel);
            channel.say(INVALID);
        }),
        "upgrade: `close` during the handshake, and it takes longer than the close timeout" => {
            (usual, false, |channel, journal| {
                write(channel, journal, 9);
                close(channel);
                channel.pass(CLOSE_TIMEOUT);
            })
        }
        _ => panic!("nothing tests the row {name:?}"),
    }
}

/// Returns the peer's input.
fn sent(mut output: &[u8]) -> Vec<&'static str> {
    let mut sent = Vec::new();
    while !output.is_empty() {
        let (name, length) = match output {
            [b'.', ..] => ("message", 9),
            [END, ..] => ("end mark", 1),
            _ => ("alert", ALERT.len()),
        };
        sent.push(name);
        output = &output[length..];
    }
    sent
}

#[test]
fn a_channel_with_a_filter_ends_as_the_table_in_the_docs_says() {
    let mut check = Check::default();
    for [name, events, of_peer, cause] in rows("with a filter") {
        let (setup, established, act) = scenario(name);
        let journal = Journal::new();
        let builder = EmbeddedChannel::builder(setup.pipeline(&journal))
            .channel_options(setup.options.clone())
            .handshake_timeout(LIMIT);
        let mut channel = if established {
            builder.filter(Marked::established()).build().unwrap()
        } else {
            let mut channel = builder.build().unwrap();
            channel.say("upgrade");
            channel
        };
        act(&mut channel, &journal);
        assert!(channel.is_closed(), "{name}: {:?}", journal.all());
        let output = channel.read_outbound();
        drop(channel);
        let (causes, happened): (Vec<_>, Vec<_>) = journal.all().into_iter().partition(is_cause);
        check.row(name, &[(&happened, events), (&sent(&output), of_peer), (&causes, cause)]);
    }
    check.end();
}
