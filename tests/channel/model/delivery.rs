//! Invariants of a channel under random operations:
//!
//! - Each message is delivered once and in order.
//! - Each accepted message is sent once, whole and in order, unless the overflow policy drops it.
//! - `active` comes first; `inactive` comes once and last.
//! - Every completion completes.
//! - No bytes, timers or tasks remain after the close.

use super::{OPERATIONS, Operation, operation, options};
use bytes::{Buf, Bytes};
use netwheel::{
    ChannelContext, Completion, Error, IdleEvent, IdleTimeouts,
    buffer::WaterMark,
    channel::{ChannelOptions, InputGuard, Overflow},
    codec::LengthField,
    prelude::*,
    testing::EmbeddedChannel,
    traffic::TrafficLimits,
};
use proptest::prelude::*;
use std::{cell::RefCell, collections::VecDeque, rc::Rc, time::Duration};

/// An action of a handler or a task on its channel.
#[derive(Debug, Clone)]
enum Act {
    Write(usize),
    Notify(usize),
    Operation(Operation),
    Replace,
    Schedule(u64),
    Traffic(u64),
}

/// An external event or operation.
#[derive(Debug, Clone)]
enum Step {
    /// The given number of bytes of the peer's stream arrives.
    Arrive(usize),
    End,
    Break,
    /// Sets how many bytes the peer accepts from now on.
    Room(Option<usize>),
    Wait(u64),
    /// The next callback performs this action.
    Next(Act),
    /// An empty read triggers a callback that performs this action.
    Now(Act),
    Write(usize),
    Notify(usize),
    EndOutput,
    Release,
}

#[derive(Default)]
struct World {
    next: VecDeque<Act>,
    /// Numbers of the delivered messages.
    read: Vec<u32>,
    active: usize,
    inactive: usize,
    late_calls: usize,
    handlers: usize,
    made: usize,
    calls: usize,
    held: Vec<InputGuard>,
    /// Numbers and lengths of the accepted messages.
    written: Vec<(u32, usize)>,
    /// The accepted messages that can no longer be refused. A message from a handle may still be
    /// refused on its way.
    certain: Vec<u32>,
    answers: Vec<(u32, Completion)>,
    numbers: u32,
}

type Shared = Rc<RefCell<World>>;

struct Player {
    world: Shared,
    /// Whether `active` was called on this handler.
    active: bool,
}

impl Player {
    fn new(world: &Shared) -> Self {
        world.borrow_mut().made += 1;
        world.borrow_mut().handlers += 1;
        Player { world: world.clone(), active: false }
    }

    fn called(&mut self, ctx: &mut Context<'_, Self>) -> Result {
        let act = {
            let mut world = self.world.borrow_mut();
            world.calls += 1;
            world.late_calls += usize::from(world.inactive > 0 || !self.active);
            world.next.pop_front()
        };
        act.map_or(Ok(()), |act| self.act(ctx, act))
    }

    fn act(&mut self, ctx: &mut Context<'_, Self>, act: Act) -> Result {
        match act {
            Act::Schedule(ms) => {
                ctx.schedule(Duration::from_millis(ms), Player::called);
                Ok(())
            }
            act => play(&self.world, ctx, act),
        }
    }
}

fn message(world: &Shared, len: usize) -> (u32, Bytes) {
    let mut world = world.borrow_mut();
    world.numbers += 1;
    let mut bytes = world.numbers.to_be_bytes().to_vec();
    bytes.resize(len.max(4), world.numbers as u8);
    (world.numbers, bytes.into())
}

fn play<H: Handler<Write = Bytes>>(world: &Shared, ctx: &mut Context<'_, H>, act: Act) -> Result {
    match act {
        Act::Write(len) => {
            let (number, bytes) = message(world, len);
            let len = bytes.len();
            // A refusal must not be an error of the handler.
            if ctx.write(bytes).is_ok() {
                let mut world = world.borrow_mut();
                world.written.push((number, len));
                world.certain.push(number);
            }
        }
        Act::Notify(len) => {
            let (number, bytes) = message(world, len);
            let len = bytes.len();
            if let Ok(answer) = ctx.write_tracked(bytes) {
                let mut world = world.borrow_mut();
                world.written.push((number, len));
                world.answers.push((number, answer));
            }
        }
        Act::Operation(operation) => {
            let held = operation.run(ctx)?;
            world.borrow_mut().held.extend(held);
        }
        Act::Replace => {
            if ctx.is_open() {
                ctx.replace_pipeline(pipeline(Player::new(world)))?;
            }
        }
        Act::Traffic(rate) => ctx.set_traffic(TrafficLimits::new().read(rate).write(rate)),
        Act::Schedule(_) => {}
    }
    Ok(())
}

