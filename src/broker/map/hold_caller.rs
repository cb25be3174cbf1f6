//! `HoldCaller`: the receiver of an answer.

use super::holdings::HoldAnswer;
use crate::broker::{
    pending_limit::PendingPermit,
    store::{BrokerError, Position},
};
use crate::{error::Error, sync::Completer};

/// The caller of a request, with the permit for it.
#[derive(Debug)]
pub(super) enum HoldCaller {
    Hold(Completer<Option<Position>>, PendingPermit),
    Release(Completer<bool>, PendingPermit),
}

impl HoldCaller {
    /// Completes the request. The permit is given back before.
    pub(super) fn answer(self, answer: HoldAnswer) {
        match self {
            HoldCaller::Hold(completer, permit) => {
                drop(permit);
                completer.complete(match answer {
                    HoldAnswer::Held(position) => Ok(Some(position)),
                    HoldAnswer::Refused => Ok(None),
                    HoldAnswer::Failed(error) => Err(error),
                    HoldAnswer::Released(_) => Err(wrong_answer()),
                });
            }
            HoldCaller::Release(completer, permit) => {
                drop(permit);
                completer.complete(match answer {
                    HoldAnswer::Released(was_held) => Ok(was_held),
                    HoldAnswer::Failed(error) => Err(error),
                    HoldAnswer::Held(_) | HoldAnswer::Refused => Err(wrong_answer()),
                });
            }
        }
    }
}

fn wrong_answer() -> Error {
    BrokerError::failed("an answer for another operation").into()
}
