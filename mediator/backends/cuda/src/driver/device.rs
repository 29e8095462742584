//! GPUs, and what the driver tells about them.

use std::ffi::{CStr, c_char, c_int};
use std::sync::OnceLock;

use cudarc::driver::sys::{CUdevice, CUmemLocation, CUmemLocationType, CUuuid};

use super::{CudaError, Driver};

/// A GPU of this machine, as the driver names it.
#[derive(Clone, Copy)]
pub(crate) struct Device {
    pub(super) driver: &'static Driver,
    pub(super) raw: CUdevice,
}

impl Device {
    /// Returns the number of GPUs that the driver has.
    pub(crate) fn count(driver: &Driver) -> Result<u32, CudaError> {
        let mut count = 0;
        // SAFETY: stores an integer.
        unsafe { driver.device_get_count(&mut count) }?;
        Ok(u32::try_from(count).unwrap_or(0))
    }

    /// Returns GPU number `index`, counted from 0 in the order of PCI addresses: a VMM and its
    /// workers mean the same GPU by it. If the user has chosen among GPUs (`CUDA_VISIBLE_DEVICES`),
    /// their order is the user's.
    ///
    /// # Errors
    /// The driver's error if it has no such GPU.
    pub(crate) fn get(driver: &'static Driver, index: u32) -> Result<Self, CudaError> {
        static ORDER: OnceLock<Vec<u32>> = OnceLock::new();
        // Without an order, the driver's is as good as any.
        let order = ORDER.get_or_init(|| Self::order(driver).unwrap_or_default());
        let place = order.get(index as usize).copied();
        Self::at(driver, place.unwrap_or(index))
    }

    /// Returns the places that GPUs have in the driver's order, which may be by their speed, in the
    /// order of their PCI addresses.
    fn order(driver: &'static Driver) -> Result<Vec<u32>, CudaError> {
        if std::env::var_os("CUDA_VISIBLE_DEVICES").is_some() {
            return Ok(Vec::new());
        }
        let places = 0..Self::count(driver)?;
        let places = places.map(|place| Ok((Self::at(driver, place)?.pci_address()?, place)));
        let mut places: Vec<_> = places.collect::<Result<_, CudaError>>()?;
        places.sort();
        Ok(places.into_iter().map(|(_, place)| place).collect())
    }

    /// Returns the GPU at a place in the driver's order.
    fn at(driver: &'static Driver, index: u32) -> Result<Self, CudaError> {
        let mut raw = 0;
        // A number that no `int` can have is one that no GPU has.
        let ordinal = c_int::try_from(index).unwrap_or(c_int::MAX);
        // SAFETY: stores a device.
        unsafe { driver.device_get(&mut raw, ordinal) }?;
        Ok(Self { driver, raw })
    }

    /// Returns the product name of the GPU.
    pub(crate) fn name(self) -> Result<String, CudaError> {
        const ROOM: c_int = 255;
        let mut name: [c_char; 256] = [0; 256];
        // SAFETY: there is room for as many bytes as is said, and one more that stays zero.
        unsafe {
            self.driver
                .device_get_name(name.as_mut_ptr(), ROOM, self.raw)
        }?;
        // SAFETY: ends with a zero.
        let name = unsafe { CStr::from_ptr(name.as_ptr()) };
        Ok(name.to_string_lossy().into_owned())
    }

    /// Returns the UUID of the GPU. Vulkan reports the same UUID for the same GPU.
    pub(crate) fn uuid(self) -> Result<[u8; 16], CudaError> {
        let mut uuid = CUuuid { bytes: [0; 16] };
        // SAFETY: stores 16 bytes.
        unsafe { self.driver.device_get_uuid(&mut uuid, self.raw) }?;
        Ok(uuid.bytes.map(|byte| byte.to_ne_bytes()[0]))
    }

    /// Returns whether kernels of this GPU can reach memory of `other`.
    pub(crate) fn can_access(self, other: Self) -> Result<bool, CudaError> {
        let mut can = 0;
        // SAFETY: stores an integer.
        unsafe {
            self.driver
                .device_can_access_peer(&mut can, self.raw, other.raw)
        }?;
        Ok(can != 0)
    }

    /// Returns the value of an attribute of the way from this GPU to the memory of `other`, given
    /// by its number in `CUdevice_P2PAttribute`.
    ///
    /// # Errors
    /// The driver's error if it does not know the attribute.
    pub(crate) fn peer_attribute(self, other: Self, number: u32) -> Result<i32, CudaError> {
        let mut value = 0;
        // SAFETY: stores an integer; a number that the driver does not know is an error.
        unsafe {
            self.driver
                .device_get_p2p_attribute(&mut value, number, self.raw, other.raw)
        }?;
        Ok(value)
    }

    /// Returns the PCI address of the GPU, as sysfs names it: `0000:01:00.0`.
    pub(crate) fn pci_address(self) -> Result<String, CudaError> {
        const DOMAIN: u32 = 50;
        const BUS: u32 = 33;
        const DEVICE: u32 = 34;
        let [domain, bus, device] = [DOMAIN, BUS, DEVICE].map(|number| self.attribute(number));
        // GPUs are functions with the number 0.
        Ok(format!("{:04x}:{:02x}:{:02x}.0", domain?, bus?, device?))
    }

    /// Returns the size of the GPU's memory in bytes.
    pub(crate) fn memory_bytes(self) -> Result<u64, CudaError> {
        let mut bytes = 0;
        // SAFETY: stores a size.
        unsafe { self.driver.device_total_mem(&mut bytes, self.raw) }?;
        Ok(bytes as u64)
    }

    /// Returns the place of this GPU's memory, as allocations and rights name it.
    pub(super) fn location(self) -> CUmemLocation {
        CUmemLocation {
            type_: CUmemLocationType::CU_MEM_LOCATION_TYPE_DEVICE,
            id: self.raw,
        }
    }

    /// Returns the value of a device attribute, given by its number in `CUdevice_attribute`.
    ///
    /// # Errors
    /// The driver's error if it does not know the attribute.
    pub(crate) fn attribute(self, number: u32) -> Result<i32, CudaError> {
        let mut value = 0;
        // SAFETY: stores an integer; a number that the driver does not know is an error.
        unsafe {
            self.driver
                .device_get_attribute(&mut value, number, self.raw)
        }?;
        Ok(value)
    }
}
