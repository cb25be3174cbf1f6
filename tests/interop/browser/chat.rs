//! The chat page: tabs and TCP clients in the same rooms, direct messages, names, the keyboard.

use super::{
    page::{
        DESKTOP, PHONE, assert_accessible, assert_clean_console, browser, keep_picture, log_in, text_of,
        wait_for_line, wait_for_status,
    },
    server::Server,
    webdriver::{CONTROL, ENTER, ESCAPE, RELEASE, SHIFT, TAB},
};
use crate::{
    interop::{files::Files, tls_echo::self_signed},
    support::{line_client::LineClient, tcp::ANY_PORT},
};
use serde_json::json;

#[test]
fn two_tabs_and_a_tcp_client_chat() {
    let Some(browser) = browser() else { return };
    let server = Server::start(ANY_PORT, &[]);
    browser.resize(DESKTOP);
    let ann = browser.tab();
    log_in(&browser, &server.page, "ann");
    let bob = browser.new_tab();
    browser.switch_to(&bob);
    log_in(&browser, &server.page, "bob");
    let mut carl = LineClient::join(server.lines, "carl");

    browser.type_keys(&format!("hello from a browser{ENTER}"));
    assert_eq!(carl.wait_for("message")["text"], "hello from a browser");
    let markup = "<b>hello</b> from a <script>terminal</script>";
    carl.say(markup);
    wait_for_line(&browser, &format!("carl: {markup}"));
    browser.wait_for("document.getElementById('members').children.length === 3");

    browser.switch_to(&ann);
    wait_for_line(&browser, "bob: hello from a browser");
    wait_for_line(&browser, &format!("carl: {markup}"));
    assert_eq!(browser.run("return document.querySelectorAll('[role=log] :is(b, script)').length"), 0);
    carl.send(&json!({ "type": "leave", "room": "lobby" }));
    wait_for_line(&browser, "carl left");
    carl.send(&json!({ "type": "join", "room": "lobby" }));
    wait_for_line(&browser, "carl joined");
    assert_accessible(&browser);
    keep_picture(&browser, DESKTOP, "light", "im-chat-desktop.png");
    keep_picture(&browser, PHONE, "dark", "im-chat-phone.png");
    assert_clean_console(&browser, |_| false);
    drop(browser);
    server.stop();
}

#[test]
fn a_message_of_several_lines_is_no_imitation_of_others() {
    let Some(browser) = browser() else { return };
    let server = Server::start(ANY_PORT, &[]);
    log_in(&browser, &server.page, "ann");
    let mut carl = LineClient::join(server.lines, "carl");
    carl.say("one line\n12:34 bob: and another one");
    wait_for_line(&browser, "and another one");
    let indents = browser.run(
        "const line = [...document.querySelectorAll('[role=log] p')].find(p => p.textContent.includes('one line'));
        const range = document.createRange();
        range.selectNodeContents(line);
        const { left } = line.getBoundingClientRect();
        const boxes = [...range.getClientRects()];
        const below = boxes.filter(box => box.top >= boxes[0].bottom - 1);
        return [boxes[0].left - left, Math.min(...below.map(box => box.left)) - left];",
    );
    let [first, second] = [0, 1].map(|at| indents[at].as_f64().unwrap());
    assert!(second > first + 10.0, "{indents}");
    assert_clean_console(&browser, |_| false);
}

#[test]
fn direct_messages_are_conversations_with_a_state() {
    let Some(browser) = browser() else { return };
    let server = Server::start(ANY_PORT, &[]);
    log_in(&browser, &server.page, "ann");
    let mut carl = LineClient::join(server.lines, "carl");

    browser.click("#members [data-key=carl]");
    browser.wait_for("document.activeElement.id === 'text'");
    browser.type_keys(&format!("psst{ENTER}"));
    let direct = carl.wait_for("direct");
    assert_eq!(direct["text"], "psst");
    carl.send(&json!({ "type": "ack", "id": direct["id"] }));
    let state = "document.querySelector('[role=log]:not([hidden]) p:last-child .state')?.textContent";
    browser.wait_for(&format!("{state} === 'delivered'"));

    // The page acknowledges a message, and shows it also in a talk that is closed.
    browser.click("#leave");
    browser.wait_for("document.getElementById('title').textContent === 'lobby'");
    carl.send(&json!({ "type": "direct", "to": "ann", "text": "here I am", "id": 1 }));
    assert_eq!(carl.wait_for("delivered")["id"], 1);
    browser.wait_for("document.querySelector('#rooms [data-key=\"@carl\"]')?.textContent === '@carl (new)'");
    browser.click("#rooms [data-key='@carl']");
    wait_for_line(&browser, "carl: here I am");
    drop(carl);
    browser.type_into("#text", &format!("are you still there?{ENTER}"));
    browser.wait_for(&format!("{state}?.startsWith('kept until carl connects')"));
    assert_accessible(&browser);
    assert_clean_console(&browser, |_| false);
}

