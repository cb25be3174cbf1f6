//! A byte filter with a handshake.

use netwheel::{
    error::PeerError,
    filter::{Filter, FilterContext, FilterState},
    prelude::*,
};

/// Both sides first send a key, with which they XOR all later bytes.
pub(crate) struct Xor {
    own: u8,
    peer: Option<u8>,
}

const MARK: u8 = 0x5A;

impl Xor {
    pub(crate) fn new(own: u8) -> Self {
        Xor { own, peer: None }
    }
}

impl Filter for Xor {
    fn start(&mut self, ctx: &mut FilterContext<'_>) -> Result {
        ctx.output().extend_from_slice(&[MARK, self.own]);
        Ok(())
    }

    fn read(&mut self, ctx: &mut FilterContext<'_>, input: &mut [u8]) -> Result<usize> {
        let (key, data) = match (self.peer, &*input) {
            (Some(key), _) => (key, 0),
            (None, [MARK, key, ..]) => (*self.peer.insert(*key), 2),
            (None, [] | [MARK]) => return Ok(0),
            (None, _) => return Err(PeerError::Corrupted("no mark").into()),
        };
        input[data..].iter_mut().for_each(|byte| *byte ^= key);
        ctx.deliver(&input[data..]);
        Ok(input.len())
    }

    fn write(&mut self, ctx: &mut FilterContext<'_>, plain: &[u8]) -> Result {
        ctx.output().extend(plain.iter().map(|byte| byte ^ self.own));
        Ok(())
    }

    fn state(&self) -> FilterState {
        if self.peer.is_some() { FilterState::Established } else { FilterState::Handshaking }
    }
}
