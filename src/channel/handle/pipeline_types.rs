//! The types of a pipeline, for handles that do not name it.

use std::any::{Any, TypeId};

/// Estimates the encoded size of a message of the pipeline's outbound type; called on the
/// producer's thread.
pub(crate) type SizeHint = fn(&dyn Any) -> Option<usize>;

/// The types that handles to a pipeline must match: `Channel` its message type, `HandlerRef` its
/// handler type as well.
#[derive(Debug, Clone, Copy)]
pub(crate) struct PipelineTypes {
    pub(crate) message: TypeId,
    pub(crate) handler: TypeId,
    pub(crate) size_hint: SizeHint,
}
