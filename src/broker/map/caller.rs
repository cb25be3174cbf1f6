//! `Caller`: the receiver of an answer.

use super::holdings::Answer;
use crate::broker::{
    pending_limit::PendingPermit,
    store::{BrokerError, Position},
};
use crate::{error::Error, sync::Completer};

/// The caller of a request, with the permit for it.
#[derive(Debug)]
pub(super) enum Caller {
    Hold(Completer<Option<Position>>, PendingPermit),
    Release(Completer<bool>, PendingPermit),
}

impl Caller {
    /// Completes the request. The permit is given back before.
    pub(super) fn answer(self, answer: Answer) {
        match self {
            Caller::Hold(completer, permit) => {
                drop(permit);
                completer.complete(match answer {
                    Answer::Held(position) => Ok(Some(position)),
                    Answer::Refused => Ok(None),
                    Answer::Failed(error) => Err(error),
                    Answer::Released(_) => Err(wrong_answer()),
                });
            }
            Caller::Release(completer, permit) => {
                drop(permit);
                completer.complete(match answer {
                    Answer::Released(was_held) => Ok(was_held),
                    Answer::Failed(error) => Err(error),
                    Answer::Held(_) | Answer::Refused => Err(wrong_answer()),
                });
            }
        }
    }
}

fn wrong_answer() -> Error {
    BrokerError::failed("an answer for another operation").into()
}
