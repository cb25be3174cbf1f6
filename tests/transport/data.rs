//! Bytes over real sockets arrive complete and in order: T-01 to T-05, T-07.

use crate::over_each_transport;
use crate::support::{
    loops::{end, metrics, one_loop, turn_until},
    random::Random,
    recorder::{Event, Recorder, echo, read_bytes},
    servers::{Settings, dial, serve_at},
    streams::{RawStream, anywhere, connect},
    tcp::{assert_same, read_all, read_n},
};
use bytes::{Buf, Bytes};
use netwheel::{
    Codec,
    buffer::{OutboundBuffer, WaterMark},
    channel::ChannelOptions,
    codec::{Line, RawBytes},
    net::TcpOptions,
    prelude::*,
};
use std::{
    io::Write,
    sync::{
        Arc, Mutex,
        atomic::{AtomicU64, AtomicUsize, Ordering::SeqCst},
    },
    thread,
};

const MIB: usize = 1024 * 1024;

/// Echoes its input. With auto-read off, requests reads in `active` and in `read_complete`.
fn asking_echo(ctx: &mut Context<'_, Recorder>, event: &Event) -> Result {
    asking(ctx, event)?;
    echo(ctx, event)
}

/// With auto-read off, requests reads in `active` and in `read_complete`.
fn asking(ctx: &mut Context<'_, Recorder>, event: &Event) -> Result {
    if !ctx.auto_read() && matches!(event, Event::Active(_) | Event::ReadComplete) {
        ctx.read();
    }
    Ok(())
}

/// Sends from another thread, so that the test can read at the same time.
fn send_from_thread(stream: &RawStream, chunks: Vec<Bytes>) -> thread::JoinHandle<()> {
    let mut stream = stream.try_clone().unwrap();
    thread::spawn(move || chunks.iter().for_each(|chunk| stream.write_all(chunk).unwrap()))
}

fn reading(explicit: bool) -> Settings {
    if explicit { Settings::explicit_read() } else { Settings::new() }
}

// ---- T-01 --------------------------------------------------------------------------------------

#[track_caller]
fn random_bytes_are_echoed(explicit: bool) {
    let group = one_loop();
    let (server, at_server) = serve_at(anywhere(), &group, reading(explicit), RawBytes, asking_echo);
    let (channel, at_client) = dial(&group, server.local_address(), reading(explicit), asking);

    let mut random = Random::new(1);
    let sent = random.bytes(MIB);
    for chunk in random.chunks(&sent, 1, 64 * 1024 - 1) {
        channel.write(chunk).unwrap();
    }
    assert_same(&at_server.bytes(MIB), &sent);
    assert_same(&at_client.bytes(MIB), &sent);
    channel.close();
    assert_eq!(at_client.until_inactive().last(), Some(&Event::Inactive));
    assert_eq!(read_bytes(&at_server.until_inactive()), b"", "no byte is duplicated");
    end(&group);
}

fn t_01_random_bytes_with_auto_read() {
    random_bytes_are_echoed(false);
}

fn t_01_random_bytes_with_explicit_read() {
    random_bytes_are_echoed(true);
}

// ---- T-02 --------------------------------------------------------------------------------------

/// A codec for frames of a fixed length, without a header.
#[derive(Clone)]
struct Fixed(usize);

impl Codec for Fixed {
    type Read = Bytes;
    type Write = Bytes;

    fn decode(&mut self, input: &mut Bytes) -> Result<Option<Bytes>> {
        Ok((input.remaining() >= self.0).then(|| input.split_to(self.0)))
    }

    fn encode(&mut self, message: Bytes, output: &mut OutboundBuffer) -> Result {
        assert_eq!(message.len(), self.0);
        output.put(message);
        Ok(())
    }
}

#[track_caller]
fn fixed_frames_are_echoed(explicit: bool) {
    const FRAME: usize = 1024;
    let group = one_loop();
    let (server, at_server) = serve_at(anywhere(), &group, reading(explicit), Fixed(FRAME), asking_echo);

    let mut random = Random::new(2);
    let sent = random.bytes(1024 * FRAME);
    let mut stream = connect(&server);
    let sender = send_from_thread(&stream, random.chunks(&sent, 1, 16 * 1024));
    assert_same(&read_n(&mut stream, sent.len()), &sent);
    sender.join().unwrap();
    for frame in sent.chunks(FRAME) {
        assert_same(&at_server.message(), frame);
    }
    end(&group);
}

