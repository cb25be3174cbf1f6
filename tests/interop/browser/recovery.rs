//! A page that loses its server, and one that is too slow for it.

use super::{
    page::{assert_clean_console, browser, log_in, text_of, wait_for_line, wait_for_status},
    server::{Server, lasting_address},
    webdriver::{Browser, CONTROL, ENTER, RELEASE},
};
use crate::support::{line_client::LineClient, tcp::ANY_PORT};
use serde_json::json;

/// Reconnects now. The backoff of a tab in the background takes long.
fn hurry(browser: &Browser) {
    browser.run("dispatchEvent(new Event('online'))");
}

#[test]
fn the_pages_recover_from_a_restart_of_the_server() {
    let Some(browser) = browser() else { return };
    // The page must find the next server at the same address.
    let address = lasting_address();
    let server = Server::start(&address, &[]);
    let ann = browser.tab();
    log_in(&browser, &server.page, "ann");
    let bob = browser.new_tab();
    browser.switch_to(&bob);
    log_in(&browser, &server.page, "bob");
    assert_clean_console(&browser, |_| false);

    server.stop();
    wait_for_line(&browser, "The server closed the connection: shutdown.");
    wait_for_status(&browser, "reconnecting");
    browser.wait_for("/^in \\d+ s$/.test(document.getElementById('countdown').textContent)");
    // The text waits for the connection.
    browser.type_keys(&format!("here again{ENTER}"));
    assert_eq!(text_of(&browser, "document.getElementById('text').value"), "here again");

    let server = Server::start(&address, &[]);
    for (tab, user) in [(&ann, "ann"), (&bob, "bob")] {
        browser.switch_to(tab);
        hurry(&browser);
        wait_for_status(&browser, &format!("connected as {user}"));
        wait_for_line(&browser, "Messages sent in that time are missing.");
    }
    browser.wait_for("document.getElementById('members').children.length === 2");
    browser.type_into("#text", ENTER);
    browser.switch_to(&ann);
    wait_for_line(&browser, "bob: here again");

    // A reload keeps the name and the rooms, although the server may not have closed the old
    // connection yet.
    browser.reload();
    wait_for_status(&browser, "connected as ann");
    browser.wait_for("document.getElementById('title').textContent === 'lobby'");
    browser.wait_for("document.getElementById('members').children.length === 2");
    // The browser reports each connection that the stopped server has refused.
    assert_clean_console(&browser, |text| text.contains("net::ERR_"));
    drop(browser);
    server.stop();
}

#[test]
fn a_server_that_hangs_is_noticed() {
    let Some(browser) = browser() else { return };
    let server = Server::start(ANY_PORT, &["--heartbeat", "500ms", "--idle-timeout", "5s"]);
    log_in(&browser, &server.page, "ann");
    // The connection stays open, but nothing arrives.
    server.signal("STOP");
    wait_for_status(&browser, "reconnecting");
    server.signal("CONT");
    wait_for_status(&browser, "connected as ann");
    // The browser reports handshakes without a response.
    assert_clean_console(&browser, |text| text.contains("WebSocket connection to"));
}

/// Returns the texts of the lines, without announcements of members and without times.
fn lines(browser: &Browser) -> Vec<String> {
    let lines = "[...document.querySelectorAll('[role=log]:not([hidden]) p:not(.note)')]";
    let text =
        "line => [...line.childNodes].slice(1, 3).map(node => node.textContent).join('') || line.textContent";
    let texts = browser.run(&format!("return {lines}.map({text})"));
    texts.as_array().unwrap().iter().map(|text| text.as_str().unwrap().to_owned()).collect()
}

#[test]
fn a_refused_page_waits_as_long_as_the_server_asks() {
    let Some(browser) = browser() else { return };
    let server = Server::start(ANY_PORT, &[]);
    log_in(&browser, &server.page, "ann");
    browser.run("receive(JSON.stringify({ type: 'bye', reason: 'overloaded', retry_after_ms: 55000 }))");
    browser.run("reconnect()");
    let left = browser.run("return retryAt - Date.now()").as_f64().unwrap();
    assert!((50_000.0..=56_000.0).contains(&left), "{left}");
    assert_clean_console(&browser, |_| false);
}

