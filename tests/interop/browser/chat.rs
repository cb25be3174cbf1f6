//! The chat page: two tabs and a TCP client, a restart of the server, a slow tab, the dashboard.

use super::webdriver::Browser;
use crate::support::{
    process::{Process, are_installed, example},
    tcp::ANY_PORT,
    wait::PATIENCE,
};
use serde_json::Value;
use std::{
    fs,
    io::{BufRead, BufReader, Read, Write},
    net::{TcpListener, TcpStream},
    path::Path,
};

/// A running `im_server`.
struct Server {
    process: Process,
    /// The address for lines.
    lines: String,
    /// The address of the pages.
    page: String,
}

impl Server {
    fn start(http: &str, arguments: &[&str]) -> Self {
        let program = example("im_server");
        let own = [program.to_str().unwrap(), "--listen", ANY_PORT, "--http", http];
        let mut process = Process::start(&[&own, arguments].concat());
        let lines = process.stdout.wait_for("listening on ");
        let page = process.stdout.wait_for("chat in a browser: ");
        Server { process, lines, page }
    }

    /// Returns the number of messages that were dropped, from the metrics of the loops.
    fn dropped_messages(&self) -> u64 {
        let address = self.page.trim_start_matches("http://").trim_end_matches('/');
        let mut stream = TcpStream::connect(address).unwrap();
        stream.write_all(b"GET /metrics HTTP/1.0\r\n\r\n").unwrap();
        let mut text = String::new();
        stream.read_to_string(&mut text).unwrap();
        let lines = text.lines().filter(|line| line.starts_with("netwheel_messages_dropped_total"));
        let counts: Vec<u64> = lines.map(|line| line.rsplit_once(' ').unwrap().1.parse().unwrap()).collect();
        assert_eq!(counts.len(), 2, "one for each loop: {text}");
        counts.iter().sum()
    }

    fn stop(self) {
        self.process.signal("INT");
        self.process.succeed();
    }
}

/// A client of the protocol as lines.
struct LineClient(BufReader<TcpStream>);

