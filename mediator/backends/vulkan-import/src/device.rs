//! A device that memory is imported into.

use std::ffi::CStr;
use std::os::fd::OwnedFd;
use std::sync::Arc;

use ash::vk;
use causeway_memory::DeviceMemory;
use parking_lot::{Mutex, MutexGuard};

use crate::instance::{Physical, Vulkan, failed};
use crate::memory::ImportedMemory;
use crate::{ImportError, Uuid, VulkanError, descriptor};

/// The kind of handle that CUDA's POSIX descriptors are to Vulkan.
pub(crate) const HANDLE: vk::ExternalMemoryHandleTypeFlags =
    vk::ExternalMemoryHandleTypeFlags::OPAQUE_FD;
/// What the buffers are said to be for that stand for imported memory. It decides about memory
/// types only.
const USAGE: vk::BufferUsageFlags = vk::BufferUsageFlags::from_raw(
    vk::BufferUsageFlags::TRANSFER_SRC.as_raw() | vk::BufferUsageFlags::TRANSFER_DST.as_raw(),
);
const EXTENSION: &CStr = ash::khr::external_memory_fd::NAME;

/// A Vulkan device that imports memory and makes it visible to CPUs.
pub struct VulkanDevice {
    pub(crate) device: ash::Device,
    pub(crate) name: String,
    /// Type as which descriptors are imported.
    pub(crate) memory_type: u32,
    /// Whether imported memory must be said to belong to one buffer.
    pub(crate) dedicated: bool,
    heap_bytes: u64,
    importing: Mutex<()>,
    // Behind the device, which is made of it.
    _vulkan: Arc<Vulkan>,
}

impl VulkanDevice {
    /// Opens the device with this UUID. Loads `libvulkan.so.1` and makes a logical device; takes
    /// some 100 ms.
    ///
    /// # Errors
    /// [`VulkanError`] names what is missing: the loader, the device, an extension, or memory that
    /// CPUs can map.
    pub fn open(uuid: Uuid) -> Result<Arc<Self>, VulkanError> {
        let vulkan = Arc::new(Vulkan::load()?);
        let devices = vulkan.devices()?;
        let Some(physical) = devices.iter().find(|device| device.uuid == uuid) else {
            let found = devices.into_iter().map(|device| (device.name, device.uuid));
            return Err(VulkanError::Device {
                wanted: uuid,
                found: found.collect(),
            });
        };
        Self::of(&vulkan, physical).map(Arc::new)
    }

    pub(crate) fn of(vulkan: &Arc<Vulkan>, physical: &Physical) -> Result<Self, VulkanError> {
        require_extension(vulkan, physical)?;
        let dedicated = require_import(vulkan, physical)?;
        // SAFETY: the handle is one of this instance.
        let memory = unsafe {
            vulkan
                .instance
                .get_physical_device_memory_properties(physical.handle)
        };
        let device = create(vulkan, physical)?;
        // From here on the device is destroyed with what holds it.
        let mut opened = Self {
            device,
            name: physical.name.clone(),
            memory_type: 0,
            dedicated,
            heap_bytes: 0,
            importing: Mutex::default(),
            _vulkan: Arc::clone(vulkan),
        };
        let allowed = opened.importable_types()?;
        let no_type = || VulkanError::MemoryType {
            device: physical.name.clone(),
        };
        opened.memory_type = match choose_type(&memory, allowed) {
            Some(memory_type) => memory_type,
            // What buffers of imported memory may be of is not all that memory may be imported as:
            // NVIDIA's driver names no type that CPUs see for them, and imports as one all the
            // same. No buffer is bound here in any case.
            None => {
                opened.dedicated = false;
                choose_type(&memory, u32::MAX).ok_or_else(no_type)?
            }
        };
        let heap = memory.memory_types[opened.memory_type as usize].heap_index;
        opened.heap_bytes = memory.memory_heaps[heap as usize].size;
        Ok(opened)
    }

    /// Returns the name of the device.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Returns bytes of the heap that CPUs can see; the BAR has as many, and all processes share
    /// them.
    pub fn visible_bytes(&self) -> u64 {
        self.heap_bytes
    }

    /// Returns the memory of this device behind a descriptor of `bytes` bytes, such as CUDA
    /// exports. The descriptor may come from anyone: see [the crate](crate) for what is checked.
    /// Nothing is mapped yet.
    ///
    /// # Errors
    /// [`ImportError`]. A descriptor that only the driver finds wrong is refused as it is mapped.
    pub fn import(
        self: &Arc<Self>,
        file: OwnedFd,
        bytes: u64,
    ) -> Result<Arc<dyn DeviceMemory>, ImportError> {
        use std::os::fd::AsFd;
        descriptor::check(file.as_fd(), bytes)?;
        Ok(Arc::new(ImportedMemory::new(Arc::clone(self), file, bytes)))
    }

