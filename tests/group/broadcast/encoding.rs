//! The number of times that a message is encoded, and messages that cannot be encoded.

use crate::broadcast::{Counting, Room, all_written, broadcast, join, member, report_of, room_server, sum};
use crate::support::{
    codecs::Fussy, journal::Log, logs::quiet_panics, loops::end, recorder::Recorder, tcp::read_n, wait::done,
};
use bytes::Bytes;
use netwheel::{
    ChannelGroup, Codec, Stage, StageContext,
    buffer::OutboundBuffer,
    channel::ChannelOptions,
    codec::{LengthField, Line, RawBytes},
    prelude::*,
    stage::Heartbeat,
    testing::EmbeddedChannel,
};
use std::time::Duration;

#[test]
fn a_broadcast_is_encoded_once_per_loop() {
    const MEMBERS: usize = 60;
    for shared in [true, false] {
        let group = EventLoopGroup::builder().threads(2).build().unwrap();
        let room = ChannelGroup::new();
        let codec = Counting::new(shared);
        let (server, events) = room_server(&group, &room, ChannelOptions::new(), codec.clone());
        let mut peers = join(&server, &events, MEMBERS);
        assert!(group.metrics().iter().all(|of| of.channels > 10), "both loops have members");
        // One short message that is copied, and one long message that is shared.
        let large = "x".repeat(5000);
        for (n, text) in ["hello", &large, "bye"].into_iter().enumerate() {
            let broadcast = room.broadcast(Bytes::from(text.to_owned())).unwrap();
            assert_eq!(done(broadcast.report()).unwrap(), all_written(MEMBERS));
            assert_eq!(codec.encoded(), (n + 1) * if shared { 1 } else { MEMBERS });
        }
        for peer in &mut peers {
            assert_eq!(read_n(peer, 6 + 5001 + 4), format!("hello\n{large}\nbye\n").as_bytes());
        }
        end(&group);
        let encodings = sum(&group, |of| of.broadcast_encodings);
        assert_eq!(encodings, codec.encoded() as u64, "the loops count the encodings");
        assert_eq!(sum(&group, |of| of.messages_written), 3 * MEMBERS as u64);
    }
}

/// An encoding is shared only by channels with the same codec and settings.
#[test]
fn members_with_other_codecs_get_their_own_encoding() {
    let room = ChannelGroup::new();
    let mut members = [
        member(&room, LengthField::u16()),
        member(&room, LengthField::u32()),
        member(&room, LengthField::u16().little_endian()),
        member(&room, LengthField::u16()),
        member(&room, Line::new()),
        member(&room, Line::new().crlf()),
        member(&room, Line::new().max_len(1)),
        member(&room, RawBytes),
        member(&room, LengthField::builder().width(2).adjustment(-2).build().unwrap()),
        member(&room, LengthField::builder().width(2).strip(0).build().unwrap()),
        member(&room, LengthField::u8().max_len(2)),
        // A different type, with the same key as raw bytes.
        member(&room, Panics),
    ];
    let n = members.len();
    let report = broadcast(&room, "hi", &mut members);
    assert_eq!(report, report_of(n, |report| (report.written, report.failed) = (n - 3, 3)));
    let got: Vec<_> = members.iter_mut().map(EmbeddedChannel::read_outbound).collect();
    let expected: [&[u8]; 12] = [
        b"\0\x02hi",
        b"\0\0\0\x02hi",
        b"\x02\0hi",
        b"\0\x02hi",
        b"hi\n",
        b"hi\r\n",
        b"",
        b"hi",
        b"\0\x04hi",
        b"",
        b"",
        b"half of ithi",
    ];
    assert_eq!(got, expected);
}

/// Numbers its messages, so its encoding depends on the channel.
struct Numbered(u32);

impl Stage for Numbered {
    type ReadIn = Bytes;
    type ReadOut = Bytes;
    type WriteIn = Bytes;
    type WriteOut = Bytes;

    fn read(&mut self, _: &mut StageContext<'_, Self>, message: Bytes) -> Result<Option<Bytes>> {
        Ok(Some(message))
    }

    fn write(&mut self, ctx: &mut StageContext<'_, Self>, message: Bytes) -> Result {
        self.0 += 1;
        ctx.write([format!("{} ", self.0).as_bytes(), &message].concat().into())
    }
}