#[test]
fn a_direct_message_that_is_sent_again_is_shown_once() {
    let Some(browser) = browser() else { return };
    let server = Server::start(ANY_PORT, &["--ack-timeout", "50ms"]);
    log_in(&browser, &server.page, "ann");
    let mut carl = LineClient::join(server.lines, "carl");
    browser.run("setTimeout(() => alert('wait'))");
    browser.wait_for_alert();
    carl.send(&json!({ "type": "direct", "to": "ann", "text": "psst", "id": 1 }));
    // After the last copy.
    assert_eq!(carl.wait_for("error")["code"], "undelivered");
    carl.say("all copies have arrived");
    browser.dismiss_alert();
    wait_for_line(&browser, "carl: all copies have arrived");
    browser.click("#rooms [data-key='@carl']");
    wait_for_line(&browser, "carl: psst");
    assert_eq!(browser.run("return document.querySelectorAll('[role=log]:not([hidden]) p').length"), 1);
    assert_clean_console(&browser, |_| false);
}

#[test]
fn a_name_that_is_taken_is_reported_and_can_be_changed() {
    let Some(browser) = browser() else { return };
    let server = Server::start(ANY_PORT, &[]);
    let _ann = LineClient::join(server.lines, "ann");
    browser.open(&server.page);
    browser.wait_for("document.activeElement.id === 'user'");
    assert_accessible(&browser);
    browser.type_keys(&format!("ann{ENTER}"));
    browser.wait_for("document.getElementById('problem').textContent.includes('is taken')");
    browser.wait_for("document.activeElement.id === 'user'");
    assert_accessible(&browser);
    browser.type_keys(&format!("{CONTROL}a{RELEASE}zoe{ENTER}"));
    wait_for_status(&browser, "connected as zoe");
    assert_clean_console(&browser, |_| false);
}

#[test]
fn rooms_are_joined_and_left_with_the_keyboard() {
    let Some(browser) = browser() else { return };
    let server = Server::start(ANY_PORT, &[]);
    log_in(&browser, &server.page, "ann");
    browser.wait_for("document.getElementById('members').children.length === 1");
    let focus = || text_of(&browser, "document.activeElement.id || document.activeElement.dataset.key");
    let back = format!("{SHIFT}{TAB}{RELEASE}");
    // Backwards from the message.
    browser.press(&back);
    assert_eq!(text_of(&browser, "document.activeElement.getAttribute('role')"), "log");
    for element in ["leave", "pause", "ann", "members-title"] {
        browser.press(&back);
        assert_eq!(focus(), element);
    }
    browser.press(&back);
    browser.press(&back);
    assert_eq!(focus(), "room");
    browser.press(&format!("rust{ENTER}"));
    browser.wait_for("document.getElementById('title').textContent === 'rust'");
    assert_eq!(focus(), "text");
    browser.press(&back);
    browser.press(ESCAPE);
    assert_eq!(focus(), "text");
    browser.type_keys(&format!("anybody here?{ENTER}"));
    wait_for_line(&browser, "ann: anybody here?");
    // A request that is refused: the page says why, and stays connected.
    browser.click("#room");
    browser.press(&format!("not a name{ENTER}"));
    browser.wait_for("document.getElementById('refusal').textContent !== ''");
    browser.click("#leave");
    browser.wait_for("document.getElementById('title').textContent === 'lobby'");
    wait_for_status(&browser, "connected as ann");
    assert_clean_console(&browser, |_| false);
}

