//! topic.lua: the metadata of a topic, and the sequence of its partition.

use super::calls::{ScriptResult, argument, integer, key, list, number, run, text};
use crate::{broker::scripts::EMPTY_MAP_LIFE, codec::RespValue, testing::redis::script::ScriptContext};
use bytes::Bytes;

const MAX_EPOCHS: usize = 32;

/// The arguments that the scripts of one topic have in common.
pub(super) struct CommonArguments {
    pub(super) sequence: Bytes,
    pub(super) run_id: Bytes,
    /// The id for a new epoch or generation.
    pub(super) id: Bytes,
    pub(super) keep: i64,
    pub(super) channel: Bytes,
    pub(super) name: Bytes,
    pub(super) seen: (Bytes, Bytes),
    pub(super) now: i64,
}

impl CommonArguments {
    pub(super) fn of(script: &ScriptContext<'_>, now: i64) -> ScriptResult<Self> {
        let argument = |index| argument(script, index);
        Ok(CommonArguments {
            sequence: key(script, 1)?,
            run_id: argument(0)?,
            id: argument(1)?,
            keep: number(&argument(2)?)?,
            channel: argument(3)?,
            name: argument(4)?,
            seen: (argument(5)?, argument(6)?),
            now,
        })
    }

    /// Increments the sequence, and returns the head of a new event.
    pub(super) fn new_event(
        &self,
        script: &mut ScriptContext<'_>,
        kind: char,
        topic: &TopicMetadata,
    ) -> ScriptResult<Vec<u8>> {
        let (generation, _) = last_sequence(script, &self.sequence, &self.run_id, &self.id)?;
        let number = integer(script, [b"HINCRBY", &self.sequence, b"number", b"1"])?;
        let generation = String::from_utf8_lossy(&generation);
        let epoch = topic.epoch.as_deref().unwrap_or("0");
        let head = format!("{kind} {generation} {number} {epoch} {} {}\n", topic.top, self.name.len());
        Ok([head.as_bytes(), &self.name].concat())
    }

    pub(super) fn publish(&self, script: &mut ScriptContext<'_>, event: &[u8]) -> ScriptResult<()> {
        run(script, [b"PUBLISH", &self.channel, event]).map(drop)
    }

    /// Stores the kind and a new epoch after an operation without a change.
    pub(super) fn finish_read(
        &self,
        script: &mut ScriptContext<'_>,
        topic: &TopicMetadata,
        kind: &str,
    ) -> ScriptResult<()> {
        if topic.has_begun {
            let event = self.new_event(script, 'E', topic)?;
            self.publish(script, &event)?;
        }
        if topic.has_begun || topic.kind.is_none() {
            topic.store(script, Some(kind), &self.run_id)?;
        }
        if topic.length == 0 {
            topic.keep(script, idle_life(kind, self.keep), self.now)?;
        }
        Ok(())
    }
}

/// Returns how long the idle metadata of a topic without entries lives, in ms.
pub(super) fn idle_life(kind: &str, keep: i64) -> i64 {
    if kind == "map" { keep.min(EMPTY_MAP_LIFE.as_millis() as i64) } else { keep }
}

/// Returns the generation and the number of the last event.
pub(super) fn last_sequence(
    script: &mut ScriptContext<'_>,
    key: &[u8],
    run_id: &[u8],
    id: &Bytes,
) -> ScriptResult<(Bytes, Bytes)> {
    let fields = list(script, [b"HMGET", key, b"run", b"generation", b"number"])?;
    let field = |index: usize| fields.get(index).and_then(RespValue::as_bytes).cloned().unwrap_or_default();
    if field(0) != run_id {
        run(script, [b"HSET", key, b"run", run_id, b"generation", id, b"number", b"0"])?;
        return Ok((id.clone(), "0".into()));
    }
    Ok((field(1), field(2)))
}

pub(super) fn other_kind() -> RespValue {
    RespValue::Error("WRONGKIND the topic is of the other kind".into())
}

/// The metadata of a topic.
pub(super) struct TopicMetadata {
    pub(super) key: Bytes,
    pub(super) kind: Option<Bytes>,
    pub(super) top: i64,
    pub(super) epochs: String,
    pub(super) run: Option<Bytes>,
    pub(super) expiry: i64,
    pub(super) sum: i64,
    pub(super) low_sum: i64,
    pub(super) low_time: i64,
    pub(super) length: i64,
    pub(super) epoch: Option<String>,
    pub(super) has_begun: bool,
}

