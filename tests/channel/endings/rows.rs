//! The tables of docs/endings.md, whose rows the tests of this module check.

const DOCS: &str = include_str!("../../../docs/endings.md");

/// Returns the rows of the table whose first column has this title.
#[track_caller]
pub(super) fn rows<const N: usize>(title: &str) -> Vec<[&'static str; N]> {
    let header = format!("| {title} |");
    let table = DOCS.lines().skip_while(|line| !line.starts_with(&header)).skip(2);
    let rows: Vec<[&str; N]> = table
        .take_while(|line| line.starts_with('|'))
        .map(|line| {
            let cells: Vec<_> = line.trim_matches('|').split('|').map(str::trim).collect();
            cells.try_into().expect("a cell for each column")
        })
        .collect();
    assert!(!rows.is_empty(), "the docs have no table {title:?}");
    rows
}

/// Returns the entries of a cell.
pub(super) fn entries(cell: &'static str) -> Vec<&'static str> {
    cell.split(", ").map(|entry| entry.trim_matches('`')).filter(|entry| *entry != "—").collect()
}

/// Compares the observed events with the rows of a table.
#[derive(Default)]
pub(super) struct Check(Vec<String>);

impl Check {
    /// Compares a row: each pair is the observed events, and the cell.
    pub(super) fn row(&mut self, name: &str, pairs: &[(&[&str], &'static str)]) {
        for (happened, cell) in pairs {
            if *happened != entries(cell) {
                self.0.push(format!("{name}: {happened:?}, the docs say {cell}"));
            }
        }
    }

    /// Panics if a row differs.
    #[track_caller]
    pub(super) fn end(self) {
        assert!(self.0.is_empty(), "{:#?}", self.0);
    }
}
