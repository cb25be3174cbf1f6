//! What a child process reports to its parent.

use std::fs;

/// Reports a figure to the parent.
pub(crate) fn say(name: &str, value: f64) {
    println!("{name}={value}");
}

/// Reports this process's memory: that of now, and the most so far.
pub(crate) fn say_memory() {
    let status = fs::read_to_string("/proc/self/status").unwrap_or_default();
    for (field, name) in [("VmRSS:", "rss_kib"), ("VmHWM:", "most_kib")] {
        let line = status.lines().find_map(|line| line.strip_prefix(field));
        let kib = line.and_then(|line| line.split_whitespace().next()?.parse().ok());
        say(name, kib.unwrap_or(f64::NAN));
    }
}
