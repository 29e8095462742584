//! Mesa's Vulkan driver for CPUs: how the stand-in's memory is to look so that lavapipe imports it.
//!
//! It knows a file for its own by 16 bytes that it derives from its own build, so one of its own is
//! asked for them.

use std::fs::File;
use std::os::fd::{FromRawFd, OwnedFd};
use std::os::unix::fs::FileExt;

use ash::vk;

/// Where the header of lavapipe's files has the bytes (Mesa, `src/util/os_memory_fd.c`, `struct
/// memory_header`).
const MARK_OFFSET: u64 = 16;
const MEMORY_BYTES: u64 = 4096;

/// What the stand-in must know to be taken for lavapipe's device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Lavapipe {
    /// UUID of the device.
    pub uuid: [u8; 16],
    /// What its memory files are marked with.
    pub mark: [u8; 16],
}

/// Why lavapipe cannot show memory.
#[derive(Debug, thiserror::Error)]
pub enum LavapipeError {
    /// No loader.
    #[error("there is no Vulkan loader: install libvulkan1")]
    Loader(#[from] ash::LoadingError),
    /// A call failed.
    #[error("Vulkan does not work")]
    Call(#[from] vk::Result),
    /// It is not installed.
    #[error("Vulkan has no device called llvmpipe: install mesa-vulkan-drivers")]
    Absent,
    /// What it exports cannot be looked into.
    #[error("a file of lavapipe's cannot be read")]
    File(#[from] std::io::Error),
}

impl Lavapipe {
    /// Asks the system's.
    ///
    /// # Errors
    /// [`LavapipeError`].
    pub fn find() -> Result<Self, LavapipeError> {
        // SAFETY: loads the system's Vulkan loader; the entry outlives what is made of it.
        let entry = unsafe { ash::Entry::load()? };
        let application = vk::ApplicationInfo::default().api_version(vk::API_VERSION_1_1);
        let create = vk::InstanceCreateInfo::default().application_info(&application);
        // SAFETY: the structures are live; no layer or extension is asked for.
        let instance = unsafe { entry.create_instance(&create, None)? };
        let found = Self::of(&instance);
        // SAFETY: nothing that was made of it is left.
        unsafe { instance.destroy_instance(None) };
        found
    }

    /// The settings (`CAUSEWAY_STANDIN_…`) that make the stand-in's memory visible through it.
    pub fn settings(&self) -> [(&'static str, String); 2] {
        let hex = |bytes: &[u8; 16]| bytes.iter().map(|byte| format!("{byte:02x}")).collect();
        [
            ("CAUSEWAY_STANDIN_UUID", hex(&self.uuid)),
            ("CAUSEWAY_STANDIN_VULKAN", hex(&self.mark)),
        ]
    }

    fn of(instance: &ash::Instance) -> Result<Self, LavapipeError> {
        // SAFETY: the instance is live.
        let devices = unsafe { instance.enumerate_physical_devices()? };
        let device = devices
            .into_iter()
            .find(|device| is_lavapipe(instance, *device));
        let physical = device.ok_or(LavapipeError::Absent)?;
        let mut identity = vk::PhysicalDeviceIDProperties::default();
        let mut properties = vk::PhysicalDeviceProperties2::default().push_next(&mut identity);
        let queues = [vk::DeviceQueueCreateInfo::default().queue_priorities(&[1.0])];
        let extensions = [ash::khr::external_memory_fd::NAME.as_ptr()];
        let create = vk::DeviceCreateInfo::default()
            .queue_create_infos(&queues)
            .enabled_extension_names(&extensions);
        // SAFETY: the structures are live, the handle is one of this instance, and lavapipe has the
        // extension.
        let device = unsafe {
            instance.get_physical_device_properties2(physical, &mut properties);
            instance.create_device(physical, &create, None)?
        };
        let file = export(instance, &device);
        // SAFETY: nothing that was made of it is left.
        unsafe { device.destroy_device(None) };
        let mut mark = [0; 16];
        file?.read_exact_at(&mut mark, MARK_OFFSET)?;
        Ok(Self {
            uuid: identity.device_uuid,
            mark,
        })
    }
}

fn is_lavapipe(instance: &ash::Instance, device: vk::PhysicalDevice) -> bool {
    // SAFETY: the handle is one of this instance.
    let properties = unsafe { instance.get_physical_device_properties(device) };
    let name = properties.device_name_as_c_str().unwrap_or_default();
    name.to_bytes().starts_with(b"llvmpipe")
}

/// A file with memory of the device's own.
fn export(instance: &ash::Instance, device: &ash::Device) -> Result<File, LavapipeError> {
    let kind = vk::ExternalMemoryHandleTypeFlags::OPAQUE_FD;
    let mut export = vk::ExportMemoryAllocateInfo::default().handle_types(kind);
    // Its first type of memory is fit for everything.
    let allocate = vk::MemoryAllocateInfo::default()
        .allocation_size(MEMORY_BYTES)
        .memory_type_index(0)
        .push_next(&mut export);
    let external = ash::khr::external_memory_fd::Device::new(instance, device);
    // SAFETY: the structures are live; the memory is made to be exported so, and not used
    // otherwise; the descriptor is the caller's.
    unsafe {
        let memory = device.allocate_memory(&allocate, None)?;
        let get = vk::MemoryGetFdInfoKHR::default()
            .memory(memory)
            .handle_type(kind);
        let descriptor = external.get_memory_fd(&get);
        device.free_memory(memory, None);
        Ok(File::from(OwnedFd::from_raw_fd(descriptor?)))
    }
}
