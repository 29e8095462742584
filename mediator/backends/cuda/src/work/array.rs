//! Copies between memory and arrays.

use causeway_mediator::backend::{ArrayCopy, Fault, Place};
use causeway_protocol::Access;

use super::{Enqueuer, Kind, foreign};
use crate::array::CudaArray;

/// Not one of those that reach memory which is apart: that goes through the host, and no call of
/// the driver does so for arrays.
const COPY_OF_ARRAY: Kind = Kind::other("a copy of an array");

impl Enqueuer {
    /// Puts a copy between memory and an array into the stream.
    pub(super) fn copy_array(&mut self, copy: &ArrayCopy<'_>) -> Result<(), Fault> {
        let object = CudaArray::object_in(copy.array(), self.stream.context());
        let object = object.ok_or_else(foreign)?;
        let (part, is_into_array) = (copy.part(), copy.is_into_array());
        self.check_one_mapping(COPY_OF_ARRAY, copy.memory(), memory_access(copy))?;
        let (bytes, place) = self.lookup.run(&self.state.table, part.memory.address);
        if bytes == 0 {
            return self.complete(0, part.bytes(), COPY_OF_ARRAY);
        }
        let places = match is_into_array {
            true => (Place::Own, place),
            false => (place, Place::Own),
        };
        self.pass(places, part.bytes(), |stream, _| {
            stream.copy_array(object, &part, is_into_array)
        })
    }
}

/// Returns the right that a copy needs to the memory.
pub(crate) fn memory_access(copy: &ArrayCopy<'_>) -> Access {
    match copy.is_into_array() {
        true => Access::Read,
        false => Access::ReadWrite,
    }
}
