//! Encodes values.
//!
//! Invariants: a peer with the same limits decodes the encoded bytes to an equal value. Nested
//! aggregates are kept on an explicit stack.

use super::{
    limits::RespLimits,
    number::{MAX_DOUBLE_LEN, double_text, is_big_number},
    role::Role,
    value::RespValue,
};
use crate::{
    buffer::OutboundBuffer,
    error::{EncodeError, Result},
};
use bytes::Bytes;
use memchr::memchr2;
use std::vec;

/// The values of an aggregate that are not written yet.
enum Rest {
    Values(vec::IntoIter<RespValue>),
    /// Pairs, the second half of a pair, and the value that has the pairs as attributes.
    Pairs {
        pairs: vec::IntoIter<(RespValue, RespValue)>,
        second: Option<RespValue>,
        last: Option<Box<RespValue>>,
    },
}

impl Iterator for Rest {
    type Item = RespValue;

    fn next(&mut self) -> Option<RespValue> {
        match self {
            Rest::Values(values) => values.next(),
            Rest::Pairs { pairs, second, last } => second
                .take()
                .or_else(|| {
                    let (key, value) = pairs.next()?;
                    *second = Some(value);
                    Some(key)
                })
                .or_else(|| last.take().map(|value| *value)),
        }
    }
}

pub(super) struct Encoder<'a> {
    output: &'a mut OutboundBuffer,
    limits: &'a RespLimits,
    /// The number of values inside others.
    elements: usize,
}

impl<'a> Encoder<'a> {
    pub(super) fn new(output: &'a mut OutboundBuffer, limits: &'a RespLimits) -> Self {
        Encoder { output, limits, elements: 0 }
    }

    /// Writes a message.
    pub(super) fn message(&mut self, value: RespValue, role: Role) -> Result {
        if role == Role::Client {
            check_request(&value)?;
        }
        let mut outer = Vec::new();
        let mut current = self.value(value)?;
        loop {
            let next = match &mut current {
                Some(rest) => rest.next(),
                None => return Ok(()),
            };
            match next {
                None => current = outer.pop(),
                Some(RespValue::Push(_)) => {
                    return unencodable("a push message inside another message".to_owned());
                }
                Some(value) => {
                    if let Some(rest) = self.value(value)? {
                        outer.extend(current.replace(rest));
                        if outer.len() >= self.limits.max_depth {
                            return self.too_deep();
                        }
                    }
                }
            }
        }
    }

    /// Writes a value without its elements, and returns these.
    #[inline]
    fn value(&mut self, value: RespValue) -> Result<Option<Rest>> {
        match value {
            RespValue::Simple(text) => self.line(b'+', text)?,
            RespValue::Error(text) => self.line(b'-', text)?,
            RespValue::Integer(number) => self.header(b':', number),
            RespValue::Bulk(bytes) => self.bulk(b'$', bytes)?,
            RespValue::NullBulk => self.output.put_slice(b"$-1\r\n"),
            RespValue::NullArray => self.output.put_slice(b"*-1\r\n"),
            RespValue::Null => self.output.put_slice(b"_\r\n"),
            RespValue::Boolean(true) => self.output.put_slice(b"#t\r\n"),
            RespValue::Boolean(false) => self.output.put_slice(b"#f\r\n"),
            RespValue::Double(number) => {
                self.output.put_u8(b',');
                self.output.put_slice(double_text(number).as_bytes());
                self.output.put_slice(b"\r\n");
            }
            RespValue::BigNumber(digits) if is_big_number(&digits) => self.line(b'(', digits)?,
            RespValue::BigNumber(_) => {
                return unencodable("a big number has decimal digits and an optional sign".to_owned())
                    .map(|()| None);
            }
            RespValue::BulkError(bytes) => self.bulk(b'!', bytes)?,
            RespValue::Verbatim { format, text } => self.verbatim(format, text)?,
            RespValue::Array(items) => return self.values(b'*', items),
            RespValue::Set(items) => return self.values(b'~', items),
            RespValue::Push(items) => return self.values(b'>', items),
            RespValue::Map(pairs) => return self.pairs(b'%', pairs, None),
            RespValue::Attribute { attributes, value } => return self.pairs(b'|', attributes, Some(value)),
        }
        Ok(None)
    }

    fn values(&mut self, kind: u8, items: Vec<RespValue>) -> Result<Option<Rest>> {
        self.count(items.len())?;
        self.header(kind, items.len() as i64);
        Ok(Some(Rest::Values(items.into_iter())))
    }

    fn pairs(
        &mut self,
        kind: u8,
        pairs: Vec<(RespValue, RespValue)>,
        last: Option<Box<RespValue>>,
    ) -> Result<Option<Rest>> {
        self.count(2 * pairs.len() + usize::from(last.is_some()))?;
        self.header(kind, pairs.len() as i64);
        Ok(Some(Rest::Pairs { pairs: pairs.into_iter(), second: None, last }))
    }

