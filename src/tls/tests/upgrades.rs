//! STARTTLS.

use super::certificates::self_signed;
use crate::{
    bootstrap::{ClientBootstrap, ServerBootstrap},
    channel::Pipeline,
    codec::Line,
    error::Error,
    group::EventLoopGroup,
    pipeline::{Context, Handler},
    proxy::{ProxyHeader, ProxyProtocol},
    testing::{EmbeddedChannel, wait::PATIENCE},
    tls::{client::TlsClient, server::TlsServer},
};
use bytes::Bytes;
use std::{
    net::SocketAddr,
    sync::mpsc::{Sender, channel},
};

/// A server that upgrades on request.
struct Upgrading(TlsServer, Sender<String>);

impl Handler for Upgrading {
    type Read = Bytes;
    type Write = Bytes;

    fn read(&mut self, ctx: &mut Context<'_, Self>, line: Bytes) -> crate::error::Result {
        if &line[..] == b"STARTTLS" {
            ctx.write("ready".into())?;
            return ctx.start_tls(&self.0);
        }
        let line = String::from_utf8_lossy(&line);
        let answer = match ctx.tls() {
            Some(tls) => format!("encrypted {line} from {}", tls.server_name().unwrap_or("-")),
            None => format!("plain {line}"),
        };
        ctx.write(answer.into())
    }

    fn error(&mut self, ctx: &mut Context<'_, Self>, error: Error) -> crate::error::Result {
        let _ = self.1.send(format!("{error:#}"));
        ctx.close();
        Ok(())
    }
}

/// A client that asks for the upgrade, then sends a line.
struct Asking(TlsClient, Sender<String>);

impl Handler for Asking {
    type Read = Bytes;
    type Write = Bytes;

    fn active(&mut self, ctx: &mut Context<'_, Self>) -> crate::error::Result {
        ctx.write("hello".into())?;
        ctx.write("STARTTLS".into())
    }

    fn read(&mut self, ctx: &mut Context<'_, Self>, line: Bytes) -> crate::error::Result {
        let _ = self.1.send(String::from_utf8_lossy(&line).into_owned());
        if &line[..] == b"ready" {
            ctx.start_tls(&self.0)?;
            ctx.write("hello again".into())?;
        }
        Ok(())
    }

    fn error(&mut self, _: &mut Context<'_, Self>, error: Error) -> crate::error::Result {
        let _ = self.1.send(format!("{error:#}"));
        Err(error)
    }
}

#[test]
fn both_ends_upgrade_an_open_connection() {
    let group = EventLoopGroup::builder().threads(1).build().unwrap();
    let (certificate, roots) = self_signed("localhost");
    let tls = TlsServer::builder(certificate).build().unwrap();
    let (errors, _) = channel();
    let server = ServerBootstrap::new(&group)
        .pipeline(move |_| Pipeline::codec(Line::new()).handler(Upgrading(tls.clone(), errors.clone())))
        .bind("127.0.0.1:0".parse::<SocketAddr>().unwrap())
        .unwrap();
    let (sender, lines) = channel();
    let tls = TlsClient::builder(roots).server_name("localhost").build().unwrap();
    let client = ClientBootstrap::new(&group)
        .pipeline(move |_| Pipeline::codec(Line::new()).handler(Asking(tls.clone(), sender.clone())));
    let channel = client.connect(server.local_address()).wait().unwrap();
    let seen: Vec<_> = lines.iter().take(3).collect();
    assert_eq!(seen, ["plain hello", "ready", "encrypted hello again from localhost"]);
    channel.close();
}

/// Asks for the upgrade as a client of `target` without a server name, of a server with a
/// certificate for `name`. Returns the lines and errors of both.
fn upgrade_by_name(name: &str, target: &str, proxied: bool) -> Vec<String> {
    let group = EventLoopGroup::builder().threads(1).build().unwrap();
    let (certificate, roots) = self_signed(name);
    let tls = TlsServer::builder(certificate).build().unwrap();
    let (sender, lines) = channel();
    let errors = sender.clone();
    let mut server = ServerBootstrap::new(&group);
    if proxied {
        server = server.proxy_protocol(ProxyProtocol::required().trust("127.0.0.0/8").unwrap());
    }
    let server = server
        .pipeline(move |_| Pipeline::codec(Line::new()).handler(Upgrading(tls.clone(), errors.clone())))
        .bind("127.0.0.1:0".parse::<SocketAddr>().unwrap())
        .unwrap();
    let tls = TlsClient::builder(roots).build().unwrap();
    let mut client = ClientBootstrap::new(&group);
    if proxied {
        client = client.filter(|_| ProxyHeader::v2_local().filter());
    }
    let client =
        client.pipeline(move |_| Pipeline::codec(Line::new()).handler(Asking(tls.clone(), sender.clone())));
    let channel = client.connect((target, server.local_address().port())).wait().unwrap();
    drop(client);
    let mut seen = Vec::new();
    while let Ok(line) = lines.recv_timeout(PATIENCE) {
        let last = line.contains("again") || line.contains("TLS failed");
        seen.push(line);
        if last {
            break;
        }
    }
    channel.close_now();
    seen
}

