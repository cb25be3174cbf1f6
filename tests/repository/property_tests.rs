//! Checks that property tests keep the seeds of failed cases, so that a failure in CI can be
//! reproduced.

use super::sources;

#[test]
fn property_tests_keep_failing_seeds() {
    let mut property_tests = 0;
    for (path, text) in sources() {
        let code = || text.lines().filter(|line| !line.trim_start().starts_with("//"));
        property_tests += code().filter(|line| line.contains("proptest! {")).count();
        // By default, seeds are written to proptest-regressions/, to be committed with the fix.
        let set = code().any(|line| line.contains("failure_persistence"));
        assert!(!set, "{}: failure_persistence keeps its default", path.display());
    }
    assert!(property_tests > 0, "found no property tests");
}