#[test]
fn a_page_goes_on_where_its_connection_was_lost() {
    let Some(browser) = browser() else { return };
    let server = Server::start(ANY_PORT, &[]);
    let mut carl = LineClient::join(server.lines, "carl");
    carl.say("before ann");
    carl.wait_for("message");
    log_in(&browser, &server.page, "ann");
    wait_for_line(&browser, "carl: before ann");
    // A message of which the page does not learn whether it has arrived.
    browser.run(
        "const send = WebSocket.prototype.send;
        WebSocket.prototype.send = function (text) {
            send.call(this, text);
            if (JSON.parse(text).type !== 'say') return;
            WebSocket.prototype.send = send;
            this.onmessage = null;
        };",
    );
    browser.type_keys(&format!("perhaps lost{ENTER}"));
    carl.wait_for("message");
    carl.say("missed");
    carl.wait_for("message");
    // The server does not know yet that the page has given up the connection.
    browser.run("reconnect()");
    hurry(&browser);
    wait_for_line(&browser, "carl: missed");
    wait_for_status(&browser, "connected as ann");
    carl.say("live");
    wait_for_line(&browser, "carl: live");
    browser.wait_for("pending.size === 0");
    let all = ["carl: before ann", "ann: perhaps lost", "carl: missed", "carl: live"];
    assert_eq!(lines(&browser), all, "each once, and nothing about the connection");
    // The user has not left in the meantime.
    carl.send(&serde_json::json!({ "type": "who", "room": "lobby" }));
    assert_eq!(carl.wait_for("members")["users"], serde_json::json!(["ann", "carl"]));

    browser.reload();
    wait_for_status(&browser, "connected as ann");
    wait_for_line(&browser, "carl: live");
    assert_eq!(lines(&browser), all, "the history");
    assert_clean_console(&browser, |_| false);
}

/// Answers the first two requests of each of these types with `busy`, instead of the server.
const BUSY: &str = "
    const send = WebSocket.prototype.send;
    const refused = [];
    WebSocket.prototype.send = function (text) {
        const { type, room, id } = JSON.parse(text);
        const isRefused = ['say', 'join'].includes(type) && refused.filter(other => other === type).length < 2;
        if (!isRefused) return send.call(this, text);
        refused.push(type);
        const about = type === 'say' ? { id } : { room };
        const busy = { type: 'error', code: 'busy', message: 'try again later', ...about };
        setTimeout(() => receive(JSON.stringify(busy)));
    };";

#[test]
fn a_page_repeats_what_a_busy_server_has_refused() {
    let Some(browser) = browser() else { return };
    let server = Server::start(ANY_PORT, &[]);
    log_in(&browser, &server.page, "ann");
    let mut carl = LineClient::join(server.lines, "carl");
    browser.run(BUSY);
    browser.type_keys(&format!("hello{ENTER}"));
    assert_eq!(carl.wait_for("message")["text"], "hello");
    wait_for_line(&browser, "ann: hello");
    browser.wait_for("pending.size === 0");
    browser.type_into("#room", &format!("attic{ENTER}"));
    browser.wait_for("document.getElementById('title').textContent === 'attic'");
    browser.wait_for("document.getElementById('refusal').textContent === ''");

    // A room of which the server says that the page is not in it is joined again.
    carl.send(&json!({ "type": "join", "room": "attic" }));
    browser.wait_for("talks.get('attic').members.size === 2");
    browser.run("handlers.left = () => {}; send({ type: 'leave', room: 'attic' });");
    browser
        .run("receive(JSON.stringify({ type: 'error', code: 'busy', room: 'attic', message: 'try again' }))");
    wait_for_line(&browser, "Joined again. Messages sent in the meantime are missing.");
    // One that cannot be joined any more is closed.
    browser.run(
        "receive(JSON.stringify({ type: 'error', code: 'bad_request', room: 'attic', message: 'full' }))",
    );
    browser.wait_for("document.getElementById('title').textContent === 'lobby'");
    browser.wait_for("document.getElementById('refusal').textContent === 'full'");
    assert_eq!(text_of(&browser, "saved.rooms.join()"), "lobby");
    assert_clean_console(&browser, |_| false);
}

