//! `sslscan` against our server reports nothing weak.

use crate::{interop::tls_echo::TlsEcho, support::process::are_installed};
use std::process::Command;

#[test]
fn a_scan_finds_no_weak_protocol_cipher_or_key_exchange() {
    if !are_installed(&["sslscan"]) {
        return;
    }
    let server = TlsEcho::start(&[]);
    let scan = Command::new("sslscan").args(["--no-colour", &server.address()]).output().unwrap();
    let report = String::from_utf8(scan.stdout).unwrap();
    for (protocol, state) in [
        ("SSLv2", "disabled"),
        ("SSLv3", "disabled"),
        ("TLSv1.0", "disabled"),
        ("TLSv1.1", "disabled"),
        ("TLSv1.2", "enabled"),
        ("TLSv1.3", "enabled"),
    ] {
        let line = format!("{protocol:<10}{state}");
        assert!(report.contains(&line), "no line {line:?} in {report}");
    }
    assert!(report.contains("Session renegotiation not supported"), "{report}");
    assert!(report.contains("TLSv1.2 not vulnerable to heartbleed"), "{report}");
    let ciphers: Vec<_> =
        report.lines().filter(|line| line.starts_with("Accepted") || line.starts_with("Preferred")).collect();
    assert!(ciphers.len() >= 4, "{report}");
    for cipher in ciphers {
        // Authenticated encryption with forward secrecy only.
        assert!(cipher.contains("GCM") || cipher.contains("POLY1305"), "{cipher}");
        assert!(cipher.contains("TLS_") || cipher.contains("ECDHE-"), "{cipher}");
    }
    server.stop();
}
