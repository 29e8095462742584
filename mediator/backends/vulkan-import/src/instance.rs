//! The Vulkan loader, and the physical devices that it finds.

use ash::{Entry, Instance, vk};

use crate::{Uuid, VulkanError};

/// The loaded Vulkan library with an instance.
pub(crate) struct Vulkan {
    pub instance: Instance,
    // Dropped after the instance, whose functions are in this library.
    _entry: Entry,
}

/// A physical device of Vulkan with its name and UUID.
#[derive(Clone)]
pub(crate) struct Physical {
    pub handle: vk::PhysicalDevice,
    pub name: String,
    pub uuid: Uuid,
}

/// Returns a function that converts an error of the Vulkan function `call` to
/// [`VulkanError::Call`].
pub(crate) fn failed(call: &'static str) -> impl Fn(vk::Result) -> VulkanError {
    move |source| VulkanError::Call { call, source }
}

/// Returns whether the Vulkan loader, `libvulkan.so.1`, is installed. This does not mean that there
/// is a Vulkan device.
pub fn is_present() -> bool {
    // SAFETY: loads the system's Vulkan loader, which the user who set the library path is trusted
    // with, and calls nothing.
    unsafe { Entry::load() }.is_ok()
}

impl Vulkan {
    /// Loads the Vulkan library and creates an instance of Vulkan 1.1.
    ///
    /// # Errors
    /// * [`VulkanError::Loader`]: the library is not installed.
    /// * [`VulkanError::Version`]: the library is older than Vulkan 1.1.
    /// * [`VulkanError::Call`]: the library fails to create an instance.
    pub fn load() -> Result<Self, VulkanError> {
        // SAFETY: loads the system's Vulkan loader, which the user who set the library path is
        // trusted with. The entry is kept as long as anything of it is used.
        let entry = unsafe { Entry::load() }.map_err(|e| VulkanError::Loader(e.into()))?;
        // SAFETY: a query without preconditions.
        let version = unsafe { entry.try_enumerate_instance_version() }
            .map_err(failed("vkEnumerateInstanceVersion"))?
            .unwrap_or(vk::API_VERSION_1_0);
        if version < vk::API_VERSION_1_1 {
            return Err(VulkanError::Version {
                major: vk::api_version_major(version),
                minor: vk::api_version_minor(version),
            });
        }
        let application = vk::ApplicationInfo::default()
            .application_name(c"causeway")
            .api_version(vk::API_VERSION_1_1);
        let create = vk::InstanceCreateInfo::default().application_info(&application);
        // SAFETY: the structures live until the call returns; no layer or extension is asked for.
        let instance =
            unsafe { entry.create_instance(&create, None) }.map_err(failed("vkCreateInstance"))?;
        Ok(Self {
            instance,
            _entry: entry,
        })
    }

    /// Returns all physical devices that support Vulkan 1.1.
    ///
    /// # Errors
    /// [`VulkanError::Call`] if the library fails to list its devices.
    pub fn devices(&self) -> Result<Vec<Physical>, VulkanError> {
        // SAFETY: the instance is live.
        let handles = unsafe { self.instance.enumerate_physical_devices() }
            .map_err(failed("vkEnumeratePhysicalDevices"))?;
        Ok(handles
            .into_iter()
            .filter_map(|handle| self.identify(handle))
            .collect())
    }

    /// Returns the name and UUID of a device; `None` for a device of Vulkan 1.0, which has no UUID.
    fn identify(&self, handle: vk::PhysicalDevice) -> Option<Physical> {
        // SAFETY: the handle is one of this instance.
        let version = unsafe { self.instance.get_physical_device_properties(handle) }.api_version;
        if version < vk::API_VERSION_1_1 {
            return None;
        }
        let mut identity = vk::PhysicalDeviceIDProperties::default();
        let mut properties = vk::PhysicalDeviceProperties2::default().push_next(&mut identity);
        // SAFETY: both structures are live, and chained as the call wants them; the device is of
        // Vulkan 1.1.
        unsafe {
            self.instance
                .get_physical_device_properties2(handle, &mut properties)
        };
        let name = properties.properties.device_name_as_c_str();
        let name = name.map_or_else(|_| "unnamed".into(), |name| name.to_string_lossy());
        Some(Physical {
            handle,
            name: name.into_owned(),
            uuid: identity.device_uuid,
        })
    }
}

impl Drop for Vulkan {
    fn drop(&mut self) {
        // SAFETY: what was made of the instance holds it, and is gone.
        unsafe { self.instance.destroy_instance(None) };
    }
}
