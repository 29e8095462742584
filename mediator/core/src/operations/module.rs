//! What is in a module: kernels and variables.

use std::sync::Arc;

use causeway_protocol::message::{
    Empty, EncodeTensorMap, GetKernel, GetKernelAt, GetVariable, HandleRequest, KERNEL_NAME_MAX,
    KernelFacts, KernelNameAt, KernelNameReply, KernelReply, OUTPUT_BYTES, OutputReply,
    PARAMETERS_MAX, Parameter, Status, TENSOR_RANK_MAX, TensorMapKind, TensorMapReply,
    UNKNOWN_ATTRIBUTE, VariableReply, kernel_flags,
};

use super::nothing;
use crate::backend::Kernel;
use crate::charged::Charged;
use crate::client_session::ClientSession;
use crate::decode::HEADER_BYTES;
use crate::object::{KernelEntry, ModuleEntry, Object, SpaceEntry};
use crate::quota::Resource;
use crate::refusal::{Refusal, refuse_if};

impl ClientSession<'_> {
    pub(super) fn unload_module(&self, request: HandleRequest) -> Result<Empty, Refusal> {
        let mut state = self.lock();
        let entry = state.get::<ModuleEntry>(request.handle)?;
        let handles: Vec<u32> = entry.kernels.values().copied().collect();
        let space = Arc::clone(&state.get::<SpaceEntry>(entry.space)?.shared);
        let mut kernels = Vec::with_capacity(handles.len());
        for handle in handles {
            kernels.extend(space.kernels.remove(handle));
            state.remove(handle);
        }
        let module = state.remove(request.handle);
        drop(state);
        // These may be the last references, and the back end may take long to end the module.
        drop((kernels, module));
        nothing()
    }

    pub(super) fn get_kernel(&self, request: GetKernel) -> Result<KernelReply, Refusal> {
        let field = std::mem::offset_of!(GetKernel, name);
        let name = checked_name(&request.name, request.name_bytes, field)?;
        let name = name.ok_or(Refusal::new(Status::NoKernel))?;
        self.kernel_named(request.module, name)
    }

    pub(super) fn get_kernel_at(&self, request: GetKernelAt) -> Result<KernelReply, Refusal> {
        let names = self.kernel_names(request.module)?;
        let name = names.get(request.index as usize);
        let name = name.ok_or(Refusal::new(Status::NotInModule))?;
        self.kernel_named(request.module, name)
    }

    /// Returns the same handle for the same kernel.
    fn kernel_named(&self, module: u32, name: &str) -> Result<KernelReply, Refusal> {
        let mut state = self.lock();
        let entry = state.get::<ModuleEntry>(module)?;
        let kernel = entry.module.kernel(name).ok_or_else(|| {
            // Names of a module may be megabytes.
            if log::log_enabled!(log::Level::Debug) {
                let kernels = entry.module.kernels().join(", ");
                log::debug!("the module has no kernel `{name}`, only: {kernels}");
            }
            Refusal::new(Status::NoKernel)
        })?;
        if let Some(handle) = entry.kernels.get(name) {
            return kernel_reply(*handle, &*kernel);
        }
        let space_handle = entry.space;
        let space = Arc::clone(&state.get::<SpaceEntry>(space_handle)?.shared);
        let charged = Charged::attach(Arc::clone(&kernel), Arc::clone(&entry.charges));
        let charge = self.account.charge(Resource::Objects, 1)?;
        let reply = kernel_reply(0, &*kernel)?;
        let handle = state.insert(Object::Kernel(KernelEntry {
            space: space_handle,
            _charge: charge,
        }))?;
        space.kernels.add(handle, charged);
        let entry = state.get_mut::<ModuleEntry>(module)?;
        entry.kernels.insert(name.to_owned(), handle);
        Ok(KernelReply { handle, ..reply })
    }

    /// Returns the names of all kernels of a module, in order.
    fn kernel_names(&self, module: u32) -> Result<Arc<[String]>, Refusal> {
        let mut state = self.lock();
        let entry = state.get_mut::<ModuleEntry>(module)?;
        let backend = &entry.module;
        let names = entry.names.get_or_insert_with(|| {
            let mut names = backend.kernels();
            names.sort_unstable();
            names.into()
        });
        Ok(Arc::clone(names))
    }

    pub(super) fn kernel_name(&self, request: KernelNameAt) -> Result<KernelNameReply, Refusal> {
        let names = self.kernel_names(request.module)?;
        let name = names.get(request.index as usize);
        let whole = name.ok_or(Refusal::new(Status::NotInModule))?.as_bytes();
        let part = whole.get(request.offset as usize..);
        let part = part.ok_or(Refusal::new(Status::BadRange))?;
        let part = &part[..part.len().min(KERNEL_NAME_MAX)];
        let mut name = [0; KERNEL_NAME_MAX];
        name[..part.len()].copy_from_slice(part);
        Ok(KernelNameReply {
            kernels: names.len() as u32,
            name_bytes: whole.len() as u32,
            name,
        })
    }

    pub(super) fn query_kernel(&self, request: HandleRequest) -> Result<KernelFacts, Refusal> {
        let state = self.lock();
        let space = state.get::<KernelEntry>(request.handle)?.space;
        let space = Arc::clone(&state.get::<SpaceEntry>(space)?.shared);
        drop(state);
        let kernel = space.kernels.get(request.handle);
        let kernel = kernel.ok_or(Refusal::bad_handle(request.handle))?;
        let values = kernel.cuda_attributes();
        Ok(KernelFacts {
            attributes: values.map(|value| value.unwrap_or(UNKNOWN_ATTRIBUTE)),
            flags: if kernel.prints() {
                kernel_flags::PRINTS
            } else {
                0
            },
            reserved: 0,
        })
    }

    pub(super) fn get_variable(&self, request: GetVariable) -> Result<VariableReply, Refusal> {
        let field = std::mem::offset_of!(GetVariable, name);
        let name = checked_name(&request.name, request.name_bytes, field)?;
        let none = Refusal::new(Status::NotInModule);
        let name = name.ok_or(none)?;
        // With the session's lock, so that the module is not unloaded meanwhile.
        let state = self.lock();
        let entry = state.get::<ModuleEntry>(request.module)?;
        let variable = entry.module.variable(name).ok_or(none)?;
        Ok(VariableReply {
            address: variable.address,
            bytes: variable.bytes,
        })
    }

    pub(super) fn read_output(&self, request: HandleRequest) -> Result<OutputReply, Refusal> {
        let space = self.open_space(request.handle)?;
        let mut taken = space.shared.backend.take_output(OUTPUT_BYTES);
        debug_assert!(taken.len() <= OUTPUT_BYTES, "no more than was asked for");
        let text_bytes = taken.len().min(OUTPUT_BYTES) as u32;
        taken.resize(OUTPUT_BYTES, 0);
        let mut text = [0; OUTPUT_BYTES];
        text.copy_from_slice(&taken);
        Ok(OutputReply {
            text_bytes,
            reserved: 0,
            text,
        })
    }
}

