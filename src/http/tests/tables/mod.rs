//! Inputs from the tests of Go's `net/http` and Netty's `codec-http`, and the results of a server
//! and a client of this crate. Each input arrives whole, in two pieces with every cut, and byte by
//! byte.
//!
//! A row without [`Row::differs`] has the outcome of the named implementation. In the others we
//! differ on purpose, and the row says why.

mod requests;
mod responses;
mod row;
mod transcript;
mod written;

use row::Row;

/// Plays each row in each way, and compares. All rows are played, so that a change shows all of its
/// effects.
///
/// `expected` returns the lines of a row. `play` returns the lines for its input in these pieces.
#[track_caller]
fn check(rows: &[Row], expected: impl Fn(&Row) -> Vec<String>, play: impl Fn(&Row, &[&[u8]]) -> Vec<String>) {
    let mut failures = Vec::new();
    for row in rows {
        let expected = expected(row);
        let input = row.input.as_slice();
        let bytes: Vec<&[u8]> = input.chunks(1).collect();
        let in_two = (1..input.len()).map(|cut| vec![&input[..cut], &input[cut..]]);
        let splits = [vec![input], bytes].into_iter().chain(in_two);
        for pieces in splits {
            let seen = play(row, &pieces);
            if seen != expected {
                let lengths = (pieces.len(), pieces[0].len());
                failures.push(format!("{row}, pieces {lengths:?}:\n  {seen:?}, not\n  {expected:?}"));
                break;
            }
        }
    }
    assert!(failures.is_empty(), "{} of {} rows:\n{}", failures.len(), rows.len(), failures.join("\n"));
}

/// The documentation states these numbers and lists the differences.
#[test]
fn each_row_has_a_name_and_each_difference_a_reason() {
    let tables = [requests::rows(), responses::rows()];
    let differences = tables.iter().flatten().filter(|row| row.why.is_some()).count();
    let counts = (tables[0].len(), tables[1].len(), differences);
    assert_eq!(counts, (122, 80, 39), "docs/interop.md has other numbers of rows and of differences");
    for rows in &tables {
        let mut names: Vec<String> = rows.iter().map(Row::to_string).collect();
        names.sort();
        names.dedup();
        assert_eq!(names.len(), rows.len());
        for why in rows.iter().filter_map(|row| row.why) {
            assert!(why.contains("RFC "), "{why}");
        }
    }
}
