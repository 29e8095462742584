//! Modules, kernels, and the packing of their parameters.

use causeway_protocol::message::{
    self, KERNEL_NAME_MAX, KernelNameReply, KernelReply, Opcode, PARAMETERS_MAX, Parameter, Status,
    operation,
};
use zerocopy::{Immutable, IntoBytes};

use crate::device::{Device, KernelFacts};
use crate::error::{
    KernelError, KernelIndexError, KernelName, ModuleError, ParameterError, QueryError, Refusal,
    VariableError,
};
use crate::object::Object;
use crate::producer::Unit;
use crate::space::AddressSpace;

/// A range of memory that a message gives to the device: part of guest RAM or, from
/// [`crate::Staging::range`], part of the aperture.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RamRange {
    /// Guest-physical address of the first byte. If the bit [`message::APERTURE_ADDRESS`] is set,
    /// the other bits are an offset into the aperture instead.
    pub address: u64,
    /// Length of the range in bytes.
    pub bytes: u64,
}

/// GPU code that is loaded into an address space. Dropping this value unloads the code.
#[derive(Debug)]
pub struct Module<'d>(Object<'d, operation::UnloadModule>);

impl<'d> Module<'d> {
    /// Loads the module image in the range `image` into `space`. If the device refuses the image,
    /// it writes the reasons to the range `log`, which may be empty. One exit.
    ///
    /// # Errors
    /// [`ModuleError`] if a limit of the session is reached or the image is refused. For a refused
    /// image, the error has the line of the mistake and the length of the log.
    pub fn load(
        space: &AddressSpace<'d>,
        image: RamRange,
        log: RamRange,
    ) -> Result<Self, ModuleError> {
        let device = space.device();
        let mut batch = device.batch();
        let ticket = batch.push::<operation::LoadModule>(&message::LoadModule {
            space: space.handle(),
            log_bytes: u32::try_from(log.bytes).unwrap_or(u32::MAX),
            image_address: image.address,
            image_bytes: image.bytes,
            log_address: log.address,
        });
        let replies = batch.execute();
        match replies.require(ticket) {
            Ok(reply) => Ok(Self(Object::new(device, reply.handle))),
            Err(refusal) => {
                let refused = refusal.status == Status::BadModule;
                let line = if refused { refusal.detail } else { 0 };
                let log_bytes = match refusal.status {
                    // A device without kernels, or a limit that the module exceeds, says so in the
                    // log, too.
                    Status::BadModule
                    | Status::Unsupported
                    | Status::QuotaBytes
                    | Status::QuotaAllocations => replies.body(ticket).log_bytes,
                    _ => 0,
                };
                Err(ModuleError {
                    line,
                    log_bytes,
                    refusal,
                })
            }
        }
    }

    /// Returns the handle that messages use for this module.
    #[must_use]
    pub const fn handle(&self) -> u32 {
        self.0.handle
    }

