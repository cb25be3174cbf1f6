//! A small client of WebDriver (<https://www.w3.org/TR/webdriver2/>) for chromedriver.

use crate::support::{process::Process, wait::PATIENCE};
use base64::{Engine, prelude::BASE64_STANDARD};
use serde_json::{Value, json};
use std::{
    io::{BufRead, BufReader, Read, Write},
    net::TcpStream,
    time::{Duration, Instant},
};

/// A running chromedriver, and a browser that it controls. Both end on drop.
pub(crate) struct Browser {
    port: u16,
    session: String,
    /// Ended after the session.
    _driver: Process,
}

/// The key of an element's id in JSON, from the specification.
const ELEMENT: &str = "element-6066-11e4-a52e-4f735466cecf";

impl Browser {
    /// Starts a headless Chromium.
    pub(crate) fn start() -> Self {
        let mut driver = Process::start(&["chromedriver", "--port=0", "--log-level=SEVERE"]);
        let port = driver.stdout.wait_for("started successfully on port ");
        let port = port.trim_end_matches('.').parse().expect("a port");
        let mut browser = Browser { port, session: String::new(), _driver: driver };
        let arguments = [
            "--headless=new",
            // Neither root nor a container allows the sandbox.
            "--no-sandbox",
            "--disable-dev-shm-usage",
            "--disable-gpu",
            "--ignore-certificate-errors",
        ];
        let capabilities = json!({ "capabilities": { "alwaysMatch": {
            "browserName": "chrome",
            "goog:loggingPrefs": { "browser": "ALL" },
            "goog:chromeOptions": { "args": arguments },
        }}});
        let session = browser.call("POST", "", &capabilities);
        browser.session = session["sessionId"].as_str().expect("a session").to_owned();
        browser
    }

    /// Makes a call, and returns its value.
    #[track_caller]
    fn call(&self, method: &str, path: &str, body: &Value) -> Value {
        match self.try_call(method, path, body) {
            Ok(value) => value,
            Err(error) => panic!("{method} {path}: {error}"),
        }
    }

    fn try_call(&self, method: &str, path: &str, body: &Value) -> Result<Value, Value> {
        let path = match self.session.as_str() {
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

    pub(crate) fn resize(&self, width: u32, height: u32) {
        // The inner size of a headless window is that of the emulated screen.
        let metrics = json!({ "width": width, "height": height, "deviceScaleFactor": 1, "mobile": false });
        self.command("Emulation.setDeviceMetricsOverride", &metrics);
    }

    /// Runs a command of the DevTools protocol.
    pub(crate) fn command(&self, name: &str, parameters: &Value) {
        self.call("POST", "/goog/cdp/execute", &json!({ "cmd": name, "params": parameters }));
    }

    /// Runs the body of a function in the page, and returns its result.
    #[track_caller]
    pub(crate) fn run(&self, script: &str) -> Value {
        self.call("POST", "/execute/sync", &json!({ "script": script, "args": [] }))
    }

    /// Types into the element that a CSS selector finds.
    #[track_caller]
    pub(crate) fn type_into(&self, selector: &str, text: &str) {
        let found = self.call("POST", "/element", &json!({ "using": "css selector", "value": selector }));
        let id = found[ELEMENT].as_str().unwrap();
        self.call("POST", &format!("/element/{id}/value"), &json!({ "text": text }));
    }

    /// Types into the element that has the focus, as with a keyboard.
    #[track_caller]
    pub(crate) fn type_keys(&self, text: &str) {
        let found = self.call("GET", "/element/active", &Value::Null);
        let id = found[ELEMENT].as_str().unwrap();
        self.call("POST", &format!("/element/{id}/value"), &json!({ "text": text }));
    }

    /// Waits until an expression is true in the page.
    #[track_caller]
    pub(crate) fn wait_for(&self, expression: &str) {
        let give_up = Instant::now() + PATIENCE;
        loop {
            // The page may be loading.
            let script = json!({ "script": format!("return Boolean({expression})"), "args": [] });
            if self.try_call("POST", "/execute/sync", &script) == Ok(Value::Bool(true)) {
                return;
            }
            if Instant::now() > give_up {
                let text = self.run("return document.body.innerText.slice(0, 2000)");
                panic!("still not true: {expression}\n{}\n{:?}", text.as_str().unwrap_or(""), self.console());
            }
            std::thread::sleep(Duration::from_millis(20));
        }
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

impl Drop for Browser {
    fn drop(&mut self) {
        // Ends the browser, which would survive its driver.
        let _ = self.try_call("DELETE", "", &Value::Null);
    }
}
