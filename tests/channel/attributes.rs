//! Attributes of a channel: visibility and lifetime.

use bytes::Bytes;
use netwheel::{Stage, StageContext, channel::Attributes, codec::Line, prelude::*, testing::EmbeddedChannel};
use std::{
    cell::RefCell,
    rc::Rc,
    sync::mpsc::{Sender, channel},
};

type Log = Rc<RefCell<Vec<String>>>;

/// Logs its drop.
struct Kept(&'static str, Log);

impl Drop for Kept {
    fn drop(&mut self) {
        self.1.borrow_mut().push(format!("{} is dropped", self.0));
    }
}

#[derive(Debug, PartialEq)]
struct Lines(u32);

#[derive(Debug, PartialEq)]
struct Listener(&'static str);

/// Counts lines in an attribute.
struct Count;

impl Stage for Count {
    type ReadIn = Bytes;
    type ReadOut = Bytes;
    type WriteIn = Bytes;
    type WriteOut = Bytes;

    fn read(&mut self, ctx: &mut StageContext<'_, Self>, line: Bytes) -> Result<Option<Bytes>> {
        ctx.attributes_mut().get_or_insert_with(|| Lines(0)).0 += 1;
        Ok(Some(line))
    }

    fn write(&mut self, ctx: &mut StageContext<'_, Self>, message: Bytes) -> Result {
        let lines = ctx.attributes().get::<Lines>().map_or(0, |lines| lines.0);
        ctx.write(format!("{lines} {}", String::from_utf8_lossy(&message)).into())
    }
}

struct Session(Log);

impl Handler for Session {
    type Read = Bytes;
    type Write = Bytes;

    fn active(&mut self, ctx: &mut Context<'_, Self>) -> Result {
        let made = format!("{:?} {}", ctx.attributes().get::<Listener>(), ctx.attributes().len());
        self.0.borrow_mut().push(made);
        Ok(())
    }

    fn read(&mut self, ctx: &mut Context<'_, Self>, line: Bytes) -> Result {
        let attributes = ctx.attributes_mut();
        match &line[..] {
            b"forget" => drop(attributes.remove::<Lines>()),
            b"replace" => {
                let next = Pipeline::codec(Line::new()).attribute(Listener("another")).stage(Count);
                ctx.replace_pipeline(next.handler(Session(self.0.clone())))?;
                return Ok(());
            }
            b"keep" => drop(attributes.insert(Kept("it", self.0.clone()))),
            _ => {}
        }
        ctx.write(line)
    }

    fn inactive(&mut self, ctx: &mut Context<'_, Self>) -> Result {
        let there = ctx.attributes().get::<Kept>().map_or("nothing", |kept| kept.0);
        self.0.borrow_mut().push(format!("inactive with {there}"));
        // No callback sees this value, but it is dropped like the others.
        ctx.attributes_mut().insert(Kept("late", self.0.clone()));
        Ok(())
    }
}

impl Drop for Session {
    fn drop(&mut self) {
        self.0.borrow_mut().push("the handler is dropped".to_owned());
    }
}

fn open(listener: &'static str) -> (EmbeddedChannel<Bytes>, Log) {
    let log = Log::default();
    let pipeline = Pipeline::codec(Line::new())
        .attribute(Listener("another"))
        .attribute(Listener(listener))
        .stage(Count)
        .handler(Session(log.clone()));
    (EmbeddedChannel::new(pipeline), log)
}

#[test]
fn attributes_of_the_pipeline_are_present_in_active() {
    let (_channel, log) = open("public");
    assert_eq!(
        *log.borrow(),
        ["Some(Listener(\"public\")) 1"],
        "the second value of a type replaces the first"
    );
}

#[test]
fn stages_handlers_and_handle_tasks_share_attributes() {
    let (mut channel, _) = open("public");
    channel.write_inbound(b"a\nb\n").unwrap();
    assert_eq!(channel.read_outbound(), "1 a\n2 b\n");
    channel.write_inbound(b"forget\nc\n").unwrap();
    assert_eq!(channel.read_outbound(), "0 forget\n1 c\n");
    let (seen, sees) = channel_of::<Option<u32>>();
    let handle = channel.channel();
    handle
        .execute(move |ctx| {
            seen.send(ctx.attributes().get().map(|lines: &Lines| lines.0)).map_err(Error::other)?;
            ctx.attributes_mut().insert(Lines(70));
            Ok(())
        })
        .unwrap();
    channel.run_pending();
    assert_eq!(sees.recv().unwrap(), Some(1));
    channel.write_inbound(b"d\n").unwrap();
    assert_eq!(channel.read_outbound(), "71 d\n");
}

fn channel_of<T>() -> (Sender<T>, std::sync::mpsc::Receiver<T>) {
    channel()
}

#[test]
fn each_channel_has_its_own_attributes() {
    let ((mut one, _), (mut other, _)) = (open("public"), open("internal"));
    one.write_inbound(b"a\na\n").unwrap();
    other.write_inbound(b"a\n").unwrap();
    assert_eq!((one.read_outbound(), other.read_outbound()), ("1 a\n2 a\n".into(), "1 a\n".into()));
}

#[test]
fn attributes_are_readable_in_inactive_and_dropped_afterwards() {
    let (mut channel, log) = open("public");
    channel.write_inbound(b"keep\n").unwrap();
    log.borrow_mut().clear();
    channel.close();
    assert_eq!(
        *log.borrow(),
        ["inactive with it", "it is dropped", "late is dropped", "the handler is dropped"],
        "replaced by the late one"
    );
}

#[test]
fn a_replacement_pipeline_keeps_the_attributes_and_adds_its_own() {
    let (mut channel, log) = open("public");
    channel.write_inbound(b"a\nreplace\nb\n").unwrap();
    assert_eq!(channel.read_outbound(), "1 a\n3 b\n", "the count continues");
    let there = log.borrow().iter().filter(|line| line.starts_with("Some")).cloned().collect::<Vec<_>>();
    assert_eq!(there, ["Some(Listener(\"public\")) 1", "Some(Listener(\"another\")) 2"]);
}

#[test]
fn one_attribute_of_each_type() {
    let mut attributes = Attributes::new();
    assert!(attributes.is_empty() && !attributes.contains::<u32>());
    assert_eq!(attributes.insert(1_u32), None);
    assert_eq!(attributes.insert(1_u64), None);
    assert_eq!(attributes.insert(2_u32), Some(1));
    assert_eq!(
        (attributes.get::<u32>(), attributes.get::<u64>(), attributes.get::<u8>()),
        (Some(&2), Some(&1), None)
    );
    *attributes.get_mut::<u64>().unwrap() += 5;
    assert_eq!(attributes.get_or_insert_with(|| 0_u64), &6);
    assert_eq!(attributes.get_or_insert_with(|| "made"), &"made");
    assert_eq!((attributes.len(), attributes.contains::<&str>()), (3, true));
    assert_eq!((attributes.remove::<u32>(), attributes.remove::<u32>()), (Some(2), None));
    assert_eq!((attributes.len(), attributes.get::<u64>()), (2, Some(&6)));
}
