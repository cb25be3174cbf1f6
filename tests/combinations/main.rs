//! Each pair of features that may meet on one channel, over sockets: a conversation in which both
//! are on. docs/combinations.md describes the conversation and its checks.

#[path = "../support/mod.rs"]
mod support;

mod conversation;
mod executor;
mod feature;
mod sets;
mod worker;
mod xor;

use feature::{Feature, Features};

/// Defines a test for each pair of features.
macro_rules! pairs {
    ($($name:ident: $first:ident $second:ident;)*) => {
        $(
            #[test]
            fn $name() {
                conversation::holds(Features::of(&[Feature::$first, Feature::$second]));
            }
        )*

        /// The features of each test.
        const PAIRS: &[[Feature; 2]] = &[$([Feature::$first, Feature::$second]),*];
    };
}

pairs! {
    filter_with_tls: Filter Tls;
    filter_with_proxy: Filter Proxy;
    filter_with_relay: Filter Relay;
    filter_with_pool: Filter Pool;
    filter_with_broadcast: Filter Broadcast;
    filter_with_conflation: Filter Conflation;
    filter_with_offload: Filter Offload;
    filter_with_spawn: Filter Spawn;
    filter_with_schedule: Filter Schedule;
    filter_with_replace_pipeline: Filter ReplacePipeline;
    filter_with_auto_read_off: Filter AutoReadOff;
    filter_with_half_close: Filter HalfClose;
    filter_with_lingering: Filter Lingering;
    filter_with_traffic_shaping: Filter TrafficShaping;
    filter_with_graceful_shutdown: Filter GracefulShutdown;
    tls_with_proxy: Tls Proxy;
    tls_with_relay: Tls Relay;
    tls_with_pool: Tls Pool;
    tls_with_broadcast: Tls Broadcast;
    tls_with_conflation: Tls Conflation;
    tls_with_offload: Tls Offload;
    tls_with_spawn: Tls Spawn;
    tls_with_schedule: Tls Schedule;
    tls_with_replace_pipeline: Tls ReplacePipeline;
    tls_with_auto_read_off: Tls AutoReadOff;
    tls_with_half_close: Tls HalfClose;
    tls_with_lingering: Tls Lingering;
    tls_with_traffic_shaping: Tls TrafficShaping;
    tls_with_graceful_shutdown: Tls GracefulShutdown;
    proxy_with_relay: Proxy Relay;
    proxy_with_pool: Proxy Pool;
    proxy_with_broadcast: Proxy Broadcast;
    proxy_with_conflation: Proxy Conflation;
    proxy_with_offload: Proxy Offload;
    proxy_with_spawn: Proxy Spawn;
    proxy_with_schedule: Proxy Schedule;
    proxy_with_replace_pipeline: Proxy ReplacePipeline;
    proxy_with_auto_read_off: Proxy AutoReadOff;
    proxy_with_half_close: Proxy HalfClose;
    proxy_with_lingering: Proxy Lingering;
    proxy_with_traffic_shaping: Proxy TrafficShaping;
    proxy_with_graceful_shutdown: Proxy GracefulShutdown;
    relay_with_pool: Relay Pool;
    relay_with_broadcast: Relay Broadcast;
    relay_with_conflation: Relay Conflation;
    relay_with_offload: Relay Offload;
    relay_with_spawn: Relay Spawn;
    relay_with_schedule: Relay Schedule;
    relay_with_replace_pipeline: Relay ReplacePipeline;
    relay_with_auto_read_off: Relay AutoReadOff;
    relay_with_half_close: Relay HalfClose;
    relay_with_lingering: Relay Lingering;
    relay_with_traffic_shaping: Relay TrafficShaping;
    relay_with_graceful_shutdown: Relay GracefulShutdown;
    pool_with_broadcast: Pool Broadcast;
    pool_with_conflation: Pool Conflation;
    pool_with_offload: Pool Offload;
    pool_with_spawn: Pool Spawn;
    pool_with_schedule: Pool Schedule;
    pool_with_replace_pipeline: Pool ReplacePipeline;
    pool_with_auto_read_off: Pool AutoReadOff;
    pool_with_half_close: Pool HalfClose;
    pool_with_lingering: Pool Lingering;
    pool_with_traffic_shaping: Pool TrafficShaping;
    pool_with_graceful_shutdown: Pool GracefulShutdown;
    broadcast_with_conflation: Broadcast Conflation;
    broadcast_with_offload: Broadcast Offload;
    broadcast_with_spawn: Broadcast Spawn;
    broadcast_with_schedule: Broadcast Schedule;
    broadcast_with_replace_pipeline: Broadcast ReplacePipeline;
    broadcast_with_auto_read_off: Broadcast AutoReadOff;
    broadcast_with_half_close: Broadcast HalfClose;
    broadcast_with_lingering: Broadcast Lingering;
    broadcast_with_traffic_shaping: Broadcast TrafficShaping;
    broadcast_with_graceful_shutdown: Broadcast GracefulShutdown;
    conflation_with_offload: Conflation Offload;
    conflation_with_spawn: Conflation Spawn;
    conflation_with_schedule: Conflation Schedule;
    conflation_with_replace_pipeline: Conflation ReplacePipeline;
    conflation_with_auto_read_off: Conflation AutoReadOff;
    conflation_with_half_close: Conflation HalfClose;
    conflation_with_lingering: Conflation Lingering;
    conflation_with_traffic_shaping: Conflation TrafficShaping;
    conflation_with_graceful_shutdown: Conflation GracefulShutdown;
    offload_with_spawn: Offload Spawn;
    offload_with_schedule: Offload Schedule;
    offload_with_replace_pipeline: Offload ReplacePipeline;
    offload_with_auto_read_off: Offload AutoReadOff;
    offload_with_half_close: Offload HalfClose;
    offload_with_lingering: Offload Lingering;
    offload_with_traffic_shaping: Offload TrafficShaping;
    offload_with_graceful_shutdown: Offload GracefulShutdown;
    spawn_with_schedule: Spawn Schedule;
    spawn_with_replace_pipeline: Spawn ReplacePipeline;
    spawn_with_auto_read_off: Spawn AutoReadOff;
    spawn_with_half_close: Spawn HalfClose;
    spawn_with_lingering: Spawn Lingering;
    spawn_with_traffic_shaping: Spawn TrafficShaping;
    spawn_with_graceful_shutdown: Spawn GracefulShutdown;
    schedule_with_replace_pipeline: Schedule ReplacePipeline;
    schedule_with_auto_read_off: Schedule AutoReadOff;
    schedule_with_half_close: Schedule HalfClose;
    schedule_with_lingering: Schedule Lingering;
    schedule_with_traffic_shaping: Schedule TrafficShaping;
    schedule_with_graceful_shutdown: Schedule GracefulShutdown;
    replace_pipeline_with_auto_read_off: ReplacePipeline AutoReadOff;
    replace_pipeline_with_half_close: ReplacePipeline HalfClose;
    replace_pipeline_with_lingering: ReplacePipeline Lingering;
    replace_pipeline_with_traffic_shaping: ReplacePipeline TrafficShaping;
    replace_pipeline_with_graceful_shutdown: ReplacePipeline GracefulShutdown;
    auto_read_off_with_half_close: AutoReadOff HalfClose;
    auto_read_off_with_lingering: AutoReadOff Lingering;
    auto_read_off_with_traffic_shaping: AutoReadOff TrafficShaping;
    auto_read_off_with_graceful_shutdown: AutoReadOff GracefulShutdown;
    half_close_with_lingering: HalfClose Lingering;
    half_close_with_traffic_shaping: HalfClose TrafficShaping;
    half_close_with_graceful_shutdown: HalfClose GracefulShutdown;
    lingering_with_traffic_shaping: Lingering TrafficShaping;
    lingering_with_graceful_shutdown: Lingering GracefulShutdown;
    traffic_shaping_with_graceful_shutdown: TrafficShaping GracefulShutdown;
}

#[test]
fn every_pair_has_a_test() {
    let tested = |pair: Features| PAIRS.iter().any(|two| Features::of(two) == pair);
    for pair in Features::all().filter(|features| features.len() == 2) {
        assert!(tested(pair), "no test combines {pair:?}");
    }
}

#[test]
fn no_feature() {
    conversation::holds(Features::of(&[]));
}
