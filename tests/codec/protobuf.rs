//! The stage `Protobuf` behind the codec `Varint`.

use netwheel::{codec::Varint, error::PeerError, prelude::*, stage::Protobuf, testing::EmbeddedChannel};
use prost::Message;

#[derive(Clone, PartialEq, Message)]
struct Question {
    #[prost(uint32, tag = "1")]
    number: u32,
    #[prost(string, tag = "2")]
    text: String,
}

#[derive(Clone, PartialEq, Message)]
struct Answer {
    #[prost(message, optional, tag = "1")]
    question: Option<Question>,
    #[prost(string, optional, tag = "2")]
    problem: Option<String>,
}

/// Answers questions with themselves, and errors with their text.
struct Oracle;

impl Handler for Oracle {
    type Read = Question;
    type Write = Answer;

    fn read(&mut self, ctx: &mut Context<'_, Self>, question: Question) -> Result {
        ctx.write(Answer { question: Some(question), problem: None })
    }

    fn error(&mut self, ctx: &mut Context<'_, Self>, error: Error) -> Result {
        assert!(matches!(error, Error::Peer(PeerError::Malformed(_))), "{error}");
        ctx.write(Answer { question: None, problem: Some(format!("{error:#}")) })
    }
}

#[test]
fn messages_are_read_and_written_at_every_split_and_after_an_error() {
    let questions = [
        Question { number: 7, text: "why".into() },
        Question::default(),
        Question { number: u32::MAX, text: "x".repeat(1000) },
    ];
    let malformed = b"\x03\x12\x01\xFF";
    let stream = [
        questions[0].encode_length_delimited_to_vec(),
        questions[1].encode_length_delimited_to_vec(),
        malformed.to_vec(),
        questions[2].encode_length_delimited_to_vec(),
    ]
    .concat();
    for size in [1, 2, 3, 7, stream.len()] {
        let pipeline = Pipeline::codec(Varint::new()).stage(Protobuf::<Question, Answer>::new());
        let mut channel = EmbeddedChannel::new(pipeline.handler(Oracle));
        for chunk in stream.chunks(size) {
            channel.write_inbound(chunk).unwrap();
        }
        let mut output = channel.read_outbound();
        let mut answers = Vec::new();
        while !output.is_empty() {
            answers.push(Answer::decode_length_delimited(&mut output).unwrap());
        }
        let problem = answers.remove(2).problem.expect("an error");
        assert!(problem.contains("malformed message: Question.text: "), "{problem}");
        let answered: Vec<_> = answers.into_iter().filter_map(|answer| answer.question).collect();
        assert_eq!(answered, questions);
    }
}