#[test]
fn a_message_that_is_not_confirmed_is_not_sent_under_the_next_name() {
    let Some(browser) = browser() else { return };
    let server = Server::start(ANY_PORT, &[]);
    log_in(&browser, &server.page, "ann");
    let mut carl = LineClient::join(server.lines, "carl");
    browser.run(
        "const send = WebSocket.prototype.send;
        WebSocket.prototype.send = function (text) {
            if (JSON.parse(text).type !== 'say') return send.call(this, text);
            WebSocket.prototype.send = send;
        };",
    );
    browser.type_keys(&format!("only as ann{ENTER}"));
    browser.run("receive(JSON.stringify({ type: 'bye', reason: 'replaced' }))");
    browser.wait_for("document.activeElement.id === 'user'");
    browser.type_keys(&format!("{CONTROL}a{RELEASE}zoe{ENTER}"));
    wait_for_status(&browser, "connected as zoe");
    wait_for_line(&browser, "Not confirmed by the server: only as ann");
    browser.wait_for("document.activeElement.id === 'text'");
    browser.type_keys(&format!("as zoe{ENTER}"));
    assert_eq!(carl.wait_for("message")["text"], "as zoe");
    assert_clean_console(&browser, |_| false);
}

/// The server has forgotten its id, and would send it to the room once more.
#[test]
fn a_message_that_is_not_confirmed_for_long_is_not_sent_again() {
    let Some(browser) = browser() else { return };
    let server = Server::start(ANY_PORT, &[]);
    log_in(&browser, &server.page, "ann");
    let mut carl = LineClient::join(server.lines, "carl");
    browser.run(
        "const unconfirmed = (id, text, age) =>
            pending.set(id, { talk: 'lobby', text, isSaid: true, at: Date.now() - age });
        unconfirmed(1, 'old', 10 * 60000);
        unconfirmed(2, 'recent', 60000);
        reconnect();",
    );
    hurry(&browser);
    wait_for_line(&browser, "Not confirmed by the server: old");
    assert_eq!(carl.wait_for("message")["text"], "recent");
    browser.wait_for("pending.size === 0");
    assert_clean_console(&browser, |_| false);
}

/// The server has dropped the first `joined`, and the copy of a message.
#[test]
fn a_tab_that_has_missed_replies_goes_on() {
    let Some(browser) = browser() else { return };
    let server = Server::start(ANY_PORT, &[]);
    log_in(&browser, &server.page, "ann");
    let mut carl = LineClient::join(server.lines, "carl");
    browser.run(
        "pending.set(1, { talk: 'lobby', text: 'without a copy', isSaid: true, at: Date.now() });
        receive(JSON.stringify({ type: 'missed', count: 2, total: 2 }));",
    );
    assert_eq!(carl.wait_for("message")["text"], "without a copy");
    browser.wait_for("pending.size === 0");
    browser.run(
        "talks.get('lobby').position = null;
        receive(JSON.stringify({ type: 'joined', room: 'lobby', user: 'ann' }));
        reconnect();",
    );
    hurry(&browser);
    wait_for_status(&browser, "connected as ann");
    assert_clean_console(&browser, |_| false);
}

/// The first message was dropped, and is sent again behind a later one.
#[test]
fn direct_messages_are_shown_once_in_any_order() {
    let Some(browser) = browser() else { return };
    let server = Server::start(ANY_PORT, &[]);
    log_in(&browser, &server.page, "ann");
    browser.run(
        "for (const [id, text] of [[2, 'two'], [1, 'one'], [2, 'two'], [1, 'one'], [3, 'three']]) {
            receive(JSON.stringify({ type: 'direct', from: 'carl', text, ts: 0, id }));
        }",
    );
    browser.click("#rooms [data-key='@carl']");
    wait_for_line(&browser, "carl: three");
    assert_eq!(lines(&browser), ["carl: two", "carl: one", "carl: three"]);
    assert_clean_console(&browser, |_| false);
}

#[test]
fn a_message_that_is_too_long_for_the_server_is_not_sent_again() {
    let Some(browser) = browser() else { return };
    let server = Server::start(ANY_PORT, &["--max-line", "1000"]);
    log_in(&browser, &server.page, "ann");
    let mut carl = LineClient::join(server.lines, "carl");
    browser.run("document.getElementById('text').value = 'x'.repeat(2000)");
    browser.type_keys(ENTER);
    wait_for_line(&browser, "Not confirmed by the server: xxx");
    hurry(&browser);
    wait_for_status(&browser, "connected as ann");
    browser.type_keys(&format!("short{ENTER}"));
    assert_eq!(carl.wait_for("message")["text"], "short");
    browser.wait_for("pending.size === 0");
    assert_clean_console(&browser, |_| false);
}

