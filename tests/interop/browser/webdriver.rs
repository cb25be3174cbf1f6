//! A small client of WebDriver (<https://www.w3.org/TR/webdriver2/>) for chromedriver.

use crate::support::wait::PATIENCE;
use base64::{Engine, prelude::BASE64_STANDARD};
use serde_json::{Value, json};
use std::{
    io::{BufRead, BufReader, Read, Write},
    net::TcpStream,
    process::{Child, ChildStdout, Command, Stdio},
    sync::{
        Mutex, MutexGuard, PoisonError,
        atomic::{AtomicUsize, Ordering},
    },
    thread,
    time::{Duration, Instant},
};

/// A browser with one empty tab. The next test uses it too, unless this test fails.
pub(crate) struct Browser {
    /// A session while this exists.
    place: MutexGuard<'static, Option<Session>>,
}

/// The browsers, which tests share because a start takes longer than most tests. More of them at
/// the same time would make each other late.
static PLACES: [Mutex<Option<Session>>; 3] = [const { Mutex::new(None) }; 3];

/// The shell that starts chromedriver, and ends it when its input ends: with this process, however
/// that ends. The browser is in the process group of its driver, and survives it otherwise.
const SUPERVISOR: &str = r#"
trap '' INT
directory=$(mktemp -d)
TMPDIR=$directory setsid chromedriver --port=0 --log-level=SEVERE </dev/null &
driver=$!
cat >/dev/null
kill -s KILL -- "-$driver" || kill -s KILL "$driver"
wait "$driver"
# The processes of the browser may still write.
until rm -rf "$directory"; do :; done
"#;

/// A running chromedriver, and a browser that it controls. Both end on drop.
struct Session {
    port: u16,
    /// Empty before the session.
    id: String,
    supervisor: Child,
    /// Stays open, because the driver may write to it.
    _output: BufReader<ChildStdout>,
}

/// The key of an element's id in JSON, from the specification.
const ELEMENT: &str = "element-6066-11e4-a52e-4f735466cecf";

/// Keys of WebDriver's actions.
pub(crate) const ENTER: &str = "\u{E007}";
pub(crate) const TAB: &str = "\u{E004}";
pub(crate) const ESCAPE: &str = "\u{E00C}";
pub(crate) const SHIFT: &str = "\u{E008}";
pub(crate) const CONTROL: &str = "\u{E009}";
/// Releases the modifier keys before it.
pub(crate) const RELEASE: &str = "\u{E000}";

impl Browser {
    /// Returns a headless Chromium.
    pub(crate) fn start() -> Self {
        static NEXT: AtomicUsize = AtomicUsize::new(0);
        let place = &PLACES[NEXT.fetch_add(1, Ordering::Relaxed) % PLACES.len()];
        let mut place = place.lock().unwrap_or_else(PoisonError::into_inner);
        place.get_or_insert_with(Session::start);
        Browser { place }
    }

    fn try_call(&self, method: &str, path: &str, body: &Value) -> Result<Value, Value> {
        self.place.as_ref().expect("a session").try_call(method, path, body)
    }

    /// Replaces all tabs by an empty one, and clears the browser's storage and console.
    fn clear(&self) -> Result<(), Value> {
        let call = |method: &str, path: &str, body: Value| self.try_call(method, path, &body);
        let command = |name: &str, parameters: Value| {
            call("POST", "/goog/cdp/execute", json!({ "cmd": name, "params": parameters }))
        };
        let origin =
            call("POST", "/execute/sync", json!({ "script": "return location.origin", "args": [] }))?;
        let tabs = call("GET", "/window/handles", Value::Null)?;
        let empty = call("POST", "/window/new", json!({ "type": "tab" }))?;
        for tab in tabs.as_array().into_iter().flatten() {
            call("POST", "/window", json!({ "handle": tab }))?;
            call("DELETE", "/window", Value::Null)?;
        }
        call("POST", "/window", json!({ "handle": empty["handle"] }))?;
        command("Storage.clearDataForOrigin", json!({ "origin": origin, "storageTypes": "all" }))?;
        command("Network.clearBrowserCookies", json!({}))?;
        command("Network.clearBrowserCache", json!({}))?;
        call("POST", "/se/log", json!({ "type": "browser" }))?;
        Ok(())
    }

    /// Makes a call, and returns its value.
    #[track_caller]
    fn call(&self, method: &str, path: &str, body: &Value) -> Value {
        match self.try_call(method, path, body) {
            Ok(value) => value,
            Err(error) => panic!("{method} {path}: {error}"),
        }
    }

