//! Clients: one transfer after another.

use super::{
    super::support::{Calm, Draw, SECOND, until_ok},
    backend::{Side, options},
    gateway::{HOST, roots},
    transfer::{End, Transfers},
};
use netwheel::{
    codec::RawBytes,
    prelude::*,
    testing::simulation::{sleep, sometimes},
    tls::{TlsClient, TlsVersion},
};
use std::sync::{Arc, Mutex};

pub(super) fn run(transfers: &Arc<Mutex<Transfers>>, calm: &Calm) -> Result {
    let tls = TlsClient::builder(roots()?).server_name(HOST).min_version(TlsVersion::Tls13).build()?;
    let group = until_ok(|| EventLoopGroup::builder().threads(1).build());
    let mut draw = Draw::new();
    loop {
        let is_calm = calm.is_now();
        let id = transfers.lock().unwrap().begin();
        let of_handler = transfers.clone();
        let client = ClientBootstrap::new(&group)
            .channel_options(options())
            .connect_timeout(5 * SECOND)
            .handshake_timeout(5 * SECOND)
            .tls(tls.clone())
            .pipeline(move |_peer| {
                let side = Side::new(End::Client, of_handler.clone(), is_calm, Some(id));
                Pipeline::codec(RawBytes).idle(IdleTimeouts::new().all(30 * SECOND)).handler(side)
            });
        let result = match client.connect("gateway:443").wait() {
            Ok(channel) => match channel.closed().wait_timeout(300 * SECOND) {
                Ok(cause) => format!("{cause:?}"),
                Err(_) => {
                    transfers.lock().unwrap().violated(format!("transfer {id} does not end"));
                    return Ok(());
                }
            },
            Err(error) => {
                sometimes("handshake failed");
                format!("{error:#}")
            }
        };
        // The backend may see its end later.
        sleep(SECOND / 20 + draw.time(SECOND));
        if is_calm {
            transfers.lock().unwrap().check_complete(id, &result);
        }
    }
}