fn t_02_fixed_frames_with_auto_read() {
    fixed_frames_are_echoed(false);
}

fn t_02_fixed_frames_with_explicit_read() {
    fixed_frames_are_echoed(true);
}

// ---- T-03 --------------------------------------------------------------------------------------

#[track_caller]
fn lines_are_echoed(explicit: bool) {
    let group = one_loop();
    let (server, at_server) = serve_at(anywhere(), &group, reading(explicit), Line::new(), asking_echo);

    let mut random = Random::new(3);
    let lines: Vec<String> = (0..1024)
        .map(|_| {
            let length = random.between(0, 511);
            (0..length).map(|_| random.between(0x20, 0x7e) as u8 as char).collect()
        })
        .collect();
    let mut wire = Vec::new();
    for line in &lines {
        wire.extend_from_slice(line.as_bytes());
        wire.extend_from_slice(if random.between(0, 1) == 0 { b"\n" } else { b"\r\n" });
    }
    let answer: String = lines.iter().flat_map(|line| [line.as_str(), "\n"]).collect();

    let mut stream = connect(&server);
    // Short chunks, so that many line terminators are split.
    let sender = send_from_thread(&stream, random.chunks(&wire.into(), 1, 700));
    assert_same(&read_n(&mut stream, answer.len()), answer.as_bytes());
    sender.join().unwrap();
    for line in &lines {
        assert_eq!(at_server.message(), line);
    }
    end(&group);
}

fn t_03_lines_with_auto_read() {
    lines_are_echoed(false);
}

fn t_03_lines_with_explicit_read() {
    lines_are_echoed(true);
}

// ---- T-04 --------------------------------------------------------------------------------------

#[track_caller]
fn many_small_writes_arrive(total: usize) {
    let group = one_loop();
    let mut random = Random::new(4);
    let sent = random.bytes(total);
    // The sizes include messages that are copied and messages that are kept.
    let writes = random.chunks(&sent, 1, 8 * 1024 - 1);
    let settings = Settings::channel(ChannelOptions::new().max_outbound(total));
    let (server, events) = serve_at(anywhere(), &group, settings, RawBytes, move |ctx, event| {
        if matches!(event, Event::Active(_)) {
            for chunk in &writes {
                ctx.write(chunk.clone())?;
            }
            assert_eq!(ctx.pending_bytes(), total);
            ctx.write(Bytes::new())?;
            ctx.close();
        }
        Ok(())
    });
    let mut stream = connect(&server);
    assert_same(&read_all(&mut stream), &sent);
    drop(stream);
    let errors = events.until_inactive().into_iter().find(|event| matches!(event, Event::Error(_)));
    assert_eq!(errors, None);
    end(&group);
}

fn t_04_a_mebibyte_of_small_writes() {
    many_small_writes_arrive(MIB);
}

fn t_04_fifty_mebibytes_of_small_writes() {
    many_small_writes_arrive(50 * MIB);
}

// ---- T-05 --------------------------------------------------------------------------------------

#[track_caller]
fn partial_writes_lose_nothing(seed: u64, writes_per_turn: usize) {
    let group = one_loop();
    let mut random = Random::new(seed);
    let sent = random.bytes(2 * MIB);
    let mut rest = sent.clone();
    let mut parts = Vec::new();
    while !rest.is_empty() {
        // Many small messages, which are copied together, some around the size from which messages
        // are kept, and large ones.
        let n = match random.between(0, 3) {
            0 | 1 => random.between(1, 300),
            2 => random.between(3 * 1024, 5 * 1024),
            _ => random.between(8 * 1024, 40 * 1024),
        };
        parts.push(rest.split_to(n.min(rest.len())));
    }
    let settings = Settings {
        channel: ChannelOptions::new().writes_per_turn(writes_per_turn),
        tcp: TcpOptions::new().send_buffer(1024),
    };
    // Parts are written in bursts whenever the buffer has fallen below its low water mark, so new
    // chunks are queued behind half-sent ones.
    let parts = Mutex::new(parts.into_iter());
    let (server, events) = serve_at(anywhere(), &group, settings, RawBytes, move |ctx, event| {
        if matches!(event, Event::Active(_) | Event::Writable(true)) {
            let mut parts = parts.lock().unwrap();
            while ctx.is_writable() {
                let Some(part) = parts.next() else {
                    ctx.close();
                    break;
                };
                ctx.write(part)?;
            }
        }
        Ok(())
    });
    let mut stream = connect(&server);
    // A peer that reads at once could keep up with a writer that makes one write per turn.
    turn_until(&group, |metrics| metrics.writes_blocked > 0);
    assert_same(&read_all(&mut stream), &sent);
    drop(stream);
    events.until_inactive();
    assert_eq!(metrics(&group).bytes_written, sent.len() as u64);
    end(&group);
}

