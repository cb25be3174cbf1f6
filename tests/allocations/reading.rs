//! Memory that remains in use after reads: D-13, and C-62 with read buffers that belong to the
//! loop.

use crate::support::{
    loops::{end, one_loop, some_turns},
    tcp::{ANY_PORT, connect, read_n},
};
use crate::{heap, own_process};
use bytes::Bytes;
use netwheel::{codec::LengthField, prelude::*};
use std::{
    io::Write,
    sync::{Arc, Mutex},
};

const KIB: usize = 1024;
const MIB: usize = 1024 * KIB;

/// Returns the number of allocated bytes after the loop has become idle.
fn in_use(group: &EventLoopGroup) -> usize {
    some_turns(group);
    heap::bytes_in_use()
}

/// Answers each message with its length, and keeps short messages.
struct Keeper(Arc<Mutex<Vec<Bytes>>>);

impl Handler for Keeper {
    type Read = Bytes;
    type Write = Bytes;

    fn read(&mut self, ctx: &mut Context<'_, Self>, message: Bytes) -> Result {
        ctx.write(Bytes::copy_from_slice(&(message.len() as u32).to_be_bytes()))?;
        if message.len() < 100 {
            self.0.lock().unwrap().push(message);
        }
        Ok(())
    }
}

fn frame(len: usize) -> Vec<u8> {
    let mut frame = (len as u32).to_be_bytes().to_vec();
    frame.resize(4 + len, b'x');
    frame
}

/// D-13, among others: a slow trickle of bytes.
#[test]
fn kept_messages_hold_little_more_than_their_own_memory() {
    own_process!();
    let group = one_loop();
    let kept = Arc::new(Mutex::new(Vec::new()));
    let inner = kept.clone();
    let server = ServerBootstrap::new(&group)
        .pipeline(move |_| {
            let codec = LengthField::u32().max_len(16 * MIB);
            Pipeline::codec(codec).handler(Keeper(inner.clone()))
        })
        .bind(ANY_PORT)
        .unwrap();
    let mut stream = connect(server.local_address());
    let mut send = |bytes: &[u8], len: usize| {
        stream.write_all(bytes).unwrap();
        assert_eq!(read_n(&mut stream, 8)[4..], (len as u32).to_be_bytes());
    };
    send(&frame(1000), 1000);
    let begin = in_use(&group);

    // A long message and the beginning of the next one: no memory of the long one remains in use.
    let mut long = frame(8 * MIB);
    long.extend_from_slice(&frame(5000)[..1000]);
    send(&long, 8 * MIB);
    drop(long);
    let behind = in_use(&group);
    assert!(behind < begin + 200 * KIB, "{} bytes more than before a long message", behind - begin);
    send(&frame(5000)[1000..], 5000);

    // D-13: byte by byte, repeatedly.
    for _ in 0..20 {
        let bytes = frame(200);
        for byte in &bytes[..203] {
            stream.write_all(&[*byte]).unwrap();
        }
        stream.write_all(&bytes[203..]).unwrap();
        read_n(&mut stream, 8);
    }
    let behind = in_use(&group);
    assert!(behind < begin + 200 * KIB, "{} bytes more than before a trickle", behind - begin);

    // A thousand reads with one short message each, all of which are kept. None must hold a read
    // buffer of 64 KiB.
    for _ in 0..1000 {
        stream.write_all(&frame(20)).unwrap();
        read_n(&mut stream, 8);
    }
    let holding = in_use(&group);
    assert_eq!(kept.lock().unwrap().len(), 1000);
    assert!(holding < begin + 5 * MIB, "{} bytes more for 1000 messages of 20", holding - begin);
    kept.lock().unwrap().clear();

    drop(stream);
    end(&group);
}