impl TopicMetadata {
    pub(super) fn open(script: &mut ScriptContext<'_>, key: Bytes) -> ScriptResult<Self> {
        let names: [&[u8]; 9] =
            [b"kind", b"top", b"epochs", b"run", b"until", b"sum", b"low_sum", b"low_time", b"length"];
        let mut command: Vec<Bytes> = vec!["HMGET".into(), key.clone()];
        command.extend(names.map(Bytes::copy_from_slice));
        let RespValue::Array(fields) = script.call(command)? else {
            return Err(RespValue::Error("ERR HMGET replies an array".into()));
        };
        let field = |index: usize| fields.get(index).and_then(RespValue::as_bytes).cloned();
        let numeric = |index: usize| field(index).map_or(Ok(0), |bytes| number(&bytes));
        let epochs = field(2).map(|bytes| String::from_utf8_lossy(&bytes).into_owned()).unwrap_or_default();
        let newest = epochs.rsplit(' ').next().and_then(|last| last.split_once(':'));
        Ok(TopicMetadata {
            kind: field(0),
            top: numeric(1)?,
            epoch: newest.map(|(id, _)| id.to_owned()),
            run: field(3),
            expiry: numeric(4)?,
            sum: numeric(5)?,
            low_sum: numeric(6)?,
            low_time: numeric(7)?,
            length: numeric(8)?,
            has_begun: false,
            key,
            epochs,
        })
    }

    pub(super) fn is_other_kind(&self, kind: &str) -> bool {
        self.kind.as_ref().is_some_and(|own| own != kind)
    }

    /// Begins an epoch behind the last message. The metadata is stored later.
    pub(super) fn begin_epoch(&mut self, id: &[u8]) {
        let mut id = String::from_utf8_lossy(id).into_owned();
        while format!(" {}", self.epochs).contains(&format!(" {id}:")) {
            id = id.parse::<u64>().map_or_else(|_| id.clone() + "0", |number| (number + 1).to_string());
        }
        if self.epoch.is_some() {
            self.epochs.push(' ');
        }
        self.epochs.push_str(&format!("{id}:{}", self.top + 1));
        if self.epochs.matches(':').count() > MAX_EPOCHS
            && let Some((_, rest)) = self.epochs.split_once(' ')
        {
            self.epochs = rest.to_owned();
        }
        self.epoch = Some(id);
        self.has_begun = true;
    }

    /// Returns whether a node has seen a message that the store has lost.
    pub(super) fn is_rewound(&self, (epoch, offset): &(Bytes, Bytes)) -> ScriptResult<bool> {
        let is_newest = self.epoch.as_ref().is_some_and(|newest| newest.as_bytes() == epoch);
        Ok(is_newest && number(offset)? > self.top)
    }

    /// Returns whether the position is one of the messages that the store has had.
    pub(super) fn is_valid(&self, epoch: &str, offset: i64) -> bool {
        let mut epochs = self.epochs.split(' ').filter_map(|epoch| epoch.split_once(':'));
        if !epochs.any(|(id, _)| id == epoch) {
            return false;
        }
        let next = epochs.next().and_then(|(_, first)| first.parse::<i64>().ok());
        offset <= next.map_or(self.top, |first| first - 1)
    }

    /// Stores kind, epochs and top.
    pub(super) fn store(
        &self,
        script: &mut ScriptContext<'_>,
        kind: Option<&str>,
        run_id: &[u8],
    ) -> ScriptResult<()> {
        run(script, [b"HSET", &self.key, b"top", &text(self.top)])?;
        if self.has_begun {
            run(script, [b"HSET", &self.key, b"epochs", self.epochs.as_bytes(), b"run", run_id])?;
        }
        if let Some(kind) = kind.filter(|_| self.kind.is_none()) {
            run(script, [b"HSET", &self.key, b"kind", kind.as_bytes()])?;
        }
        Ok(())
    }

    /// Lets the metadata live for `keep` ms at least, and never shorter than before.
    pub(super) fn keep(&self, script: &mut ScriptContext<'_>, keep: i64, now: i64) -> ScriptResult<()> {
        if self.expiry < now + keep {
            run(script, [b"HSET", &self.key, b"until", &text(now + keep * 2)])?;
            run(script, [b"PEXPIRE", &self.key, &text(keep * 2)])?;
        }
        Ok(())
    }
}
