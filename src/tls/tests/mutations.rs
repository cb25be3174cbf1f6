//! Damaged handshakes and records: errors, never panics.
//!
//! `NETWHEEL_TLS_MUTATIONS` sets the number of cases (default 2,000, half for each version).

use super::{
    forger::Forger,
    pair::{End, VERSIONS, client_config, server_config, transfer},
};
use rustls::ContentType;
use std::{env, sync::Arc};

/// Returns the number of cases for each version.
fn cases() -> u64 {
    let total = env::var("NETWHEEL_TLS_MUTATIONS").ok().and_then(|n| n.parse().ok());
    total.unwrap_or(2000) / VERSIONS.len() as u64
}

/// Damages `bytes` in one to four places: bits, bytes, lengths, order.
fn damage(bytes: &mut Vec<u8>, random: &mut fastrand::Rng) {
    for _ in 0..random.usize(1..=4) {
        if bytes.is_empty() {
            return;
        }
        let at = random.usize(..bytes.len());
        // Headers are where most decisions are made.
        let at = if random.bool() { at.min(random.usize(..64)) } else { at };
        match random.u8(..7) {
            0 => bytes[at] ^= 1 << random.u8(..8),
            1 => bytes[at] = random.u8(..),
            2 => bytes.insert(at, random.u8(..)),
            3 => drop(bytes.remove(at)),
            4 => bytes.truncate(at),
            5 => {
                let end = random.usize(at..bytes.len());
                let copy = bytes[at..end].to_vec();
                bytes.splice(at..at, copy);
            }
            _ => bytes[at] = [0, 1, 0x7f, 0xff][random.usize(..4)],
        }
    }
}

/// Passes `bytes` in random segments, and writes in between.
fn receive(end: &mut End, bytes: &[u8], random: &mut fastrand::Rng) -> bool {
    let mut rest = bytes;
    while !rest.is_empty() {
        let (segment, later) = rest.split_at(random.usize(1..=rest.len()));
        rest = later;
        if end.receive(segment).is_err() {
            assert!(end.receive(later).is_err(), "the filter has failed for good");
            return false;
        }
        if random.u8(..8) == 0 {
            let _ = end.send(b"meanwhile", 9);
        }
        if random.u8(..64) == 0 {
            end.close();
        }
    }
    true
}

#[test]
fn damaged_handshakes_cause_no_panic() {
    for version in VERSIONS {
        let (client_config, server_config) =
            (Arc::new(client_config(version)), Arc::new(server_config(version)));
        let mut failed = 0;
        // A handshake costs more than a record.
        for case in 0..cases() / 4 {
            let random = &mut fastrand::Rng::with_seed(case);
            let mut client = End::client(client_config.clone());
            let mut server = End::server(server_config.clone());
            let damaged = random.u8(..4);
            for flight in 0..4 {
                let (from, to) =
                    if flight % 2 == 0 { (&mut client, &mut server) } else { (&mut server, &mut client) };
                let mut bytes = std::mem::take(&mut from.output).to_vec();
                if flight == damaged {
                    damage(&mut bytes, random);
                }
                if !receive(to, &bytes, random) {
                    failed += 1;
                    let _ = transfer(to, from, usize::MAX);
                    break;
                }
            }
        }
        assert!(failed > cases() / 16, "{failed} handshakes of {} failed", cases() / 4);
    }
}

#[test]
fn damaged_records_cause_no_panic() {
    for version in VERSIONS {
        let server_config = Arc::new(server_config(version));
        let mut failed = 0;
        for case in 0..cases() * 3 / 4 {
            let random = &mut fastrand::Rng::with_seed(case);
            let mut server = End::server(server_config.clone());
            let mut forger = Forger::of(version, &mut server);
            server.output.clear();
            let mut wire = Vec::new();
            // Valid encryption of invalid messages, and the reverse.
            for _ in 0..random.usize(1..6) {
                let mut payload: Vec<u8> = match random.u8(..5) {
                    0 => vec![24, 0, 0, 1, random.u8(..3)],
                    1 => vec![1, random.u8(..)],
                    2 => vec![random.u8(..); random.usize(..300)],
                    3 => vec![4, 0, 0, random.u8(..40), 0, 0, 1, 0],
                    _ => b"data".to_vec(),
                };
                if random.bool() {
                    damage(&mut payload, random);
                }
                let kind = [
                    ContentType::ApplicationData,
                    ContentType::Handshake,
                    ContentType::Alert,
                    ContentType::ChangeCipherSpec,
                ][random.usize(..4)];
                // A message in several records now and then.
                let cut = if random.u8(..4) == 0 { random.usize(..=payload.len()) } else { 0 };
                wire.extend(forger.record(kind, &payload[..cut]));
                wire.extend(forger.record(kind, &payload[cut..]));
            }
            if random.bool() {
                damage(&mut wire, random);
            }
            failed += u64::from(!receive(&mut server, &wire, random));
        }
        assert!(failed > cases() / 8, "{failed} of {} failed", cases() * 3 / 4);
    }
}
