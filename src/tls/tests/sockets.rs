//! Servers and clients with TLS over sockets.

use super::certificates::self_signed;
use crate::{
    codec::Line,
    error::PeerError,
    prelude::*,
    tls::{TlsClient, TlsServer, TlsVersion},
};
use bytes::Bytes;
use std::sync::mpsc::{Sender, channel};

struct Lines(Sender<String>);

impl Handler for Lines {
    type Read = Bytes;
    type Write = Bytes;

    fn read(&mut self, _: &mut Context<'_, Self>, line: Bytes) -> crate::Result {
        let _ = self.0.send(String::from_utf8_lossy(&line).into_owned());
        Ok(())
    }
}

#[test]
fn a_client_and_a_server_talk_over_tls() {
    let group = EventLoopGroup::builder().threads(1).build().unwrap();
    let (certificate, roots) = self_signed("localhost");
    let tls = TlsServer::builder(certificate).alpn(["chat", "echo"]).build().unwrap();
    let server = ServerBootstrap::new(&group)
        .tls(tls)
        .pipeline(|peer| {
            let info = peer.tls().expect("a handshake").clone();
            Pipeline::codec(Line::new()).on_read(move |ctx, line: Bytes| {
                let name = info.server_name().unwrap_or("nobody");
                ctx.write(format!("{name} {:?} {:?}", info.alpn_protocol(), info.version()).into())?;
                ctx.write(line)
            })
        })
        .bind("127.0.0.1:0")
        .unwrap();
    let client = TlsClient::builder(roots).alpn(["echo"]).server_name("localhost").build().unwrap();
    let (sender, lines) = channel();
    let client = ClientBootstrap::new(&group)
        .tls(client)
        .pipeline(move |_| Pipeline::codec(Line::new()).handler(Lines(sender.clone())));
    let channel = client.connect(server.local_address()).wait().unwrap();
    channel.write("hello".into()).unwrap();
    assert_eq!(lines.recv().unwrap(), format!("localhost Some(\"echo\") {:?}", TlsVersion::Tls13));
    assert_eq!(lines.recv().unwrap(), "hello");
}

#[test]
fn a_certificate_of_another_host_fails_the_connect() {
    let group = EventLoopGroup::builder().threads(1).build().unwrap();
    let (certificate, roots) = self_signed("other.example");
    let server = ServerBootstrap::new(&group)
        .tls(TlsServer::builder(certificate).build().unwrap())
        .pipeline(|_| Pipeline::codec(Line::new()).on_read(|ctx, line: Bytes| ctx.write(line)))
        .bind("127.0.0.1:0")
        .unwrap();
    let tls = TlsClient::builder(roots).server_name("localhost").build().unwrap();
    let client = ClientBootstrap::new(&group)
        .tls(tls)
        .pipeline(|_| Pipeline::codec(Line::new()).on_read(|_, _: Bytes| Ok(())));
    let error = client.connect(server.local_address()).wait().map(drop).unwrap_err();
    assert!(matches!(&error, Error::Peer(PeerError::Protocol { protocol: "TLS", .. })), "{error:#}");
    assert!(format!("{error:#}").contains("not valid for name"), "{error:#}");
}