/// S-22: the certificate must have the name that was passed to `connect`.
#[test]
fn an_upgrade_checks_the_certificate_for_the_host_that_was_connected_to() {
    for proxied in [false, true] {
        let seen = upgrade_by_name("localhost", "localhost", proxied);
        assert_eq!(seen, ["plain hello", "ready", "encrypted hello again from localhost"]);
        let seen = upgrade_by_name("127.0.0.1", "127.0.0.1", proxied);
        assert_eq!(seen, ["plain hello", "ready", "encrypted hello again from -"]);
        let seen = upgrade_by_name("127.0.0.1", "localhost", proxied);
        assert!(seen[2].contains("TLS failed"), "{seen:?}");
    }
}

/// S-22.
#[test]
fn commands_injected_behind_starttls_are_never_taken_as_decrypted() {
    let (certificate, _) = self_signed("localhost");
    let (errors, told) = channel();
    let upgrading = Upgrading(TlsServer::builder(certificate).build().unwrap(), errors);
    let mut channel = EmbeddedChannel::new(Pipeline::codec(Line::new()).handler(upgrading));
    channel.write_inbound(b"STARTTLS\ninjected\n").unwrap();
    let error = told.recv().unwrap();
    assert!(error.contains("plaintext after the upgrade"), "{error}");
    assert_eq!(channel.read_outbound(), &b"ready\n"[..]);
    assert!(channel.is_closed());
}

/// The settings may be those of the server, whose port takes both.
#[test]
fn an_upgrade_with_or_plaintext_accepts_tls_only() {
    let (certificate, _) = self_signed("localhost");
    let (errors, told) = channel();
    let tls = TlsServer::builder(certificate).build().unwrap().or_plaintext();
    let mut channel = EmbeddedChannel::new(Pipeline::codec(Line::new()).handler(Upgrading(tls, errors)));
    channel.write_inbound(b"STARTTLS\n").unwrap();
    assert_eq!(channel.read_outbound(), &b"ready\n"[..]);
    channel.channel().write("secret".into()).unwrap();
    channel.run_pending();
    channel.write_inbound(b"no hello\n").unwrap();
    let sent = channel.read_outbound();
    assert!(!sent.windows(6).any(|part| part == b"secret" || part == b"plain "), "{sent:?}");
    let error = told.try_recv().expect("an error");
    assert!(error.contains("not TLS"), "{error}");
    assert!(channel.is_closed());
}

/// S-22.
#[test]
fn an_answer_injected_behind_the_servers_ready_is_never_taken_as_decrypted() {
    let (_, roots) = self_signed("localhost");
    let (sender, lines) = channel();
    let tls = TlsClient::builder(roots).server_name("localhost").build().unwrap();
    let mut channel = EmbeddedChannel::new(Pipeline::codec(Line::new()).handler(Asking(tls, sender)));
    channel.write_inbound(b"ready\ninjected\n").unwrap();
    assert!(channel.is_closed());
    let told: Vec<_> = lines.try_iter().collect();
    assert_eq!(told[0], "ready");
    assert!(told.len() == 2 && told[1].contains("plaintext after the upgrade"), "{told:?}");
}

#[test]
fn a_client_without_a_server_name_cannot_upgrade() {
    let (_, roots) = self_signed("localhost");
    let (sender, _lines) = channel();
    let tls = TlsClient::builder(roots).build().unwrap();
    let mut channel = EmbeddedChannel::new(Pipeline::codec(Line::new()).handler(Asking(tls, sender)));
    // An embedded channel has no address whose certificate could be checked.
    channel.write_inbound(b"ready\n").unwrap();
    assert!(channel.is_closed());
}

#[test]
fn an_answer_that_is_no_tls_fails_the_upgrade_with_an_error() {
    let (_, roots) = self_signed("localhost");
    let (sender, _lines) = channel();
    let tls = TlsClient::builder(roots).server_name("localhost").build().unwrap();
    let mut channel = EmbeddedChannel::new(Pipeline::codec(Line::new()).handler(Asking(tls, sender)));
    channel.write_inbound(b"ready\n").unwrap();
    assert!(channel.is_open());
    channel.write_inbound(b"500 sorry\n").unwrap();
    assert!(channel.is_closed());
}
