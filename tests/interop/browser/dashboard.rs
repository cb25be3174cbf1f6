//! The dashboard: its charts, and a server that restarts.

use super::{
    page::{
        DESKTOP, PHONE, assert_accessible, assert_clean_console, browser, keep_picture, text_of,
        wait_for_status,
    },
    server::{Server, lasting_address},
};
use crate::support::line_client::LineClient;
use serde_json::json;

/// The charts that the page must have. Their data is described in docs/im-dashboard.md.
const CHARTS: [&str; 17] = [
    "Connections per loop",
    "Messages per second",
    "Delivery latency",
    "Slow consumers",
    "Replaced",
    "Passive members",
    "Loop lag",
    "Refused",
    "Overload",
    "Stalls",
    "Timers",
    "Traffic",
    "Stored timers",
    "Timers fired",
    "Lateness",
    "Commit time",
    "Batch",
];

#[test]
fn the_dashboard_draws_the_load_and_recovers_from_a_restart() {
    let Some(browser) = browser() else { return };
    let address = lasting_address();
    let server = Server::start(&address, &[]);
    browser.resize(DESKTOP);
    browser.open(&format!("{}dashboard", server.page));
    wait_for_status(&browser, "live");
    let labels = "[...document.querySelectorAll('svg[role=img]')].map(svg => svg.getAttribute('aria-label'))";
    for chart in CHARTS {
        let condition = format!("label.startsWith('{chart}: ') && !label.includes('no data')");
        browser.wait_for(&format!("{labels}.some(label => {condition})"));
    }
    let mut carl = LineClient::join(server.lines, "carl");
    // The event after these messages reports them.
    for n in 0..50 {
        carl.say(&n.to_string());
    }
    browser.wait_for(&format!("{labels}.some(label => /^Messages per second: [1-9]/.test(label))"));
    browser.wait_for("document.getElementById('size').textContent === '1 client, 2 loops'");
    let loops = "document.querySelectorAll('#chart-connections-per-loop .legend li').length";
    assert_eq!(text_of(&browser, loops), "2");
    let paths = "document.querySelectorAll('#chart-delivery-latency path').length";
    assert_eq!(text_of(&browser, paths), "2");
    carl.send(&json!({ "type": "passive", "room": "lobby" }));
    browser.wait_for(&format!("{labels}.some(label => label.startsWith('Passive members: 1 '))"));
    carl.send(&json!({ "type": "remind", "in": "1h", "text": "tea" }));
    carl.send(&json!({ "type": "remind", "in": "1ms", "text": "tea" }));
    browser.wait_for(&format!("{labels}.some(label => label.startsWith('Stored timers: 1 '))"));
    browser.wait_for(&format!("{labels}.some(label => /^Batch: [1-9]/.test(label))"));
    let row = "[...document.querySelectorAll('#topics tbody tr')].map(row => row.innerText.split(/\\s+/).join(' '))";
    browser.wait_for(&format!("{row}.some(text => text.startsWith('remind active 1 0 0'))"));
    browser.wait_for("document.querySelectorAll('#next-timers tbody tr').length === 1");
    browser.wait_for("document.querySelectorAll('#dead-letters tbody tr').length === 0");
    assert_accessible(&browser);
    keep_picture(&browser, DESKTOP, "light", "im-dashboard-desktop.png");
    keep_picture(&browser, PHONE, "dark", "im-dashboard-phone.png");
    assert_clean_console(&browser, |_| false);

    server.stop();
    wait_for_status(&browser, "reconnecting");
    let server = Server::start(&address, &[]);
    wait_for_status(&browser, "live");
    // The browser reports the broken stream, and each connection that was refused.
    assert_clean_console(&browser, |text| text.contains("net::ERR_"));
    drop(browser);
    server.stop();
}
