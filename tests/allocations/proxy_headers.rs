//! Memory for PROXY headers.

use crate::{heap, own_process};
use netwheel::proxy::ProxyHeader;

const LIMIT: usize = ProxyHeader::DEFAULT_MAX_LEN;

#[test]
fn an_incomplete_or_refused_proxy_header_allocates_nothing() {
    own_process!();
    let mut header = b"\r\n\r\n\0\r\nQUIT\n\x20\x00\x0f\xf0".to_vec();
    header.extend([0xe0, 0x0f, 0xed]);
    header.resize(LIMIT, 7);
    let blocks = heap::total_blocks();
    for end in 0..LIMIT {
        assert!(matches!(ProxyHeader::parse(&header[..end], LIMIT), Ok(None)));
    }
    header[14] = 0xff;
    assert!(ProxyHeader::parse(&header, LIMIT).is_err(), "the announced length is refused");
    assert_eq!(heap::total_blocks(), blocks);

    header[14] = 0x0f;
    let before = heap::bytes_in_use();
    let parsed = ProxyHeader::parse(&header, LIMIT);
    let kept = heap::bytes_in_use() - before;
    assert!(matches!(&parsed, Ok(Some((_, LIMIT)))) && kept <= LIMIT, "{kept} bytes");
}
