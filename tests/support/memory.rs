//! How large this process is, as the kernel counts it. Linux only.

/// Bytes of this process that are in memory. Files that are mapped are among them, so differences are what counts.
pub(crate) fn resident() -> usize {
    of_all_mappings("Rss:")
}

/// Bytes of the heap and the stacks that are in memory.
pub(crate) fn anonymous() -> usize {
    of_all_mappings("Anonymous:")
}

/// Counted page by page; the numbers in `statm` may be late by some pages for each thread.
fn of_all_mappings(what: &str) -> usize {
    let rollup = std::fs::read_to_string("/proc/self/smaps_rollup").unwrap();
    let line = rollup.lines().find_map(|line| line.strip_prefix(what)).expect("the kernel counts it");
    let kib: usize = line.trim().trim_end_matches(" kB").parse().unwrap();
    kib * 1024
}