impl LineClient {
    fn join(server: &Server, user: &str, room: &str) -> Self {
        let stream = TcpStream::connect(&server.lines).unwrap();
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        let mut client = LineClient(BufReader::new(stream));
        client.send(&format!(r#"{{"type":"login","user":"{user}"}}"#));
        client.send(&format!(r#"{{"type":"join","room":"{room}"}}"#));
        client.wait_for("joined");
        client
    }

    fn send(&mut self, line: &str) {
        writeln!(self.0.get_mut(), "{line}").unwrap();
    }

    /// Returns the next object of this type.
    fn wait_for(&mut self, kind: &str) -> Value {
        loop {
            let mut line = String::new();
            assert!(self.0.read_line(&mut line).unwrap() > 0, "the server closed the connection");
            let value: Value = serde_json::from_str(&line).unwrap();
            if value["type"] == kind {
                return value;
            }
        }
    }
}

/// Logs in with the keyboard only.
fn log_in(browser: &Browser, page: &str, user: &str) {
    browser.open(page);
    browser.wait_for("document.activeElement.id === 'user'");
    browser.type_keys(&format!("{user}\u{E007}"));
    browser.wait_for(&format!("document.getElementById('status').textContent === 'connected as {user}'"));
    browser.wait_for("document.activeElement.id === 'text'");
    browser.wait_for("document.querySelector('#rooms [aria-current=true]')?.textContent === 'lobby'");
}

fn says(text: &str) -> String {
    format!("[...document.querySelectorAll('#log p')].some(p => p.textContent.includes({text:?}))")
}

/// Returns a text that compression does not shorten much.
fn incompressible(seed: u64, length: usize) -> String {
    let mut state = seed + 1;
    let mut next = || {
        // xorshift64
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        char::from(b'0' + (state % 64) as u8)
    };
    (0..length).map(|_| next()).filter(|c| *c != '\\').collect()
}

/// Writes a picture for people to look at.
fn keep_picture(browser: &Browser, name: &str) {
    let directory = Path::new(env!("CARGO_TARGET_TMPDIR")).join("pictures");
    fs::create_dir_all(&directory).unwrap();
    let picture = browser.screenshot();
    assert!(picture.starts_with(b"\x89PNG"));
    fs::write(directory.join(name), picture).unwrap();
}

fn assert_clean_console(browser: &Browser, is_expected: impl Fn(&str) -> bool) {
    let lines = browser.console();
    let unexpected: Vec<_> = lines.iter().filter(|(_, text)| !is_expected(text)).collect();
    assert!(unexpected.is_empty(), "{unexpected:?}");
}

const PROGRAMS: [&str; 2] = ["chromedriver", "chromium"];

#[test]
fn two_tabs_and_a_tcp_client_chat_and_the_pages_recover_from_a_restart() {
    if !are_installed(&PROGRAMS) {
        return;
    }
    // The page must find the next server at the same address.
    let free = TcpListener::bind(ANY_PORT).unwrap().local_addr().unwrap().to_string();
    let server = Server::start(&free, &[]);
    let browser = Browser::start();
    browser.resize(1100, 700);
    let ann = browser.tab();
    log_in(&browser, &server.page, "ann");
    let bob = browser.new_tab();
    browser.switch_to(&bob);
    log_in(&browser, &server.page, "bob");
    let mut carl = LineClient::join(&server, "carl", "lobby");

    browser.type_keys("hello from bob\u{E007}");
    assert_eq!(carl.wait_for("message")["text"], "hello from bob");
    carl.send(r#"{"type":"say","room":"lobby","text":"<b>hello</b> from a terminal"}"#);
    carl.wait_for("message");
    browser.wait_for(&says("carl: <b>hello</b> from a terminal"));
    browser.wait_for("document.getElementById('members').children.length === 3");
    browser.switch_to(&ann);
    browser.wait_for(&says("bob: hello from bob"));
    browser.wait_for(&says("carl: <b>hello</b> from a terminal"));
    assert_eq!(browser.run("return document.querySelectorAll('#log b').length"), 0, "text is never markup");
    browser.type_into("#text", "/direct bob psst\u{E007}");
    browser.wait_for(&says("delivered to bob"));
    browser.switch_to(&bob);
    browser.wait_for("document.querySelector('#log .direct')?.textContent.includes('ann: psst')");
    keep_picture(&browser, "im-chat-desktop.png");
    browser.resize(360, 640);
    assert_eq!(browser.run("return document.documentElement.scrollWidth"), 360, "nothing is cut off");
    keep_picture(&browser, "im-chat-phone.png");
    assert_clean_console(&browser, |_| false);

    server.stop();
    browser.wait_for("document.getElementById('status').textContent.startsWith('reconnecting')");
    browser.wait_for(&says("The server closed the connection: shutdown."));
    let server = Server::start(&free, &[]);
    for tab in [&bob, &ann] {
        browser.switch_to(tab);
        // Do not wait for the backoff of a tab in the background.
        browser.run("dispatchEvent(new Event('online'))");
        browser.wait_for("document.getElementById('status').textContent.startsWith('connected as')");
    }
    browser.wait_for("document.getElementById('members').children.length === 2");
    browser.type_into("#text", "here again\u{E007}");
    browser.switch_to(&bob);
    browser.wait_for(&says("ann: here again"));
    // The browser reports each connection that the stopped server has refused.
    assert_clean_console(&browser, |text| text.contains("ERR_CONNECTION_REFUSED"));
    drop(browser);
    server.stop();
}

#[test]
fn a_name_that_is_taken_is_reported_and_can_be_changed() {
    if !are_installed(&PROGRAMS) {
        return;
    }
    let server = Server::start(ANY_PORT, &[]);
    let _ann = LineClient::join(&server, "ann", "lobby");
    let browser = Browser::start();
    browser.open(&server.page);
    browser.wait_for("document.activeElement.id === 'user'");
    browser.type_keys("ann\u{E007}");
    browser.wait_for("document.getElementById('problem').textContent.includes('is taken')");
    browser.wait_for("document.activeElement.id === 'user'");
    // Selects the text, and replaces it.
    browser.type_keys("\u{E009}a\u{E000}zoe\u{E007}");
    browser.wait_for("document.getElementById('status').textContent === 'connected as zoe'");
    assert_clean_console(&browser, |_| false);
}

#[test]
fn a_slow_tab_is_told_what_it_missed_and_the_dashboard_shows_the_load() {
    if !are_installed(&PROGRAMS) {
        return;
    }
    let limits = [
        "--slow-consumer",
        "drop",
        "--max-outbound",
        "262144",
        "--rate",
        "0",
        "--delivery-rate",
        "0",
        "--input-rate",
        "0",
        "--congestion-pause",
        "0s",
        "--threads",
        "2",
    ];
    let server = Server::start(ANY_PORT, &limits);
    let browser = Browser::start();
    browser.resize(1100, 900);
    log_in(&browser, &server.page, "ann");
    let mut carl = LineClient::join(&server, "carl", "lobby");
    // The page reads nothing until the server has dropped messages for it. The browser and the
    // kernel buffer several megabytes before that.
    browser.run(
        "setTimeout(() => { \
            const dropped = /netwheel_messages_dropped_total\\{[^}]*\\} [1-9]/; \
            const end = Date.now() + 40000; \
            let request; \
            do { \
                request = new XMLHttpRequest(); \
                request.open('GET', '/metrics', false); \
                request.send(); \
            } while (!dropped.test(request.responseText) && Date.now() < end); \
            document.documentElement.dataset.done = 'yes'; \
        }, 0)",
    );
    let mut n = 0;
    while server.dropped_messages() == 0 {
        n += 1;
        assert!(n < 1000, "the server drops messages for a tab that does not read");
        let text = incompressible(n, 60_000);
        carl.send(&format!(r#"{{"type":"say","room":"lobby","text":"{text}"}}"#));
        carl.wait_for("message");
    }
    browser.wait_for("document.documentElement.dataset.done === 'yes'");
    browser.wait_for(&says("messages, because this tab was too slow."));

    let dashboard = browser.new_tab();
    browser.switch_to(&dashboard);
    browser.open(&format!("{}dashboard", server.page));
    let charts = "[...document.querySelectorAll('svg')].map(svg => svg.getAttribute('aria-label'))";
    browser.wait_for("document.getElementById('status').textContent.includes('2 loops')");
    for name in ["Connections per loop", "Delivery latency", "Slow consumers", "Loop lag", "Stalls", "Timers"]
    {
        browser.wait_for(&format!(
            "{charts}.some(label => label.startsWith('{name}: ') && !label.includes('no data'))"
        ));
    }
    for n in 0..50 {
        carl.send(&format!(r#"{{"type":"say","room":"lobby","text":"{n}"}}"#));
    }
    browser.wait_for(&format!("{charts}.some(label => /^Messages per second: [1-9]/.test(label))"));
    keep_picture(&browser, "im-dashboard-desktop.png");
    browser.resize(360, 640);
    assert_eq!(browser.run("return document.documentElement.scrollWidth"), 360, "nothing is cut off");
    keep_picture(&browser, "im-dashboard-phone.png");
    assert_clean_console(&browser, |_| false);
}