#[test]
fn a_page_that_only_reads_stays_connected() {
    let Some(browser) = browser() else { return };
    let server = Server::start(ANY_PORT, &[]);
    log_in(&browser, &server.page, "ann");
    let mut carl = LineClient::join(server.lines, "carl");
    browser.run(
        "window.sent = [];
        const send = WebSocket.prototype.send;
        WebSocket.prototype.send = function (text) { sent.push(JSON.parse(text).type); send.call(this, text); };
        // More than half of the idle time later.
        const now = Date.now;
        Date.now = () => now() + 31000;",
    );
    carl.say("a busy room");
    browser.wait_for("sent.includes('ping')");
    browser.run("receive(JSON.stringify({ type: 'ping', resume_token: 'new' }))");
    assert_eq!(text_of(&browser, "JSON.parse(sessionStorage.getItem('chat')).token"), "new");
    carl.say("a busy room again");
    wait_for_line(&browser, "a busy room again");
    assert_eq!(text_of(&browser, "sent.filter(type => type === 'ping').length"), "1");
    assert_clean_console(&browser, |_| false);
}

/// Options without limits for fast clients, and with a low one for slow clients.
const NARROW: [&str; 10] = [
    "--rate",
    "0",
    "--delivery-rate",
    "0",
    "--input-rate",
    "0",
    "--congestion-pause",
    "0s",
    "--max-outbound",
    "262144",
];

/// Sends messages to a page that does not read, until the server has counted the first one that the
/// page misses.
fn overwhelm(browser: &Browser, server: &Server, carl: &mut LineClient, counter: &str) {
    // While it shows the alert, the page runs no code and reads nothing. The browser and the kernel
    // buffer several megabytes before the server cannot send more.
    browser.run("setTimeout(() => alert('wait'))");
    browser.wait_for_alert();
    let mut sent = 0;
    while server.counter(counter) == 0 {
        assert!(sent < 1000, "the tab still misses nothing");
        carl.say(&incompressible(sent, 60_000));
        carl.wait_for("message");
        sent += 1;
    }
    browser.dismiss_alert();
}

#[test]
fn a_slow_tab_is_told_what_it_missed() {
    let Some(browser) = browser() else { return };
    let server = Server::start(ANY_PORT, &[NARROW.as_slice(), &["--slow-consumer", "drop"]].concat());
    log_in(&browser, &server.page, "ann");
    let mut carl = LineClient::join(server.lines, "carl");
    overwhelm(&browser, &server, &mut carl, "messages_dropped");
    wait_for_line(&browser, "This tab was too slow for the server. You missed ");
    carl.say("nothing is missing now");
    wait_for_line(&browser, "carl: nothing is missing now");
    assert_clean_console(&browser, |_| false);
}

#[test]
fn a_tab_that_is_closed_for_slowness_is_told_and_returns() {
    let Some(browser) = browser() else { return };
    // The page has enough time for the lines before the last one.
    let server = Server::start(ANY_PORT, &[NARROW.as_slice(), &["--close-timeout", "60s"]].concat());
    log_in(&browser, &server.page, "ann");
    let mut carl = LineClient::join(server.lines, "carl");
    overwhelm(&browser, &server, &mut carl, "messages_refused");
    wait_for_line(&browser, "The server closed the connection: slow consumer.");
    hurry(&browser);
    wait_for_status(&browser, "connected as ann");
    carl.say("nothing is missing now");
    wait_for_line(&browser, "carl: nothing is missing now");
    let offsets =
        browser.run("return talks.get('lobby').position[1] - document.querySelectorAll('time').length");
    assert_eq!(offsets, 0, "all messages of the room, which has no others");
    assert_clean_console(&browser, |_| false);
}

/// A page does not grow without bounds.
#[test]
fn a_page_keeps_the_last_500_lines_of_a_room() {
    let Some(browser) = browser() else { return };
    let server = Server::start(ANY_PORT, &NARROW);
    log_in(&browser, &server.page, "ann");
    let mut carl = LineClient::join(server.lines, "carl");
    for n in 1..=600 {
        carl.say(&format!("number {n}"));
    }
    wait_for_line(&browser, "carl: number 600");
    let lines = "[...document.querySelectorAll('[role=log] p')]";
    assert_eq!(text_of(&browser, &format!("{lines}.length")), "500");
    // One of the lines may announce carl.
    browser.wait_for(&format!("/number 10[12]$/.test({lines}[0].textContent)"));
    let log = "document.querySelector('[role=log]')";
    browser.wait_for(&format!("{log}.scrollHeight - {log}.scrollTop - {log}.clientHeight < 2"));
    assert_clean_console(&browser, |_| false);
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
