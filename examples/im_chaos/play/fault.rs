//! `Fault`: the faults, one for each row of the table.

use crate::{bots::Resume, cluster::redis::Persistence};

#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum Fault {
    /// Nothing happens.
    None,
    /// A node is killed with SIGKILL, and starts again.
    KillNode,
    /// A node is stopped with SIGSTOP, and continues.
    PauseNode,
    /// All nodes end and start again, one after the other.
    RollingRestart,
    /// Redis with `appendfsync always` is killed, and starts again.
    KillRedisAlways,
    /// Redis loses its last second of messages, and starts again.
    KillRedisEverysec,
    /// Redis without persistence is killed, and starts again, empty.
    KillRedisNone,
    /// Like `kill-redis-always`, with publishers on a node without members.
    PublishersAlways,
    /// Like `kill-redis-everysec`, with publishers on a node without members.
    PublishersEverysec,
    /// Like `kill-redis-none`, with publishers on a node without members.
    PublishersNone,
    /// What Redis sends to a node does not arrive.
    OneWayCut,
    /// Nothing arrives between a node and Redis, in both directions.
    Hold,
    /// The connections of a node to Redis are reset, and again while it subscribes.
    TwoCuts,
    /// Keys of rooms are deleted in Redis.
    DeletedKeys,
    /// Redis evicts half of its keys, because its memory is full.
    EvictedKeys,
    /// The connections of all clients of a node are reset, and all come back at once.
    ReconnectAll,
    /// Clients resume twice, without a message between.
    ResumeTwice,
    /// Clients resume on the same node in the moment in which they lose their connections.
    ResumeAtOnce,
    /// Clients resume when messages that they have missed are not in the history any more.
    ResumeTrimmed,
    /// Clients resume with a position ahead of the top of their room.
    ResumeAhead,
    /// Clients resume with the position of another user.
    ResumeForeign,
}

impl Fault {
    /// Returns the name on the command line.
    pub(crate) fn name(self) -> String {
        clap::ValueEnum::to_possible_value(&self)
            .map_or_else(String::new, |value| value.get_name().to_owned())
    }

    /// Returns the words for the table.
    pub(crate) fn title(self) -> &'static str {
        match self {
            Fault::None => "none",
            Fault::KillNode => "kill -9 of a node",
            Fault::PauseNode => "SIGSTOP of a node, and its return",
            Fault::RollingRestart => "rolling restart of all nodes",
            Fault::KillRedisAlways => "kill of Redis, AOF `always`",
            Fault::KillRedisEverysec => "kill of Redis, AOF `everysec`, one second lost",
            Fault::KillRedisNone => "kill of Redis, no persistence",
            Fault::PublishersAlways => "kill of Redis, AOF `always`, publishers without members",
            Fault::PublishersEverysec => {
                "kill of Redis, AOF `everysec`, one second lost, publishers without members"
            }
            Fault::PublishersNone => "kill of Redis, no persistence, publishers without members",
            Fault::OneWayCut => "one-way cut from Redis to a node",
            Fault::Hold => "hold between a node and Redis",
            Fault::TwoCuts => "two cuts during resubscription",
            Fault::DeletedKeys => "deleted keys",
            Fault::EvictedKeys => "evicted keys",
            Fault::ReconnectAll => "all clients of a node reconnect at once",
            Fault::ResumeTwice => "resume twice, no message between",
            Fault::ResumeAtOnce => "resume immediately",
            Fault::ResumeTrimmed => "resume after trimming",
            Fault::ResumeAhead => "resume ahead of the top",
            Fault::ResumeForeign => "resume with another user's position",
        }
    }

    pub(crate) fn needs_redis(self) -> bool {
        !matches!(
            self,
            Fault::None | Fault::KillNode | Fault::PauseNode | Fault::RollingRestart | Fault::ReconnectAll
        ) && self.resume().is_none()
    }

    /// Returns whether the fault needs the small node of this program.
    pub(crate) fn needs_small_node(self) -> bool {
        let is_common = matches!(self, Fault::ResumeTwice | Fault::ResumeAtOnce);
        self.has_publishers() || self == Fault::EvictedKeys || self.resume().is_some() && !is_common
    }

    /// Returns whether the messages come from publishers that are not members.
    pub(crate) fn has_publishers(self) -> bool {
        matches!(self, Fault::PublishersAlways | Fault::PublishersEverysec | Fault::PublishersNone)
    }

    /// Returns how clients resume, if that is the fault.
    pub(crate) fn resume(self) -> Option<Resume> {
        match self {
            Fault::ResumeTwice | Fault::ResumeAtOnce => Some(Resume::Own),
            Fault::ResumeTrimmed => Some(Resume::Trimmed),
            Fault::ResumeAhead => Some(Resume::Ahead),
            Fault::ResumeForeign => Some(Resume::Foreign),
            _ => None,
        }
    }

    /// Returns arguments of the small node.
    pub(crate) fn node_arguments(self) -> &'static [&'static str] {
        match self {
            Fault::EvictedKeys => &["--allow-eviction"],
            Fault::ResumeTrimmed => &["--history", "50"],
            _ => &[],
        }
    }

    pub(crate) fn kills_redis(self) -> bool {
        matches!(self, Fault::KillRedisAlways | Fault::KillRedisEverysec | Fault::KillRedisNone)
    }

    /// Returns the persistence of Redis for this fault.
    pub(crate) fn persistence(self) -> Persistence {
        match self {
            Fault::KillRedisAlways | Fault::PublishersAlways => Persistence::Always,
            Fault::KillRedisNone | Fault::PublishersNone => Persistence::None,
            _ => Persistence::EverySecond,
        }
    }
}
