//! Commands that change streams.

use super::{
    super::{
        keyspace::{StreamId, StreamValue, Trim},
        refusal::{Refusal, Reply},
    },
    call::{CommandCall, integer},
    reply::count,
    stream_ids::{NewId, strict},
};
use crate::codec::RespValue;
use bytes::Bytes;

/// The options of `XADD`.
#[derive(Debug, Default)]
struct Options {
    trim: Option<Trim>,
    /// The id, which ends the options.
    id: Option<NewId>,
    /// The number of arguments that were parsed.
    taken: usize,
}

impl Options {
    fn parse(args: &[Bytes]) -> Result<Self, Refusal> {
        let mut options = Options::default();
        while let Some(arg) = args.get(options.taken) {
            let has_more = options.taken + 1 < args.len();
            let name = arg.to_ascii_uppercase();
            match name.as_slice() {
                b"*" => options.id = Some(NewId::Automatic),
                b"MAXLEN" | b"MINID" if has_more => options.parse_trim(args, &name)?,
                b"LIMIT" | b"NOMKSTREAM" => {
                    let error = "ERR LIMIT and NOMKSTREAM are not supported by the simulated Redis";
                    return Err(Refusal::of(error));
                }
                _ => options.id = Some(NewId::parse(arg)?),
            }
            options.taken += 1;
            if options.id.is_some() {
                break;
            }
        }
        Ok(options)
    }

    fn parse_trim(&mut self, args: &[Bytes], name: &[u8]) -> Result<(), Refusal> {
        if self.trim.is_some() {
            return Err(Refusal::of(
                "ERR syntax error, MAXLEN and MINID options at the same time are not compatible",
            ));
        }
        let has_two = self.taken + 2 < args.len();
        if has_two && matches!(&args[self.taken + 1][..], b"~" | b"=") {
            self.taken += 1;
        }
        self.taken += 1;
        let value = &args[self.taken];
        self.trim = Some(if name == b"MINID" {
            Trim::MinId(strict(value, 0)?)
        } else {
            let length = u64::try_from(integer(value)?);
            Trim::MaxLen(length.map_err(|_| Refusal::of("ERR The MAXLEN argument must be >= 0."))?)
        });
        Ok(())
    }
}

/// The error of Redis 7.0 when the numbers of a millisecond are used up.
const TOO_LARGE: Refusal = Refusal::of("ERR Elements are too large to be stored");

/// Returns the id of a new entry, which is larger than `last`.
fn next_id(id: NewId, last: StreamId, now: i64) -> Result<StreamId, Refusal> {
    let too_small =
        || Refusal::of("ERR The ID specified in XADD is equal or smaller than the target stream top item");
    let next = match id {
        NewId::Automatic => {
            let now = StreamId { ms: u64::try_from(now).unwrap_or(0), seq: 0 };
            if now > last { Some(now) } else { last.next() }
        }
        NewId::AutomaticNumber(ms) if ms == last.ms => {
            Some(StreamId { ms, seq: last.seq.checked_add(1).ok_or(TOO_LARGE)? })
        }
        NewId::AutomaticNumber(ms) => Some(StreamId { ms, seq: 0 }),
        NewId::Given(id) => Some(id),
    };
    let next = next.ok_or_else(too_small)?;
    if next > last { Ok(next) } else { Err(too_small()) }
}

pub(super) fn xadd(call: &mut CommandCall<'_>, args: &[Bytes]) -> Reply {
    let options = Options::parse(&args[2..])?;
    let fields = &args[2 + options.taken..];
    let arity = || Refusal::arity("xadd");
    let id = options.id.ok_or_else(arity)?;
    if fields.len() < 2 || !fields.len().is_multiple_of(2) {
        return Err(arity());
    }
    if id == NewId::Given(StreamId::MIN) {
        return Err(Refusal::of("ERR The ID specified in XADD must be greater than 0-0"));
    }
    let (key, now) = (&args[1], call.now());
    let last = call.read::<StreamValue>(key)?.map(|stream| stream.last);
    if last == Some(StreamId::MAX) {
        return Err(Refusal::of(
            "ERR The stream has exhausted the last possible ID, unable to add more items",
        ));
    }
    let id = next_id(id, last.unwrap_or_default(), now)?;
    let stream = call.create::<StreamValue>(key)?;
    stream.add(id, fields.to_vec());
    if let Some(trim) = options.trim {
        stream.trim(trim);
    }
    call.changed(key);
    Ok(RespValue::Bulk(id.to_string().into()))
}

pub(super) fn xdel(call: &mut CommandCall<'_>, args: &[Bytes]) -> Reply {
    let Some(stream) = call.write::<StreamValue>(&args[1])? else { return count(0) };
    let ids = args[2..].iter().map(|id| strict(id, 0)).collect::<Result<Vec<_>, _>>()?;
    let removed = ids.into_iter().filter(|id| stream.remove(*id)).count();
    if removed > 0 {
        call.changed(&args[1]);
    }
    count(removed)
}
