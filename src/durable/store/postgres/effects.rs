//! The program's own writes, each in a savepoint.

use super::{Effect, Outcome, StoreError, StoreTransaction, session::Session};

/// Releases the savepoint. Constraints that a program has deferred are checked now, so that their
/// violation undoes this effect alone.
const RELEASE: &str = "SET CONSTRAINTS ALL IMMEDIATE; RELEASE SAVEPOINT effect";

const ROLLBACK: &str = "ROLLBACK TO SAVEPOINT effect; RELEASE SAVEPOINT effect";

/// The effects of a transaction.
#[derive(Default)]
pub(super) struct Effects {
    /// Whether constraints are immediate because of an earlier effect.
    is_immediate: bool,
}

impl Effects {
    /// Runs an effect. If it fails, its writes are undone, and the outcome is returned.
    pub(super) fn run(
        &mut self,
        session: &mut Session,
        effect: &mut Effect,
    ) -> Result<Option<Outcome>, StoreError> {
        let deferred = if self.is_immediate { "SET CONSTRAINTS ALL DEFERRED; " } else { "" };
        session.batch(&format!("{deferred}SAVEPOINT effect"))?;
        let error = match StoreTransaction::new(session.client()).run(effect) {
            // Fails if the effect has ignored an error of the server, too.
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
pub(super) fn transact(session: &mut Session, work: &mut Effect) -> Result<(), StoreError> {
    session.batch("BEGIN")?;
    match Effects::default().run(session, work)? {
        Some(Outcome::Refused(error)) => {
            session.batch("ROLLBACK")?;
            Err(error)
        }
        _ => session.batch("COMMIT"),
    }
}
