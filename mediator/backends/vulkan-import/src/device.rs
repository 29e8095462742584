//! A Vulkan device into which memory is imported.

use std::ffi::CStr;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;

use ash::{Instance, vk};
use causeway_memory::DeviceMemory;
use parking_lot::Mutex;

use crate::instance::{Physical, Vulkan, failed};
use crate::memory::ImportedMemory;
use crate::{ImportError, Uuid, VulkanError, descriptor};

/// Vulkan's kind of handle for the POSIX descriptors that CUDA exports.
pub(crate) const HANDLE: vk::ExternalMemoryHandleTypeFlags =
    vk::ExternalMemoryHandleTypeFlags::OPAQUE_FD;
/// Usage that is stated for buffers of imported memory. Only the choice of memory types depends on
/// it.
const USAGE: vk::BufferUsageFlags = vk::BufferUsageFlags::from_raw(
    vk::BufferUsageFlags::TRANSFER_SRC.as_raw() | vk::BufferUsageFlags::TRANSFER_DST.as_raw(),
);
const EXTENSION: &CStr = ash::khr::external_memory_fd::NAME;

/// A Vulkan device that imports GPU memory which another driver has exported, and maps that memory
/// for CPUs.
pub struct VulkanDevice {
    pub(crate) device: ash::Device,
    pub(crate) name: String,
    /// Index of the memory type with which descriptors are imported.
    pub(crate) memory_type: u32,
    /// Whether each import must name a buffer to which the memory belongs.
    pub(crate) dedicated: bool,
    heap_bytes: u64,
    /// Locked during an import. Imports must not run at the same time, because duplicates of a
    /// descriptor share one file position, from which lavapipe reads.
    pub(crate) importing: Mutex<()>,
    // Dropped after the device, which was created from it.
    _vulkan: Arc<Vulkan>,
}

impl VulkanDevice {
    /// Opens the GPU with the UUID `uuid`: loads `libvulkan.so.1` and creates a logical device,
    /// which takes about 100 ms.
    ///
    /// # Errors
    /// * [`VulkanError::Loader`], [`VulkanError::Version`]: the loader is missing or too old.
    /// * [`VulkanError::Device`]: Vulkan has no device with this UUID.
    /// * [`VulkanError::Extension`], [`VulkanError::MemoryType`]: the device cannot import memory,
    ///   or has no memory that CPUs can map.
    /// * [`VulkanError::Call`]: a Vulkan function failed.
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

    /// Opens `physical`, as [`Self::open`] does.
    pub(crate) fn of(vulkan: &Arc<Vulkan>, physical: &Physical) -> Result<Self, VulkanError> {
        let instance = &vulkan.instance;
        require_extension(instance, physical)?;
        let dedicated = require_import(instance, physical)?;
        // SAFETY: the handle is one of this instance.
        let memory = unsafe { instance.get_physical_device_memory_properties(physical.handle) };
        let device = create(instance, physical)?;
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
            // Memory may be imported as more types than buffers of imported memory may have:
            // NVIDIA's driver names no type for such buffers that CPUs can map, but imports memory
            // as such a type all the same. No buffer is bound here in any case.
            None => {
                opened.dedicated = false;
                choose_type(&memory, u32::MAX).ok_or_else(no_type)?
            }
        };
        let heap = memory.memory_types[opened.memory_type as usize].heap_index;
        opened.heap_bytes = memory.memory_heaps[heap as usize].size;
        Ok(opened)
    }

    /// Returns the name of the device, as Vulkan reports it.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Returns the size, in bytes, of the memory that CPUs can map: the size of the GPU's BAR,
    /// which all processes share.
    pub fn visible_bytes(&self) -> u64 {
        self.heap_bytes
    }

    /// Returns an object for the `bytes` bytes of this device's memory that another driver, such as
    /// CUDA, exported as the file descriptor `file`. The descriptor may come from an untrusted
    /// process; [the crate](crate) says what is checked. The memory is not mapped yet.
    ///
    /// # Errors
    /// [`ImportError`] if the descriptor cannot be memory of this size. What only the driver can
    /// detect makes a later mapping fail instead.
    pub fn import(
        self: &Arc<Self>,
        file: OwnedFd,
        bytes: u64,
    ) -> Result<Arc<dyn DeviceMemory>, ImportError> {
        descriptor::check(file.as_fd(), bytes)?;
        Ok(Arc::new(ImportedMemory {
            device: Arc::clone(self),
            file,
            bytes,
        }))
    }

    /// Creates a buffer for `bytes` bytes of imported memory. No memory is bound to it.
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

    /// Returns the memory types, as bits, that imported memory may have. They are the same for all
    /// buffers that are created in the same way.
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

fn require_extension(instance: &Instance, physical: &Physical) -> Result<(), VulkanError> {
    // SAFETY: the handle is one of this instance.
    let extensions = unsafe { instance.enumerate_device_extension_properties(physical.handle) }
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

/// Checks that the device imports memory by descriptors. Returns whether each import must name a
/// buffer to which the memory belongs.
fn require_import(instance: &Instance, physical: &Physical) -> Result<bool, VulkanError> {
    let wanted = vk::PhysicalDeviceExternalBufferInfo::default()
        .usage(USAGE)
        .handle_type(HANDLE);
    let mut properties = vk::ExternalBufferProperties::default();
    // SAFETY: the handle is one of this instance, of Vulkan 1.1; the structures are live.
    unsafe {
        instance.get_physical_device_external_buffer_properties(
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
fn create(instance: &Instance, physical: &Physical) -> Result<ash::Device, VulkanError> {
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
    unsafe { instance.create_device(physical.handle, &create, None) }
        .map_err(failed("vkCreateDevice"))
}

/// Returns the first of the allowed memory types that is the device's own memory and that CPUs can
/// access without further calls.
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
