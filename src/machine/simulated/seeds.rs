//! Seeds of independent streams of random numbers.

/// Returns the seed of a stream of random numbers. Streams do not depend on each other.
pub(crate) fn derive(seed: u64, name: &str) -> u64 {
    // FNV-1a over the name.
    let hash = name.bytes().fold(0xcbf2_9ce4_8422_2325_u64, |hash, byte| {
        (hash ^ u64::from(byte)).wrapping_mul(0x0000_0100_0000_01b3)
    });
    mix(seed ^ hash)
}

/// The finalizer of SplitMix64, a bijection.
pub(crate) fn mix(n: u64) -> u64 {
    let n = (n ^ (n >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    let n = (n ^ (n >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
    n ^ (n >> 31)
}
