//! An HTTP agent on simulated machines: names, retries over restarts and bad networks, streams.

use netwheel::{
    http::{Body, HttpServer, Part, Request, Response, StatusCode},
    pool::HttpAgent,
    prelude::*,
    reconnect::Backoff,
    testing::simulation::{Simulation, sleep},
};
use std::{
    sync::{
        Arc,
        atomic::{AtomicU32, Ordering},
    },
    time::Duration,
};

const SECOND: Duration = Duration::from_secs(1);

/// Answers with the host and the number of the request; every third request fails.
fn serve(name: &'static str, address: &'static str, requests: Arc<AtomicU32>) -> Result {
    let group = EventLoopGroup::builder().threads(1).build()?;
    let http = HttpServer::new();
    let server = ServerBootstrap::new(&group)
        .pipeline(move |_peer| {
            let requests = requests.clone();
            http.pipeline().on_read(move |ctx, part| {
                let Part::Head(request) = part else { return Ok(()) };
                assert_eq!(request.host(), Some(name));
                match requests.fetch_add(1, Ordering::Relaxed) % 3 {
                    2 => ctx.write(Response::from(StatusCode::SERVICE_UNAVAILABLE).into()),
                    _ => ctx.write(Response::ok(Body::Full(vec![7; 100_000].into())).into()),
                }
            })
        })
        .bind(address)?;
    server.closed().wait()
}

/// The seeds of the runs, each of which restarts a server and partitions another one.
#[test]
fn requests_to_several_names_survive_a_restart_and_a_partition() {
    for seed in 1..=10 {
        let mut simulation = Simulation::new(seed);
        let requests = Arc::new(AtomicU32::new(0));
        let (first, second) = (requests.clone(), requests.clone());
        let a = simulation
            .node("a.example", "10.0.0.1", move || serve("a.example", "10.0.0.1:80", first.clone()));
        let b = simulation
            .node("b.example", "10.0.0.2", move || serve("b.example", "10.0.0.2:8080", second.clone()));
        let client = simulation.node("client", "10.0.0.3", || {
            let group = EventLoopGroup::builder().threads(1).build()?;
            let bootstrap = ClientBootstrap::new(&group).connect_timeout(SECOND);
            let agent = HttpAgent::builder(bootstrap).connections_per_host(2).build()?;
            for round in 0..20 {
                for url in ["http://a.example/x", "http://b.example:8080/y"] {
                    let request = agent
                        .request(Request::get(url))
                        .timeout(60 * SECOND)
                        .attempt_timeout(2 * SECOND)
                        .retries(60)
                        .retry_status(StatusCode::SERVICE_UNAVAILABLE)
                        .backoff(Backoff::new().initial(SECOND / 10).max_delay(SECOND));
                    if round % 2 == 0 {
                        assert_eq!(request.send().wait()?.body.len(), 100_000);
                    } else if let Ok(mut response) = request.stream().wait() {
                        // The network may cut it.
                        let mut length = 0;
                        while let Ok(Some(bytes)) = response.body.next().wait() {
                            length += bytes.len();
                        }
                        assert!(length <= 100_000);
                    }
                }
                sleep(SECOND / 4);
            }
            assert!(agent.connections() <= 4);
            Ok(())
        });
        simulation.run_for(2 * SECOND).unwrap();
        simulation.kill(a);
        simulation.cut(client, b, SECOND);
        simulation.run_for(SECOND).unwrap();
        simulation.restart(a);
        simulation.run_until_ended(client, 600 * SECOND).unwrap();
        assert!(requests.load(Ordering::Relaxed) >= 40);
    }
}
