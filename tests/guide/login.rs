//! A stage that authenticates, from the guide's chapter about codecs and stages.

use bytes::Bytes;
use netwheel::{codec::Line, prelude::*, testing::EmbeddedChannel};

/// The name of the user, for the stages and the handler behind the login.
struct User(String);

/// Accepts messages after the first line has been checked as a token.
#[derive(Default)]
struct Login {
    done: bool,
}

/// Looks up the owner of a token. May block: it runs on a worker thread.
fn owner_of(token: &[u8]) -> Option<String> {
    (token == b"secret").then(|| "ann".to_owned())
}

impl Stage for Login {
    type ReadIn = Bytes;
    type ReadOut = Bytes;
    type WriteIn = Bytes;
    type WriteOut = Bytes;

    fn read(&mut self, ctx: &mut StageContext<'_, Self>, line: Bytes) -> Result<Option<Bytes>> {
        if self.done {
            return Ok(Some(line));
        }
        ctx.pause_reading();
        ctx.offload(
            move || owner_of(&line),
            |me, ctx, owner| {
                let Some(name) = owner? else {
                    ctx.write("wrong token".into())?;
                    ctx.close();
                    return Ok(());
                };
                ctx.attributes_mut().insert(User(name));
                me.done = true;
                ctx.resume_reading();
                Ok(())
            },
        )?;
        Ok(None)
    }

    fn write(&mut self, ctx: &mut StageContext<'_, Self>, line: Bytes) -> Result {
        ctx.write(line)
    }
}

fn greeter() -> EmbeddedChannel<Bytes> {
    let pipeline = Pipeline::codec(Line::new()).stage(Login::default()).on_read(|ctx, line| {
        let User(name) = ctx.attributes().get().ok_or("no user")?;
        let reply = format!("{name}: {}", String::from_utf8_lossy(&line));
        ctx.write(reply.into())
    });
    EmbeddedChannel::new(pipeline)
}

#[test]
fn requests_wait_until_the_token_has_been_checked() -> Result {
    let mut channel = greeter();
    channel.write_inbound(b"secret\nhello\n")?;
    assert!(channel.read_outbound().is_empty(), "the token is being checked");

    channel.run_pending();
    assert_eq!(channel.read_outbound(), "ann: hello\n");
    Ok(())
}

#[test]
fn a_wrong_token_closes_the_channel() -> Result {
    let mut channel = greeter();
    channel.write_inbound(b"guess\nhello\n")?;
    channel.run_pending();
    assert_eq!(channel.read_outbound(), "wrong token\n");
    assert!(channel.is_closed());
    Ok(())
}