    /// Looks up the kernel called `name`. One exit.
    ///
    /// # Errors
    /// [`KernelError`] if the module has no kernel of this name, or a limit of the session is
    /// reached.
    pub fn kernel(&self, name: &str) -> Result<Kernel<'_>, KernelError> {
        let module = self.handle();
        let failed = |refusal| KernelError {
            name: KernelName::new(name),
            module,
            refusal,
        };
        let mut request = message::GetKernel {
            module,
            name_bytes: name.len() as u32,
            name: [0; KERNEL_NAME_MAX],
        };
        let Some(room) = request.name.get_mut(..name.len()) else {
            let (status, detail) = (Status::NoKernel, name.len() as u32);
            return Err(failed(Refusal::new(Opcode::GetKernel, status, detail)));
        };
        room.copy_from_slice(name.as_bytes());
        let reply = self.0.device.call::<operation::GetKernel>(&request);
        Ok(Kernel::new(self.0.device, reply.map_err(failed)?))
    }

    /// Looks up the kernel with the number `index`, whatever its name is. A module's kernels are
    /// numbered from 0 in the order of their names. One exit.
    ///
    /// # Errors
    /// [`KernelIndexError`] if the module has fewer kernels (`NotInModule`), a limit of the session
    /// is reached, or the host speaks a version of the protocol before 1.3 (`BadOpcode`).
    pub fn kernel_at(&self, index: u32) -> Result<Kernel<'_>, KernelIndexError> {
        let module = self.handle();
        let request = message::GetKernelAt { module, index };
        let reply = self.0.device.call::<operation::GetKernelAt>(&request);
        let reply = reply.map_err(|refusal| KernelIndexError {
            index,
            module,
            refusal,
        })?;
        Ok(Kernel::new(self.0.device, reply))
    }

    /// Returns the part of the name of kernel number `index` that begins at byte `offset`, with the
    /// length of the whole name and the number of kernels. One exit.
    ///
    /// # Errors
    /// [`KernelIndexError`] if the module has fewer kernels (`NotInModule`), the name is shorter
    /// (`BadRange`), or the host speaks a version of the protocol before 1.3 (`BadOpcode`).
    pub fn kernel_name(
        &self,
        index: u32,
        offset: u32,
    ) -> Result<KernelNameReply, KernelIndexError> {
        let module = self.handle();
        let request = message::KernelNameAt {
            module,
            index,
            offset,
            reserved: 0,
        };
        let reply = self.0.device.call::<operation::KernelName>(&request);
        reply.map_err(|refusal| KernelIndexError {
            index,
            module,
            refusal,
        })
    }

    /// Looks up the variable called `name`. Packets can use its bytes until the module is unloaded,
    /// also if the variable is constant for kernels. One exit.
    ///
    /// # Errors
    /// [`VariableError`] if the module has no variable of this name (`NotInModule`), or if the host
    /// speaks a version of the protocol before 1.3 (`BadOpcode`).
    pub fn variable(&self, name: &str) -> Result<Variable, VariableError> {
        let module = self.handle();
        let failed = |refusal| VariableError {
            name: KernelName::new(name),
            module,
            refusal,
        };
        let mut request = message::GetVariable {
            module,
            name_bytes: name.len() as u32,
            name: [0; KERNEL_NAME_MAX],
        };
        let Some(room) = request.name.get_mut(..name.len()) else {
            let (status, detail) = (Status::NotInModule, name.len() as u32);
            return Err(failed(Refusal::new(Opcode::GetVariable, status, detail)));
        };
        room.copy_from_slice(name.as_bytes());
        let reply = self.0.device.call::<operation::GetVariable>(&request);
        let reply = reply.map_err(failed)?;
        Ok(Variable {
            address: reply.address,
            bytes: reply.bytes,
        })
    }

    /// Unloads the module. One exit.
    ///
    /// # Errors
    /// [`ModuleError`] if the session is lost.
    pub fn unload(self) -> Result<(), ModuleError> {
        self.0.end().map_err(|refusal| ModuleError {
            line: 0,
            log_bytes: 0,
            refusal,
        })
    }
}

/// Where a variable of a module is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Variable {
    /// GPU virtual address of the variable.
    pub address: u64,
    /// Size of the variable in bytes.
    pub bytes: u64,
}

/// A kernel of a module: its handle, its limits, and the layout of its parameters.
#[derive(Clone, Debug)]
pub struct Kernel<'m> {
    device: &'m Device<'m>,
    reply: KernelReply,
}

impl<'m> Kernel<'m> {
    const fn new(device: &'m Device<'m>, reply: KernelReply) -> Self {
        Self { device, reply }
    }

    /// Asks the device for the CUDA attributes of this kernel. One exit.
    ///
    /// # Errors
    /// [`QueryError`] if the session is lost, or if the host speaks a version of the protocol
    /// before 1.3 (`BadOpcode`).
    pub fn attributes(&self) -> Result<KernelFacts, QueryError> {
        self.device.query_kernel(self.handle())
    }

    /// Returns the handle that launch packets use for this kernel.
    #[must_use]
    pub const fn handle(&self) -> u32 {
        self.reply.handle
    }

    /// Returns the size in bytes of the parameter block, which holds all parameters of a launch.
    #[must_use]
    pub const fn parameter_bytes(&self) -> u32 {
        self.reply.parameter_bytes
    }

    /// Returns the maximum number of threads in a block of this kernel.
    #[must_use]
    pub const fn block_threads_max(&self) -> u32 {
        self.reply.block_threads_max
    }

    /// Returns the size in bytes of the static shared memory that each block of this kernel uses.
    #[must_use]
    pub const fn shared_bytes(&self) -> u32 {
        self.reply.shared_bytes
    }

