//! Code shared by the examples: output that never blocks, rate limits, the descriptor limit.

#[path = "../../examples/im/descriptors.rs"]
#[allow(dead_code, reason = "the tests do not change the limit of this process")]
mod descriptors;

use crate::{
    output::{MAX_QUEUED, Queue},
    support::wait::PATIENCE,
    token_bucket::TokenBucket,
};
use descriptors::DescriptorLimit;
use std::{
    io::{self, Write},
    sync::mpsc::{Receiver, Sender, channel},
    time::{Duration, Instant},
};

/// A stream that passes text on. Each write blocks until the test allows it.
struct Gate {
    allowed: Receiver<io::Result<()>>,
    texts: Sender<String>,
}

impl Write for Gate {
    fn write(&mut self, text: &[u8]) -> io::Result<usize> {
        self.allowed.recv().unwrap_or_else(|_| Err(io::ErrorKind::BrokenPipe.into()))?;
        let _ = self.texts.send(String::from_utf8_lossy(text).into_owned());
        Ok(text.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

fn gate() -> (Sender<io::Result<()>>, Receiver<String>, std::sync::Arc<Queue>) {
    let (allow, allowed) = channel();
    let (texts, written) = channel();
    let queue = Queue::start("gate", move || Box::new(Gate { allowed, texts }));
    (allow, written, queue)
}

#[test]
fn a_blocked_stream_does_not_block_writers_and_memory_is_bounded() {
    let (allow, written, queue) = gate();
    let line = vec![b'x'; 1024];
    // Many times the capacity of the queue, while the only write is blocked.
    for _ in 0..10 * MAX_QUEUED / line.len() {
        queue.push(line.clone());
    }
    queue.wait_until_written(Instant::now());
    assert!(written.try_recv().is_err(), "nothing was written");
    let (pushed, mut lines, mut dropped) = (10 * MAX_QUEUED / line.len(), 0, 0);
    // The thread may report some of the dropped lines before the others are dropped.
    while lines + dropped < pushed {
        allow.send(Ok(())).unwrap();
        let text = written.recv_timeout(PATIENCE).expect("queued texts are written");
        match text.strip_prefix('(') {
            Some(report) => dropped += report.split(' ').next().unwrap().parse::<usize>().unwrap(),
            None => lines += 1,
        }
    }
    assert_eq!(lines + dropped, pushed, "each line was written or counted");
    assert_eq!(lines, MAX_QUEUED / line.len(), "a full queue");
    queue.push(b"later".to_vec());
    allow.send(Ok(())).unwrap();
    assert_eq!(written.recv_timeout(PATIENCE).as_deref(), Ok("later"));
}

#[test]
fn a_failing_stream_loses_only_its_own_lines() {
    let (allow, written, queue) = gate();
    for text in ["one", "two", "three"] {
        queue.push(text.into());
    }
    allow.send(Err(io::ErrorKind::BrokenPipe.into())).unwrap();
    allow.send(Err(io::ErrorKind::StorageFull.into())).unwrap();
    allow.send(Ok(())).unwrap();
    assert_eq!(written.recv_timeout(PATIENCE).as_deref(), Ok("three"));
    queue.wait_until_written(Instant::now() + PATIENCE);
    drop(allow);
    queue.push(b"four".to_vec());
    queue.wait_until_written(Instant::now() + PATIENCE);
    assert!(written.try_recv().is_err());
}

#[test]
fn a_token_bucket_allows_a_burst_and_then_its_rate() {
    let start = Instant::now();
    let mut bucket = TokenBucket::new(10, 20);
    assert_eq!(bucket.charge(20, start), Duration::ZERO, "initially full");
    assert_eq!(bucket.charge(1, start), Duration::from_millis(100));
    assert_eq!(bucket.charge(9, start), Duration::from_secs(1), "the debt accumulates");
    assert!(!bucket.take(start + Duration::from_secs(1)), "the debt is paid, but there is no token yet");
    assert!(bucket.take(start + Duration::from_millis(1100)), "a refused token was not charged");
    let later = start + Duration::from_secs(1000);
    assert_eq!(bucket.charge(20, later), Duration::ZERO, "never more than the burst");
    assert_eq!(bucket.charge(1, later), Duration::from_millis(100));
    let mut unlimited = TokenBucket::new(0, 0);
    assert_eq!(unlimited.charge(u32::MAX, start), Duration::ZERO);
}

#[test]
fn the_descriptor_limit_is_printed() {
    let text = |limit| DescriptorLimit(limit).to_string();
    assert_eq!(text(None), "open files: no limit");
    assert_eq!(text(Some(1024)), "open files: at most 1024, which allows about 960 connections");
    assert_eq!(text(Some(20)), "open files: at most 20; it must be more than 64 for a connection");
    assert_eq!(DescriptorLimit(Some(20)).connections(), Some(0));
}
