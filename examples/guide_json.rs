//! A calculator that speaks JSON: the program of the guide's chapter about codecs and stages.
//!
//! ```text
//! cargo run --example guide_json --features json
//! nc 127.0.0.1 7000
//! {"add":[1,2,3]}
//! ```

use netwheel::{
    codec::Line,
    pipeline::{Links, PipelineBuilder},
    prelude::*,
    shutdown::ShutdownOptions,
    stage::Json,
};
use serde::{Deserialize, Serialize};
use std::time::Duration;

#[derive(Deserialize)]
#[serde(rename_all = "snake_case")]
enum Request {
    Add(Vec<f64>),
    Quit,
}

#[derive(Serialize)]
#[serde(rename_all = "snake_case")]
enum Reply {
    Sum(f64),
    Error(String),
    Bye,
}

/// The part that all pipelines of this program share: lines, an idle timeout and JSON.
fn messages() -> PipelineBuilder<impl Links<Read = Request, Write = Reply>> {
    Pipeline::codec(Line::new().max_len(4096))
        .idle(IdleTimeouts::new().reader(Duration::from_secs(60)))
        .stage(Json::new())
}

struct Calculator;

impl Handler for Calculator {
    type Read = Request;
    type Write = Reply;

    fn read(&mut self, ctx: &mut Context<'_, Self>, request: Request) -> Result {
        match request {
            Request::Add(numbers) => ctx.write(Reply::Sum(numbers.iter().sum())),
            Request::Quit => ctx.close_with(Reply::Bye),
        }
    }

    fn error(&mut self, ctx: &mut Context<'_, Self>, error: Error) -> Result {
        if error.is_peer() {
            return ctx.write(Reply::Error(format!("{error:#}")));
        }
        Err(error)
    }
}

fn main() -> Result {
    let address = std::env::args().nth(1).unwrap_or("127.0.0.1:7000".to_owned());
    let group = EventLoopGroup::new()?;
    let server =
        ServerBootstrap::new(&group).pipeline(|_peer| messages().handler(Calculator)).bind(&*address)?;

    let stop = server.clone();
    ctrlc::set_handler(move || stop.close().detach()).map_err(Error::other)?;
    println!("listening on {}", server.local_address());
    server.closed().wait()?;
    let report = group.shutdown(ShutdownOptions::new().timeout(Duration::from_secs(5))).wait()?;
    println!("{report}");
    Ok(())
}
