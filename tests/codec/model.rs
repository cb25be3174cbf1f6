//! Compares the codecs with models: random configurations, random streams, random splits (D-16 to
//! D-25).
//!
//! The models see the whole stream at once, without reads, and compute in `i128`.

use crate::support::codecs::{Events, drive, without_length};
use bytes::Bytes;
use netwheel::{
    Codec, Error,
    buffer::OutboundBuffer,
    codec::{Delimiter, LengthField, Line},
    error::PeerError,
};
use proptest::{collection::vec, prelude::*, sample::select};

/// Splits `stream` at the positions in `cuts`, in thousandths of its length.
fn split<'a>(stream: &'a [u8], cuts: &[usize]) -> Vec<&'a [u8]> {
    let mut at: Vec<usize> = cuts.iter().map(|cut| cut * stream.len() / 1000).collect();
    at.extend([0, stream.len()]);
    at.sort_unstable();
    at.windows(2).map(|ends| &stream[ends[0]..ends[1]]).collect()
}

fn cuts() -> impl Strategy<Value = Vec<usize>> {
    vec(0..=1000usize, 0..12)
}

// ---- length field ------------------------------------------------------------------------------

/// A configuration that `build` may refuse.
#[derive(Debug, Clone)]
struct Header {
    width: usize,
    offset: usize,
    adjustment: i64,
    strip: usize,
    max_len: usize,
    little_endian: bool,
    fail_slow: bool,
}

impl Header {
    fn build(&self) -> Option<LengthField> {
        let mut builder = LengthField::builder()
            .width(self.width)
            .offset(self.offset)
            .adjustment(self.adjustment)
            .strip(self.strip)
            .max_len(self.max_len);
        if self.little_endian {
            builder = builder.little_endian();
        }
        if self.fail_slow {
            builder = builder.fail_slow();
        }
        builder.build().ok()
    }

    fn end(&self) -> usize {
        self.offset + self.width
    }

    fn value(&self, field: &[u8]) -> u64 {
        let mut bytes = field.to_vec();
        if self.little_endian {
            bytes.reverse();
        }
        bytes.iter().fold(0, |value, byte| value * 256 + u64::from(*byte))
    }

    fn field(&self, value: u64) -> Vec<u8> {
        let mut bytes = value.to_be_bytes()[8 - self.width..].to_vec();
        if self.little_endian {
            bytes.reverse();
        }
        bytes
    }

    /// Returns the events of a whole stream, and the undecoded rest.
    fn model(&self, mut stream: &[u8]) -> (Events, Bytes) {
        let mut events = Events::new();
        while stream.len() >= self.end() {
            let value = self.value(&stream[self.offset..self.end()]);
            let frame = i128::from(value) + i128::from(self.adjustment) + self.end() as i128;
            if value > i64::MAX as u64 {
                events.push(Err(PeerError::Corrupted("the length is negative")));
                stream = &stream[self.end()..];
            } else if frame < self.end() as i128 {
                events.push(Err(PeerError::Corrupted("the length ends the frame inside its own header")));
                stream = &stream[self.end()..];
            } else if frame > self.max_len as i128 {
                let complete = stream.len() as i128 >= frame;
                if complete || !self.fail_slow {
                    let length = frame as u64;
                    events.push(Err(PeerError::too_long("frame", length, self.max_len)));
                }
                stream = if complete { &stream[frame as usize..] } else { &[] };
            } else if frame > stream.len() as i128 {
                break;
            } else {
                let (whole, after) = stream.split_at(frame as usize);
                events.push(match whole.get(self.strip..) {
                    Some(message) => Ok(Bytes::copy_from_slice(message)),
                    None => Err(PeerError::Corrupted("a frame is shorter than what is stripped from it")),
                });
                stream = after;
            }
        }
        (events, Bytes::copy_from_slice(stream))
    }
}

fn header() -> impl Strategy<Value = Header> {
    let sizes = (select(vec![1, 2, 3, 4, 8usize]), 0..4usize, -12..6i64, 0..12usize, 12..300usize);
    (sizes, any::<bool>(), any::<bool>()).prop_map(|(sizes, little_endian, fail_slow)| {
        let (width, offset, adjustment, strip, max_len) = sizes;
        Header { width, offset, adjustment, strip, max_len, little_endian, fail_slow }
    })
}

