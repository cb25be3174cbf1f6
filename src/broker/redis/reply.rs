//! Reads the replies of scripts.

use crate::{
    broker::{
        epochs_text::parse_epochs,
        store::{
            BrokerError, Changed, Epochs, History, MapEntry, NodeId, PartitionTops, Position, Published,
            Sequence, Snapshot, StoredMessage, TopicTop,
        },
    },
    codec::RespValue,
};
use bytes::Bytes;

pub(super) type Parsed<T> = Result<T, BrokerError>;

fn unexpected() -> BrokerError {
    BrokerError::failed("a script has replied something unexpected")
}

pub(super) fn array(reply: RespValue) -> Parsed<Vec<RespValue>> {
    match reply {
        RespValue::Array(items) => Ok(items),
        _ => Err(unexpected()),
    }
}

fn bytes(value: &RespValue) -> Parsed<&Bytes> {
    value.as_bytes().ok_or_else(unexpected)
}

fn text(value: &RespValue) -> Parsed<&str> {
    std::str::from_utf8(bytes(value)?).map_err(|_| unexpected())
}

pub(super) fn number(value: &RespValue) -> Parsed<u64> {
    match value {
        RespValue::Integer(number) => u64::try_from(*number).map_err(|_| unexpected()),
        other => text(other)?.parse().map_err(|_| unexpected()),
    }
}

/// A copy, because replies share the memory of the read buffer.
fn copied(value: &RespValue) -> Parsed<Bytes> {
    Ok(Bytes::copy_from_slice(bytes(value)?))
}

fn epochs(value: &RespValue) -> Parsed<Epochs> {
    parse_epochs(text(value)?)
}

pub(super) fn published(reply: RespValue) -> Parsed<Published> {
    let [is_duplicate, epoch, offset] = &array(reply)?[..] else { return Err(unexpected()) };
    let position = Position::new(number(epoch)?, number(offset)?);
    Ok(if number(is_duplicate)? == 1 { Published::duplicate(position) } else { Published::new(position) })
}

pub(super) fn history(reply: RespValue) -> Parsed<History> {
    let items = array(reply)?;
    let [top, epoch_list, oldest, messages @ ..] = &items[..] else { return Err(unexpected()) };
    let epochs = epochs(epoch_list)?;
    // Messages of epochs that are not in the list any more cannot be resumed.
    let oldest = number(oldest)?.max(epochs.as_slice()[0].first);
    let messages = messages.chunks_exact(2).map(|message| {
        let offset = number(&message[0])?;
        Ok(StoredMessage::new(Position::new(epochs.of(offset), offset), copied(&message[1])?))
    });
    let mut messages = messages.collect::<Parsed<Vec<_>>>()?;
    messages.retain(|message| message.position.offset >= oldest);
    Ok(History::new(epochs, number(top)?, oldest, messages))
}

pub(super) fn tops(reply: RespValue) -> Parsed<PartitionTops> {
    let items = array(reply)?;
    let [generation, last, topics @ ..] = &items[..] else { return Err(unexpected()) };
    let topics =
        topics.chunks_exact(2).map(|topic| Ok(TopicTop::new(epochs(&topic[1])?, number(&topic[0])?)));
    let sequence = Sequence::new(number(generation)?, number(last)?);
    Ok(PartitionTops::new(sequence, topics.collect::<Parsed<_>>()?))
}

pub(super) fn changed(reply: RespValue) -> Parsed<Changed> {
    let items = array(reply)?;
    let [epoch, offset, made @ ..] = &items[..] else { return Err(unexpected()) };
    let made = made.iter().map(|made| Ok(number(made)? == 1)).collect::<Parsed<_>>()?;
    Ok(Changed::new(Position::new(number(epoch)?, number(offset)?), made))
}

/// The largest map that fits into a reply.
#[derive(Debug, Clone, Copy)]
pub(super) struct SnapshotLimits {
    pub(super) entries: u64,
    /// The bytes of all strings, and 16 for each of them.
    pub(super) bytes: u64,
}

pub(super) fn snapshot(reply: RespValue, limits: SnapshotLimits) -> Parsed<Snapshot> {
    let items = array(reply)?;
    let [top, epoch_list, entries @ ..] = &items[..] else { return Err(unexpected()) };
    let (epochs, top) = (epochs(epoch_list)?, number(top)?);
    if let [RespValue::Integer(found)] = entries {
        let SnapshotLimits { entries, bytes } = limits;
        let text = format!(
            "{found} entries do not fit into a reply; at most {entries} with {bytes} bytes do, of which each entry \
             takes 32 besides its key and value"
        );
        return Err(BrokerError::TooLarge(epochs.at(top), text.into()));
    }
    let entries = entries.chunks_exact(2).map(|entry| map_entry(&entry[0], &entry[1]));
    Ok(Snapshot::new(epochs, top, entries.collect::<Parsed<_>>()?))
}

/// Reads an entry: `epoch offset owner\nvalue`.
fn map_entry(key: &RespValue, entry: &RespValue) -> Parsed<MapEntry> {
    let entry = bytes(entry)?;
    let end = memchr::memchr(b'\n', entry).ok_or_else(unexpected)?;
    let head = std::str::from_utf8(&entry[..end]).map_err(|_| unexpected())?;
    let mut words = head.split(' ');
    let mut word = || words.next().ok_or_else(unexpected);
    let numbers = [word()?, word()?].map(|word| word.parse().map_err(|_| unexpected()));
    let [epoch, offset] = numbers;
    let value = Bytes::copy_from_slice(&entry[end + 1..]);
    let mut parsed = MapEntry::new(copied(key)?, value, Position::new(epoch?, offset?));
    parsed.owner = NodeId::parse(word()?);
    Ok(parsed)
}

pub(super) fn nodes(reply: RespValue) -> Parsed<Vec<NodeId>> {
    let items = match reply {
        RespValue::Set(items) => items,
        other => array(other)?,
    };
    items.iter().map(|node| NodeId::parse(text(node)?).ok_or_else(unexpected)).collect()
}
