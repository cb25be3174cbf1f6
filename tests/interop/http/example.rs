//! The example `http_server`.

use crate::support::{
    process::{Process, example},
    tcp::ANY_PORT,
};

/// A running `http_server`.
pub(crate) struct HttpExample {
    process: Process,
    pub(crate) address: String,
}

impl HttpExample {
    pub(crate) fn start(arguments: &[&str]) -> Self {
        let program = example("http_server");
        let own = [program.to_str().unwrap(), "--listen", ANY_PORT, "--threads", "2"];
        let mut process = Process::start(&[&own, arguments].concat());
        let port = process.stdout.wait_for("listening on 127.0.0.1:");
        HttpExample { process, address: format!("127.0.0.1:{port}") }
    }

    /// Returns the URL of a path.
    pub(crate) fn url(&self, path: &str) -> String {
        format!("http://{}{path}", self.address)
    }

    /// Interrupts the server, which must end without a complaint.
    #[track_caller]
    pub(crate) fn stop(self) {
        self.process.signal("INT");
        let (_, errors) = self.process.succeed();
        assert_eq!(errors, "");
    }
}
