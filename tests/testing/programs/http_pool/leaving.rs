//! Calls to a server that closes each connection after its response, without saying so before.

use super::super::support::{MS, SECOND, explore, until_ok};
use netwheel::{
    codec::RawBytes,
    http::{HttpClient, Request},
    prelude::*,
    testing::simulation::{Faults, Simulation, sleep, sometimes},
};

const CALLS: usize = 50;

fn serve() -> Result {
    let group = EventLoopGroup::builder().threads(1).build()?;
    let server = ServerBootstrap::new(&group)
        .pipeline(|_peer| {
            Pipeline::codec(RawBytes).on_read(|ctx, _request| {
                ctx.write("HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok".into())?;
                ctx.close();
                Ok(())
            })
        })
        .bind("10.0.0.1:80")?;
    server.closed().wait()
}

fn call() -> Result {
    let group = EventLoopGroup::builder().threads(1).build()?;
    let http = HttpClient::new().host("leaving");
    let pool = ClientBootstrap::new(&group)
        .pipeline(move |_peer| http.calls(1024))
        .pool()
        .size(2)
        .build("10.0.0.1:80")?;
    for n in 0..CALLS {
        let response = until_ok(|| pool.request(Request::get("/")).timeout(60 * SECOND).send().wait());
        assert_eq!(response.body, "ok");
        sleep(n as u32 % 3 * MS);
    }
    sometimes("all calls have ended");
    Ok(())
}

/// A call that ends in its second attempt, while the thread that makes it still begins the first
/// one, must not set the limit of a step twice.
#[test]
fn calls_are_repeated_while_their_threads_begin_them() {
    let faults = Faults::none().rate("thread-preempted", 50_000).rate("loop-preempted", 50_000);
    explore(5, faults, &["all calls have ended"], |simulation: &mut Simulation| {
        simulation.node("server", "10.0.0.1", serve);
        let client = simulation.node("client", "10.0.0.2", call);
        simulation.run_until_ended(client, 600 * SECOND)
    });
}
