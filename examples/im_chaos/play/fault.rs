//! `Fault`: the faults, one for each row of the table.

use crate::cluster::redis::Persistence;

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
    /// What Redis sends to a node does not arrive.
    OneWayCut,
    /// Nothing arrives between a node and Redis, in both directions.
    Hold,
    /// The connections of a node to Redis are reset, and again while it subscribes.
    TwoCuts,
    /// Keys of rooms are deleted in Redis.
    DeletedKeys,
    /// The connections of all clients of a node are reset, and all come back at once.
    ReconnectAll,
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
            Fault::OneWayCut => "one-way cut from Redis to a node",
            Fault::Hold => "hold between a node and Redis",
            Fault::TwoCuts => "two cuts during resubscription",
            Fault::DeletedKeys => "deleted keys",
            Fault::ReconnectAll => "all clients of a node reconnect at once",
        }
    }

    pub(crate) fn needs_redis(self) -> bool {
        !matches!(
            self,
            Fault::None | Fault::KillNode | Fault::PauseNode | Fault::RollingRestart | Fault::ReconnectAll
        )
    }

    pub(crate) fn kills_redis(self) -> bool {
        matches!(self, Fault::KillRedisAlways | Fault::KillRedisEverysec | Fault::KillRedisNone)
    }

    /// Returns the persistence of Redis for this fault.
    pub(crate) fn persistence(self) -> Persistence {
        match self {
            Fault::KillRedisAlways => Persistence::Always,
            Fault::KillRedisNone => Persistence::None,
            _ => Persistence::EverySecond,
        }
    }
}