    /// One import at a time: duplicates of one descriptor share its position, which lavapipe reads
    /// from.
    pub(crate) fn importing(&self) -> MutexGuard<'_, ()> {
        self.importing.lock()
    }

    /// Returns a buffer that stands for `bytes` bytes of imported memory.
    pub(crate) fn create_buffer(&self, bytes: u64) -> Result<vk::Buffer, vk::Result> {
        let mut external = vk::ExternalMemoryBufferCreateInfo::default().handle_types(HANDLE);
        let create = vk::BufferCreateInfo::default()
            .size(bytes)
            .usage(USAGE)
            .sharing_mode(vk::SharingMode::EXCLUSIVE)
            .push_next(&mut external);
        // SAFETY: the device is live, and so are the structures; the combination was asked for
        // (`require_import`).
        unsafe { self.device.create_buffer(&create, None) }
    }

    /// Memory types, as bits, that imported memory may be of. They are the same for all buffers of
    /// one make.
    fn importable_types(&self) -> Result<u32, VulkanError> {
        let buffer = self.create_buffer(4096).map_err(failed("vkCreateBuffer"))?;
        // SAFETY: the buffer was just made, is not in use, and is not used afterwards.
        unsafe {
            let wanted = self.device.get_buffer_memory_requirements(buffer);
            self.device.destroy_buffer(buffer, None);
            Ok(wanted.memory_type_bits)
        }
    }
}

causeway_memory::debug_fields!(VulkanDevice { name });

impl Drop for VulkanDevice {
    fn drop(&mut self) {
        // SAFETY: memory that was made of the device holds it, and is gone.
        unsafe { self.device.destroy_device(None) };
    }
}

fn require_extension(vulkan: &Vulkan, physical: &Physical) -> Result<(), VulkanError> {
    // SAFETY: the handle is one of this instance.
    let extensions = unsafe {
        vulkan
            .instance
            .enumerate_device_extension_properties(physical.handle)
    }
    .map_err(failed("vkEnumerateDeviceExtensionProperties"))?;
    let mut names = extensions
        .iter()
        .map(vk::ExtensionProperties::extension_name_as_c_str);
    if names.any(|name| name == Ok(EXTENSION)) {
        return Ok(());
    }
    Err(VulkanError::Extension {
        device: physical.name.clone(),
        missing: "VK_KHR_external_memory_fd",
    })
}

/// Returns whether what is imported must be dedicated to one buffer, if it can be imported at all.
fn require_import(vulkan: &Vulkan, physical: &Physical) -> Result<bool, VulkanError> {
    let wanted = vk::PhysicalDeviceExternalBufferInfo::default()
        .usage(USAGE)
        .handle_type(HANDLE);
    let mut properties = vk::ExternalBufferProperties::default();
    // SAFETY: the handle is one of this instance, of Vulkan 1.1; the structures are live.
    unsafe {
        vulkan
            .instance
            .get_physical_device_external_buffer_properties(
                physical.handle,
                &wanted,
                &mut properties,
            );
    }
    let features = properties
        .external_memory_properties
        .external_memory_features;
    if !features.contains(vk::ExternalMemoryFeatureFlags::IMPORTABLE) {
        return Err(VulkanError::Extension {
            device: physical.name.clone(),
            missing: "import of opaque file descriptors",
        });
    }
    Ok(features.contains(vk::ExternalMemoryFeatureFlags::DEDICATED_ONLY))
}

/// Returns a logical device with one queue, since it must have one.
fn create(vulkan: &Vulkan, physical: &Physical) -> Result<ash::Device, VulkanError> {
    let queue = vk::DeviceQueueCreateInfo::default()
        .queue_family_index(0)
        .queue_priorities(&[1.0]);
    let (queues, extensions) = ([queue], [EXTENSION.as_ptr()]);
    let create = vk::DeviceCreateInfo::default()
        .queue_create_infos(&queues)
        .enabled_extension_names(&extensions);
    // SAFETY: the structures are live; the extension is one that the device has
    // (`require_extension`), and those that it depends on are part of Vulkan 1.1. Every device has
    // a queue family 0.
    unsafe {
        vulkan
            .instance
            .create_device(physical.handle, &create, None)
    }
    .map_err(failed("vkCreateDevice"))
}

/// Returns the first of the allowed memory types that is the device's own and in the reach of CPUs
/// without further calls.
fn choose_type(memory: &vk::PhysicalDeviceMemoryProperties, allowed: u32) -> Option<u32> {
    let wanted = vk::MemoryPropertyFlags::DEVICE_LOCAL
        | vk::MemoryPropertyFlags::HOST_VISIBLE
        | vk::MemoryPropertyFlags::HOST_COHERENT;
    (0..memory.memory_type_count.min(vk::MAX_MEMORY_TYPES as u32)).find(|&index| {
        let flags = memory.memory_types[index as usize].property_flags;
        allowed & (1 << index) != 0 && flags.contains(wanted)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_type_that_is_allowed_and_has_all_three_properties_is_taken() {
        let local = vk::MemoryPropertyFlags::DEVICE_LOCAL;
        let visible =
            vk::MemoryPropertyFlags::HOST_VISIBLE | vk::MemoryPropertyFlags::HOST_COHERENT;
        let mut memory = vk::PhysicalDeviceMemoryProperties {
            memory_type_count: 4,
            ..Default::default()
        };
        for (index, flags) in [local, visible, local | visible, local | visible]
            .into_iter()
            .enumerate()
        {
            memory.memory_types[index].property_flags = flags;
        }
        assert_eq!(choose_type(&memory, !0), Some(2));
        assert_eq!(choose_type(&memory, 0b1011), Some(3));
        assert_eq!(choose_type(&memory, 0b0011), None);
        memory.memory_type_count = 2;
        assert_eq!(choose_type(&memory, !0), None);
    }
}