    /// Opens another tab, and returns its handle.
    pub(crate) fn new_tab(&self) -> String {
        let tab = self.call("POST", "/window/new", &json!({ "type": "tab" }));
        tab["handle"].as_str().unwrap().to_owned()
    }

    /// Returns the handle of the current tab.
    pub(crate) fn tab(&self) -> String {
        self.call("GET", "/window", &Value::Null).as_str().unwrap().to_owned()
    }

    pub(crate) fn switch_to(&self, tab: &str) {
        self.call("POST", "/window", &json!({ "handle": tab }));
    }

    pub(crate) fn open(&self, url: &str) {
        self.call("POST", "/url", &json!({ "url": url }));
    }

    #[track_caller]
    pub(crate) fn reload(&self) {
        self.call("POST", "/refresh", &json!({}));
    }

    pub(crate) fn resize(&self, (width, height): (u32, u32)) {
        // The inner size of a headless window is that of the emulated screen.
        let metrics = json!({ "width": width, "height": height, "deviceScaleFactor": 1, "mobile": false });
        self.command("Emulation.setDeviceMetricsOverride", &metrics);
    }

    /// Runs a command of the DevTools protocol.
    pub(crate) fn command(&self, name: &str, parameters: &Value) -> Value {
        self.call("POST", "/goog/cdp/execute", &json!({ "cmd": name, "params": parameters }))
    }

    /// Runs the body of a function in the page, and returns its result.
    #[track_caller]
    pub(crate) fn run(&self, script: &str) -> Value {
        self.call("POST", "/execute/sync", &json!({ "script": script, "args": [] }))
    }

    /// Waits until a CSS selector finds an element, and returns its path.
    #[track_caller]
    fn find(&self, selector: &str) -> String {
        self.wait_for(&format!("document.querySelector({selector:?})"));
        let found = self.call("POST", "/element", &json!({ "using": "css selector", "value": selector }));
        format!("/element/{}", found[ELEMENT].as_str().unwrap())
    }

    #[track_caller]
    pub(crate) fn click(&self, selector: &str) {
        let element = self.find(selector);
        self.call("POST", &format!("{element}/click"), &json!({}));
    }

    /// Types into the element that a CSS selector finds.
    #[track_caller]
    pub(crate) fn type_into(&self, selector: &str, text: &str) {
        let element = self.find(selector);
        self.call("POST", &format!("{element}/value"), &json!({ "text": text }));
    }

    /// Types into the element that has the focus.
    #[track_caller]
    pub(crate) fn type_keys(&self, text: &str) {
        let found = self.call("GET", "/element/active", &Value::Null);
        let id = found[ELEMENT].as_str().unwrap();
        self.call("POST", &format!("/element/{id}/value"), &json!({ "text": text }));
    }

    /// Presses keys as on a keyboard. A modifier stays down until
    /// [`RELEASE`].
    #[track_caller]
    pub(crate) fn press(&self, keys: &str) {
        let mut held = Vec::new();
        let mut actions = Vec::new();
        let mut action = |kind: &str, key: char| actions.push(json!({ "type": kind, "value": key }));
        for key in keys.chars() {
            if RELEASE.starts_with(key) {
                held.drain(..).for_each(|key| action("keyUp", key));
                continue;
            }
            action("keyDown", key);
            if SHIFT.starts_with(key) || CONTROL.starts_with(key) {
                held.push(key);
            } else {
                action("keyUp", key);
            }
        }
        let keyboard = json!({ "type": "key", "id": "keyboard", "actions": actions });
        self.call("POST", "/actions", &json!({ "actions": [keyboard] }));
    }

    /// Waits until the page shows an alert. Until it is dismissed, the page runs no code and reads
    /// nothing from its connections.
    #[track_caller]
    pub(crate) fn wait_for_alert(&self) {
        poll("an alert", || self.try_call("GET", "/alert/text", &Value::Null).is_ok(), String::new);
    }

    #[track_caller]
    pub(crate) fn dismiss_alert(&self) {
        self.call("POST", "/alert/dismiss", &json!({}));
    }

    /// Waits until an expression is true in the page.
    #[track_caller]
    pub(crate) fn wait_for(&self, expression: &str) {
        // The page may be loading.
        let script = json!({ "script": format!("return Boolean({expression})"), "args": [] });
        let is_true = || self.try_call("POST", "/execute/sync", &script) == Ok(Value::Bool(true));
        poll(expression, is_true, || {
            let text = self.run("return document.body.innerText.slice(0, 2000)");
            format!("{}\n{:?}", text.as_str().unwrap_or(""), self.console())
        });
    }