/// Every link must declare its encoding as shared. One stage that does not makes the whole chain
/// depend on the channel.
#[test]
fn an_encoding_is_shared_if_all_links_allow_it() {
    let room: Room = ChannelGroup::new();
    let log = Log::new();
    let codec = Counting::new(true);
    let beats = || Heartbeat::new(Duration::from_secs(1), || Bytes::from_static(b"ping"));
    let beating = || Pipeline::codec(codec.clone()).stage(beats()).handler(Recorder::new(&log));
    let numbered = || Pipeline::codec(codec.clone()).stage(Numbered(0)).handler(Recorder::new(&log));
    let mut members: Vec<_> =
        (0..4).map(|n| EmbeddedChannel::new(if n < 2 { beating() } else { numbered() })).collect();
    members.iter_mut().for_each(|member| assert!(room.join(member.channel())));
    members[3].channel().write("own".into()).unwrap();
    assert_eq!(broadcast(&room, "all", &mut members), all_written(4));
    let got: Vec<_> = members.iter_mut().map(EmbeddedChannel::read_outbound).collect();
    assert_eq!(got, ["all\n", "all\n", "1 all\n", "1 own\n2 all\n"]);
    assert_eq!(codec.encoded(), 1 + 2 + 1);
}

/// Numbers the messages that begin with `#`, and passes on the others.
struct NumbersSome(u32);

impl Stage for NumbersSome {
    type ReadIn = Bytes;
    type ReadOut = Bytes;
    type WriteIn = Bytes;
    type WriteOut = Bytes;

    fn read(&mut self, _: &mut StageContext<'_, Self>, message: Bytes) -> Result<Option<Bytes>> {
        Ok(Some(message))
    }

    fn write(&mut self, ctx: &mut StageContext<'_, Self>, message: Bytes) -> Result {
        if !message.starts_with(b"#") {
            return ctx.write(message);
        }
        ctx.encode_alone()?;
        self.0 += 1;
        ctx.write([format!("{} ", self.0).as_bytes(), &message].concat().into())
    }

    fn encoding_key(&self) -> Option<u64> {
        Some(0)
    }
}

/// A stage may share most encodings, and see some messages for each channel. Links behind it need
/// not know.
#[test]
fn a_stage_may_ask_for_each_channel_s_own_encoding_of_a_message() {
    let room: Room = ChannelGroup::new();
    let log = Log::new();
    let codec = Counting::new(true);
    let beats = || Heartbeat::new(Duration::from_secs(1), || Bytes::from_static(b"ping"));
    let pipeline = || Pipeline::codec(codec.clone()).stage(NumbersSome(0)).stage(beats());
    let mut members: Vec<_> =
        (0..3).map(|_| EmbeddedChannel::new(pipeline().handler(Recorder::new(&log)))).collect();
    members.iter_mut().for_each(|member| assert!(room.join(member.channel())));
    members[2].channel().write("#own".into()).unwrap();
    assert_eq!(broadcast(&room, "all", &mut members), all_written(3));
    assert_eq!(codec.encoded(), 1 + 1);
    assert_eq!(broadcast(&room, "#each", &mut members), all_written(3));
    assert_eq!(codec.encoded(), 1 + 1 + 3);
    let got: Vec<_> = members.iter_mut().map(EmbeddedChannel::read_outbound).collect();
    assert_eq!(got, ["all\n1 #each\n", "all\n1 #each\n", "1 #own\nall\n2 #each\n"]);
}

/// From 1 KiB on, pending bytes of a slow member are a reference to one shared copy. Shorter
/// messages are copied.
#[test]
fn large_messages_are_stored_once_for_all_members() {
    let room = ChannelGroup::new();
    let mut members: Vec<_> = (0..3).map(|_| member(&room, LengthField::u32())).collect();
    members.iter_mut().for_each(|member| member.set_outbound_room(Some(0)));
    let message = Bytes::from(vec![b'x'; 64 * 1024]);
    assert_eq!(broadcast(&room, message.clone(), &mut members), all_written(3));
    assert!(message.is_unique(), "the message was encoded once, into a new buffer");
    for member in &mut members {
        member.set_outbound_room(None);
        assert_eq!(member.read_outbound().len(), 4 + message.len());
    }
    // Without a header nothing is assembled, so the shared bytes are the message itself.
    let room = ChannelGroup::new();
    let mut members: Vec<_> = (0..3).map(|_| member(&room, RawBytes)).collect();
    members.iter_mut().for_each(|member| member.set_outbound_room(Some(0)));
    assert_eq!(broadcast(&room, message.clone(), &mut members), all_written(3));
    assert!(!message.is_unique(), "the members share the message");
    members.iter_mut().for_each(|member| member.set_outbound_room(None));
    assert!(message.is_unique());
}

