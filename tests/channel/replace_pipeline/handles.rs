//! Handles of a channel whose pipeline was replaced.

use crate::support::{
    channels::{Guard, frames, lines},
    journal::Log,
    loops::{block, end, one_loop},
    recorder::{Event, named, quiet},
    wait::{SECOND, done, reason},
};
use bytes::Bytes;
use netwheel::{
    ChannelGroup, Codec, Error, HandlerRef,
    buffer::OutboundBuffer,
    codec::Line,
    filter::{Filter, FilterContext, FilterState},
    prelude::*,
    testing::EmbeddedChannel,
};
use std::{io::BufRead, sync::mpsc};

/// A line codec for strings.
struct Text(Line);

impl Codec for Text {
    type Read = String;
    type Write = String;

    fn decode(&mut self, input: &mut Bytes) -> Result<Option<String>> {
        Ok(self.0.decode(input)?.map(|line| String::from_utf8_lossy(&line).into_owned()))
    }

    fn encode(&mut self, message: String, output: &mut OutboundBuffer) -> Result {
        self.0.encode(message.into(), output)
    }
}

/// Handles strings, and sends its own handle to the test.
struct Texts {
    handle: Option<mpsc::Sender<HandlerRef<Texts>>>,
    heard: usize,
}

impl Handler for Texts {
    type Read = String;
    type Write = String;

    fn active(&mut self, ctx: &mut Context<'_, Self>) -> Result {
        if let Some(handle) = self.handle.take() {
            handle.send(ctx.handler_ref()).unwrap();
        }
        Ok(())
    }

    fn read(&mut self, _: &mut Context<'_, Self>, _: String) -> Result {
        self.heard += 1;
        Ok(())
    }

    fn error(&mut self, _: &mut Context<'_, Self>, error: Error) -> Result {
        panic!("an unexpected error reached the new handler: {error}");
    }
}

#[test]
fn handles_of_another_message_type_fail_with_replaced_and_return_the_message() {
    let log = Log::new();
    let (sender, remotes) = mpsc::channel();
    let mut handle = Some(sender);
    let (sender, olds) = mpsc::channel();
    let mut channel = EmbeddedChannel::new(lines(named("old", &log, move |ctx, call| {
        match call {
            Event::Active(_) => sender.send(ctx.handler_ref()).unwrap(),
            Event::Read(_) => {
                let new = Texts { handle: handle.take(), heard: 0 };
                ctx.replace_pipeline(Pipeline::codec(Text(Line::new())).handler(new))?;
            }
            _ => {}
        }
        Ok(())
    })));
    let old_remote = olds.recv().unwrap();
    let old = old_remote.channel().clone();
    let closed = old.closed();
    old.write("before".into()).unwrap();
    channel.run_pending();
    channel.write_inbound(b"go\n").unwrap();
    let new_remote = remotes.recv().unwrap();
    let new = new_remote.channel().clone();
    assert_eq!(channel.read_outbound(), "before\n");

    let refused = old.write("stale".into()).unwrap_err();
    assert!(matches!(refused.error(), Error::PipelineReplaced) && refused.value() == "stale", "{refused}");
    assert!(matches!(old.write_tracked("stale".into()).unwrap_err().error(), Error::PipelineReplaced));
    assert!(matches!(old.execute(|_| panic!("a stale task ran")), Err(Error::PipelineReplaced)));
    assert!(matches!(
        old.schedule(SECOND, |_| -> Result { panic!("a stale task ran") }),
        Err(Error::PipelineReplaced)
    ));
    assert!(matches!(old_remote.execute(|_, _| panic!("a stale task ran")), Err(Error::PipelineReplaced)));
    assert!(matches!(reason(channel.channel().write("stale".into())), Error::PipelineReplaced));
    channel.run_pending();
    assert_eq!((channel.read_outbound(), channel.timers()), (Bytes::new(), 0));

    // Operations without a message still work, and both handles refer to the same channel.
    assert_eq!(old.id(), new.id());
    assert!(old.is_open());
    new.write("fresh".to_owned()).unwrap();
    new_remote
        .execute(|me, ctx| {
            me.heard += 1;
            ctx.write(format!("heard {}", me.heard))
        })
        .unwrap();
    channel.run_pending();
    assert_eq!(channel.read_outbound(), "fresh\nheard 1\n");
    old.close();
    channel.run_pending();
    done(closed).unwrap();
    assert!(matches!(old.write("late".into()).unwrap_err().error(), Error::Closed));
}

#[test]
fn queued_operations_of_stale_handles_are_dropped_without_an_error_event() {
    let log = Log::new();
    let (sender, olds) = mpsc::channel();
    let mut channel = EmbeddedChannel::new(lines(named("old", &log, move |ctx, call| {
        if call.is_active() {
            sender.send(ctx.handler_ref()).unwrap();
        }
        Ok(())
    })));
    let remote = olds.recv().unwrap();
    let old = remote.channel().clone();
    old.execute(|ctx| {
        let new = Texts { handle: None, heard: 0 };
        ctx.replace_pipeline(Pipeline::codec(Text(Line::new())).handler(new))
    })
    .unwrap();
    old.write("stale".into()).unwrap();
    let answer = old.write_tracked("stale".into()).unwrap();
    let guards = ["task", "later", "remote"].map(|name| Guard(name, log.clone()));
    let [task, later, of_remote] = guards;
    old.execute(move |_| task.runs()).unwrap();
    old.schedule(SECOND, move |_| later.runs()).unwrap();
    remote.execute(move |_, _| of_remote.runs()).unwrap();
    channel.run_pending();
    assert!(matches!(done(answer), Err(Error::PipelineReplaced)));
    assert_eq!(log.take(), ["old active", "old drop", "task gone", "remote gone"]);
    channel.advance(2 * SECOND);
    assert_eq!(log.take(), ["later gone"]);
    assert!(channel.is_open());
    assert_eq!(channel.read_outbound(), "");
}