    /// Returns the lines of the console of all pages since the last call, with their level.
    pub(crate) fn console(&self) -> Vec<(String, String)> {
        let lines = self.call("POST", "/se/log", &json!({ "type": "browser" }));
        let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
        lines.as_array().unwrap().iter().map(|line| (text(&line["level"]), text(&line["message"]))).collect()
    }

    /// Returns a picture of the page, in PNG.
    pub(crate) fn screenshot(&self) -> Vec<u8> {
        let picture = self.call("GET", "/screenshot", &Value::Null);
        BASE64_STANDARD.decode(picture.as_str().unwrap()).unwrap()
    }
}

impl Session {
    fn start() -> Self {
        // The driver selects a port that is free for IPv6, and ends if it is in use for IPv4.
        let mut session = (0..10).find_map(|_| Self::start_driver()).expect("chromedriver finds a port");
        let arguments = [
            "--headless=new",
            // Neither root nor a container allows the sandbox.
            "--no-sandbox",
            "--disable-dev-shm-usage",
            "--disable-gpu",
            "--hide-scrollbars",
            "--ignore-certificate-errors",
        ];
        let capabilities = json!({ "capabilities": { "alwaysMatch": {
            "browserName": "chrome",
            // An alert stays until the test dismisses it.
            "unhandledPromptBehavior": "ignore",
            "goog:loggingPrefs": { "browser": "ALL" },
            "goog:chromeOptions": { "args": arguments },
        }}});
        let started = session.try_call("POST", "", &capabilities);
        let started = started.unwrap_or_else(|error| panic!("no session: {error}"));
        session.id = started["sessionId"].as_str().expect("a session").to_owned();
        session
    }

    /// Starts chromedriver. `None` if its port is in use.
    fn start_driver() -> Option<Self> {
        let mut supervisor = Command::new("sh")
            .args(["-c", SUPERVISOR])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        let mut output = BufReader::new(supervisor.stdout.take().unwrap());
        let mut line = String::new();
        while output.read_line(&mut line).unwrap() > 0 {
            if let Some((_, port)) = line.split_once("started successfully on port ") {
                let port = port.trim().trim_end_matches('.').parse().expect("a port");
                return Some(Session { port, id: String::new(), supervisor, _output: output });
            }
            if line.contains("port not available") {
                break;
            }
            line.clear();
        }
        supervisor.wait().unwrap();
        None
    }

    fn try_call(&self, method: &str, path: &str, body: &Value) -> Result<Value, Value> {
        let path = match self.id.as_str() {
            "" => "/session".to_owned(),
            session => format!("/session/{session}{path}"),
        };
        let body = if method == "POST" { body.to_string() } else { String::new() };
        let mut stream = TcpStream::connect(("127.0.0.1", self.port)).unwrap();
        stream.set_read_timeout(Some(2 * PATIENCE)).unwrap();
        write!(
            stream,
            "{method} {path} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\nContent-Length: {}\r\n\r\n{body}",
            body.len()
        )
        .unwrap();
        let mut stream = BufReader::new(stream);
        let (mut line, mut length) = (String::new(), 0);
        while line != "\r\n" {
            line.clear();
            assert!(stream.read_line(&mut line).unwrap() > 0, "the head ends");
            if let Some(value) = line.to_ascii_lowercase().strip_prefix("content-length:") {
                length = value.trim().parse().unwrap();
            }
        }
        let mut text = vec![0; length];
        stream.read_exact(&mut text).unwrap();
        let answer: Value = serde_json::from_slice(&text).unwrap();
        let value = answer["value"].clone();
        if value.get("error").is_some() { Err(value) } else { Ok(value) }
    }
}

/// Waits until the condition is true. WebDriver does not report changes of a page, so
/// this function polls.
#[track_caller]
fn poll(what: &str, is_true: impl Fn() -> bool, explain: impl Fn() -> String) {
    let give_up = Instant::now() + PATIENCE;
    while !is_true() {
        assert!(Instant::now() < give_up, "still not true: {what}\n{}", explain());
        thread::sleep(Duration::from_millis(20));
    }
}

impl Drop for Browser {
    fn drop(&mut self) {
        if thread::panicking() || self.clear().is_err() {
            *self.place = None;
        }
    }
}

impl Drop for Session {
    fn drop(&mut self) {
        // Closes its input first.
        let _ = self.supervisor.wait();
    }
}
