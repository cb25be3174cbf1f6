//! `LentTables`: the tables of a disk while a transaction has them.
//!
//! Invariant: the disk has its tables back when this is dropped, also by a panic or the kill of a
//! simulated node. Changes that were not [kept](LentTables::end) are undone.

use super::{
    tables::{Tables, Write},
    transaction::MemoryTransaction,
};

pub(super) struct LentTables<'a> {
    place: &'a mut Tables,
    transaction: MemoryTransaction,
}

impl<'a> LentTables<'a> {
    /// Begins a transaction of a store. `disk` is the [id](super::MemoryDisk::id) of the disk.
    pub(super) fn begin(place: &'a mut Tables, disk: usize, store: u64) -> Self {
        let transaction = MemoryTransaction::begin(disk, store, std::mem::take(place));
        LentTables { place, transaction }
    }

    pub(super) fn transaction(&mut self) -> &mut MemoryTransaction {
        &mut self.transaction
    }

    /// Gives the tables back with the changes of the transaction. Returns the changes that undo
    /// them, and the timers that the program has started.
    pub(super) fn end(mut self) -> (Vec<Write>, Vec<i64>) {
        self.transaction.keep_changes()
    }
}

impl Drop for LentTables<'_> {
    fn drop(&mut self) {
        *self.place = self.transaction.end();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::panic::{AssertUnwindSafe, catch_unwind};

    #[test]
    fn a_transaction_that_unwinds_is_rolled_back() {
        let mut tables = Tables::default();
        let mut lent = LentTables::begin(&mut tables, 1, 1);
        lent.transaction().put("row", "kept");
        let (inverse, started) = lent.end();
        assert_eq!((inverse.len(), started.len()), (1, 0));
        let unwound = catch_unwind(AssertUnwindSafe(|| {
            let mut lent = LentTables::begin(&mut tables, 1, 1);
            lent.transaction().put("row", "lost");
            lent.transaction().put("another row", "lost");
            panic!("on purpose");
        }));
        assert!(unwound.is_err());
        assert_eq!(tables.rows.into_iter().collect::<Vec<_>>(), [("row".to_owned(), b"kept".to_vec())]);
    }
}
