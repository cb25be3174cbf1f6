//! Format of a message: a length if the server uses frames, then a payload. The payload starts with
//! a sequence number and the number of the connection, so all messages differ.

use std::io;

pub(crate) struct Message {
    /// One complete message, whose header is replaced for each message.
    wire: Vec<u8>,
    /// Bytes of the length prefix.
    prefix: usize,
    /// Bytes that differ between messages, including the length.
    head: usize,
}

impl Message {
    pub(crate) fn new(size: usize, frames: bool) -> io::Result<Self> {
        let mut wire = Vec::new();
        if frames {
            let length =
                u32::try_from(size).map_err(|_| io::Error::other("a frame must be smaller than 4 GiB"))?;
            wire.extend_from_slice(&length.to_be_bytes());
        }
        if size == 0 {
            return Err(io::Error::other("a message must have at least 1 byte"));
        }
        let prefix = wire.len();
        wire.extend(pattern(size));
        Ok(Message { head: prefix + size.min(12), prefix, wire })
    }

    pub(crate) fn len(&self) -> usize {
        self.wire.len()
    }

    fn head(&self, connection: u32, seq: u64) -> [u8; 16] {
        let mut head = [0; 16];
        head[..self.prefix].copy_from_slice(&self.wire[..self.prefix]);
        head[self.prefix..self.prefix + 8].copy_from_slice(&seq.to_le_bytes());
        head[self.prefix + 8..self.prefix + 12].copy_from_slice(&connection.to_le_bytes());
        head
    }

    pub(crate) fn append(&self, out: &mut Vec<u8>, connection: u32, seq: u64) {
        out.extend_from_slice(&self.head(connection, seq)[..self.head]);
        out.extend_from_slice(&self.wire[self.head..]);
    }

    /// Returns whether `bytes` are the bytes of that message from `offset` on.
    pub(crate) fn matches(&self, connection: u32, seq: u64, offset: usize, bytes: &[u8]) -> bool {
        let in_head = self.head.saturating_sub(offset).min(bytes.len());
        let head = self.head(connection, seq);
        (in_head == 0 || bytes[..in_head] == head[offset..offset + in_head])
            && bytes[in_head..] == self.wire[offset + in_head..offset + bytes.len()]
    }
}

/// Returns payload bytes that are not all equal.
pub(crate) fn pattern(size: usize) -> impl Iterator<Item = u8> {
    (0..size).map(|i| (i * 31 + 7) as u8)
}

#[cfg(test)]
mod tests {
    use super::Message;

    #[test]
    fn a_message_split_anywhere_matches_only_itself() {
        for frames in [false, true] {
            for size in [1, 7, 12, 13, 64] {
                let message = Message::new(size, frames).unwrap();
                let mut bytes = Vec::new();
                message.append(&mut bytes, 3, 258);
                assert_eq!(bytes.len(), message.len());
                for split in 0..=bytes.len() {
                    assert!(message.matches(3, 258, 0, &bytes[..split]));
                    assert!(message.matches(3, 258, split, &bytes[split..]));
                }
                assert!(!message.matches(3, 259, 0, &bytes));
            }
        }
    }

    #[test]
    fn a_frame_starts_with_its_length() {
        let mut bytes = Vec::new();
        Message::new(300, true).unwrap().append(&mut bytes, 0, 0);
        assert_eq!(bytes[..4], [0, 0, 1, 44]);
    }
}