/// The usual header of the shortcuts, which the codec decodes on a fast path.
fn plain_header() -> impl Strategy<Value = Header> {
    header().prop_map(|header| Header { offset: 0, adjustment: 0, strip: header.width, ..header })
}

/// Frames to send: how far the length field exceeds the true length, and the payload.
fn frames() -> impl Strategy<Value = Vec<(u64, Vec<u8>)>> {
    let lie = prop_oneof![
        12 => Just(0u64),
        1 => 1..400u64,
        1 => any::<u64>(),
    ];
    vec((lie, vec(any::<u8>(), 0..400)), 0..12)
}

proptest! {
    #[test]
    fn d_16_to_d_21_frames_are_decoded_as_in_the_model(
        header in prop_oneof![header(), plain_header()], frames in frames(), cuts in cuts(),
    ) {
        let Some(codec) = header.build() else { return Ok(()) };
        let mut stream = Vec::new();
        for (lie, payload) in frames {
            let value = (payload.len() as u64).wrapping_add_signed(-header.adjustment).wrapping_add(lie);
            stream.extend(vec![0xCA; header.offset]);
            stream.extend(header.field(value));
            stream.extend(payload);
        }
        prop_assert_eq!(drive(&mut codec.clone(), split(&stream, &cuts)), header.model(&stream));
        prop_assert_eq!(drive(&mut codec.clone(), stream.chunks(1)), header.model(&stream));
    }

    #[test]
    fn d_21_no_input_panics_or_overflows(
        header in header(), adjustment in any::<i64>(), cuts in cuts(),
        stream in vec(select(vec![0, 1, 2, 9, 0x7F, 0x80, 0xFF]), 0..300),
    ) {
        for header in [header.clone(), Header { adjustment, max_len: usize::MAX, ..header }] {
            let Some(codec) = header.build() else { continue };
            prop_assert_eq!(drive(&mut codec.clone(), split(&stream, &cuts)), header.model(&stream));
        }
    }

    #[test]
    fn d_22_encoded_frames_decode_to_the_same_messages(
        header in prop_oneof![header(), plain_header()], messages in vec(vec(any::<u8>(), 0..300), 0..12),
        cuts in cuts(),
    ) {
        let Some(mut codec) = header.build() else { return Ok(()) };
        let mut output = OutboundBuffer::new();
        let mut expected = Events::new();
        let own = header.offset + header.end().saturating_sub(header.strip.max(header.offset));
        for mut message in messages {
            // The part of the length field that is in the message must be correct.
            if let Some(rest) = message.len().checked_sub(own)
                && let Ok(value) = u64::try_from(rest as i128 - i128::from(header.adjustment))
            {
                let left_in = own - header.offset;
                message[header.offset..own].copy_from_slice(&header.field(value)[header.width - left_in..]);
            }
            let before = output.len();
            match codec.encode(Bytes::copy_from_slice(&message), &mut output) {
                Ok(()) => {
                    let wire = output.to_bytes().slice(before..);
                    prop_assert!(wire.len() <= header.max_len);
                    expected.push(Ok(wire.slice(header.strip..)));
                    if header.strip == 0 || (header.offset == 0 && header.strip <= header.width) {
                        prop_assert_eq!(&wire[header.strip..], &message[..]);
                    }
                }
                Err(Error::Encode(_)) => prop_assert_eq!(output.len(), before),
                Err(other) => return Err(TestCaseError::fail(other.to_string())),
            }
        }
        let wire = output.to_bytes();
        prop_assert_eq!(drive(&mut codec, split(&wire, &cuts)), (expected, Bytes::new()));
    }

    #[test]
    fn d_22_decoded_frames_encode_to_the_same_bytes(
        header in header(), stream in vec(select(vec![0, 1, 2, 3, 9]), 0..300),
    ) {
        let header = Header { offset: if header.strip > 0 { 0 } else { header.offset }, ..header };
        let header = Header { strip: header.strip.min(header.width), ..header };
        let Some(mut codec) = header.build() else { return Ok(()) };
        let mut input = Bytes::from(stream);
        loop {
            let before = input.clone();
            match codec.decode(&mut input) {
                Ok(Some(message)) => {
                    let mut output = OutboundBuffer::new();
                    codec.encode(message, &mut output).map_err(|e| TestCaseError::fail(format!("{e:#}")))?;
                    prop_assert_eq!(output.to_bytes(), before.slice(..before.len() - input.len()));
                }
                Ok(None) => break,
                Err(_) => {}
            }
        }
    }
}