#[test]
fn handles_of_the_same_message_type_continue_to_work() {
    let log = Log::new();
    let (sender, olds) = mpsc::channel();
    let inner = log.clone();
    let mut channel = EmbeddedChannel::new(lines(named("old", &log, move |ctx, call| {
        match call {
            Event::Active(_) => sender.send(ctx.handler_ref()).unwrap(),
            Event::Read(_) => ctx.replace_pipeline(frames(quiet("new", &inner)))?,
            _ => {}
        }
        Ok(())
    })));
    let remote = olds.recv().unwrap();
    channel.write_inbound(b"go\n").unwrap();
    log.take();
    remote.channel().write("one".into()).unwrap();
    let answer = remote.channel().write_tracked("two".into()).unwrap();
    remote
        .execute(|me, _| {
            me.log.push(format!("{} has it", me.name));
            Ok(())
        })
        .unwrap();
    channel.run_pending();
    done(answer).unwrap();
    assert_eq!(channel.read_outbound(), &b"\0\x03one\0\x03two"[..]);
    assert_eq!(log.take(), ["new has it"]);
}

/// A member of a group leaves it if its message type changes. Otherwise it stays and encodes
/// broadcasts with its new codec.
#[test]
fn a_channel_leaves_its_groups_if_its_message_type_changes() {
    let log = Log::new();
    let room = ChannelGroup::new();
    let inner = log.clone();
    let mut stays = EmbeddedChannel::new(lines(quiet("stays", &log)));
    let mut leaves = EmbeddedChannel::new(lines(quiet("leaves", &log)));
    let handle = leaves.channel();
    let closed = handle.closed();
    assert!(room.join(stays.channel()) && room.join(handle.clone()));
    stays.channel().execute(move |ctx| ctx.replace_pipeline(frames(quiet("stayed", &inner)))).unwrap();
    handle
        .execute(|ctx| {
            let new = Texts { handle: None, heard: 0 };
            ctx.replace_pipeline(Pipeline::codec(Text(Line::new())).handler(new))
        })
        .unwrap();
    // Sent before the pipelines change, delivered afterwards.
    let broadcast = room.broadcast(Bytes::from("news")).unwrap();
    for channel in [&mut stays, &mut leaves] {
        channel.run_pending();
    }
    let report = done(broadcast.report()).unwrap();
    assert_eq!((report.members, report.written, report.gone), (2, 1, 1));
    assert_eq!(stays.read_outbound(), &b"\0\x04news"[..]);
    assert_eq!(leaves.read_outbound(), "");
    assert!(leaves.is_open());
    assert!(room.contains(stays.channel().id()) && !room.contains(handle.id()));
    assert!(!room.join(handle), "its message type has changed");
    leaves.close();
    done(closed).unwrap();
}

/// Passes everything on.
struct Passes;

impl Filter for Passes {
    fn read(&mut self, ctx: &mut FilterContext<'_>, input: &mut [u8]) -> Result<usize> {
        ctx.deliver(input);
        Ok(input.len())
    }

    fn write(&mut self, ctx: &mut FilterContext<'_>, plain: &[u8]) -> Result {
        ctx.output().extend_from_slice(plain);
        Ok(())
    }

    fn state(&self) -> FilterState {
        FilterState::Established
    }
}

/// The loop has not replaced the pipeline yet when the message is written.
#[test]
fn a_handle_for_a_replacement_may_write_behind_the_request_for_it() {
    for filtered in [false, true] {
        let group = one_loop();
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let (sender, remotes) = mpsc::channel();
        let client = ClientBootstrap::new(&group).pipeline(move |_| {
            let sender = sender.clone();
            lines(named("old", &Log::new(), move |ctx, call| {
                if matches!(call, Event::Active(_)) {
                    sender.send(ctx.handler_ref()).unwrap();
                }
                Ok(())
            }))
        });
        let address = listener.local_addr().unwrap();
        let channel = if filtered {
            done(client.filter(|_| Passes).connect(address))
        } else {
            done(client.connect(address))
        };
        let (early, remote) = (channel.unwrap().for_replacement::<String>(), remotes.recv().unwrap());
        let too_early = early.write_tracked("too early".into()).unwrap();
        assert!(matches!(done(too_early), Err(Error::PipelineReplaced)));
        let blocked = block(&group);
        let replace = |_: &mut _, ctx: &mut Context<'_, _>| {
            ctx.replace_pipeline(Pipeline::codec(Text(Line::new())).handler(Texts { handle: None, heard: 0 }))
        };
        remote.execute(replace).map_err(drop).unwrap();
        early.write("arrives".into()).unwrap();
        drop(blocked);
        let (peer, _) = listener.accept().unwrap();
        let mut line = String::new();
        std::io::BufReader::new(peer).read_line(&mut line).unwrap();
        assert_eq!(line, "arrives\n");
        end(&group);
    }
}
