#![doc = include_str!("links.md")]
#![doc = ""]
#![doc = include_str!("../../docs/guide/README.md")]
// The pages link each other with labels that they define at their end, as files: these links work
// on GitHub. `links.md` comes first and defines the same labels as modules. The first definition of
// a label counts, so the links also work in rustdoc. `tests/repository/guide.rs` checks the labels.

/// Declares a module for each chapter, whose documentation is the chapter.
macro_rules! chapters {
    ($($module:ident: $file:literal,)*) => {$(
        #[doc = include_str!("links.md")]
        #[doc = ""]
        #[doc = include_str!(concat!("../../docs/guide/", $file))]
        pub mod $module {}
    )*};
}

chapters! {
    getting_started: "getting-started.md",
    chat: "chat.md",
    codecs_and_stages: "codecs-and-stages.md",
    filters: "filters.md",
    tls: "tls.md",
    http: "http.md",
    axum: "axum.md",
    websocket: "websocket.md",
    browser_chat: "browser-chat.md",
    timers: "timers.md",
    clients: "clients.md",
    datagrams: "datagrams.md",
    event_sources: "event-sources.md",
    resp: "resp.md",
    redis: "redis.md",
    durable_timers: "durable-timers.md",
    nodes: "nodes.md",
    backpressure: "backpressure.md",
    storms: "storms.md",
    threads: "threads.md",
    errors: "errors.md",
    testing: "testing.md",
    simulation: "simulation.md",
    operations: "operations.md",
    deployment: "deployment.md",
    coming_from_netty: "coming-from-netty.md",
    coming_from_tokio: "coming-from-tokio.md",
    coming_from_gnet: "coming-from-gnet.md",
    names: "names.md",
}
