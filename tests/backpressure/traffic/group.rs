//! Traffic limits shared by channels: H-06.

use crate::support::{journal::Log, recorder::Recorder, wait::ms};
use crate::traffic::{bytes, read, set, with};
use bytes::Bytes;
use netwheel::{
    channel::ChannelOptions,
    codec::RawBytes,
    filter::{Filter, FilterContext, FilterState},
    prelude::*,
    testing::{EmbeddedChannel, ManualClock},
    traffic::{SharedTraffic, TrafficLimits, TrafficShaping},
};

/// Returns two channels of a group, and their clock.
fn two(group: &SharedTraffic) -> (ManualClock, [EmbeddedChannel<Bytes>; 2]) {
    let clock = ManualClock::new();
    let channels = [0, 1].map(|_| with(&ChannelOptions::new(), &clock, group, Recorder::new(&Log::new())));
    (clock, channels)
}

/// Advances the clock in steps of one millisecond, and runs all channels at each step.
fn pass(clock: &ManualClock, channels: &mut [EmbeddedChannel<Bytes>], time: u64) {
    for _ in 0..time {
        clock.advance(ms(1));
        for channel in channels.iter_mut() {
            channel.run_pending();
        }
    }
}

/// H-06: one limit for all channels, which take turns.
#[test]
fn h_06_channels_of_a_group_share_its_limit_evenly() {
    const RATE: u64 = 100_000;
    let group = SharedTraffic::new(TrafficLimits::new().write(RATE));
    let (clock, mut channels) = two(&group);
    // The first channel uses up the budget before the second one writes, and is always served
    // first.
    channels[0].channel().write(bytes(1_000_000)).unwrap();
    channels[0].run_pending();
    assert_eq!(channels[0].read_outbound().len(), 10_000, "the burst");
    channels[1].channel().write(bytes(1_000_000)).unwrap();
    channels[1].run_pending();
    assert_eq!(channels[1].read_outbound().len(), 0);
    pass(&clock, &mut channels, 2_000);
    let sent = channels.each_mut().map(|channel| channel.read_outbound().len());
    let all = sent[0] + sent[1];
    assert!((190_000..=200_000).contains(&all), "{sent:?}");
    assert!(sent[0].abs_diff(sent[1]) <= 10_000, "{sent:?}");
}

/// H-06: the limits of a group can be combined with those of a channel.
#[test]
fn h_06_a_channel_can_have_its_own_limits_within_the_group() {
    let group = SharedTraffic::new(TrafficLimits::new().write(100_000));
    let own = TrafficLimits::new().write(10_000);
    let clock = ManualClock::new();
    let new =
        |traffic: TrafficShaping| with(&ChannelOptions::new(), &clock, traffic, Recorder::new(&Log::new()));
    let mut channels = [new(own.shared_with(&group)), new((&group).into())];
    for channel in &mut channels {
        channel.channel().write(bytes(1_000_000)).unwrap();
        channel.run_pending();
    }
    pass(&clock, &mut channels, 2_000);
    let sent = channels.each_mut().map(|channel| channel.read_outbound().len());
    assert!((19_000..=21_000).contains(&sent[0]), "its own limit: {sent:?}");
    assert!((185_000..=191_000).contains(&sent[1]), "the other channel uses the rest: {sent:?}");
}

/// H-06: the reservation of a channel is released when it closes.
#[test]
fn h_06_a_channel_that_leaves_the_group_releases_its_reservation() {
    let group = SharedTraffic::new(TrafficLimits::new().write(100_000));
    let (_, mut channels) = two(&group);
    for channel in &mut channels {
        channel.channel().write(bytes(50_000)).unwrap();
        channel.run_pending();
    }
    // The first channel has reserved 5,000 bytes, and the second half as many.
    assert_eq!(channels[1].next_timer(), Some(ms(75)));
    channels[0].channel().close_now();
    channels[0].run_pending();
    set(&mut channels[1], TrafficLimits::new());
    set(&mut channels[1], group.clone());
    channels[1].channel().write(bytes(1)).unwrap();
    channels[1].run_pending();
    assert_eq!(channels[1].next_timer(), Some(ms(50)), "as without reservations");
}

/// H-06: reading is shared as well. A channel that has read everything releases its remaining
/// reservation.
#[test]
fn h_06_reading_is_shared_too() {
    let group = SharedTraffic::new(TrafficLimits::new().read(100_000));
    let clock = ManualClock::new();
    let logs = [Log::new(), Log::new()];
    let mut channels = [0, 1].map(|n| with(&ChannelOptions::new(), &clock, &group, Recorder::new(&logs[n])));
    channels[0].write_inbound(&[b'x'; 12_000]).unwrap();
    channels[1].write_inbound(&[b'x'; 50_000]).unwrap();
    assert_eq!(logs.each_ref().map(read), [10_000, 0]);
    pass(&clock, &mut channels, 600);
    assert_eq!(logs.each_ref().map(read), [2_000, 50_000]);
    assert_eq!(channels.each_ref().map(|channel| channel.timers()), [0, 0]);
}

/// H-06: the limits change for all channels, from any thread.
#[test]
fn h_06_the_limits_of_a_group_change_at_run_time() {
    let group = SharedTraffic::new(TrafficLimits::new().write(1_000));
    let (clock, mut channels) = two(&group);
    for channel in &mut channels {
        channel.channel().write(bytes(500_000)).unwrap();
        channel.run_pending();
    }
    let faster = TrafficLimits::new().write(1_000_000);
    let other = group.clone();
    std::thread::spawn(move || other.set(faster)).join().unwrap();
    assert_eq!(group.limits(), faster);
    pass(&clock, &mut channels, 1_200);
    assert_eq!(channels.each_mut().map(|channel| channel.read_outbound().len()), [500_000; 2]);
    group.set(TrafficLimits::new());
    channels[0].channel().write(bytes(9_000_000)).unwrap();
    channels[0].run_pending();
    assert_eq!(channels[0].read_outbound().len(), 9_000_000, "no limit");
}

/// The end mark of a filter is output without a message. It takes its turn like a message.
#[test]
fn a_channel_of_a_group_sends_its_end_mark_although_others_have_more_to_send() {
    let group = SharedTraffic::new(TrafficLimits::new().write(10_000));
    let (clock, mut others) = two(&group);
    for channel in &mut others {
        channel.channel().write(bytes(1_000_000)).unwrap();
        channel.run_pending();
    }
    let pipeline = Pipeline::codec(RawBytes).traffic(&group).handler(Recorder::new(&Log::new()));
    let builder = EmbeddedChannel::builder(pipeline).clock(clock.clone());
    let mut ends = builder.filter(EndMark).build().unwrap();
    ends.close();
    for _ in 0..2_000 {
        pass(&clock, &mut others, 1);
        ends.run_pending();
    }
    assert_eq!(ends.read_outbound(), "E");
    assert!(ends.is_closed());
}

/// A filter that changes no byte, and ends its output with a mark.
struct EndMark;

impl Filter for EndMark {
    fn read(&mut self, ctx: &mut FilterContext<'_>, input: &mut [u8]) -> Result<usize> {
        ctx.deliver(input);
        Ok(input.len())
    }

    fn end_output(&mut self, ctx: &mut FilterContext<'_>) -> Result {
        ctx.output().push(b'E');
        Ok(())
    }

    fn state(&self) -> FilterState {
        FilterState::Established
    }
}
