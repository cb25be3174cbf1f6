//! The programs of nodes.

use crate::{
    error::Result,
    machine::{
        Mutex,
        simulated::{Machine, Shared},
    },
};
use std::sync::Arc;

/// A node of a [`Simulation`](super::Simulation).
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct NodeId(pub(super) usize);

type Main = Arc<dyn Fn() -> Result + Send + Sync>;

/// Where a program puts its result when it returns.
pub(super) type ProgramResult = Arc<Mutex<Option<Result>>>;

/// The first program of a node.
pub(super) struct Program {
    main: Main,
    pub(super) result: ProgramResult,
}

impl Program {
    pub(super) fn new(main: Main) -> Self {
        Program { main, result: ProgramResult::default() }
    }

    /// Starts the program, whose earlier life may have left a result.
    pub(super) fn start(&self, shared: &Arc<Shared>, node: usize) {
        *self.result.lock() = None;
        spawn(shared, node, self.main.clone(), self.result.clone());
    }
}

/// Starts a program on a node, on a thread that waits for its turn. `result` receives its result.
pub(super) fn spawn(shared: &Arc<Shared>, node: usize, main: Main, result: ProgramResult) {
    let machine = Machine::new(shared, node);
    let name = shared.lock().nodes[node].name.clone();
    machine.spawn(
        name,
        Box::new(move || {
            let returned = main();
            *result.lock() = Some(returned);
        }),
    );
}
