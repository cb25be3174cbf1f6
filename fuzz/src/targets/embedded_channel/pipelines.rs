//! Codecs and stages.

use super::plan::{Framing, Stages};
use netwheel::{
    Codec, Handler, Pipeline, Result, Stage, StageContext,
    bytes::Bytes,
    codec::{Delimiter, LengthField, Line, RawBytes, Varint},
};
use std::{collections::VecDeque, time::Duration};

pub(super) fn make<H>(framing: Framing, stages: Stages, handler: H) -> Pipeline<Bytes>
where
    H: Handler<Read = Bytes, Write = Bytes>,
{
    match framing {
        Framing::Raw => with(RawBytes, stages, handler),
        Framing::Line => with(Line::new().max_len(600), stages, handler),
        Framing::Delimiter => {
            with(Delimiter::new(["||", "|-"]).expect("valid").max_len(600), stages, handler)
        }
        Framing::LengthField => with(LengthField::u16(), stages, handler),
        Framing::Varint => with(Varint::new().max_len(600), stages, handler),
    }
}

fn with<C, H>(codec: C, stages: Stages, handler: H) -> Pipeline<Bytes>
where
    C: Codec<Read = Bytes, Write = Bytes>,
    H: Handler<Read = Bytes, Write = Bytes>,
{
    let codec = Pipeline::codec(codec);
    match stages {
        Stages::None => codec.handler(handler),
        Stages::Halves => codec.stage(Halves::default()).handler(handler),
        Stages::Delayed => codec.stage(Delayed::default()).handler(handler),
        Stages::DelayedHalves => codec.stage(Halves::default()).stage(Delayed::default()).handler(handler),
    }
}

/// Splits each message that is read.
#[derive(Default)]
struct Halves(Option<Bytes>);

impl Stage for Halves {
    type ReadIn = Bytes;
    type ReadOut = Bytes;
    type WriteIn = Bytes;
    type WriteOut = Bytes;

    fn read(&mut self, _: &mut StageContext<'_, Self>, mut message: Bytes) -> Result<Option<Bytes>> {
        let first = message.split_to(message.len() / 2);
        self.0 = Some(message);
        Ok(Some(first))
    }

    fn has_more(&self) -> bool {
        self.0.is_some()
    }

    fn read_more(&mut self, _: &mut StageContext<'_, Self>) -> Result<Option<Bytes>> {
        Ok(self.0.take())
    }

    fn write(&mut self, ctx: &mut StageContext<'_, Self>, message: Bytes) -> Result {
        ctx.write(message)
    }
}

/// Splits each message that is written, and drops every third one that is read. Its timer counts.
#[derive(Default)]
struct Delayed {
    read: u32,
    seen: VecDeque<usize>,
}

impl Stage for Delayed {
    type ReadIn = Bytes;
    type ReadOut = Bytes;
    type WriteIn = Bytes;
    type WriteOut = Bytes;

    fn active(&mut self, ctx: &mut StageContext<'_, Self>) -> Result {
        ctx.wake_after(Duration::from_millis(20));
        Ok(())
    }

    fn timer(&mut self, ctx: &mut StageContext<'_, Self>) -> Result {
        self.seen.truncate(4);
        if ctx.is_open() {
            ctx.wake_after(Duration::from_millis(50));
        }
        Ok(())
    }

    fn read(&mut self, _: &mut StageContext<'_, Self>, message: Bytes) -> Result<Option<Bytes>> {
        self.read += 1;
        self.seen.push_front(message.len());
        Ok((!self.read.is_multiple_of(3)).then_some(message))
    }

    fn write(&mut self, ctx: &mut StageContext<'_, Self>, mut message: Bytes) -> Result {
        let first = message.split_to(message.len() / 2);
        ctx.write(first)?;
        ctx.write(message)
    }
}
