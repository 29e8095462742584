//! Why a module is refused.

/// Why a module cannot be executed: the line of the source, and what is wrong there.
pub(crate) use causeway_mediator::backend::ModuleError as Refusal;

/// Result of lowering.
pub(crate) type Result<T = ()> = std::result::Result<T, Refusal>;
