//! The calls of a channel under random operations are the same, in the same order, whether
//! `read_complete` is part of the call for a read or a separate call. An attribute forces the
//! separate call.
//!
//! The test does not compare when the channel's entry on the wheel is examined. An early
//! examination has no visible effect.

use super::{OPERATIONS, Operation, operation, options};
use bytes::Bytes;
use netwheel::{
    Error, IdleEvent,
    buffer::WaterMark,
    channel::{ChannelOptions, InputGuard, TimeLimits},
    codec::LengthField,
    prelude::*,
    testing::EmbeddedChannel,
    time::Delay,
};
use proptest::prelude::*;
use std::{cell::RefCell, collections::VecDeque, rc::Rc, time::Duration};

#[derive(Debug, Clone)]
enum Act {
    Nothing,
    Write(usize),
    Operation(Operation),
    Replace,
    Tasks(usize),
    Progress(u64),
    Panic,
}

#[derive(Debug, Clone)]
enum Step {
    Messages(usize),
    Part(usize),
    End,
    Room(Option<usize>),
    Wait(u64),
    Next(Vec<Act>),
    Write(usize),
    Release,
}

#[derive(Default)]
struct World {
    next: VecDeque<Act>,
    told: Vec<String>,
    held: Vec<InputGuard>,
    pipelines: usize,
}

type Shared = Rc<RefCell<World>>;

struct Player {
    world: Shared,
    number: usize,
    apart: bool,
}

impl Player {
    fn new(world: &Shared, apart: bool) -> Self {
        world.borrow_mut().pipelines += 1;
        Player { world: world.clone(), number: world.borrow().pipelines, apart }
    }

    fn called(&mut self, ctx: &mut Context<'_, Self>, what: String) -> Result {
        let stats = ctx.stats();
        let told = format!(
            "{} {what}: open {}, writable {}, pending {}, reads {}, read {}",
            self.number,
            ctx.is_open(),
            ctx.is_writable(),
            ctx.pending_bytes(),
            ctx.auto_read(),
            stats.messages_read,
        );
        let act = {
            let mut world = self.world.borrow_mut();
            world.told.push(told);
            assert!(world.told.len() < 20_000, "endless callbacks");
            world.next.pop_front()
        };
        let told = |world: &Shared, result: Result| {
            world.borrow_mut().told.push(format!("{result:?}"));
        };
        match act.unwrap_or(Act::Nothing) {
            Act::Nothing => {}
            Act::Write(len) => told(&self.world, ctx.write(vec![7; len].into())),
            Act::Operation(operation) => {
                let held = operation.run(ctx)?;
                self.world.borrow_mut().held.extend(held);
            }
            Act::Replace => {
                let player = Player::new(&self.world, self.apart);
                told(&self.world, ctx.replace_pipeline(Pipeline::codec(LengthField::u16()).handler(player)));
            }
            Act::Tasks(n) => {
                for _ in 0..n {
                    ctx.schedule(Duration::from_millis(20), |player, ctx| player.called(ctx, "task".into()));
                    ctx.schedule(Delay::coarse(Duration::from_millis(30)), |player, ctx| {
                        player.called(ctx, "timeout".into())
                    });
                }
            }
            Act::Progress(ms) => {
                ctx.set_time_limits(TimeLimits::new().progress(10, Duration::from_millis(ms)))
            }
            Act::Panic => panic!("on purpose"),
        }
        Ok(())
    }
}

impl Handler for Player {
    type Read = Bytes;
    type Write = Bytes;

    fn active(&mut self, ctx: &mut Context<'_, Self>) -> Result {
        if self.apart {
            ctx.attributes_mut().insert(());
        }
        self.called(ctx, "active".into())
    }
    fn read(&mut self, ctx: &mut Context<'_, Self>, message: Bytes) -> Result {
        self.called(ctx, format!("read {}", message.len()))
    }
    fn read_complete(&mut self, ctx: &mut Context<'_, Self>) -> Result {
        self.called(ctx, "read_complete".into())
    }
    fn writability_changed(&mut self, ctx: &mut Context<'_, Self>, on: bool) -> Result {
        self.called(ctx, format!("writable {on}"))
    }
    fn idle(&mut self, ctx: &mut Context<'_, Self>, event: IdleEvent) -> Result {
        self.called(ctx, format!("{event:?}"))
    }
    fn read_closed(&mut self, ctx: &mut Context<'_, Self>) -> Result {
        self.called(ctx, "read_closed".into())
    }
    fn error(&mut self, ctx: &mut Context<'_, Self>, error: Error) -> Result {
        let fatal = matches!(error, Error::Panicked(_) | Error::Peer(_));
        self.called(ctx, format!("error {error:#}"))?;
        if fatal {
            ctx.close();
        }
        Ok(())
    }
    fn inactive(&mut self, ctx: &mut Context<'_, Self>) -> Result {
        self.called(ctx, "inactive".into())
    }
}