// ---- lines -------------------------------------------------------------------------------------

/// Returns the events of a whole stream, and the undecoded rest. With fail-fast, lengths are left
/// out.
fn lines(stream: &[u8], max_len: usize, keep_terminator: bool, fail_fast: bool) -> (Events, Bytes) {
    let mut events = Events::new();
    let mut left = Bytes::new();
    for piece in stream.split_inclusive(|byte| *byte == b'\n') {
        let ended = piece.strip_suffix(b"\n");
        let line = ended.unwrap_or(piece);
        let line = line.strip_suffix(b"\r").unwrap_or(line);
        let too_long = line.len() > max_len;
        if too_long && (ended.is_some() || fail_fast) {
            let length = if fail_fast { 0 } else { line.len() as u64 };
            events.push(Err(PeerError::too_long("line", length, max_len)));
        } else if !too_long && ended.is_some() {
            events.push(Ok(Bytes::copy_from_slice(if keep_terminator { piece } else { line })));
        }
        if ended.is_none() {
            // A line that is too long is dropped, without a CR that may belong to the terminator.
            left = Bytes::copy_from_slice(if too_long { &piece[line.len()..] } else { piece });
        }
    }
    (events, left)
}

proptest! {
    #[test]
    fn d_23_to_d_25_lines_are_decoded_as_in_the_model(
        stream in vec(select(b"aaaab\r\n\n".to_vec()), 0..200), max_len in 0..8usize,
        keep_terminator in any::<bool>(), fail_fast in any::<bool>(), cuts in cuts(),
    ) {
        let mut codec = Line::new().max_len(max_len);
        if keep_terminator {
            codec = codec.keep_terminator();
        }
        if fail_fast {
            codec = codec.fail_fast();
        }
        let expected = lines(&stream, max_len, keep_terminator, fail_fast);
        for chunks in [split(&stream, &cuts), stream.chunks(1).collect()] {
            let (mut events, left) = drive(&mut codec.clone(), chunks);
            if fail_fast {
                events = events.into_iter().map(without_length).collect();
            }
            prop_assert_eq!(&(events, left), &expected);
        }
    }

    #[test]
    fn d_23_encoded_lines_decode_to_the_same_messages(
        messages in vec(vec(select(b"aab\r\n".to_vec()), 0..8), 0..20), max_len in 0..8usize,
        keep_terminator in any::<bool>(), crlf in any::<bool>(), cuts in cuts(),
    ) {
        let mut codec = Line::new().max_len(max_len);
        if keep_terminator {
            codec = codec.keep_terminator();
        }
        if crlf {
            codec = codec.crlf();
        }
        let mut output = OutboundBuffer::new();
        let mut expected = Events::new();
        for message in messages {
            let before = output.len();
            match codec.encode(Bytes::copy_from_slice(&message), &mut output) {
                Ok(()) if keep_terminator => {
                    let wire = output.to_bytes().slice(before..);
                    prop_assert!(wire.starts_with(&message));
                    expected.push(Ok(wire));
                }
                Ok(()) => expected.push(Ok(message.into())),
                Err(Error::Encode(_)) => prop_assert_eq!(output.len(), before),
                Err(other) => return Err(TestCaseError::fail(other.to_string())),
            }
        }
        let wire = output.to_bytes();
        prop_assert_eq!(drive(&mut codec, split(&wire, &cuts)), (expected, Bytes::new()));
    }
}

// ---- delimiters --------------------------------------------------------------------------------

