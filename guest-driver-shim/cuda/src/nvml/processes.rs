//! Processes that use the device.

use crate::boundary::Out;
use crate::driver::Driver;
use crate::session;

use super::code::{Answer, Code};
use super::handle::{Handle, device_call};

/// `NVML_VALUE_NOT_AVAILABLE`
const UNKNOWN_BYTES: u64 = u64::MAX;
/// Number of an instance of a device that is not divided (MIG).
const NO_INSTANCE: u32 = u32::MAX;

/// A process that uses the device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Running {
    process: u32,
    /// Device memory that it holds.
    bytes: u64,
}

/// The structure of the first version.
#[derive(Clone, Copy)]
#[repr(C)]
struct InfoV1 {
    process: u32,
    _padding: u32,
    bytes: u64,
}

/// The structure of the second and third version.
#[derive(Clone, Copy)]
#[repr(C)]
struct Info {
    process: u32,
    _padding: u32,
    bytes: u64,
    gpu_instance: u32,
    compute_instance: u32,
}

impl From<Running> for InfoV1 {
    fn from(Running { process, bytes }: Running) -> Self {
        Self {
            process,
            _padding: 0,
            bytes,
        }
    }
}

impl From<Running> for Info {
    fn from(Running { process, bytes }: Running) -> Self {
        Self {
            process,
            _padding: 0,
            bytes,
            gpu_instance: NO_INSTANCE,
            compute_instance: NO_INSTANCE,
        }
    }
}

/// Lists the processes of this guest that have objects on a device, as far as this process may
/// see them, and this process if it has initialized CUDA. How much memory another process holds,
/// only that one knows.
fn running(index: usize) -> Vec<Running> {
    let clients = session::clients(index);
    let others = clients.iter().filter(|client| client.owns);
    let drivers = Driver::get().map_or(&[][..], |_| Driver::all());
    let own = drivers.iter().find(|driver| driver.index == index);
    let own = own.map(|driver| Running {
        process: std::process::id(),
        bytes: driver.memory.held_bytes(),
    });
    list(own, others.filter_map(|client| client.process))
}

fn list(own: Option<Running>, others: impl Iterator<Item = u32>) -> Vec<Running> {
    let mut all: Vec<Running> = own.into_iter().collect();
    for process in others {
        if all.iter().all(|known| known.process != process) {
            all.push(Running {
                process,
                bytes: UNKNOWN_BYTES,
            });
        }
    }
    all.sort_unstable_by_key(|running| running.process);
    all
}

/// Puts as many entries as there are, if the caller has room for all. `count` is the room before
/// and the number of entries after.
fn put<T: From<Running>>(all: &[Running], count: Out<u32>, infos: Out<T>) -> Answer {
    let room = count.get()? as usize;
    if room != 0 && infos.is_null() {
        return Err(Code::INVALID_ARGUMENT);
    }
    count.set(u32::try_from(all.len()).unwrap_or(u32::MAX))?;
    if all.len() > room {
        return Err(Code::INSUFFICIENT_SIZE);
    }
    for (index, running) in all.iter().enumerate() {
        infos.set_at(index, T::from(*running))?;
    }
    Ok(())
}

/// Lists the processes that use a device in ways that there are not.
const fn nobody(_: usize) -> [Running; 0] {
    []
}

/// Defines the versions of a call that lists processes, with their structures.
macro_rules! lists {
    ($($name:ident: $info:ty, $found:expr;)*) => {$(
        #[unsafe(no_mangle)]
        extern "C" fn $name(device: Handle, count: Out<u32>, infos: Out<$info>) -> u32 {
            device_call(device, |device| put(&$found(device.index), count, infos))
        }
    )*};
}

// Nothing draws on the device, and it has no multi-process service.
lists! {
    nvmlDeviceGetComputeRunningProcesses: InfoV1, running;
    nvmlDeviceGetComputeRunningProcesses_v2: Info, running;
    nvmlDeviceGetComputeRunningProcesses_v3: Info, running;
    nvmlDeviceGetGraphicsRunningProcesses: InfoV1, nobody;
    nvmlDeviceGetGraphicsRunningProcesses_v2: Info, nobody;
    nvmlDeviceGetGraphicsRunningProcesses_v3: Info, nobody;
    nvmlDeviceGetMPSComputeRunningProcesses: InfoV1, nobody;
    nvmlDeviceGetMPSComputeRunningProcesses_v2: Info, nobody;
    nvmlDeviceGetMPSComputeRunningProcesses_v3: Info, nobody;
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_process_is_listed_once_and_only_the_callers_memory_is_known() {
        let own = Running {
            process: 5,
            bytes: 7,
        };
        let other = Running {
            process: 3,
            bytes: UNKNOWN_BYTES,
        };
        assert_eq!(list(Some(own), [3, 5, 3].into_iter()), [other, own]);
        assert_eq!(list(None, [].into_iter()), []);
        assert_eq!((size_of::<InfoV1>(), size_of::<Info>()), (16, 24));
    }
}
