//! Runs the programs of the guide, which are examples, on free ports.

use crate::support::{
    process::{Process, example},
    tcp::{ANY_PORT, ask, connect, read_all, read_n},
    wait::PATIENCE,
};
use std::{
    io::{Read, Write},
    net::{Shutdown, SocketAddr, TcpListener, TcpStream},
    thread,
};

/// A running program that listens.
pub(crate) struct Program {
    process: Process,
    address: SocketAddr,
}

impl Program {
    pub(crate) fn start(name: &str, arguments: &[&str]) -> Self {
        let binary = example(name);
        let command = [&[binary.to_str().unwrap()], arguments].concat();
        let mut process = Process::start(&command);
        let address = process.stdout.wait_for("listening on ").parse().unwrap();
        Program { process, address }
    }

    pub(crate) fn connect(&self) -> TcpStream {
        connect(self.address)
    }

    /// Interrupts the program, which shuts down and prints a report.
    #[track_caller]
    pub(crate) fn stop(self) {
        self.process.signal("INT");
        let (report, errors) = self.process.succeed();
        assert!(report.contains("channels"), "{report}");
        assert_eq!(errors, "");
    }
}

#[test]
fn the_echo_server_echoes_and_says_goodbye() {
    let program = Program::start("guide_echo", &[ANY_PORT]);
    let mut stream = program.connect();
    ask(&mut stream, "", "hello; what you type comes back\n");
    ask(&mut stream, "one\n", "one\n");
    ask(&mut stream, "quit\n", "bye\n");
    assert_eq!(read_all(&mut stream), b"");
}

#[test]
fn members_of_a_room_chat() {
    let program = Program::start("guide_chat", &[ANY_PORT]);
    let mut members = ["ann", "bob"].map(|name| {
        let mut stream = program.connect();
        ask(&mut stream, "", "welcome; send NAME <name>, JOIN <room>, SAY <text>, PONG, QUIT\n");
        ask(&mut stream, "SAY hello\n", "error: first NAME, then JOIN\n");
        ask(&mut stream, &format!("NAME {name}\n"), "ok\n");
        ask(&mut stream, "JOIN lobby\n", "ok\n");
        stream
    });
    let [ann, bob] = &mut members;
    ann.write_all(b"SAY hello\n").unwrap();
    ask(bob, "", "ann: hello\n");
    ask(bob, "QUIT\n", "bye\n");
    program.stop();
    assert_eq!(read_all(ann), b"bye: the server restarts\n");
}

#[cfg(feature = "json")]
#[test]
fn the_calculator_answers_in_json() {
    let program = Program::start("guide_json", &[ANY_PORT]);
    let mut stream = program.connect();
    ask(&mut stream, "{\"add\":[1,2,3]}\n", "{\"sum\":6.0}\n");
    stream.write_all(b"{\"add\":\n").unwrap();
    ask(&mut stream, "", "{\"error\":\"the peer violated the protocol: malformed message: ");
    while read_n(&mut stream, 1) != b"\n" {}
    ask(&mut stream, "\"quit\"\n", "\"bye\"\n");
    assert_eq!(read_all(&mut stream), b"");
    program.stop();
}

/// Starts the proxy. Returns it with both ends of a connection through it.
fn through_the_proxy() -> (Program, TcpStream, TcpStream) {
    let listener = TcpListener::bind(ANY_PORT).unwrap();
    let target = listener.local_addr().unwrap().to_string();
    let program = Program::start("guide_proxy", &[&target, ANY_PORT]);
    let front = program.connect();
    let back = listener.accept().unwrap().0;
    crate::support::tcp::patient(&back);
    (program, front, back)
}