impl Handler for Player {
    type Read = Bytes;
    type Write = Bytes;

    fn active(&mut self, ctx: &mut Context<'_, Self>) -> Result {
        assert!(!self.active);
        self.active = true;
        self.world.borrow_mut().active += 1;
        self.called(ctx)
    }

    fn read(&mut self, ctx: &mut Context<'_, Self>, mut message: Bytes) -> Result {
        self.world.borrow_mut().read.push(message.get_u32());
        self.called(ctx)
    }

    fn read_complete(&mut self, ctx: &mut Context<'_, Self>) -> Result {
        self.called(ctx)
    }

    fn writability_changed(&mut self, ctx: &mut Context<'_, Self>, _: bool) -> Result {
        self.called(ctx)
    }

    fn idle(&mut self, ctx: &mut Context<'_, Self>, _: IdleEvent) -> Result {
        self.called(ctx)
    }

    fn read_closed(&mut self, ctx: &mut Context<'_, Self>) -> Result {
        self.called(ctx)
    }

    fn error(&mut self, ctx: &mut Context<'_, Self>, _: Error) -> Result {
        self.called(ctx)
    }

    fn inactive(&mut self, ctx: &mut Context<'_, Self>) -> Result {
        let result = self.called(ctx);
        self.world.borrow_mut().inactive += 1;
        result
    }
}

impl Drop for Player {
    fn drop(&mut self) {
        self.world.borrow_mut().handlers -= 1;
    }
}

fn pipeline(player: Player) -> netwheel::Pipeline<Bytes> {
    Pipeline::codec(LengthField::u16()).handler(player)
}

/// Returns the peer's stream. The messages vary in length, so that reads split them at any
/// position.
fn stream() -> Vec<u8> {
    let mut bytes = Vec::new();
    for number in 0..400u32 {
        let len = 4 + number as usize * 7 % 40;
        bytes.extend_from_slice(&(len as u16).to_be_bytes());
        bytes.extend_from_slice(&number.to_be_bytes());
        bytes.resize(bytes.len() + len - 4, number as u8);
    }
    bytes
}

/// Returns the numbers and lengths of the complete messages in `bytes`, and whether bytes remain.
fn decode(mut bytes: Bytes) -> (Vec<(u32, usize)>, bool) {
    let mut messages = Vec::new();
    while bytes.len() >= 2 {
        let len = usize::from(u16::from_be_bytes([bytes[0], bytes[1]]));
        if bytes.len() < 2 + len {
            break;
        }
        bytes.advance(2);
        let mut message = bytes.split_to(len);
        let number = message.get_u32();
        assert!(message.iter().all(|byte| *byte == number as u8), "message {number} is corrupt");
        messages.push((number, len));
    }
    (messages, !bytes.is_empty())
}

fn act() -> impl Strategy<Value = Act> {
    prop_oneof![
        6 => (0usize..300).prop_map(Act::Write),
        3 => (0usize..300).prop_map(Act::Notify),
        2 => (3000usize..5000).prop_map(Act::Write),
        OPERATIONS => operation().prop_map(Act::Operation),
        2 => Just(Act::Replace),
        2 => (0u64..50).prop_map(Act::Schedule),
        2 => (0u64..3000).prop_map(Act::Traffic),
    ]
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        12 => (0usize..200).prop_map(Step::Arrive),
        1 => Just(Step::End),
        1 => Just(Step::Break),
        4 => prop::option::of(0usize..2000).prop_map(Step::Room),
        6 => (0u64..200).prop_map(Step::Wait),
        12 => act().prop_map(Step::Next),
        4 => act().prop_map(Step::Now),
        3 => (0usize..300).prop_map(Step::Write),
        3 => (0usize..300).prop_map(Step::Notify),
        1 => Just(Step::EndOutput),
        3 => Just(Step::Release),
    ]
}

