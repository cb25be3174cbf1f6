//! `gnutls-cli` against our server.

use crate::{
    interop::tls_echo::TlsEcho,
    support::process::{Process, are_installed},
};

#[test]
fn gnutls_echoes_with_both_versions_and_resumes() {
    if !are_installed(&["gnutls-cli"]) {
        return;
    }
    let server = TlsEcho::start(&["--alpn", "echo"]);
    for version in ["VERS-TLS1.2", "VERS-TLS1.3"] {
        let priority = format!("NORMAL:-VERS-ALL:+{version}");
        let mut client = Process::start(&[
            "gnutls-cli",
            "--x509cafile",
            &server.certificate,
            "--priority",
            &priority,
            "--alpn",
            "echo",
            "--resume",
            "--waitresumption",
            "--sni-hostname",
            "localhost",
            "--verify-hostname",
            "localhost",
            "-p",
            &server.port,
            "127.0.0.1",
        ]);
        client.stdout.wait_for("This is a resumed session");
        client.stdout.wait_for("Simple Client Mode");
        client.say("hello\n");
        client.stdout.wait_for("hello");
        client.succeed();
    }
    server.stop();
}