#[test]
fn reminders_are_set_listed_shown_and_cancelled_with_commands() {
    let Some(browser) = browser() else { return };
    let server = Server::start(ANY_PORT, &[]);
    log_in(&browser, &server.page, "ann");
    let mut carl = LineClient::join(server.lines, "carl");
    browser.type_keys(&format!("/remind 1h 30m water the plants{ENTER}"));
    // Announcements of members may follow a line.
    let texts = "[...document.querySelectorAll('[role=log]:not([hidden]) p')].map(p => p.textContent)";
    let wait_for = |regex: &str| browser.wait_for(&format!("{texts}.some(text => /{regex}/.test(text))"));
    wait_for("^Reminder \\d+ is set for ");
    let number = text_of(&browser, &format!("{texts}.join().match(/Reminder (\\d+) is set/)[1]"));
    browser.type_keys(&format!("/reminders{ENTER}"));
    wait_for(&format!("^Reminder {number}, .*: water the plants$"));
    browser.type_keys(&format!("/forget {number}{ENTER}"));
    wait_for(&format!("^Reminder {number} is cancelled.$"));
    browser.type_keys(&format!("/reminders{ENTER}"));
    wait_for("^You have no reminders.$");
    browser.type_keys(&format!("/remind 1ms 2 cups of tea{ENTER}"));
    wait_for("^Reminder: 2 cups of tea$");
    // A mistake is explained, and stays in the field. The server explains the input that the page
    // accepts.
    browser.type_keys(&format!("/remind tea{ENTER}"));
    wait_for("^.remind 10m text sets a reminder");
    assert_eq!(text_of(&browser, "document.getElementById('text').value"), "/remind tea");
    browser.type_keys(&format!("{CONTROL}a{RELEASE}/remind 5parsecs tea{ENTER}"));
    browser.wait_for("document.getElementById('refusal').textContent !== ''");
    assert_accessible(&browser);
    // Other words with a slash are messages.
    browser.type_keys(&format!("/usr/bin{ENTER}"));
    assert_eq!(carl.wait_for("message")["text"], "/usr/bin");
    assert_clean_console(&browser, |_| false);
    drop(browser);
    server.stop();
}

#[test]
fn a_message_to_a_user_that_is_not_connected_is_shown_as_kept() {
    let Some(browser) = browser() else { return };
    let files = Files::new();
    let file = files.path("timers.db");
    let server = Server::start(ANY_PORT, &["--timers", &file]);
    log_in(&browser, &server.page, "ann");
    let carl = LineClient::join(server.lines, "carl");
    browser.click("#members [data-key=carl]");
    browser.wait_for("document.getElementById('title').textContent === 'Direct messages with carl'");
    drop(carl);
    let state = "document.querySelector('[role=log]:not([hidden]) p:last-child .state')?.textContent";
    // The server has noticed that the client has gone.
    let lobby = "document.querySelector('[role=log][aria-label=\"Messages in lobby\"]').textContent";
    browser.wait_for(&format!("{lobby}.includes('carl left')"));
    browser.type_into("#text", &format!("call me{ENTER}"));
    browser.wait_for(&format!("{state}?.startsWith('kept until carl connects, or ')"));
    let mut carl = LineClient::log_in(server.lines, "carl");
    let message = carl.wait_for("direct");
    assert_eq!(message["text"], "call me");
    carl.send(&json!({ "type": "ack", "id": message["id"] }));
    browser.wait_for(&format!("{state} === 'delivered'"));
    assert_clean_console(&browser, |_| false);
    drop(browser);
    server.stop();
}

#[test]
fn a_page_over_tls_chats_over_tls() {
    let Some(browser) = browser() else { return };
    let files = Files::new();
    let (certificate, key) = self_signed(&files, "localhost");
    let tls = ["--https", ANY_PORT, "--tls-cert", &certificate, "--tls-key", &key];
    let server = Server::start("none", &tls);
    assert!(server.page.starts_with("https://"), "{}", server.page);
    // The policy of the page does not allow `ws:` there.
    log_in(&browser, &server.page, "ann");
    browser.type_keys(&format!("in secret{ENTER}"));
    wait_for_line(&browser, "ann: in secret");
    assert_clean_console(&browser, |_| false);
}