fn t_05_partial_writes() {
    partial_writes_lose_nothing(5, 16);
}

fn t_05_partial_writes_one_per_turn() {
    partial_writes_lose_nothing(55, 1);
}

fn t_05_a_writer_whose_peer_does_not_read_waits_for_the_event() {
    let group = one_loop();
    let (server, _events) =
        serve_at(anywhere(), &group, Settings::new(), RawBytes, |ctx, event| match event {
            Event::Active(_) => ctx.write(vec![0; 12 * MIB].into()),
            _ => Ok(()),
        });
    let stream = connect(&server);
    turn_until(&group, |metrics| metrics.writes_blocked > 0);
    // The kernel may still make some room. After that, no further writes are attempted, however
    // often the loop turns.
    let last = AtomicU64::new(0);
    turn_until(&group, |metrics| last.swap(metrics.writes, SeqCst) == metrics.writes);
    drop(stream);
    end(&group);
}

// ---- T-07 --------------------------------------------------------------------------------------

fn t_07_a_writer_that_follows_writability_never_stalls() {
    const HIGH: usize = 16 * 1024;
    const CHUNK: usize = 3 * 1024;
    const TOTAL: usize = 100 * MIB / CHUNK * CHUNK;

    let group = one_loop();
    let chunk = Random::new(7).bytes(CHUNK);
    let mark = WaterMark::new(8 * 1024, HIGH).unwrap();
    let left = AtomicUsize::new(TOTAL / CHUNK);
    let most = Arc::new(AtomicUsize::new(0));
    let (message, most_pending) = (chunk.clone(), most.clone());
    let settings = Settings::channel(ChannelOptions::new().water_mark(mark));
    let (server, events) = serve_at(anywhere(), &group, settings, RawBytes, move |ctx, event| {
        if matches!(event, Event::Active(_) | Event::Writable(true)) {
            while ctx.is_writable() && left.load(SeqCst) > 0 {
                left.fetch_sub(1, SeqCst);
                ctx.write(message.clone())?;
                most_pending.fetch_max(ctx.pending_bytes(), SeqCst);
            }
            if left.load(SeqCst) == 0 {
                ctx.close();
            }
        }
        Ok(())
    });

    let mut stream = connect(&server);
    let expected = Vec::from_iter(std::iter::repeat_n(&chunk[..], 64).flatten().copied());
    let mut came = 0;
    while came < TOTAL {
        let n = expected.len().min(TOTAL - came);
        assert_same(&read_n(&mut stream, n), &expected[..n]);
        came += n;
    }
    assert_eq!(read_all(&mut stream), b"");

    let most = most.load(SeqCst);
    assert!(most > HIGH && most <= HIGH + CHUNK, "{most} bytes were pending");
    let flips: Vec<bool> = events
        .until_inactive()
        .into_iter()
        .filter_map(|event| if let Event::Writable(writable) = event { Some(writable) } else { None })
        .collect();
    assert!(flips.len() > 100, "{} flips", flips.len());
    let alternating = flips.iter().enumerate().all(|(n, writable)| *writable == (n % 2 == 1));
    assert!(alternating, "one event for each change, the first to not writable");
    end(&group);
}

over_each_transport! {
    t_01_random_bytes_with_auto_read,
    t_01_random_bytes_with_explicit_read,
    t_02_fixed_frames_with_auto_read,
    t_02_fixed_frames_with_explicit_read,
    t_03_lines_with_auto_read,
    t_03_lines_with_explicit_read,
    t_04_a_mebibyte_of_small_writes,
    t_04_fifty_mebibytes_of_small_writes,
    t_05_partial_writes,
    t_05_partial_writes_one_per_turn,
    t_05_a_writer_whose_peer_does_not_read_waits_for_the_event,
    t_07_a_writer_that_follows_writability_never_stalls,
}
