//! `Resource`: the resources that can be full.

use std::fmt;

/// Generates the enum, its rustdoc and its texts from one list.
macro_rules! resources {
    ($($name:ident => $text:literal, $setting:literal;)+) => {
        /// A bounded resource, named by [`Error::Full`](crate::Error::Full).
        ///
        /// `Display` prints the text of the table.
        ///
        /// | resource | text | limit set by |
        /// |---|---|---|
        $(#[doc = concat!("| `", stringify!($name), "` | ", $text, " | ", $setting, " |")])+
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
        #[non_exhaustive]
        pub enum Resource {$(
            #[doc = concat!("The ", $text, ".")]
            $name,
        )+}

        impl fmt::Display for Resource {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str(match self {
                    $(Resource::$name => $text,)+
                })
            }
        }

        #[cfg(test)]
        impl Resource {
            pub(super) const ALL: &[Resource] = &[$(Resource::$name,)+];
        }
    };
}

resources! {
    ChannelOutput => "outbound bytes of a channel", "`ChannelOptions::max_outbound`";
    LoopOutput => "outbound bytes of an event loop", "`EventLoopGroupBuilder::max_outbound`";
    GroupOutput => "outbound bytes of an event loop group", "`EventLoopGroupBuilder::max_group_outbound`";
    PendingWrites => "tracked writes of a channel", "fixed";
    ChannelTasks => "scheduled tasks of a channel", "`ChannelOptions::max_scheduled_tasks`";
    FilterOutput => "replies of a channel's filters", "fixed";
    Filters => "filters that filters of a channel have inserted", "fixed";
    PipelineReplacements => "consecutive pipeline replacements", "fixed";
    Broadcasts => "waiting broadcasts of a channel group", "`ChannelGroupBuilder::max_waiting`";
    BroadcastDeliveries => "waiting deliveries of a channel group", "`ChannelGroupBuilder::max_waiting_deliveries`";
    Connections => "connections of each event loop", "`EventLoopGroupBuilder::max_connections`";
    Sockets => "sockets of an event loop", "fixed";
    EventSources => "event sources of an event loop", "`EventLoopGroupBuilder::max_event_sources`";
    LoopQueue => "pending tasks of an event loop", "`EventLoopGroupBuilder::max_pending_tasks`";
    ScheduledTasks => "scheduled tasks of an event loop", "`EventLoopGroupBuilder::max_scheduled_tasks`";
    ShutdownHooks => "shutdown hooks of an event loop", "fixed";
    WorkerQueue => "pending tasks of a worker pool", "`WorkerPoolBuilder::max_pending`";
    Timeouts => "pending timeouts of a timer", "`HashedWheelTimerBuilder::max_pending`";
    TimerOperations => "unanswered operations of durable timers", "`DurableTimersBuilder::max_waiting`";
    PipelinedRequests => "pipelined requests of an HTTP client", "`HttpSettings::max_pipelined`";
    AgentHosts => "hosts of an HTTP agent", "`HttpAgentBuilder::max_hosts`";
    RedisCommands => "pending commands of a Redis connection", "`RedisSettings::max_pending`";
    RedisCommandBytes => "bytes of pending commands of a Redis connection", "`RedisSettings::max_pending_bytes`";
    RedisSubscriptions => "subscriptions of a Redis client", "`RedisSettings::max_subscriptions`";
    Topics => "topics of a node", "`TopicsBuilder::max_topics`";
    TopicMembers => "members of a topic", "`TopicBuilder::max_members`";
    TopicJoiners => "new members that wait for messages of a topic", "`TopicBuilder::max_joiners`";
    Publications => "unanswered publications of a node", "`TopicsBuilder::max_pending`";
    MapOperations => "unanswered operations on a map", "`MapBuilder::max_pending`";
    HeldEntries => "entries of a map that a node holds", "`MapBuilder::max_held`";
    PoolWaiters => "waiters of a channel pool", "`ChannelPoolBuilder::max_waiters`";
}
