//! Why a module is refused.

/// Why a module cannot be executed: the line of the source, and what is wrong there.
pub(crate) use causeway_mediator::backend::ModuleError as Refusal;

/// Result of lowering.
pub(crate) type Result<T = ()> = std::result::Result<T, Refusal>;

/// Adds to a refusal that its line is in module `input` of `inputs`.
pub(crate) fn within_input(input: usize, inputs: usize, refusal: Refusal) -> Refusal {
    if inputs == 1 {
        return refusal;
    }
    let reason = format!("input {} of {inputs}: {}", input + 1, refusal.reason);
    Refusal::new(refusal.line, reason)
}