/// Returns the start and end of the first delimiter in `stream`, found byte by byte.
fn first_delimiter(stream: &[u8], delimiters: &[Vec<u8>]) -> Option<(usize, usize)> {
    (0..=stream.len()).find_map(|end| {
        let ending = delimiters.iter().filter(|delimiter| stream[..end].ends_with(delimiter));
        ending.map(|delimiter| (end - delimiter.len(), end)).min()
    })
}

/// Returns the events of a whole stream, and the undecoded rest. With fail-fast, lengths are left
/// out.
fn delimited(
    mut stream: &[u8],
    delimiters: &[Vec<u8>],
    max_len: usize,
    keep_delimiter: bool,
    fail_fast: bool,
) -> (Events, Bytes) {
    let mut events = Events::new();
    let report = |length: usize| {
        let length = if fail_fast { 0 } else { length as u64 };
        Err(PeerError::too_long("message", length, max_len))
    };
    while let Some((start, end)) = first_delimiter(stream, delimiters) {
        events.push(if start > max_len {
            report(start)
        } else {
            Ok(Bytes::copy_from_slice(&stream[..if keep_delimiter { end } else { start }]))
        });
        stream = &stream[end..];
    }
    let overlap = delimiters.iter().map(Vec::len).max().unwrap() - 1;
    let certain = stream.len().saturating_sub(overlap);
    if certain > max_len {
        if fail_fast {
            events.push(report(certain));
        }
        stream = &stream[certain..];
    }
    (events, Bytes::copy_from_slice(stream))
}

fn delimiters() -> impl Strategy<Value = Vec<Vec<u8>>> {
    vec(vec(select(b"abcde".to_vec()), 1..4), 1..6)
}

proptest! {
    #[test]
    fn delimited_messages_are_decoded_as_in_the_model(
        stream in vec(select(b"aabcdexx".to_vec()), 0..200), delimiters in delimiters(), max_len in 0..8usize,
        keep_delimiter in any::<bool>(), fail_fast in any::<bool>(), cuts in cuts(),
    ) {
        let Ok(codec) = Delimiter::new(&delimiters) else { return Ok(()) };
        let mut codec = codec.max_len(max_len);
        if keep_delimiter {
            codec = codec.keep_delimiter();
        }
        if fail_fast {
            codec = codec.fail_fast();
        }
        let expected = delimited(&stream, &delimiters, max_len, keep_delimiter, fail_fast);
        for chunks in [split(&stream, &cuts), stream.chunks(1).collect()] {
            let (mut events, left) = drive(&mut codec.clone(), chunks);
            if fail_fast {
                events = events.into_iter().map(without_length).collect();
            }
            prop_assert_eq!(&(events, left), &expected);
        }
    }

    #[test]
    fn encoded_delimited_messages_decode_to_the_same_messages(
        messages in vec(vec(select(b"aabcdexx".to_vec()), 0..8), 0..20), delimiters in delimiters(),
        max_len in 0..8usize, keep_delimiter in any::<bool>(), cuts in cuts(),
    ) {
        let Ok(codec) = Delimiter::new(&delimiters) else { return Ok(()) };
        let mut codec = codec.max_len(max_len);
        if keep_delimiter {
            codec = codec.keep_delimiter();
        }
        let mut output = OutboundBuffer::new();
        let mut expected = Events::new();
        for message in messages {
            let before = output.len();
            let text = Bytes::from(message.clone());
            match codec.encode(text.clone(), &mut output) {
                Ok(()) if keep_delimiter => {
                    let wire = output.to_bytes().slice(before..);
                    prop_assert!(wire.starts_with(&message));
                    expected.push(Ok(wire));
                }
                Ok(()) => expected.push(Ok(text)),
                Err(Error::Encode(_)) => {
                    prop_assert_eq!(output.len(), before);
                    // The refusal is justified: the peer would decode something else.
                    let wire = [&message[..], &delimiters[0]].concat();
                    let first = first_delimiter(&wire, &delimiters);
                    let whole = first == Some((message.len(), wire.len()));
                    prop_assert!(!whole || message.len() > max_len);
                }
                Err(other) => return Err(TestCaseError::fail(other.to_string())),
            }
        }
        let wire = output.to_bytes();
        prop_assert_eq!(drive(&mut codec, split(&wire, &cuts)), (expected, Bytes::new()));
    }
}
