//! Someone else who has memory of the device: an allocation made by Vulkan itself, exported and
//! mapped.

use std::os::fd::{FromRawFd, OwnedFd};
use std::sync::atomic::{AtomicU64, Ordering};

use ash::vk;

/// Bytes of the allocation.
pub const BYTES: u64 = 1 << 20;

pub struct Exporter {
    _entry: ash::Entry,
    instance: ash::Instance,
    device: ash::Device,
    memory: vk::DeviceMemory,
    base: *mut u8,
    external: ash::khr::external_memory_fd::Device,
}

impl Exporter {
    /// On the device with that UUID, which can do it.
    pub fn new(uuid: [u8; 16]) -> Self {
        // SAFETY: loads the system's Vulkan loader; every structure is live when it is used, and
        // handles are those of their parents.
        unsafe {
            let entry = ash::Entry::load().unwrap();
            let application = vk::ApplicationInfo::default().api_version(vk::API_VERSION_1_1);
            let create = vk::InstanceCreateInfo::default().application_info(&application);
            let instance = entry.create_instance(&create, None).unwrap();
            let physical = find(&instance, uuid);
            let queues = [vk::DeviceQueueCreateInfo::default().queue_priorities(&[1.0])];
            let extensions = [ash::khr::external_memory_fd::NAME.as_ptr()];
            let create = vk::DeviceCreateInfo::default()
                .queue_create_infos(&queues)
                .enabled_extension_names(&extensions);
            let device = instance.create_device(physical, &create, None).unwrap();
            let mut export = vk::ExportMemoryAllocateInfo::default()
                .handle_types(vk::ExternalMemoryHandleTypeFlags::OPAQUE_FD);
            let allocate = vk::MemoryAllocateInfo::default()
                .allocation_size(BYTES)
                .memory_type_index(visible_type(&instance, physical))
                .push_next(&mut export);
            let memory = device.allocate_memory(&allocate, None).unwrap();
            let flags = vk::MemoryMapFlags::empty();
            let base = device.map_memory(memory, 0, BYTES, flags).unwrap().cast();
            let external = ash::khr::external_memory_fd::Device::new(&instance, &device);
            Self {
                _entry: entry,
                instance,
                device,
                memory,
                base,
                external,
            }
        }
    }

    /// A descriptor of the memory, as another process would get it.
    pub fn export(&self) -> OwnedFd {
        let get = vk::MemoryGetFdInfoKHR::default()
            .memory(self.memory)
            .handle_type(vk::ExternalMemoryHandleTypeFlags::OPAQUE_FD);
        // SAFETY: the memory was made to be exported so; the descriptor is ours then.
        unsafe { OwnedFd::from_raw_fd(self.external.get_memory_fd(&get).unwrap()) }
    }

    /// A word of the memory, as its owner sees it.
    pub fn word(&self, offset: u64) -> &AtomicU64 {
        assert!(offset.is_multiple_of(8) && offset < BYTES);
        // SAFETY: within the mapping, aligned, and others use it by atomic or volatile accesses.
        unsafe { &*self.base.add(offset as usize).cast() }
    }

    pub fn load(&self, offset: u64) -> u64 {
        self.word(offset).load(Ordering::Relaxed)
    }
}

impl Drop for Exporter {
    fn drop(&mut self) {
        // SAFETY: nothing of these is used any more.
        unsafe {
            self.device.free_memory(self.memory, None);
            self.device.destroy_device(None);
            self.instance.destroy_instance(None);
        }
    }
}

unsafe fn find(instance: &ash::Instance, uuid: [u8; 16]) -> vk::PhysicalDevice {
    // SAFETY: the instance is live.
    let all = unsafe { instance.enumerate_physical_devices() }.unwrap();
    let has = |physical: &vk::PhysicalDevice| {
        let mut identity = vk::PhysicalDeviceIDProperties::default();
        let mut properties = vk::PhysicalDeviceProperties2::default().push_next(&mut identity);
        // SAFETY: the handle is one of this instance.
        unsafe { instance.get_physical_device_properties2(*physical, &mut properties) };
        identity.device_uuid == uuid
    };
    all.into_iter().find(has).unwrap()
}

unsafe fn visible_type(instance: &ash::Instance, physical: vk::PhysicalDevice) -> u32 {
    let wanted = vk::MemoryPropertyFlags::DEVICE_LOCAL
        | vk::MemoryPropertyFlags::HOST_VISIBLE
        | vk::MemoryPropertyFlags::HOST_COHERENT;
    // SAFETY: the handle is one of this instance.
    let memory = unsafe { instance.get_physical_device_memory_properties(physical) };
    let types = memory.memory_types_as_slice();
    let index = types
        .iter()
        .position(|kind| kind.property_flags.contains(wanted));
    index.unwrap() as u32
}