    /// Returns the offset and size of each parameter in the parameter block, in the order in which
    /// the kernel declares the parameters.
    #[must_use]
    pub fn layout(&self) -> &[Parameter] {
        let used = (self.reply.parameters as usize).min(PARAMETERS_MAX);
        &self.reply.layout[..used]
    }

    /// Returns a parameter block for a launch of this kernel, with room for 256 bytes and no
    /// parameter set.
    ///
    /// # Errors
    /// [`ParameterError::BlockTooLarge`] if the kernel's parameters need more bytes: use
    /// [`Parameters::new`] with more units.
    pub fn parameters(&self) -> Result<Parameters<'_, 4>, ParameterError> {
        Parameters::new(self)
    }
}

/// The parameters of a launch, which are set one by one. There is room for `UNITS` units of 64
/// bytes.
#[derive(Clone, Debug)]
pub struct Parameters<'f, const UNITS: usize> {
    kernel: &'f Kernel<'f>,
    missing: u128,
    block: [Unit; UNITS],
}

impl<'f, const UNITS: usize> Parameters<'f, UNITS> {
    /// Returns a parameter block for a launch of `kernel`, with no parameter set.
    ///
    /// # Errors
    /// [`ParameterError::BlockTooLarge`] if the kernel's parameters do not fit `UNITS` units of 64
    /// bytes.
    pub fn new(kernel: &'f Kernel<'_>) -> Result<Self, ParameterError> {
        let bytes = kernel.parameter_bytes() as usize;
        let room_bytes = UNITS * size_of::<Unit>();
        if bytes > room_bytes {
            return Err(ParameterError::BlockTooLarge { bytes, room_bytes });
        }
        const { assert!(PARAMETERS_MAX <= 128, "a bit for each parameter") };
        let missing = 1_u128
            .checked_shl(kernel.layout().len() as u32)
            .map_or(u128::MAX, |bit| bit - 1);
        Ok(Self {
            kernel,
            missing,
            block: [[0; _]; UNITS],
        })
    }

    /// Sets parameter number `index` to `value`. Parameters are numbered from 0, in the order in
    /// which the kernel declares them.
    ///
    /// # Errors
    /// [`ParameterError::NoSuchParameter`] if the kernel has fewer parameters,
    /// [`ParameterError::WrongSize`] if `value` does not have the parameter's size.
    pub fn set<V: IntoBytes + Immutable + ?Sized>(
        &mut self,
        index: usize,
        value: &V,
    ) -> Result<(), ParameterError> {
        let layout = self.kernel.layout();
        let Some(parameter) = layout.get(index) else {
            return Err(ParameterError::NoSuchParameter {
                index,
                count: layout.len(),
            });
        };
        let value = value.as_bytes();
        let (offset, wanted_bytes) = (usize::from(parameter.offset), usize::from(parameter.size));
        if value.len() != wanted_bytes {
            return Err(ParameterError::WrongSize {
                index,
                bytes: value.len(),
                wanted_bytes,
            });
        }
        let block = self.block.as_mut_bytes();
        let room_bytes = block.len();
        let Some(room) = block.get_mut(offset..offset + wanted_bytes) else {
            return Err(ParameterError::BlockTooLarge {
                bytes: offset + wanted_bytes,
                room_bytes,
            });
        };
        room.copy_from_slice(value);
        self.missing &= !(1 << index);
        Ok(())
    }

    /// Sets parameter number `index` to `value` as [`Self::set`] does, and returns the parameter
    /// block, so that calls can be chained.
    ///
    /// # Errors
    /// [`ParameterError::NoSuchParameter`] if the kernel has fewer parameters,
    /// [`ParameterError::WrongSize`] if `value` does not have the parameter's size.
    pub fn with<V: IntoBytes + Immutable + ?Sized>(
        mut self,
        index: usize,
        value: &V,
    ) -> Result<Self, ParameterError> {
        self.set(index, value)?;
        Ok(self)
    }

    pub(crate) const fn kernel(&self) -> &Kernel<'f> {
        self.kernel
    }

    pub(crate) const fn missing(&self) -> Option<usize> {
        if self.missing == 0 {
            None
        } else {
            Some(self.missing.trailing_zeros() as usize)
        }
    }

    #[inline]
    pub(crate) fn unit(&self, index: usize) -> Unit {
        // `new` has found room for all the units that a launch of this kernel has.
        self.block.get(index).copied().unwrap_or_default()
    }
}
