//! The example `tls_echo` with a certificate of the test.

use crate::{
    interop::files::Files,
    support::{
        process::{Process, example},
        tcp::ANY_PORT,
    },
};
use rcgen::{CertifiedKey, generate_simple_self_signed};

/// A running `tls_echo` for the host `localhost`.
pub(crate) struct TlsEcho {
    process: Process,
    pub(crate) port: String,
    pub(crate) files: Files,
    /// The file with the server's certificate, which clients trust.
    pub(crate) certificate: String,
}

/// Writes a self-signed certificate and its key. Returns their paths.
pub(crate) fn self_signed(files: &Files, host: &str) -> (String, String) {
    let CertifiedKey { cert, signing_key } = generate_simple_self_signed([host.to_owned()]).unwrap();
    let certificate = files.write(&format!("{host}.pem"), &cert.pem());
    (certificate, files.write(&format!("{host}.key"), &signing_key.serialize_pem()))
}

impl TlsEcho {
    pub(crate) fn start(arguments: &[&str]) -> Self {
        Self::start_with(Files::new(), arguments)
    }

    pub(crate) fn start_with(files: Files, arguments: &[&str]) -> Self {
        let (certificate, key) = self_signed(&files, "localhost");
        let program = example("tls_echo");
        let own = [program.to_str().unwrap(), "--listen", ANY_PORT, "--cert", &certificate, "--key", &key];
        let mut process = Process::start(&[&own, arguments].concat());
        let port = process.stdout.wait_for("listening on 127.0.0.1:");
        TlsEcho { process, port, files, certificate }
    }

    pub(crate) fn address(&self) -> String {
        format!("127.0.0.1:{}", self.port)
    }

    /// Interrupts the server, which must end without a complaint.
    #[track_caller]
    pub(crate) fn stop(self) {
        self.process.signal("INT");
        let (_, errors) = self.process.succeed();
        assert_eq!(errors, "");
    }
}
