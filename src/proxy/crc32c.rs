//! The checksum CRC-32C (Castagnoli), as in RFC 4960, Appendix B.

/// The polynomial 0x1EDC6F41 with its bits reversed.
const POLYNOMIAL: u32 = 0x82f6_3b78;

/// The checksums of all bytes.
const TABLE: [u32; 256] = {
    let mut table = [0; 256];
    let mut byte = 0;
    while byte < 256 {
        let mut sum = byte as u32;
        let mut bit = 0;
        while bit < 8 {
            sum = if sum & 1 == 1 { (sum >> 1) ^ POLYNOMIAL } else { sum >> 1 };
            bit += 1;
        }
        table[byte] = sum;
        byte += 1;
    }
    table
};

/// Returns the checksum of the concatenated parts.
pub(super) fn crc32c<const N: usize>(parts: [&[u8]; N]) -> u32 {
    let sum = parts
        .into_iter()
        .flatten()
        .fold(u32::MAX, |sum, byte| (sum >> 8) ^ TABLE[usize::from((sum as u8) ^ byte)]);
    !sum
}

#[cfg(test)]
mod tests {
    use super::crc32c;

    /// The check value of the CRC catalogue, and two vectors of RFC 3720, B.4.
    #[test]
    fn the_published_vectors_have_their_checksums() {
        assert_eq!(crc32c([b"123456789"]), 0xe306_9283);
        assert_eq!(crc32c([b"1234", b"", b"56789"]), 0xe306_9283);
        assert_eq!(crc32c([&[0; 32]]), 0x8a91_36aa);
        assert_eq!(crc32c([&[0xff; 32]]), 0x62a8_ab43);
    }
}
