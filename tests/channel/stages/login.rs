//! A login as a stage over sockets: a worker checks the password, and reading pauses in the
//! meantime.

use crate::support::{loops::end, wait::PATIENCE};
use bytes::Bytes;
use netwheel::{
    Stage, StageContext,
    codec::Line,
    pipeline::{AnyPipeline, Links, PipelineBuilder},
    prelude::*,
};
use std::{
    io::{BufRead, BufReader, Read, Write},
    net::TcpStream,
    sync::{
        Arc, Mutex,
        mpsc::{Receiver, channel},
    },
};

/// The answers of the database, which the test gives.
type Answers = Arc<Mutex<Receiver<Option<&'static str>>>>;

/// Passes no message on until the peer has logged in.
struct Login {
    answers: Answers,
    user: Option<&'static str>,
}

impl Stage for Login {
    type ReadIn = Bytes;
    type ReadOut = (&'static str, Bytes);
    type WriteIn = Bytes;
    type WriteOut = Bytes;

    fn read(&mut self, ctx: &mut StageContext<'_, Self>, line: Bytes) -> Result<Option<Self::ReadOut>> {
        if let Some(user) = self.user {
            return Ok(Some((user, line)));
        }
        let answers = self.answers.clone();
        ctx.pause_reading();
        ctx.offload(
            move || answers.lock().unwrap().recv_timeout(PATIENCE).unwrap_or(None),
            |me, ctx, user| {
                me.user = user?;
                match me.user {
                    Some(user) => {
                        ctx.resume_reading();
                        ctx.write(format!("welcome, {user}").into())
                    }
                    None => {
                        ctx.write("wrong password".into())?;
                        ctx.close();
                        Ok(())
                    }
                }
            },
        )?;
        Ok(None)
    }

    fn write(&mut self, ctx: &mut StageContext<'_, Self>, line: Bytes) -> Result {
        ctx.write(line)
    }
}

/// The part of the pipeline that both servers share.
fn wire(answers: &Answers) -> PipelineBuilder<impl Links<Read = (&'static str, Bytes), Write = Bytes>> {
    Pipeline::codec(Line::new()).stage(Login { answers: answers.clone(), user: None })
}

#[test]
fn requests_behind_a_login_wait_until_a_worker_has_checked_it() {
    let group = EventLoopGroup::builder().threads(1).build().unwrap();
    let (answer, answers) = channel();
    let answers = Arc::new(Mutex::new(answers));
    let shared = answers.clone();
    // The pipelines of a factory may differ in the message that their handlers write.
    let server = ServerBootstrap::new(&group)
        .pipeline(move |_| -> AnyPipeline {
            wire(&shared)
                .on_read(|ctx, (user, line)| ctx.write([user.as_bytes(), &line].concat().into()))
                .into_any()
        })
        .bind("127.0.0.1:0")
        .unwrap();
    let connect = || {
        let stream = TcpStream::connect(server.local_address().to_string()).unwrap();
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        BufReader::new(stream)
    };
    let line = |peer: &mut BufReader<TcpStream>| {
        let mut line = String::new();
        peer.read_line(&mut line).unwrap();
        line
    };

    let mut ann = connect();
    ann.get_mut().write_all(b"secret\n1\n2\n").unwrap();
    answer.send(Some("ann")).unwrap();
    assert_eq!([line(&mut ann), line(&mut ann), line(&mut ann)], ["welcome, ann\n", "ann1\n", "ann2\n"]);

    let mut eve = connect();
    eve.get_mut().write_all(b"guess\n1\n").unwrap();
    answer.send(None).unwrap();
    let mut rest = String::new();
    eve.read_to_string(&mut rest).unwrap();
    assert_eq!(rest, "wrong password\n", "her request is never delivered");
    end(&group);
}
