//! Builds a value from the bytes of a whole message.
//!
//! Invariants: nested aggregates are kept on an explicit stack. Memory is reserved only for
//! elements whose bytes have arrived.

use super::{
    error::RespError,
    inline,
    limits::RespLimits,
    reader,
    refused::Refused,
    role::Role,
    token::{Aggregate, Fault, Place, Step, Token},
    value::RespValue,
};
use bytes::Bytes;

/// An aggregate some of whose elements have been built.
struct Unfinished {
    aggregate: Aggregate,
    left: u64,
    items: Vec<RespValue>,
}

impl Unfinished {
    fn finish(self) -> RespValue {
        let mut items = self.items;
        match self.aggregate {
            Aggregate::Array => RespValue::Array(items),
            Aggregate::Set => RespValue::Set(items),
            Aggregate::Push => RespValue::Push(items),
            Aggregate::Map => RespValue::Map(pairs(items)),
            Aggregate::Attribute => {
                // The count of an attribute includes its value, so there is one.
                let value = items.pop().unwrap_or(RespValue::Null);
                RespValue::Attribute { attributes: pairs(items), value: Box::new(value) }
            }
        }
    }
}

fn pairs(items: Vec<RespValue>) -> Vec<(RespValue, RespValue)> {
    let mut pairs = Vec::with_capacity(items.len() / 2);
    let mut items = items.into_iter();
    while let (Some(key), Some(value)) = (items.next(), items.next()) {
        pairs.push((key, value));
    }
    pairs
}

/// Builds the value of the message that is the first `length` bytes of `input`.
///
/// # Errors
/// [`Refused`] if an inline command is invalid or exceeds a limit. The scanner has found all other
/// faults.
pub(super) fn assemble(
    input: &Bytes,
    length: usize,
    role: Role,
    limits: &RespLimits,
) -> Result<RespValue, Refused> {
    let message = input.get(..length).unwrap_or(input);
    let mut at = 0;
    let mut outer: Vec<Unfinished> = Vec::new();
    let mut current: Option<Unfinished> = None;
    loop {
        let depth = outer.len() + usize::from(current.is_some());
        let (token, end) = match reader::read(message, at, Place::new(role, depth), &mut 0, limits) {
            Ok(Step::Whole(token, end)) => (token, end),
            Err(Fault::Broken { error, .. }) => return Err(error.into()),
            // The scanner has seen the end of the message.
            Ok(Step::Incomplete { .. }) | Err(Fault::TooLong { .. }) => {
                return Err(RespError::InvalidLine.into());
            }
        };
        at = end;
        let mut value = match token {
            Token::Open(aggregate, count) => {
                let left = aggregate.values(count);
                // Each element takes at least 3 bytes of the message.
                let items = Vec::with_capacity((message.len() / 3).min(left as usize));
                let opened = Unfinished { aggregate, left, items };
                if left > 0 {
                    outer.extend(current.replace(opened));
                    continue;
                }
                opened.finish()
            }
            Token::Inline(line) => RespValue::Array(inline::arguments(&input.slice(line), limits)?),
            Token::Simple(text) => RespValue::Simple(input.slice(text)),
            Token::Error(text) => RespValue::Error(input.slice(text)),
            Token::Integer(number) => RespValue::Integer(number),
            Token::Bulk(bytes) => RespValue::Bulk(input.slice(bytes)),
            Token::NullBulk => RespValue::NullBulk,
            Token::NullArray => RespValue::NullArray,
            Token::Null => RespValue::Null,
            Token::Boolean(value) => RespValue::Boolean(value),
            Token::Double(number) => RespValue::Double(number),
            Token::BigNumber(digits) => RespValue::BigNumber(input.slice(digits)),
            Token::BulkError(bytes) => RespValue::BulkError(input.slice(bytes)),
            Token::Verbatim(format, text) => RespValue::Verbatim { format, text: input.slice(text) },
        };
        loop {
            let Some(mut unfinished) = current.take() else { return Ok(value) };
            unfinished.items.push(value);
            unfinished.left -= 1;
            if unfinished.left > 0 {
                current = Some(unfinished);
                break;
            }
            value = unfinished.finish();
            current = outer.pop();
        }
    }
}
