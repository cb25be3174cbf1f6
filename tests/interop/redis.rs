//! The programs of Redis: its clients against the example `resp_server`, and our codec against its
//! server.

use crate::{
    interop::files::Files,
    support::{
        process::{Process, are_installed, example},
        tcp::{ANY_PORT, connect},
        wait::PATIENCE,
    },
};
use bytes::{Bytes, BytesMut};
use netwheel::{
    Codec,
    buffer::OutboundBuffer,
    codec::{Resp, RespLimits, RespValue},
};
use std::{
    io::{Read, Write},
    os::unix::net::UnixStream,
    process::Command,
};

/// A running `resp_server`.
struct RespServer {
    process: Process,
    port: String,
}

impl RespServer {
    fn start(arguments: &[&str]) -> Self {
        let program = example("resp_server");
        let own = [program.to_str().unwrap(), "--listen", ANY_PORT];
        let mut process = Process::start(&[&own, arguments].concat());
        let port = process.stdout.wait_for("listening on 127.0.0.1:");
        RespServer { process, port }
    }

    /// Returns what `redis-cli` prints, without the last line break.
    #[track_caller]
    fn cli(&self, arguments: &[&str]) -> String {
        let cli = Command::new("redis-cli").args(["--no-raw", "-p", &self.port]).args(arguments).output();
        let cli = cli.unwrap();
        assert!(cli.status.success(), "{cli:?}");
        String::from_utf8(cli.stdout).unwrap().trim_end_matches('\n').to_owned()
    }

    /// Sends bytes, and returns the answers until the server closes the connection.
    fn answers(&self, request: &[u8]) -> String {
        let mut stream = connect(format!("127.0.0.1:{}", self.port).parse().unwrap());
        stream.write_all(request).unwrap();
        let mut answers = String::new();
        stream.read_to_string(&mut answers).unwrap();
        answers
    }

    /// Interrupts the server, which must end without a complaint.
    #[track_caller]
    fn stop(self) {
        self.process.signal("INT");
        let (_, errors) = self.process.succeed();
        assert_eq!(errors, "");
    }
}

#[test]
fn redis_cli_uses_our_server_with_both_versions() {
    if !are_installed(&["redis-cli"]) {
        return;
    }
    let server = RespServer::start(&[]);
    for version in ["-2", "-3"] {
        let cli = |arguments: &[&str]| server.cli(&[&[version], arguments].concat());
        assert_eq!(cli(&["PING"]), "PONG");
        assert_eq!(cli(&["ping", "hello there"]), "\"hello there\"");
        assert_eq!(cli(&["ECHO", "a\r\nb"]), "\"a\\r\\nb\"");
        assert_eq!(cli(&["SET", "colour", "blue"]), "OK");
        assert_eq!(cli(&["GET", "colour"]), "\"blue\"");
        assert_eq!(cli(&["GET", "nothing"]), "(nil)");
        assert_eq!(cli(&["INCR", "visits"]), "(integer) 1");
        assert_eq!(cli(&["INCR", "visits"]), "(integer) 2");
        assert_eq!(cli(&["INCR", "colour"]), "(error) ERR value is not an integer or out of range");
        assert_eq!(cli(&["DEL", "colour", "visits", "nothing"]), "(integer) 2");
        assert_eq!(cli(&["SET", "k", "v", "NX"]), "(error) ERR syntax error");
        assert_eq!(cli(&["GET"]), "(error) ERR wrong number of arguments");
        assert_eq!(cli(&["FLUSHALL"]), "(error) ERR unknown command 'FLUSHALL'");
        assert_eq!(cli(&["HELLO", "4"]), "(error) NOPROTO unsupported protocol version");
        assert_eq!(cli(&["QUIT"]), "OK");
    }
    assert!(server.cli(&["HELLO", "2"]).contains("6) (integer) 2"));
    assert!(server.cli(&["-3", "HELLO", "3"]).contains("\"proto\" => (integer) 3"));
    server.stop();
}

#[test]
fn redis_benchmark_gets_its_replies() {
    if !are_installed(&["redis-benchmark"]) {
        return;
    }
    let server = RespServer::start(&[]);
    let options = ["-n", "20000", "-P", "16", "-c", "10", "-t", "ping,set,get,incr", "--csv"];
    let run = Command::new("redis-benchmark").args(["-p", &server.port]).args(options).output().unwrap();
    let table = String::from_utf8_lossy(&run.stdout).into_owned();
    assert!(run.status.success(), "{run:?}");
    for test in ["PING_INLINE", "PING_MBULK", "SET", "GET", "INCR"] {
        assert!(table.lines().any(|line| line.starts_with(&format!("\"{test}\",\""))), "{test}: {table}");
    }
    assert_eq!(server.cli(&["GET", "counter:__rand_int__"]), "\"20000\"");
    server.stop();
}

