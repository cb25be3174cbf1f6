//! The node of the server: starts the example, and deploys it again and again.

use super::support::{Calm, Draw, SECOND, until_ok};
use crate::{chat_server::ChatServer, options::Options};
use clap::Parser;
use netwheel::{
    Result,
    testing::simulation::{sleep, sometimes},
};

pub(super) fn serve(calm: &Calm) -> Result {
    let options = Options::parse_from([
        "im_server",
        "--listen=10.0.0.1:9000",
        "--http=10.0.0.1:8080",
        "--threads=2",
        "--heartbeat=3s",
        "--idle-timeout=10s",
        "--ack-timeout=2s",
        "--login-timeout=5s",
        "--line-timeout=5s",
        "--close-timeout=3s",
        // The lookup is a sleep in real time.
        "--lookup-time=0s",
    ]);
    let mut draw = Draw::new();
    loop {
        let server = until_ok(|| ChatServer::start(&options));
        let listeners = until_ok(|| server.listen(&options));
        let mut left = 10 + draw.below(40);
        // A program that supervises the server starts it again if a listener has failed.
        while left > 0 && !listeners.iter().any(|closed| closed.is_done()) {
            sleep(SECOND);
            left -= u64::from(!calm.is_now());
        }
        sometimes("server deployed");
        let _ = server.shut_down(&options);
    }
}
