//! Subscriptions: sinks of channels, in all lives of their connection.

mod event;
mod handle;
mod registry;
mod subscription_lane;

pub use event::SubscriptionEvent;
pub use handle::RedisSubscription;
pub(super) use subscription_lane::SubscriptionLane;
