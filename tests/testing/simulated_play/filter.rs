//! A filter with a handshake, records and a mark of the end, as TLS has them.

use netwheel::{
    Result,
    error::PeerError,
    filter::{Filter, FilterContext, FilterState},
};

const HELLO: u8 = b'H';
const RECORD: u8 = b'R';
const END: u8 = b'E';

/// Records of `R`, two bytes of length and masked bytes; `H` opens and `E` ends the stream.
#[derive(Default)]
pub(crate) struct Records {
    greeted: bool,
    /// Sends `H` only after the peer's.
    answers: bool,
    ended: bool,
}

impl Records {
    /// Returns a filter that waits for the peer's `H` before it sends anything.
    #[allow(dead_code, reason = "the stress program starts all filters with the connection")]
    pub(crate) fn answering() -> Self {
        Records { answers: true, ..Records::default() }
    }
}

fn mask(bytes: &mut [u8]) {
    bytes.iter_mut().for_each(|byte| *byte ^= 0x55);
}

impl Filter for Records {
    fn start(&mut self, ctx: &mut FilterContext<'_>) -> Result {
        if !self.answers {
            ctx.output().push(HELLO);
        }
        Ok(())
    }

    fn read(&mut self, ctx: &mut FilterContext<'_>, input: &mut [u8]) -> Result<usize> {
        let mut at = 0;
        while at < input.len() && !self.ended {
            match input[at] {
                HELLO if !self.greeted => {
                    self.greeted = true;
                    if self.answers {
                        ctx.output().push(HELLO);
                    }
                    at += 1;
                }
                RECORD => {
                    let Some(&[high, low]) = input[at + 1..].first_chunk::<2>() else { return Ok(at) };
                    let (from, length) = (at + 3, usize::from(u16::from_be_bytes([high, low])));
                    let Some(record) = input.get_mut(from..from + length) else { return Ok(at) };
                    mask(record);
                    ctx.deliver(record);
                    at = from + length;
                }
                END => {
                    self.ended = true;
                    at += 1;
                }
                _ => return Err(PeerError::Malformed("no record".into()).into()),
            }
        }
        Ok(at)
    }

    fn end_of_input(&mut self, _: &mut FilterContext<'_>, _: usize) -> Result {
        if self.ended { Ok(()) } else { Err(PeerError::Truncated.into()) }
    }

    fn write(&mut self, ctx: &mut FilterContext<'_>, plain: &[u8]) -> Result {
        let output = ctx.output();
        output.push(RECORD);
        output.extend_from_slice(&(plain.len() as u16).to_be_bytes());
        let from = output.len();
        output.extend_from_slice(plain);
        mask(&mut output[from..]);
        Ok(())
    }

    fn sealed_len(&self, plain: usize) -> usize {
        3 + plain
    }

    fn end_output(&mut self, ctx: &mut FilterContext<'_>) -> Result {
        ctx.output().push(END);
        Ok(())
    }

    fn state(&self) -> FilterState {
        match (self.ended, self.greeted) {
            (true, _) => FilterState::InputEnded,
            (false, true) => FilterState::Established,
            (false, false) => FilterState::Handshaking,
        }
    }
}