impl ClientSession<'_> {
    /// The back end asks its driver, which only computes.
    pub(super) fn encode_tensor_map(
        &self,
        request: EncodeTensorMap,
    ) -> Result<TensorMapReply, Refusal> {
        let is_known = TensorMapKind::from_wire(request.kind).is_some();
        let rank_max = TENSOR_RANK_MAX as u32;
        refuse_if(!is_known || request.rank > rank_max, Status::BadRange)?;
        let space = self.open_space(request.space)?;
        let (cuda_result, map) = space.shared.backend.encode_tensor_map(&request)?;
        Ok(TensorMapReply {
            cuda_result,
            reserved: 0,
            map,
        })
    }
}

/// Returns the name in a request, of which `used` bytes are in use and the rest must be zero;
/// `None` if it is not UTF-8. `field` is the offset of the name in the request.
fn checked_name(
    name: &[u8; KERNEL_NAME_MAX],
    used: u32,
    field: usize,
) -> Result<Option<&str>, Refusal> {
    let used = used as usize;
    refuse_if(used == 0 || used > KERNEL_NAME_MAX, Status::BadRange)?;
    let (name, rest) = name.split_at(used);
    if let Some(at) = rest.iter().position(|byte| *byte != 0) {
        let offset = HEADER_BYTES + field + used + at;
        return Err(Refusal::with(Status::ReservedNotZero, offset as u32));
    }
    Ok(std::str::from_utf8(name).ok())
}

fn kernel_reply(handle: u32, kernel: &dyn Kernel) -> Result<KernelReply, Refusal> {
    let parameters = kernel.parameters();
    let mut layout = [Parameter { offset: 0, size: 0 }; PARAMETERS_MAX];
    let Some(used) = layout.get_mut(..parameters.len()) else {
        log::debug!(
            "the kernel has {} parameters, at most {PARAMETERS_MAX} are possible",
            parameters.len()
        );
        return Err(Refusal::new(Status::Unsupported));
    };
    used.copy_from_slice(parameters);
    Ok(KernelReply {
        handle,
        parameters: parameters.len() as u32,
        parameter_bytes: kernel.parameter_bytes(),
        block_threads_max: kernel.block_threads_max(),
        shared_bytes: kernel.shared_bytes(),
        reserved: 0,
        layout,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_has_at_least_one_byte_and_at_most_all() {
        let name = [b'k'; KERNEL_NAME_MAX];
        let longest = KERNEL_NAME_MAX as u32;
        let checked = checked_name(&name, longest, 8).unwrap();
        assert_eq!(checked.map(str::len), Some(KERNEL_NAME_MAX));
        for used in [0, longest + 1, u32::MAX] {
            let refused = checked_name(&name, used, 8);
            assert_eq!(refused, Err(Refusal::new(Status::BadRange)), "{used}");
        }
        let rest = checked_name(&name, longest - 1, 8).unwrap_err();
        let offset = HEADER_BYTES as u32 + 8 + longest - 1;
        assert_eq!(rest, Refusal::with(Status::ReservedNotZero, offset));
        let mut name = [0; KERNEL_NAME_MAX];
        name[0] = 0xff;
        assert_eq!(checked_name(&name, 1, 8), Ok(None), "not UTF-8");
    }
}