/// A message that cannot be encoded does not close the members or call their handlers.
#[test]
fn a_message_that_cannot_be_encoded_is_in_the_report() {
    quiet_panics();
    let room: Room = ChannelGroup::new();
    let log = Log::new();
    let lines = || Pipeline::codec(Counting::new(true)).handler(Recorder::new(&log));
    let mut members: Vec<_> = (0..3).map(|_| EmbeddedChannel::new(lines())).collect();
    // This member encodes for itself, and fails after it has written half of the encoding.
    members.push(EmbeddedChannel::new(Pipeline::codec(Fussy::new()).handler(Recorder::new(&log))));
    members.iter_mut().for_each(|member| assert!(room.join(member.channel())));
    log.take();
    let report = broadcast(&room, "two\nlines", &mut members);
    assert_eq!(report, report_of(4, |report| report.failed = 4));
    let report = broadcast(&room, "fail", &mut members);
    assert_eq!(report, report_of(4, |report| (report.written, report.failed) = (3, 1)));
    assert!(log.take().is_empty(), "no handler is called");
    assert!(members.iter().all(EmbeddedChannel::is_open));
    assert_eq!(broadcast(&room, "well", &mut members), all_written(4));
    let got: Vec<_> = members.iter_mut().map(EmbeddedChannel::read_outbound).collect();
    assert_eq!(got, ["fail\nwell\n", "fail\nwell\n", "fail\nwell\n", "well\n"]);

    // A panic closes the channel in which it happens.
    let report = broadcast(&room, "panic", &mut members);
    assert_eq!(report, report_of(4, |report| (report.written, report.failed) = (3, 1)));
    assert!(members[3].is_closed() && members[..3].iter().all(EmbeddedChannel::is_open));
}

/// Panics while encoding, for all channels with the same key.
#[derive(Clone)]
struct Panics;

impl Codec for Panics {
    type Read = Bytes;
    type Write = Bytes;

    fn decode(&mut self, input: &mut Bytes) -> Result<Option<Bytes>> {
        RawBytes.decode(input)
    }

    fn encode(&mut self, message: Bytes, output: &mut OutboundBuffer) -> Result {
        output.put_slice(b"half of it");
        assert!(message != "panic", "on purpose");
        output.put(message);
        Ok(())
    }

    fn encoding_key(&self) -> Option<u64> {
        RawBytes.encoding_key()
    }
}

#[test]
fn a_shared_encoding_that_panics_costs_one_channel() {
    quiet_panics();
    let room = ChannelGroup::new();
    let mut members: Vec<_> = (0..3).map(|_| member(&room, Panics)).collect();
    members.iter_mut().for_each(|member| member.set_outbound_room(Some(0)));
    members.iter_mut().for_each(|member| {
        member.channel().write("before".into()).unwrap();
    });
    let report = broadcast(&room, "panic", &mut members);
    assert_eq!(report, report_of(3, |report| report.failed = 3));
    let mut failed: Vec<_> = members.extract_if(.., |member| !member.is_open()).collect();
    let [failed] = &mut failed[..] else { panic!("{} members are closing", failed.len()) };
    failed.set_outbound_room(None);
    assert_eq!(failed.read_outbound(), "half of itbefore", "nothing of the message that has panicked");
    assert!(failed.is_closed());
    assert_eq!(broadcast(&room, "after", &mut members), all_written(2));
    for member in members.iter_mut().filter(|member| !member.is_closed()) {
        member.set_outbound_room(None);
        assert_eq!(
            member.read_outbound(),
            "half of itbeforehalf of itafter",
            "the other messages are complete"
        );
    }
}
