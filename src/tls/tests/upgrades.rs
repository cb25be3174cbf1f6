//! STARTTLS.

use super::certificates::self_signed;
use crate::{
    codec::Line,
    prelude::*,
    testing::EmbeddedChannel,
    tls::{TlsClient, TlsServer},
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

    fn read(&mut self, ctx: &mut Context<'_, Self>, line: Bytes) -> crate::Result {
        if &line[..] == b"STARTTLS" {
            ctx.write("ready".into())?;
            return ctx.start_tls(&self.0);
        }
        let state = if ctx.tls().is_some() { "encrypted" } else { "plain" };
        ctx.write(format!("{state} {}", String::from_utf8_lossy(&line)).into())
    }

    fn error(&mut self, ctx: &mut Context<'_, Self>, error: Error) -> crate::Result {
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

    fn active(&mut self, ctx: &mut Context<'_, Self>) -> crate::Result {
        ctx.write("hello".into())?;
        ctx.write("STARTTLS".into())
    }

    fn read(&mut self, ctx: &mut Context<'_, Self>, line: Bytes) -> crate::Result {
        let _ = self.1.send(String::from_utf8_lossy(&line).into_owned());
        if &line[..] == b"ready" {
            ctx.start_tls(&self.0)?;
            ctx.write("hello again".into())?;
        }
        Ok(())
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
    assert_eq!(seen, ["plain hello", "ready", "encrypted hello again"]);
    channel.close();
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

/// S-22.
#[test]
fn an_answer_injected_behind_the_servers_ready_is_never_taken_as_decrypted() {
    let (_, roots) = self_signed("localhost");
    let (sender, lines) = channel();
    let tls = TlsClient::builder(roots).server_name("localhost").build().unwrap();
    let mut channel = EmbeddedChannel::new(Pipeline::codec(Line::new()).handler(Asking(tls, sender)));
    channel.write_inbound(b"ready\ninjected\n").unwrap();
    assert!(channel.is_closed());
    assert_eq!(lines.try_iter().collect::<Vec<_>>(), ["ready"]);
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
