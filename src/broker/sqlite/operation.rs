//! `FileOperation`: a request to the writer's thread, with its completion.

use super::{errors::StepResult, tables::FileTables};
use crate::{
    broker::{
        pending_limit::PendingPermit,
        store::{BrokerError, BrokerStart, NodeLeases, Notification, Partition},
    },
    error::Result,
    sync::Completer,
};

/// A request to the writer's thread.
pub(super) enum WriterRequest {
    Operation(Box<dyn FileOperation>),
    /// A message that is not stored.
    Notify(Notification, PendingPermit),
    /// A node has started.
    Join(NodeNumber, BrokerStart),
    Follow(NodeNumber, Partition, bool),
    /// A node has closed.
    Leave(NodeNumber, Completer<()>),
    /// The last node has closed.
    Close(Completer<()>),
}

/// The number of a node among those of a file.
pub(super) type NodeNumber = u64;

/// An operation of a transaction.
pub(super) trait FileOperation: Send {
    /// Does the work within a transaction. May be called again after the transaction was rolled
    /// back.
    fn run(&mut self, tables: &mut FileTables<'_>, leases: &mut NodeLeases) -> StepResult<()>;

    /// Fails the operation, unless it has failed alone before.
    fn fail(&mut self, error: &BrokerError);

    /// Completes the operation.
    fn complete(self: Box<Self>);
}

/// An operation by its function.
pub(super) struct FnOperation<T, F> {
    pub(super) work: F,
    pub(super) result: Option<Result<T>>,
    pub(super) completer: Completer<T>,
    pub(super) permit: PendingPermit,
}

impl<T, F> FileOperation for FnOperation<T, F>
where
    T: Send + 'static,
    F: FnMut(&mut FileTables<'_>, &mut NodeLeases) -> StepResult<T> + Send,
{
    fn run(&mut self, tables: &mut FileTables<'_>, leases: &mut NodeLeases) -> StepResult<()> {
        self.result = Some(Ok((self.work)(tables, leases)?));
        Ok(())
    }

    fn fail(&mut self, error: &BrokerError) {
        if !matches!(self.result, Some(Err(_))) {
            self.result = Some(Err(error.clone().into()));
        }
    }

    fn complete(self: Box<Self>) {
        let FnOperation { result, completer, permit, .. } = *self;
        drop(permit);
        completer.complete(result.unwrap_or_else(|| Err(BrokerError::Closed.into())));
    }
}