fn check(options: &ChannelOptions, policy: Overflow, steps: Vec<Step>) {
    let world = Shared::default();
    let mut channel = EmbeddedChannel::builder(pipeline(Player::new(&world)))
        .channel_options(options.clone())
        .build()
        .unwrap();
    let handle = channel.channel();
    let bytes = stream();
    let (mut arrived, mut ended) = (0, false);
    let mut got = Vec::new();
    for step in steps {
        match step {
            Step::Arrive(n) if !ended => {
                let n = n.min(bytes.len() - arrived);
                if channel.write_inbound(&bytes[arrived..arrived + n]).is_ok() {
                    arrived += n;
                }
            }
            Step::Arrive(_) => {}
            Step::End => {
                ended = true;
                channel.end_inbound();
            }
            Step::Break => channel.fail_inbound(std::io::ErrorKind::ConnectionReset.into()),
            Step::Room(room) => channel.set_outbound_room(room),
            Step::Wait(ms) => channel.advance(Duration::from_millis(ms)),
            Step::Next(act) => world.borrow_mut().next.push_back(act),
            Step::Now(act) => {
                world.borrow_mut().next.push_front(act);
                channel.write_inbound(b"").ok();
            }
            Step::Write(len) => {
                let (number, bytes) = message(&world, len);
                let len = bytes.len();
                if handle.write(bytes).is_ok() {
                    world.borrow_mut().written.push((number, len));
                }
                channel.run_pending();
            }
            Step::Notify(len) => {
                let (number, bytes) = message(&world, len);
                let len = bytes.len();
                if let Ok(answer) = handle.write_tracked(bytes) {
                    let mut world = world.borrow_mut();
                    world.written.push((number, len));
                    world.answers.push((number, answer));
                }
                channel.run_pending();
            }
            Step::EndOutput => {
                handle.shutdown_write();
                channel.run_pending();
            }
            Step::Release => {
                let held = world.borrow_mut().held.pop();
                drop(held);
                channel.run_pending();
            }
        }
        got.extend_from_slice(&channel.read_outbound());
        assert!(world.borrow().calls < 10_000, "endless callbacks");
    }
    // Remove every restriction: the remaining input is delivered and pending output is sent.
    world.borrow_mut().next.clear();
    let held = std::mem::take(&mut world.borrow_mut().held);
    drop(held);
    channel.set_outbound_room(None);
    let free = |ctx: &mut ChannelContext<'_, Bytes>| {
        ctx.set_auto_read(true);
        ctx.set_traffic(TrafficLimits::new());
        ctx.set_idle_timeouts(IdleTimeouts::new());
        Ok(())
    };
    handle.execute(free).ok();
    channel.run_pending();
    if channel.is_open() {
        let expected = decode(Bytes::from(bytes[..arrived].to_vec())).0.len();
        assert_eq!(world.borrow().read.len(), expected, "a reading channel delivers all input");
        assert_eq!(channel.pending_bytes(), 0, "a channel with a reading peer sends all output");
    }
    let graceful = channel.is_open();
    channel.close();
    channel.advance(Duration::from_secs(20));
    got.extend_from_slice(&channel.read_outbound());

    let (sent, half) = decode(got.into());
    assert!(channel.is_closed());
    assert_eq!((channel.timers(), channel.pending_bytes()), (0, 0));
    assert!(!channel.has_pending());
    let answers = std::mem::take(&mut world.borrow_mut().answers);
    let world = world.borrow();
    assert_eq!((world.late_calls, world.inactive), (0, 1), "late calls, and `inactive`");
    assert!(world.active >= 1 && world.active <= world.made);
    assert_eq!(world.handlers, 0, "the closed channel has dropped its handler");
    let in_order: Vec<u32> = (0..world.read.len() as u32).collect();
    assert_eq!(world.read, in_order, "each message once, in order");
    // Only accepted messages are sent, each once, in the order of their numbers.
    assert!(sent.windows(2).all(|two| two[0].0 < two[1].0), "{sent:?}");
    assert!(sent.iter().all(|message| world.written.contains(message)), "{sent:?}");
    let is_sent = |number: u32| sent.iter().any(|message| message.0 == number);
    if graceful {
        assert!(!half, "a partial message was sent");
        let drops = matches!(policy, Overflow::DropNewest | Overflow::DropOldest);
        assert!(drops || world.certain.iter().all(|number| is_sent(*number)), "a message is missing");
    }
    for (number, answer) in answers {
        let answer = answer.wait_timeout(Duration::ZERO).expect("every completion completes");
        assert_eq!(answer.is_ok(), is_sent(number), "message {number}");
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(150))]

    #[test]
    fn random_operations_preserve_the_invariants_of_delivery(
        (options, policy) in options(500..8000),
        steps in prop::collection::vec(step(), 0..80),
    ) {
        let options = options.water_mark(WaterMark::new(100, 400).unwrap());
        check(&options, policy, steps);
    }
}
