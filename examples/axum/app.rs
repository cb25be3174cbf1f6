//! The application: an ordinary `Router` of axum, which does not know its server.

use axum::{
    Json, Router,
    body::Body,
    extract::{ConnectInfo, Path, Query},
    http::{HeaderName, HeaderValue, StatusCode},
    response::{IntoResponse, Response},
    routing::{get, post, put},
};
use bytes::Bytes;
use futures_util::{StreamExt, stream};
use serde::{Deserialize, Serialize};
use std::{convert::Infallible, net::SocketAddr, time::Duration};
use tower_http::{set_header::SetResponseHeaderLayer, timeout::TimeoutLayer};

/// The time limit of a request until its response begins.
const PATIENCE: Duration = Duration::from_secs(10);

/// Returns the application.
pub fn router() -> Router {
    Router::new()
        .route("/", get(async || "Hello, world!\n"))
        .route("/hello/{name}", get(hello))
        .route("/search", get(search))
        .route("/sum", post(sum))
        .route("/count/{to}", get(count))
        .route("/upper", post(upper))
        .route("/length", put(length))
        .route("/slow", get(slow))
        .route("/handoff", get(handoff))
        .route("/me", get(me))
        .route("/panic", get(fail))
        .layer(TimeoutLayer::with_status_code(StatusCode::SERVICE_UNAVAILABLE, PATIENCE))
        .layer(SetResponseHeaderLayer::overriding(
            HeaderName::from_static("x-served-by"),
            HeaderValue::from_static("axum"),
        ))
}

/// A path parameter.
async fn hello(Path(name): Path<String>) -> String {
    format!("Hello, {name}!\n")
}

#[derive(Deserialize)]
struct Search {
    q: String,
    #[serde(default)]
    page: u32,
}

/// The parameters of a query.
async fn search(Query(search): Query<Search>) -> String {
    format!("page {} of {}\n", search.page, search.q)
}

#[derive(Serialize)]
struct Sum {
    count: usize,
    sum: i64,
}

/// JSON in both directions.
async fn sum(Json(numbers): Json<Vec<i64>>) -> Json<Sum> {
    Json(Sum { count: numbers.len(), sum: numbers.iter().sum() })
}

/// A body that is produced while it is sent.
async fn count(Path(to): Path<u64>) -> Body {
    Body::from_stream(stream::iter(1..=to).then(async |number| {
        if number % 1000 == 0 {
            tokio::task::yield_now().await;
        }
        Ok::<_, Infallible>(format!("{number}\n"))
    }))
}

/// Bodies that stream in both directions.
async fn upper(body: Body) -> Body {
    let upper = |chunk: Result<Bytes, axum::Error>| chunk.map(|bytes| bytes.to_ascii_uppercase());
    Body::from_stream(body.into_data_stream().map(upper))
}

/// A body that is read as it arrives.
async fn length(body: Body) -> Result<String, StatusCode> {
    let mut chunks = body.into_data_stream();
    let mut length = 0;
    while let Some(chunk) = chunks.next().await {
        length += chunk.map_err(|_| StatusCode::BAD_REQUEST)?.len();
    }
    Ok(format!("{length}\n"))
}

/// A response that waits for a timer of tokio.
async fn slow() -> &'static str {
    tokio::time::sleep(Duration::from_millis(50)).await;
    "slow\n"
}

/// The result of another task, as from a pool of connections to a database.
async fn handoff() -> Result<&'static str, StatusCode> {
    tokio::spawn(async { "done\n" }).await.map_err(|_| StatusCode::INTERNAL_SERVER_ERROR)
}

/// The address of the client, which the server provides.
async fn me(ConnectInfo(address): ConnectInfo<SocketAddr>) -> String {
    format!("{}\n", address.ip())
}

async fn fail() -> Response {
    if true {
        panic!("on purpose");
    }
    StatusCode::OK.into_response()
}
