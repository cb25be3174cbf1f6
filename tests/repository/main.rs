//! Checks of the repository itself: the direction of imports, and what the documents promise.

mod import_graph;
mod imports;
mod source_tokens;