    fn count(&mut self, elements: usize) -> Result {
        self.elements += elements;
        let limit = self.limits.max_elements;
        if self.elements > limit {
            return unencodable(format!("{} elements; the limit is {limit}", self.elements));
        }
        Ok(())
    }

    #[cold]
    fn too_deep(&self) -> Result {
        unencodable(format!("more than {} nested aggregates", self.limits.max_depth))
    }

    fn line(&mut self, kind: u8, text: Bytes) -> Result {
        if memchr2(b'\r', b'\n', &text).is_some() {
            return unencodable("a simple string or error cannot contain CR or LF".to_owned());
        }
        check_length("line", text.len(), self.limits.max_line_len)?;
        self.output.put_u8(kind);
        self.output.put(text);
        self.output.put_slice(b"\r\n");
        Ok(())
    }

    #[inline]
    fn bulk(&mut self, kind: u8, bytes: Bytes) -> Result {
        check_length("bulk string", bytes.len(), self.limits.max_bulk_len)?;
        self.header(kind, bytes.len() as i64);
        self.output.put(bytes);
        self.output.put_slice(b"\r\n");
        Ok(())
    }

    fn verbatim(&mut self, format: [u8; 3], text: Bytes) -> Result {
        let length = text.len() + 4;
        check_length("bulk string", length, self.limits.max_bulk_len)?;
        self.header(b'=', length as i64);
        self.output.put_slice(&format);
        self.output.put_u8(b':');
        self.output.put(text);
        self.output.put_slice(b"\r\n");
        Ok(())
    }

    /// Writes a type and a number.
    #[inline]
    fn header(&mut self, kind: u8, number: i64) {
        // The type, a sign, 19 digits and CRLF.
        let mut text = [0; 23];
        let mut start = text.len() - 2;
        text[start..].copy_from_slice(b"\r\n");
        let mut rest = number.unsigned_abs();
        loop {
            start -= 1;
            text[start] = b'0' + (rest % 10) as u8;
            rest /= 10;
            if rest == 0 {
                break;
            }
        }
        if number < 0 {
            start -= 1;
            text[start] = b'-';
        }
        start -= 1;
        text[start] = kind;
        self.output.put_slice(&text[start..]);
    }
}

/// Returns an error unless `value` is an array of bulk strings, which is what servers accept.
fn check_request(value: &RespValue) -> Result {
    let is_request = match value {
        RespValue::Array(items) => {
            !items.is_empty() && items.iter().all(|item| matches!(item, RespValue::Bulk(_)))
        }
        _ => false,
    };
    if is_request {
        return Ok(());
    }
    unencodable("a request is an array of one or more bulk strings".to_owned())
}

#[inline]
fn check_length(what: &'static str, length: usize, limit: usize) -> Result {
    if length > limit {
        return Err(EncodeError::TooLong { what, length: length as u64, limit: limit as u64 }.into());
    }
    Ok(())
}

#[cold]
fn unencodable(why: String) -> Result {
    Err(EncodeError::Unencodable(why.into()).into())
}

/// Returns at least the length of the encoded value.
pub(super) fn encoded_len(value: &RespValue) -> usize {
    /// A type, a number and CRLF.
    const HEADER: usize = 23;
    let bulk = |bytes: &Bytes| {
        let digits = bytes.len().checked_ilog10().unwrap_or(0) as usize + 1;
        1 + digits + 2 + bytes.len() + 2
    };
    let pair = |(key, value): &(RespValue, RespValue)| encoded_len(key) + encoded_len(value);
    match value {
        RespValue::Simple(text) | RespValue::Error(text) | RespValue::BigNumber(text) => text.len() + 3,
        RespValue::Bulk(bytes) | RespValue::BulkError(bytes) => bulk(bytes),
        RespValue::Verbatim { text, .. } => HEADER + 4 + text.len() + 2,
        RespValue::Integer(_) => HEADER,
        RespValue::NullBulk | RespValue::NullArray | RespValue::Null | RespValue::Boolean(_) => 5,
        // The longest is like -1.2345678901234567e-123.
        RespValue::Double(_) => MAX_DOUBLE_LEN + 3,
        RespValue::Array(items) | RespValue::Set(items) | RespValue::Push(items) => {
            HEADER + items.iter().map(encoded_len).sum::<usize>()
        }
        RespValue::Map(pairs) => HEADER + pairs.iter().map(pair).sum::<usize>(),
        RespValue::Attribute { attributes, value } => {
            HEADER + attributes.iter().map(pair).sum::<usize>() + encoded_len(value)
        }
    }
}
