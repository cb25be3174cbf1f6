//! The program's own writes, each in a savepoint.

use super::session::PostgresSession;
use crate::durable::{
    id::TimerId,
    store::{
        change::Outcome,
        error::StoreError,
        transaction::{Effect, StoreTransaction},
    },
};

/// Releases the savepoint. Constraints that a program has deferred are checked now, so that their
/// violation undoes this effect alone.
const RELEASE: &str = "SET CONSTRAINTS ALL IMMEDIATE; RELEASE SAVEPOINT effect";

const ROLLBACK: &str = "ROLLBACK TO SAVEPOINT effect; RELEASE SAVEPOINT effect";

/// How often an effect may lose the connection before its run has failed.
const LOSSES: u32 = 3;

/// The timer whose effect has lost the connection last, and how often in a row. Its transaction is
/// repeated, so the effect would be called again and again.
#[derive(Default)]
pub(super) struct LostIn(Option<(TimerId, u32)>);

impl LostIn {
    fn add(&mut self, id: TimerId) {
        let before = self.0.filter(|(last, _)| *last == id).map_or(0, |(_, times)| times);
        self.0 = Some((id, before + 1));
    }

    /// Returns whether the effect of a timer has lost the connection too often. Then the count
    /// begins again, for another attempt of the run.
    fn give_up(&mut self, id: TimerId) -> bool {
        self.0.take_if(|(last, times)| *last == id && *times >= LOSSES).is_some()
    }
}

/// The effects of a transaction.
#[derive(Default)]
pub(super) struct Effects {
    /// Whether constraints are immediate because of an earlier effect.
    is_immediate: bool,
}

impl Effects {
    /// Runs the effect of a timer. If it fails, or has lost the connection too often, its writes
    /// are undone, and the outcome is returned.
    pub(super) fn run_for(
        &mut self,
        id: TimerId,
        lost: &mut LostIn,
        session: &mut PostgresSession,
        effect: &mut Effect,
    ) -> Result<Option<Outcome>, StoreError> {
        if lost.give_up(id) {
            let error = format!("the effect has lost the connection {LOSSES} times; is it too slow?");
            return Ok(Some(Outcome::Refused(StoreError::Effect(error.into()))));
        }
        let result = self.run(session, effect);
        if result.is_err() {
            lost.add(id);
        }
        result
    }

    /// Runs an effect. If it fails, its writes are undone, and the outcome is returned.
    fn run(
        &mut self,
        session: &mut PostgresSession,
        effect: &mut Effect,
    ) -> Result<Option<Outcome>, StoreError> {
        let deferred = if self.is_immediate { "SET CONSTRAINTS ALL DEFERRED; " } else { "" };
        session.batch(&format!("{deferred}SAVEPOINT effect"))?;
        let error = match StoreTransaction::new(session.client()).run(effect) {
            // Fails if the effect has ignored an error of the server too.
            Ok(()) => match session.batch(RELEASE) {
                Ok(()) => {
                    self.is_immediate = true;
                    return Ok(None);
                }
                Err(error) => StoreError::Effect(error.to_string().into()),
            },
            Err(error) => error,
        };
        // If the connection is lost, so is the transaction.
        session.batch(ROLLBACK)?;
        Ok(Some(Outcome::Refused(error)))
    }
}

/// Runs a program's work in a transaction of its own.
pub(super) fn transact(session: &mut PostgresSession, work: &mut Effect) -> Result<(), StoreError> {
    session.batch("BEGIN")?;
    match Effects::default().run(session, work)? {
        Some(Outcome::Refused(error)) => {
            session.batch("ROLLBACK")?;
            Err(error)
        }
        _ => session.batch("COMMIT"),
    }
}
