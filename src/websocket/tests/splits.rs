//! Properties of any input: splits do not matter, and nothing panics.

use super::support::{
    Decoded, FIN, client_codec, close_payload, frame, limited_codec, server_codec, settings,
};
use crate::websocket::{frame::WebSocketCodec, message::Message};
use proptest::prelude::*;

/// A frame that is usually valid.
fn any_frame(masked: bool) -> impl Strategy<Value = Vec<u8>> {
    let opcode = prop_oneof![4 => Just(1), 2 => Just(2), 4 => Just(0), 1 => 8..=10_u8, 1 => any::<u8>()];
    let payload = prop_oneof![
        4 => "\\PC{0,30}".prop_map(String::into_bytes),
        1 => prop::collection::vec(any::<u8>(), 0..10),
        1 => (900..5100_u16, "[a-z]{0,5}").prop_map(|(code, text)| close_payload(code, &text)),
        1 => (100..300_usize).prop_map(|len| vec![b'x'; len]),
    ];
    (opcode, any::<bool>(), payload, prop::bool::weighted(0.02)).prop_map(
        move |(opcode, fin, payload, wrong)| {
            let fin = if fin || opcode & 0x08 != 0 { FIN } else { 0 };
            frame(fin | opcode, masked != wrong, &payload)
        },
    )
}

fn stream(masked: bool) -> impl Strategy<Value = Vec<u8>> {
    prop::collection::vec(any_frame(masked), 0..8).prop_map(|frames| frames.concat())
}

/// Returns the decoded messages, with the number of bytes after which the error is known.
fn reference(codec: WebSocketCodec, bytes: &[u8]) -> Decoded {
    let each: Vec<usize> = (1..bytes.len()).collect();
    Decoded::of(codec, bytes, &each).0
}

fn agrees(whole: &Decoded, split: &Decoded, cuts: &[usize], len: usize) -> Result<(), TestCaseError> {
    prop_assert_eq!(&whole.messages, &split.messages);
    // The error comes with the read that contains its byte.
    let expected = whole
        .error
        .clone()
        .map(|(error, at)| (error, cuts.iter().copied().find(|cut| *cut >= at).unwrap_or(len)));
    prop_assert_eq!(&split.error, &expected);
    Ok(())
}

proptest! {
    /// D-35
    #[test]
    fn any_split_gives_the_same_messages_and_the_same_error(
        bytes in stream(true),
        cuts in prop::collection::vec(any::<prop::sample::Index>(), 0..6),
    ) {
        let whole = reference(server_codec(), &bytes);
        let mut cuts: Vec<usize> = cuts.iter().map(|cut| cut.index(bytes.len() + 1)).collect();
        cuts.sort_unstable();
        let (split, _) = Decoded::of(server_codec(), &bytes, &cuts);
        agrees(&whole, &split, &cuts, bytes.len())?;
    }

    #[test]
    fn any_split_of_a_server_s_frames_gives_the_same_messages(
        bytes in stream(false),
        cuts in prop::collection::vec(any::<prop::sample::Index>(), 0..6),
    ) {
        let whole = reference(client_codec(), &bytes);
        let mut cuts: Vec<usize> = cuts.iter().map(|cut| cut.index(bytes.len() + 1)).collect();
        cuts.sort_unstable();
        let (split, _) = Decoded::of(client_codec(), &bytes, &cuts);
        agrees(&whole, &split, &cuts, bytes.len())?;
    }
}

/// Random and mutated input. `NETWHEEL_FUZZ_CASES` sets the number of cases.
#[test]
fn no_input_makes_the_codec_panic_or_exceed_its_limits() {
    let cases = std::env::var("NETWHEEL_FUZZ_CASES").map_or(10_000, |cases| cases.parse().unwrap());
    let settings = settings().max_message(200).max_fragments(5);
    let mut random = fastrand::Rng::with_seed(17);
    for _ in 0..cases {
        let mut bytes = Vec::new();
        for _ in 0..random.usize(..6) {
            let payload: Vec<u8> = (0..random.usize(..260)).map(|_| random.u8(32..=127)).collect();
            let opcode = random.choice([0, 1, 1, 2, 8, 9, 10]).unwrap_or(1);
            let fin = if random.bool() { FIN } else { 0 };
            bytes.extend(frame(fin | opcode, true, &payload));
        }
        for _ in 0..random.usize(..4) {
            if !bytes.is_empty() {
                let at = random.usize(..bytes.len());
                bytes[at] = random.u8(..);
            }
        }
        let mut cuts: Vec<usize> = (0..random.usize(..4)).map(|_| random.usize(..=bytes.len())).collect();
        cuts.sort_unstable();
        let (decoded, calls) = Decoded::of(limited_codec(settings.clone()), &bytes, &cuts);
        assert!(calls <= bytes.len() + cuts.len() + 1);
        for message in decoded.messages {
            match message {
                Message::Text(text) => assert!(text.len() <= 200),
                Message::Binary(data) => assert!(data.len() <= 200),
                Message::Ping(data) | Message::Pong(data) => assert!(data.len() <= 125),
                Message::Close(_) => {}
            }
        }
    }
}
