//! Byte filters and their tests, from the guide's chapter about filters.

use bytes::Bytes;
use netwheel::{
    codec::Line,
    error::PeerError,
    filter::{Filter, FilterContext, FilterState},
    prelude::*,
    testing::EmbeddedChannel,
};

/// Both sides first send a version and a key. All later bytes are XORed with the sender's key. This
/// is not encryption.
struct Xor {
    own: u8,
    peer: Option<u8>,
}

const VERSION: u8 = 1;

impl Filter for Xor {
    fn start(&mut self, ctx: &mut FilterContext<'_>) -> Result {
        ctx.output().extend_from_slice(&[VERSION, self.own]);
        Ok(())
    }

    fn read(&mut self, ctx: &mut FilterContext<'_>, input: &mut [u8]) -> Result<usize> {
        let mut data = 0;
        let key = match (self.peer, &*input) {
            (Some(key), _) => key,
            (None, [VERSION, key, ..]) => {
                self.peer = Some(*key);
                data = 2;
                *key
            }
            (None, [] | [VERSION]) => return Ok(0),
            (None, _) => return Err(PeerError::Corrupted("an unknown version").into()),
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

fn echo() -> Pipeline<Bytes> {
    Pipeline::codec(Line::new()).on_read(|ctx, line: Bytes| ctx.write(line))
}

#[test]
fn the_filter_works_for_every_split() -> Result {
    let wire = [VERSION, 0x20, b'h' ^ 0x20, b'i' ^ 0x20, b'\n' ^ 0x20];
    for at in 0..=wire.len() {
        let filter = Xor { own: 0x01, peer: None };
        let mut channel = EmbeddedChannel::builder(echo()).filter(filter).build()?;
        assert_eq!(channel.read_outbound(), &[VERSION, 0x01][..]);
        channel.write_inbound(&wire[..at])?;
        channel.write_inbound(&wire[at..])?;
        assert_eq!(channel.read_outbound(), &[b'h' ^ 0x01, b'i' ^ 0x01, b'\n' ^ 0x01][..], "at {at}");
    }
    Ok(())
}

#[test]
fn another_version_closes_the_channel() -> Result {
    let filter = Xor { own: 0x01, peer: None };
    let mut channel = EmbeddedChannel::builder(echo()).filter(filter).build()?;
    channel.read_outbound();
    drop(channel.write_inbound(&[9]));
    assert!(!channel.is_open());
    Ok(())
}

/// The number of the customer to which a connection belongs.
#[derive(Debug, PartialEq)]
struct Tenant(u16);

/// Reads the two bytes with which a gateway announces the tenant.
#[derive(Default)]
struct ReadTenant {
    finished: bool,
}

impl Filter for ReadTenant {
    fn read(&mut self, ctx: &mut FilterContext<'_>, input: &mut [u8]) -> Result<usize> {
        let Some(number) = input.first_chunk() else { return Ok(0) };
        ctx.set_info(Tenant(u16::from_be_bytes(*number)));
        self.finished = true;
        Ok(number.len())
    }

    fn state(&self) -> FilterState {
        if self.finished { FilterState::Finished } else { FilterState::Handshaking }
    }
}

struct Greet;

impl Handler for Greet {
    type Read = Bytes;
    type Write = Bytes;

    fn read(&mut self, ctx: &mut Context<'_, Self>, line: Bytes) -> Result {
        let tenant = ctx.filter_info::<Tenant>().map_or(0, |tenant| tenant.0);
        ctx.write(format!("{tenant}: {}", String::from_utf8_lossy(&line)).into())
    }
}

#[test]
fn a_prefix_filter_leaves_the_rest_to_the_codec() -> Result {
    let pipeline = Pipeline::codec(Line::new()).handler(Greet);
    let mut channel = EmbeddedChannel::builder(pipeline).filter(ReadTenant::default()).build()?;
    channel.write_inbound(&[0])?;
    channel.write_inbound(b"\x07hello\n")?;
    assert_eq!(channel.read_outbound(), "7: hello\n");
    Ok(())
}