fn act() -> impl Strategy<Value = Act> {
    prop_oneof![
        8 => Just(Act::Nothing),
        8 => (0usize..300).prop_map(Act::Write),
        OPERATIONS => operation().prop_map(Act::Operation),
        3 => Just(Act::Replace),
        3 => (1usize..3).prop_map(Act::Tasks),
        2 => (20u64..90).prop_map(Act::Progress),
        1 => Just(Act::Panic),
    ]
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        14 => (1usize..5).prop_map(Step::Messages),
        3 => (1usize..40).prop_map(Step::Part),
        1 => Just(Step::End),
        3 => prop::option::of(0usize..600).prop_map(Step::Room),
        3 => (0u64..100).prop_map(Step::Wait),
        10 => prop::collection::vec(act(), 1..6).prop_map(Step::Next),
        2 => (0usize..300).prop_map(Step::Write),
        2 => Just(Step::Release),
    ]
}

fn story(options: &ChannelOptions, steps: &[Step], apart: bool) -> Vec<String> {
    let world = Shared::default();
    let player = Player::new(&world, apart);
    let mut channel = EmbeddedChannel::builder(Pipeline::codec(LengthField::u16()).handler(player))
        .channel_options(options.clone())
        .build()
        .unwrap();
    let handle = channel.channel();
    let mut stream: VecDeque<u8> = VecDeque::new();
    let mut number = 0;
    let mut ended = false;
    for step in steps {
        match step {
            Step::Messages(n) if !ended => {
                // The rest of the partial message, followed by `n` complete messages.
                let mut bytes: Vec<u8> = stream.drain(..).collect();
                for _ in 0..*n {
                    number += 1;
                    let len = number * 7 % 40;
                    bytes.extend((len as u16).to_be_bytes());
                    bytes.extend(vec![1; len]);
                }
                let _ = channel.write_inbound(&bytes);
            }
            Step::Part(n) if !ended => {
                if stream.len() <= *n {
                    number += 1;
                    stream.extend(60u16.to_be_bytes());
                    stream.extend([2; 60]);
                }
                let bytes: Vec<u8> = stream.drain(..*n).collect();
                let _ = channel.write_inbound(&bytes);
            }
            Step::Messages(_) | Step::Part(_) => {}
            Step::End => {
                ended = true;
                channel.end_inbound();
            }
            Step::Room(room) => channel.set_outbound_room(*room),
            Step::Wait(ms) => channel.advance(Duration::from_millis(*ms)),
            Step::Next(acts) => world.borrow_mut().next.extend(acts.iter().cloned()),
            Step::Write(len) => {
                let _ = handle.write(vec![9; *len].into());
                channel.run_pending();
            }
            Step::Release => {
                let held = world.borrow_mut().held.pop();
                drop(held);
                channel.run_pending();
            }
        }
        let sent = channel.read_outbound();
        let told = format!(
            "{step:?}: {sent:?}, {} pending, writable {}",
            channel.pending_bytes(),
            handle.is_writable(),
        );
        world.borrow_mut().told.push(told);
    }
    std::mem::take(&mut world.borrow_mut().told)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(200))]

    #[test]
    fn callbacks_are_the_same_whether_read_complete_is_a_separate_call(
        (options, _) in options(500..2000),
        steps in prop::collection::vec(step(), 0..60),
    ) {
        let options = options.max_scheduled_tasks(3).water_mark(WaterMark::new(50, 150).unwrap());
        let (apart, together) = (story(&options, &steps, true), story(&options, &steps, false));
        for (n, (a, t)) in apart.iter().zip(&together).enumerate() {
            prop_assert_eq!(a, t, "after {:#?}", &apart[n.saturating_sub(8)..n]);
        }
        prop_assert_eq!(apart.len(), together.len());
    }
}
