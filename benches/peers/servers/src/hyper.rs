//! hyper's HTTP/1.1 server on tokio: one task for each connection, on the current thread.

mod options;
mod web;

use http_body_util::Full;
use hyper::{
    Request, Response,
    body::{Bytes, Incoming},
    header::{CONTENT_TYPE, HeaderValue},
    server::conn::http1,
    service::service_fn,
};
use hyper_util::rt::TokioIo;
use options::{Mode, Options};
use std::{convert::Infallible, io};
use tokio::{net::TcpListener, runtime::Builder, task::LocalSet};

async fn answer(_: Request<Incoming>) -> Result<Response<Full<Bytes>>, Infallible> {
    let mut response = Response::new(Full::new(Bytes::from_static(web::BODY.as_bytes())));
    response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static(web::CONTENT_TYPE));
    Ok(response)
}

async fn serve(options: Options) -> io::Result<()> {
    let listener = TcpListener::from_std(options.listen()?)?;
    loop {
        let Ok((stream, _)) = listener.accept().await else { continue };
        stream.set_nodelay(true)?;
        // One flush for all responses to pipelined requests. Without it, each response is a system
        // call.
        let connection = http1::Builder::new()
            .pipeline_flush(true)
            .serve_connection(TokioIo::new(stream), service_fn(answer));
        tokio::task::spawn_local(async move {
            // An error closes the connection, which the load generator reports.
            let _ = connection.await;
        });
    }
}

fn main() -> io::Result<()> {
    let options = Options::of(1, &[Mode::Http])?;
    let runtime = Builder::new_current_thread().enable_all().build()?;
    runtime.block_on(LocalSet::new().run_until(serve(options)))
}
