//! Requests and replies beyond the usual limits of a channel and of `codec::Resp`.

use super::servers::Double;
use bytes::Bytes;
use netwheel::{
    codec::RespValue,
    testing::redis::{RedisDisk, RedisServer},
};

const MIB: usize = 1024 * 1024;

#[test]
fn large_values_and_many_elements_are_not_refused() {
    let double = Double::start(RedisServer::new(RedisDisk::new()));
    let mut client = double.connect();
    for (key, size) in [("large", 2 * MIB), ("other", MIB)] {
        client.send([vec!["SET".into(), key.into(), vec![b'x'; size].into()]]);
        assert_eq!(client.receive(), RespValue::Simple("OK".into()));
    }
    let length_of = |value: RespValue| value.as_bytes().map(|bytes| bytes.len());
    assert_eq!(length_of(client.ask("GET large")), Some(2 * MIB));

    client.send((0..20).map(|_| vec!["GET".into(), "other".into()]));
    for _ in 0..20 {
        assert_eq!(length_of(client.receive()), Some(MIB));
    }

    let values = (0..100_000).map(|_| Bytes::from_static(b"v"));
    client.send([["RPUSH".into(), "list".into()].into_iter().chain(values).collect()]);
    assert_eq!(client.receive(), RespValue::Integer(100_000));
    let RespValue::Array(list) = client.ask("LRANGE list 0 -1") else { panic!("a list") };
    assert_eq!(list.len(), 100_000);
}
