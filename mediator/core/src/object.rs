//! The objects behind the handles of a session.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::Arc;

use causeway_memory::{Backing, check_range};
use causeway_protocol::Access;
use causeway_protocol::message::{MemoryKind, Status};

use crate::backend::{Memory, Module, Texture, TextureCharge};
use crate::charged::ModuleCharges;
use crate::command_buffer::CommandBuffer;
use crate::quota::Charge;
use crate::refusal::{Refusal, refuse_if};
use crate::share::TokenBytes;
use crate::shared_space::SharedSpace;

/// An object behind a handle.
pub(crate) enum Object {
    Space(SpaceEntry),
    Memory(MemoryEntry),
    Module(ModuleEntry),
    Kernel(KernelEntry),
    CommandBuffer(CommandBufferEntry),
    Recording(RecordingEntry),
    Array(ArrayEntry),
    Texture(TextureEntry),
}

/// One kind of [`Object`], for lookups that refuse every other.
pub(crate) trait Kind: Sized {
    fn of(object: &Object) -> Option<&Self>;
    fn of_mut(object: &mut Object) -> Option<&mut Self>;
}

macro_rules! kinds {
    ($($variant:ident($type:ty)),*) => {$(
        impl Kind for $type {
            fn of(object: &Object) -> Option<&Self> {
                match object { Object::$variant(entry) => Some(entry), _ => None }
            }
            fn of_mut(object: &mut Object) -> Option<&mut Self> {
                match object { Object::$variant(entry) => Some(entry), _ => None }
            }
        }
    )*};
}

kinds!(
    Space(SpaceEntry),
    Memory(MemoryEntry),
    Module(ModuleEntry),
    Kernel(KernelEntry),
    CommandBuffer(CommandBufferEntry),
    Recording(RecordingEntry),
    Array(ArrayEntry),
    Texture(TextureEntry)
);

/// An address space.
pub(crate) struct SpaceEntry {
    pub shared: Arc<SharedSpace>,
    /// The GPU mappings in this address space, by first address.
    pub mappings: BTreeMap<u64, MappingEntry>,
    pub _charge: Charge,
}

/// A GPU or an aperture mapping.
pub(crate) struct MappingEntry {
    /// Handle of the memory that is mapped.
    pub memory: u32,
    /// Offset in the memory of the first byte that is mapped.
    pub from: u64,
    /// Number of mapped bytes.
    pub bytes: u64,
    pub _charge: Charge,
}

/// The kind of memory behind a handle.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Material {
    Allocated(MemoryKind),
    GuestRam,
}

impl Material {
    /// Returns whether this is memory of the device, not of the host.
    pub fn is_of_device(self) -> bool {
        match self {
            Self::Allocated(MemoryKind::Device | MemoryKind::DeviceVisible) => true,
            Self::Allocated(MemoryKind::Host) | Self::GuestRam => false,
        }
    }
}

/// Where the session has memory from.
pub(crate) enum Origin {
    Own {
        exports: Vec<OwnExport>,
    },
    Import {
        token: TokenBytes,
        import: u64,
    },
    /// Another process or machine, by a fabric handle.
    Fabric,
}

impl Default for Origin {
    fn default() -> Self {
        let exports = Vec::new();
        Self::Own { exports }
    }
}

/// An export of memory that the session allocated.
pub(crate) struct OwnExport {
    pub token: TokenBytes,
    pub _charge: Charge,
}

/// An allocation, an import, or registered guest RAM.
pub(crate) struct MemoryEntry {
    /// The memory; `None` after the import of it was revoked, or the device was lost.
    pub memory: Option<Arc<dyn Memory>>,
    pub bytes: u64,
    pub material: Material,
    pub access: Access,
    pub origin: Origin,
    /// GPU mappings of this memory: handle of the address space, and first address.
    pub gpu: BTreeSet<(u32, u64)>,
    /// Aperture mappings of this memory: their offsets in the aperture.
    pub cpu: BTreeSet<u64>,
    pub _charge: Charge,
}

impl MemoryEntry {
    /// Returns an entry for `memory`, which has no mappings yet.
    pub fn new(
        memory: Arc<dyn Memory>,
        material: Material,
        access: Access,
        origin: Origin,
        charge: Charge,
    ) -> Self {
        Self {
            bytes: memory.bytes(),
            memory: Some(memory),
            material,
            access,
            origin,
            gpu: BTreeSet::new(),
            cpu: BTreeSet::new(),
            _charge: charge,
        }
    }

    /// Returns the memory; fails with `Revoked` if it was taken away from the session.
    pub fn live(&self) -> Result<&Arc<dyn Memory>, Refusal> {
        self.memory.as_ref().ok_or(Refusal::new(Status::Revoked))
    }

    /// Fails with `AccessDenied` if this handle to the memory does not include the access rights
    /// `wanted`.
    pub fn check_access(&self, wanted: Access) -> Result<(), Refusal> {
        refuse_if(!self.access.allows(wanted), Status::AccessDenied)
    }

    /// Fails with `BadRange` if `bytes` is 0 or the range is not within the memory.
    pub fn check_range(&self, offset: u64, bytes: u64) -> Result<(), Refusal> {
        check_range(offset, bytes, self.bytes).map_err(|_| Refusal::new(Status::BadRange))
    }

    /// Returns this memory in the form in which the VMM places it in the aperture. Fails with
    /// `BadMemory` if the memory is not of a kind that the guest can map for its CPUs.
    pub fn cpu_visible(&self) -> Result<Backing, Refusal> {
        match self.material {
            Material::Allocated(MemoryKind::DeviceVisible | MemoryKind::Host) => {}
            // The guest sees its RAM already.
            Material::Allocated(MemoryKind::Device) | Material::GuestRam => {
                return Err(Refusal::new(Status::BadMemory));
            }
        }
        self.live()?
            .backing()
            .ok_or(Refusal::new(Status::BadMemory))
    }
}

/// A module.
pub(crate) struct ModuleEntry {
    pub space: u32,
    pub module: Arc<dyn Module>,
    /// Handles of the module's kernels, by name.
    pub kernels: HashMap<String, u32>,
    /// Names of all kernels, in order, once they were asked for.
    pub names: Option<Arc<[String]>>,
    pub charges: Arc<ModuleCharges>,
}

/// A kernel; ends with its module.
pub(crate) struct KernelEntry {
    /// Handle of the address space of the module.
    pub space: u32,
    pub _charge: Charge,
}

/// A command buffer.
pub(crate) struct CommandBufferEntry {
    pub space: u32,
    pub buffer: Arc<CommandBuffer>,
}

/// A recording. Its charges are with the object that replay packets look up.
pub(crate) struct RecordingEntry {
    pub space: u32,
}

/// An array. Its charges are with the object of the back end, which packets look up.
pub(crate) struct ArrayEntry {
    pub space: u32,
}

/// A texture or a surface. The back end's object holds the array of which it is made.
pub(crate) struct TextureEntry {
    pub space: u32,
    pub _texture: Box<dyn Texture>,
    pub _charge: TextureCharge,
}
