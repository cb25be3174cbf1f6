//! `RespValue`: a message or a part of one.

use super::number::double_text;
use bytes::Bytes;

/// A value of RESP2 or RESP3; see [`Resp`](super::Resp).
///
/// Each variant has exactly one type byte on the wire. So a proxy can pass values on unchanged,
/// except for the notation of numbers. Strings share the memory of the read buffer; they need not
/// be UTF-8.
///
/// The types from [`Null`](RespValue::Null) on belong to RESP3. A server sends them only to a
/// client that has sent `HELLO 3`; [`into_resp2`](RespValue::into_resp2) converts them for others.
///
/// Values of any depth can be built, but cloning and dropping them is recursive. A codec neither
/// decodes nor encodes more than 128 levels.
#[derive(Debug, Clone, PartialEq)]
#[non_exhaustive]
pub enum RespValue {
    /// `+`: a line without CR and LF, for example `OK`.
    Simple(Bytes),
    /// `-`: an error, as a line without CR and LF. By convention its first word is a code in
    /// capitals, for example `ERR`.
    Error(Bytes),
    /// `:`: a 64-bit integer.
    Integer(i64),
    /// `$`: any bytes.
    Bulk(Bytes),
    /// `*`: an array.
    Array(Vec<RespValue>),
    /// `$-1`: the absent string of RESP2.
    NullBulk,
    /// `*-1`: the absent array of RESP2.
    NullArray,
    /// `_`: the absent value of RESP3.
    Null,
    /// `#`: a boolean.
    Boolean(bool),
    /// `,`: a double.
    Double(f64),
    /// `(`: an integer of any size, in decimal.
    BigNumber(Bytes),
    /// `!`: an error of any bytes.
    BulkError(Bytes),
    /// `=`: a text with its format, for example `txt` or `mkd`.
    Verbatim {
        /// Three characters that name the format.
        format: [u8; 3],
        /// The text.
        text: Bytes,
    },
    /// `~`: a set. Neither order nor uniqueness is checked.
    Set(Vec<RespValue>),
    /// `%`: pairs of keys and values, in their order on the wire.
    Map(Vec<(RespValue, RespValue)>),
    /// `>`: data that is not the reply to a request, for example a message of a subscribed channel.
    /// Not allowed inside other values.
    Push(Vec<RespValue>),
    /// `|`: a value with additional data, which a client may ignore.
    Attribute {
        /// The additional data.
        attributes: Vec<(RespValue, RespValue)>,
        /// The value.
        value: Box<RespValue>,
    },
}

/// A larger value would make each element of an array larger.
#[cfg(all(test, target_pointer_width = "64"))]
const _: () = assert!(size_of::<RespValue>() == 40);

impl RespValue {
    /// Returns a request: an array of bulk strings, the command and its arguments.
    ///
    /// ```
    /// use netwheel::codec::RespValue;
    ///
    /// let request = RespValue::command(["SET", "colour", "blue"]);
    /// assert!(matches!(request, RespValue::Array(arguments) if arguments.len() == 3));
    /// ```
    pub fn command<B: Into<Bytes>>(arguments: impl IntoIterator<Item = B>) -> Self {
        RespValue::Array(arguments.into_iter().map(|argument| RespValue::Bulk(argument.into())).collect())
    }

    /// Returns the bytes of a string or an error of any kind, or of a big number.
    pub fn as_bytes(&self) -> Option<&Bytes> {
        match self {
            RespValue::Simple(bytes)
            | RespValue::Error(bytes)
            | RespValue::Bulk(bytes)
            | RespValue::BigNumber(bytes)
            | RespValue::BulkError(bytes)
            | RespValue::Verbatim { text: bytes, .. } => Some(bytes),
            _ => None,
        }
    }

    /// Returns whether the value is absent: one of the three kinds of null.
    pub fn is_null(&self) -> bool {
        matches!(self, RespValue::Null | RespValue::NullBulk | RespValue::NullArray)
    }

    /// Returns whether the value is an [`Error`](RespValue::Error) or a
    /// [`BulkError`](RespValue::BulkError).
    pub fn is_error(&self) -> bool {
        matches!(self, RespValue::Error(_) | RespValue::BulkError(_))
    }

    /// Converts a value to the types of RESP2, as Redis does for clients of RESP2.
    ///
    /// | RESP3 | RESP2 |
    /// |---|---|
    /// | null | null bulk string |
    /// | boolean | integer 1 or 0 |
    /// | double, big number, verbatim string | bulk string |
    /// | bulk error | error, with spaces for CR and LF |
    /// | set, push | array |
    /// | map | array of alternating keys and values |
    /// | attribute | its value alone |
    ///
    /// ```
    /// use netwheel::codec::RespValue;
    ///
    /// let map = RespValue::Map(vec![(RespValue::Bulk("proto".into()), RespValue::Integer(3))]);
    /// let array = RespValue::Array(vec![RespValue::Bulk("proto".into()), RespValue::Integer(3)]);
    /// assert_eq!(map.into_resp2(), array);
    /// ```
    pub fn into_resp2(self) -> Self {
        let array =
            |items: Vec<RespValue>| RespValue::Array(items.into_iter().map(RespValue::into_resp2).collect());
        match self {
            RespValue::Null => RespValue::NullBulk,
            RespValue::Boolean(value) => RespValue::Integer(value.into()),
            RespValue::Double(number) => RespValue::Bulk(double_text(number).into()),
            RespValue::BigNumber(digits) => RespValue::Bulk(digits),
            RespValue::Verbatim { text, .. } => RespValue::Bulk(text),
            RespValue::BulkError(text) => RespValue::Error(on_one_line(text)),
            RespValue::Array(items) | RespValue::Set(items) | RespValue::Push(items) => array(items),
            RespValue::Map(pairs) => array(pairs.into_iter().flat_map(<[_; 2]>::from).collect()),
            RespValue::Attribute { value, .. } => value.into_resp2(),
            RespValue::Simple(_)
            | RespValue::Error(_)
            | RespValue::Integer(_)
            | RespValue::Bulk(_)
            | RespValue::NullBulk
            | RespValue::NullArray => self,
        }
    }
}

impl From<i64> for RespValue {
    fn from(number: i64) -> Self {
        RespValue::Integer(number)
    }
}

fn on_one_line(text: Bytes) -> Bytes {
    if memchr::memchr2(b'\r', b'\n', &text).is_none() {
        return text;
    }
    text.iter().map(|byte| if matches!(byte, b'\r' | b'\n') { b' ' } else { *byte }).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn resp2_has_no_types_of_resp3() {
        let bulk = |text: &'static str| RespValue::Bulk(text.into());
        let pairs = vec![(bulk("k"), RespValue::Boolean(true))];
        let value = RespValue::Push(vec![
            RespValue::Null,
            RespValue::Double(1.5),
            RespValue::BigNumber("12".into()),
            RespValue::Verbatim { format: *b"txt", text: "v".into() },
            RespValue::BulkError("ERR a\r\nb".into()),
            RespValue::Set(vec![RespValue::Map(pairs.clone())]),
            RespValue::Attribute { attributes: pairs, value: Box::new(RespValue::NullArray) },
        ]);
        let expected = RespValue::Array(vec![
            RespValue::NullBulk,
            bulk("1.5"),
            bulk("12"),
            bulk("v"),
            RespValue::Error("ERR a  b".into()),
            RespValue::Array(vec![RespValue::Array(vec![bulk("k"), RespValue::Integer(1)])]),
            RespValue::NullArray,
        ]);
        assert_eq!(value.into_resp2(), expected);
    }
}