#[test]
fn our_server_bounds_its_memory_and_explains_violations() {
    let server = RespServer::start(&["--max-memory", "1000"]);
    let long = "x".repeat(900);
    let request = format!("SET a {long}\r\nSET b 1\r\nSET a 1\r\nSET b 1\r\nGET b\r\nQUIT\r\n");
    let oom = "-OOM command not allowed when used memory > 'maxmemory'.\r\n";
    let expected = format!("{oom}+OK\r\n+OK\r\n+OK\r\n$1\r\n1\r\n+OK\r\n");
    assert_eq!(server.answers(request.as_bytes()), expected);

    let unbalanced = "-ERR Protocol error: unbalanced quotes in an inline command\r\n+OK\r\n";
    assert_eq!(server.answers(b"PING \"\r\nQUIT\r\n"), unbalanced);
    let oversized = format!("*2\r\n$4\r\nPING\r\n$1048577\r\n{}\r\nQUIT\r\n", "x".repeat(1_048_577));
    assert_eq!(
        server.answers(oversized.as_bytes()),
        "-ERR Protocol error: bulk string of 1048577 bytes is longer than the limit of 1048576 bytes\r\n+OK\r\n"
    );
    assert_eq!(
        server.answers(b"*1\r\n:1\r\n*1\r\n$4\r\nPING\r\n"),
        "-ERR Protocol error: type ':'; a request is an array of bulk strings\r\n"
    );
    server.stop();
}

/// A connection of our codec to a server.
struct Client {
    stream: UnixStream,
    codec: Resp,
    input: BytesMut,
}

impl Client {
    #[track_caller]
    fn ask(&mut self, command: &str) -> RespValue {
        let mut output = OutboundBuffer::new();
        let request = RespValue::command(command.split(' ').map(str::to_owned));
        self.codec.encode(request, &mut output).unwrap();
        self.stream.write_all(&output.to_bytes()).unwrap();
        self.receive()
    }

    #[track_caller]
    fn receive(&mut self) -> RespValue {
        loop {
            let mut input = self.input.split().freeze();
            let message = self.codec.decode(&mut input).unwrap();
            self.input = BytesMut::from(&input[..]);
            if let Some(message) = message {
                return message;
            }
            let mut chunk = [0; 4096];
            let n = self.stream.read(&mut chunk).unwrap();
            assert!(n > 0, "the server has closed the connection");
            self.input.extend_from_slice(&chunk[..n]);
        }
    }
}

#[test]
fn our_client_reads_the_replies_of_redis_with_both_versions() {
    if !are_installed(&["redis-server"]) {
        return;
    }
    let files = Files::new();
    let socket = files.path("redis");
    let options = ["--port", "0", "--unixsocket", &socket, "--save", "", "--enable-debug-command", "yes"];
    let mut server = Process::start(&[&["redis-server"], &options[..]].concat());
    server.stdout.wait_for("eady to accept connections");
    let stream = UnixStream::connect(&socket).unwrap();
    stream.set_read_timeout(Some(PATIENCE)).unwrap();
    let codec = Resp::client().limits(RespLimits::new().max_depth(12)).unwrap();
    let mut client = Client { stream, codec, input: BytesMut::new() };
    let bulk = |text: &'static str| RespValue::Bulk(Bytes::from_static(text.as_bytes()));

    assert_eq!(client.ask("PING"), RespValue::Simple("PONG".into()));
    assert_eq!(client.ask("GET nothing"), RespValue::NullBulk);
    assert_eq!(client.ask("BLPOP nothing 0.001"), RespValue::NullArray);
    assert_eq!(client.ask("RPUSH list a b"), RespValue::Integer(2));
    assert_eq!(client.ask("LRANGE list 0 -1"), RespValue::Array(vec![bulk("a"), bulk("b")]));
    assert_eq!(client.ask("HSET hash field 1"), RespValue::Integer(1));
    assert_eq!(client.ask("HGETALL hash"), RespValue::Array(vec![bulk("field"), bulk("1")]));
    assert!(client.ask("UNKNOWN").is_error());
    assert!(matches!(client.ask("COMMAND DOCS"), RespValue::Array(docs) if docs.len() > 400));

    assert!(matches!(client.ask("HELLO 3"), RespValue::Map(_)));
    assert_eq!(client.ask("GET nothing"), RespValue::Null);
    assert_eq!(client.ask("HGETALL hash"), RespValue::Map(vec![(bulk("field"), bulk("1"))]));
    assert_eq!(client.ask("SADD set a"), RespValue::Integer(1));
    assert_eq!(client.ask("SMEMBERS set"), RespValue::Set(vec![bulk("a")]));
    assert_eq!(client.ask("ZADD scores 1.5 a"), RespValue::Integer(1));
    assert_eq!(client.ask("ZSCORE scores a"), RespValue::Double(1.5));
    for (kind, expected) in [
        ("true", RespValue::Boolean(true)),
        ("false", RespValue::Boolean(false)),
        ("bignum", RespValue::BigNumber("1234567999999999999999999999999999999".into())),
        ("verbatim", RespValue::Verbatim { format: *b"txt", text: "This is a verbatim\nstring".into() }),
    ] {
        assert_eq!(client.ask(&format!("DEBUG PROTOCOL {kind}")), expected);
    }
    let RespValue::Attribute { attributes, value } = client.ask("DEBUG PROTOCOL attrib") else {
        panic!("an attribute");
    };
    assert_eq!((attributes.len(), value.as_bytes().map(|text| &text[..4])), (1, Some(&b"Some"[..])));
    assert!(matches!(client.ask("COMMAND DOCS"), RespValue::Map(docs) if docs.len() > 200));
    assert!(matches!(client.ask("SUBSCRIBE news"), RespValue::Push(message) if message.len() == 3));
    assert_eq!(client.ask("PING"), RespValue::Simple("PONG".into()));
}
