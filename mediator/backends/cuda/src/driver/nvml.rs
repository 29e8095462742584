//! NVML, the management library of NVIDIA's driver, for what the CUDA driver does not tell: by
//! which link two GPUs are connected. It is loaded at run time, and nothing needs it.

use std::ffi::{CString, c_char, c_int, c_void};

use libloading::Library;

type NvmlDevice = *mut c_void;
type InitCall = unsafe extern "C" fn() -> u32;
type HandleCall = unsafe extern "C" fn(*const c_char, *mut NvmlDevice) -> u32;
type StatusCall = unsafe extern "C" fn(NvmlDevice, NvmlDevice, c_int, *mut c_int) -> u32;
type AncestorCall = unsafe extern "C" fn(NvmlDevice, NvmlDevice, *mut c_int) -> u32;

/// `NVML_P2P_CAPS_INDEX_NVLINK`
const NVLINK: c_int = 2;
/// `NVML_P2P_STATUS_OK`
const STATUS_OK: c_int = 0;

/// NVML, initialized.
pub(crate) struct Nvml {
    by_address: HandleCall,
    status: StatusCall,
    ancestor: AncestorCall,
    shutdown: InitCall,
    /// Keeps the functions loaded.
    _library: Library,
}

impl Nvml {
    /// Loads NVML; `None` if the host has none that works.
    pub(crate) fn load() -> Option<Self> {
        let found = Self::find();
        let reason = |e: &libloading::Error| log::debug!("NVML is not used: {e}");
        let (nvml, init) = found.inspect_err(reason).ok()?;
        // SAFETY: `nvmlInit_v2` has this type and takes nothing.
        match unsafe { init() } {
            0 => Some(nvml),
            code => {
                log::debug!("NVML is not used: nvmlInit_v2 answers {code}");
                // What was not initialized is not shut down.
                std::mem::forget(nvml);
                None
            }
        }
    }

    fn find() -> Result<(Self, InitCall), libloading::Error> {
        // SAFETY: loads the library that the system's path names, which the user who set that path
        // is trusted with. The types of the functions are those of nvml.h.
        unsafe {
            let library = Library::new("libnvidia-ml.so.1")?;
            let init = *library.get::<InitCall>(b"nvmlInit_v2\0")?;
            let nvml = Self {
                by_address: *library.get(b"nvmlDeviceGetHandleByPciBusId_v2\0")?,
                status: *library.get(b"nvmlDeviceGetP2PStatus\0")?,
                ancestor: *library.get(b"nvmlDeviceGetTopologyCommonAncestor\0")?,
                shutdown: *library.get(b"nvmlShutdown\0")?,
                _library: library,
            };
            Ok((nvml, init))
        }
    }

    /// Returns the link between two GPUs, given by their PCI addresses as sysfs names them; `None`
    /// if NVML does not tell.
    pub(crate) fn link(&self, addresses: [&str; 2]) -> Option<&'static str> {
        let [one, other] = addresses.map(|address| self.device(address));
        let (one, other) = (one?, other?);
        let mut status = -1;
        // SAFETY: both handles are NVML's own; stores an integer.
        let told = unsafe { (self.status)(one, other, NVLINK, &mut status) };
        let has_nvlink = told == 0 && status == STATUS_OK;
        let mut level = -1;
        // SAFETY: as above.
        let told = unsafe { (self.ancestor)(one, other, &mut level) };
        link(has_nvlink, (told == 0).then_some(level))
    }

    fn device(&self, address: &str) -> Option<NvmlDevice> {
        let address = CString::new(address).ok()?;
        let mut device = std::ptr::null_mut();
        // SAFETY: reads a string, stores a handle.
        let told = unsafe { (self.by_address)(address.as_ptr(), &mut device) };
        (told == 0).then_some(device)
    }
}

impl Drop for Nvml {
    fn drop(&mut self) {
        // SAFETY: initialized by `load`; no handle is used afterwards.
        unsafe { (self.shutdown)() };
    }
}

/// Returns the link in words: `level` is that of the common ancestor on PCI
/// (`nvmlGpuTopologyLevel_t`).
fn link(has_nvlink: bool, level: Option<c_int>) -> Option<&'static str> {
    match (has_nvlink, level) {
        (true, _) => Some("NVLink"),
        (false, Some(0)) => Some("PCI Express on one board"),
        (false, Some(10)) => Some("PCI Express behind one switch"),
        (false, Some(20)) => Some("PCI Express behind several switches"),
        (false, Some(30)) => Some("PCI Express behind one host bridge"),
        (false, Some(40)) => Some("PCI Express of one NUMA node"),
        (false, Some(50)) => Some("PCI Express across NUMA nodes"),
        (false, _) => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nvlink_counts_before_the_way_by_pci() {
        assert_eq!(link(true, Some(50)), Some("NVLink"));
        assert_eq!(link(false, Some(50)), Some("PCI Express across NUMA nodes"));
        assert_eq!(link(false, None), None);
        assert_eq!(link(false, Some(7)), None);
    }
}