/// One end writes until the proxy and both kernels are full. Then the other end reads, and every
/// byte arrives.
#[test]
fn the_proxy_waits_for_a_slow_reader_in_either_direction() {
    const CHUNK: usize = 64 * 1024;
    let (program, front, back) = through_the_proxy();
    for (mut writer, mut reader) in [(&front, &back), (&back, &front)] {
        // A nonblocking writer sees where the proxy and both kernels are full.
        writer.set_nonblocking(true).unwrap();
        let chunk = [7; CHUNK];
        let mut written = 0;
        let blocked = loop {
            match writer.write(&chunk) {
                Ok(n) => written += n,
                Err(e) => break e,
            }
        };
        assert_eq!(blocked.kind(), std::io::ErrorKind::WouldBlock);
        writer.set_nonblocking(false).unwrap();
        let rest = 64 * CHUNK;
        thread::scope(|scope| {
            scope.spawn(move || {
                for _ in 0..64 {
                    writer.write_all(&chunk).unwrap();
                }
            });
            assert!(read_n(&mut reader, written + rest).iter().all(|byte| *byte == 7));
        });
    }
    drop(front);
    assert_eq!(read_all(&mut &back), b"");
    drop(back);
    program.stop();
}

#[test]
fn the_proxy_forwards_the_end_of_a_stream() {
    let (program, mut front, mut back) = through_the_proxy();
    front.write_all(b"request").unwrap();
    front.shutdown(Shutdown::Write).unwrap();
    assert_eq!(read_all(&mut back), b"request");
    back.write_all(b"reply").unwrap();
    drop(back);
    assert_eq!(read_all(&mut front), b"reply");
    program.stop();
}

#[test]
fn the_proxy_closes_a_connection_that_it_cannot_forward() {
    // Bound and not listening, so that no other test gets the port.
    let socket = socket2::Socket::new(socket2::Domain::IPV4, socket2::Type::STREAM, None).unwrap();
    socket.bind(&ANY_PORT.parse::<SocketAddr>().unwrap().into()).unwrap();
    let target = socket.local_addr().unwrap().as_socket().unwrap().to_string();
    let program = Program::start("guide_proxy", &[&target, ANY_PORT]);
    let mut front = program.connect();
    front.set_read_timeout(Some(PATIENCE)).unwrap();
    let end = front.read(&mut [0]);
    assert!(matches!(&end, Ok(0)) || end.is_err_and(|e| e.kind() == std::io::ErrorKind::ConnectionReset));
    program.stop();
}

/// P-01.
#[cfg(feature = "durable-sqlite")]
#[test]
fn a_reminder_survives_a_kill_of_its_server() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("reminders.db");
    let arguments = [path.to_str().unwrap(), ANY_PORT];
    let welcome = "welcome; send IN <seconds> <text>, CANCEL <number>\n";
    let program = Program::start("guide_reminders", &arguments);
    let mut stream = program.connect();
    ask(&mut stream, "", welcome);
    // The timer of the mornings is number 1.
    ask(&mut stream, "IN 1 tea\n", "stored 2\n");
    ask(&mut stream, "IN 3600 coffee\n", "stored 3\n");
    drop(program); // kill -9

    let program = Program::start("guide_reminders", &arguments);
    let mut stream = program.connect();
    ask(&mut stream, "", welcome);
    ask(&mut stream, "", "reminder: tea\n");
    ask(&mut stream, "CANCEL 3\n", "cancelled\n");
    ask(&mut stream, "CANCEL 3\n", "error: no such reminder\n");
    drop(stream);
    program.stop();
}

#[cfg(feature = "prometheus")]
#[test]
fn the_operations_server_exports_metrics_and_reports_its_shutdown() {
    let mut program = Program::start("guide_operations", &[ANY_PORT, ANY_PORT]);
    let metrics: SocketAddr = program.process.stdout.wait_for("metrics on ").parse().unwrap();
    let mut client = program.connect();
    ask(&mut client, "hello\n", "hello\n");

    let mut scraper = connect(metrics);
    scraper.write_all(b"GET /metrics HTTP/1.1\r\nhost: localhost\r\n\r\n").unwrap();
    let text = String::from_utf8(read_all(&mut scraper)).unwrap();
    let (head, body) = text.split_once("\r\n\r\n").expect("a head and a body");
    assert!(head.starts_with("HTTP/1.1 200 OK\r\n"), "{head}");
    assert!(body.contains(r#"netwheel_channels{event_loop="echo-0"}"#), "{body}");
    assert!(body.trim_end().ends_with("# EOF"), "{body}");

    program.process.signal("INT");
    let (report, errors) = program.process.succeed();
    assert!(report.contains("channels: 1, of them graceful 1,"), "{report}");
    assert_eq!(errors, "");
    assert_eq!(read_all(&mut client), b"");
}
