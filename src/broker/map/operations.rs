//! The operations of the program on a map.

use super::{core::MapCore, hold_caller::HoldCaller, holding::HoldRequest, holdings::HoldAnswer};
use crate::broker::store::{BrokerError, Changed, MapChange, MapCondition, MapUpdate, Position};
use crate::{
    error::{Error, Resource, Result},
    sync::{Completion, completion},
};
use bytes::Bytes;
use std::sync::Arc;

impl MapCore {
    /// Makes changes without an owner.
    pub(super) fn update(self: &Arc<Self>, changes: Vec<MapChange>) -> Completion<Changed> {
        let permit = self.check(&changes).and_then(|bytes| self.permit(bytes));
        let permit = match permit {
            Ok(permit) => permit,
            Err(error) => return Completion::ready(Err(error)),
        };
        let mut update = MapUpdate::new(self.name.clone(), changes);
        update.seen = self.state.read(|state| state.map.follower.highest());
        update.max_entries = self.settings.max_entries;
        let (completer, completion) = completion(None);
        let map = self.clone();
        self.node.broker.change(update).on_complete(move |changed| {
            drop(permit);
            map.count_update(&changed);
            let position = changed.as_ref().ok().map(|changed| changed.position);
            if let Some(position) = position {
                map.change(|state| state.map.follower.acknowledged(position));
            }
            completer.complete(changed);
            if position.is_some() {
                // The position may show that the replica has missed something.
                map.pump();
            }
        });
        completion
    }

    pub(super) fn set(self: &Arc<Self>, key: Bytes, value: Bytes) -> Completion<Position> {
        let (completer, completion) = completion(None);
        let max_entries = self.settings.max_entries;
        self.update(vec![MapChange::set(key, value)]).on_complete(move |changed| {
            completer.complete(changed.and_then(|changed| {
                // Without a condition, only the limit of entries prevents it.
                let text = "the map has as many entries as this node or the store allows";
                let full = || BrokerError::Full(format!("{text}; `max_entries` is {max_entries}").into());
                let is_made = changed.made.first().is_some_and(|made| *made);
                is_made.then_some(changed.position).ok_or_else(|| full().into())
            }));
        });
        completion
    }

    pub(super) fn remove(self: &Arc<Self>, key: Bytes) -> Completion<bool> {
        let (completer, completion) = completion(None);
        self.update(vec![MapChange::remove(key)]).on_complete(move |changed| {
            completer.complete(changed.map(|changed| changed.made.first().is_some_and(|made| *made)));
        });
        completion
    }

    pub(super) fn hold(
        self: &Arc<Self>,
        key: Bytes,
        value: Bytes,
        condition: Option<MapCondition>,
    ) -> Completion<Option<Position>> {
        let (completer, completion) = completion(None);
        let change = MapChange::set(key.clone(), value.clone());
        let permit = self.check(&[change]).and_then(|bytes| self.permit(bytes));
        let permit = match permit {
            Ok(permit) => permit,
            Err(error) => return Completion::ready(Err(error)),
        };
        let limit = self.settings.max_held;
        let refused = self.change(|state| {
            let holdings = &mut state.map.holdings;
            let caller = HoldCaller::Hold(completer, permit);
            // Read under the lock, so that an older answer does not replace a newer one.
            let error = match self.node.authority() {
                None => BrokerError::LeaseEnded.into(),
                Some(_) if holdings.len() >= limit && !holdings.has(&key) => {
                    Error::Full { resource: Resource::HeldEntries, limit }
                }
                node => {
                    holdings.set_node(node);
                    holdings.request(key, HoldRequest::Hold { value, condition, caller });
                    return None;
                }
            };
            // Keys and values may be of the program, so they are dropped after the unlock.
            Some((caller, error, key, value))
        });
        if let Some((caller, error, ..)) = refused {
            caller.answer(HoldAnswer::Failed(error));
        }
        self.pump_or_close();
        completion
    }

    pub(super) fn release(self: &Arc<Self>, key: Bytes) -> Completion<bool> {
        let permit = match self.permit(key.len()) {
            Ok(permit) => permit,
            Err(error) => return Completion::ready(Err(error)),
        };
        let (completer, completion) = completion(None);
        let caller = HoldCaller::Release(completer, permit);
        let not_held = self.change(|state| {
            let holdings = &mut state.map.holdings;
            if !holdings.has(&key) {
                return Some((caller, key));
            }
            holdings.request(key, HoldRequest::Release { caller });
            None
        });
        if let Some((caller, _)) = not_held {
            caller.answer(HoldAnswer::Released(false));
        }
        self.pump_or_close();
        completion
    }

    /// Another thread may have closed the node before the request was added.
    fn pump_or_close(self: &Arc<Self>) {
        if self.node.is_closed() {
            self.fail_requests();
        } else {
            self.pump();
        }
    }

    /// Returns the bytes of changes.
    fn check(&self, changes: &[MapChange]) -> Result<usize> {
        if self.node.is_closed() {
            return Err(BrokerError::Closed.into());
        }
        if changes.len() > MapUpdate::LIMIT {
            return Err(Error::setting("changes", changes.len(), "at most 1000"));
        }
        let mut bytes = 0;
        for change in changes {
            let size = change.size();
            if size > self.node.settings.max_payload {
                let value = format!("an entry of {size} bytes");
                return Err(Error::setting("payload", value, "at most `max_payload` bytes"));
            }
            bytes += size;
        }
        Ok(bytes)
    }
}
