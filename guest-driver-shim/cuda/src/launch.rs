//! Launches. Merge: the part "modules and launches" replaces this file.

use causeway_protocol::packet::LaunchShape;

use crate::boundary::In;
use crate::driver::Driver;
use crate::error::{Answer, Code};
use crate::work::Work;

/// Returns the work of a launch, checked, with its own copy of the parameters.
pub(crate) fn work(
    _driver: &Driver,
    _function: usize,
    _shape: LaunchShape,
    _parameters: In<usize>,
    _extra: In<usize>,
) -> Answer<Work> {
    // There are no modules, hence no functions.
    Err(Code::INVALID_HANDLE)
}
