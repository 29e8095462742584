//! Managed variables of modules: managed memory in place of what the device has for them.

use std::collections::BTreeMap;

use super::advice::Advice;
use super::host::HostPiece;
use super::regions::{Backing, Region};
use crate::driver::Driver;
use crate::error::Answer;
use crate::work::Work;

/// Alignment of each variable, in bytes.
const ALIGNMENT: u64 = 512;
/// `CU_MEM_ATTACH_GLOBAL`
const ATTACHED_TO_ALL: u32 = 1;

/// A managed variable of a module that has been loaded.
#[derive(Debug)]
pub(crate) struct InModule {
    pub(crate) name: String,
    /// Address and size in bytes of what the device has, with the initial value.
    pub(crate) initial: (u64, u64),
    /// Address of the variable with its pointer.
    pub(crate) pointer: u64,
}

/// The managed memory of a module's variables.
pub(crate) struct ManagedVariables {
    piece: HostPiece,
    /// Address and size in bytes of each, by name.
    places: BTreeMap<String, (u64, u64)>,
}

impl ManagedVariables {
    /// Allocates memory for the variables of a module, which no work uses yet, copies their initial
    /// values, and sets their pointers.
    ///
    /// # Errors
    /// There is no memory with one address for CPU and GPU, or none left, or the device is lost.
    pub(crate) fn place(driver: &Driver, variables: Vec<InModule>) -> Answer<Self> {
        let mut bytes = 0;
        for variable in &variables {
            bytes += variable.initial.1.max(1).next_multiple_of(ALIGNMENT);
        }
        let memory = &driver.memory;
        let piece = memory.allocate_shared(driver, bytes).inspect_err(|code| {
            let code = code.0;
            log::error!("no managed memory for {bytes} bytes of variables: error {code}");
        })?;
        let mut made = Self {
            piece,
            places: BTreeMap::new(),
        };
        match made.fill(driver, variables) {
            Ok(()) => Ok(made),
            Err(code) => {
                made.end(driver);
                Err(code)
            }
        }
    }

    fn fill(&mut self, driver: &Driver, variables: Vec<InModule>) -> Answer {
        // Other rings may have no work that uses the module.
        let ring = driver.rings.of(0);
        let mut address = self.piece.gpu;
        let mut last = None;
        for variable in variables {
            let (from, bytes) = variable.initial;
            let work = Work::Sequence(vec![
                copy(address, from, bytes),
                half(variable.pointer, address as u32),
                half(variable.pointer + 4, (address >> 32) as u32),
            ]);
            last = Some(ring.submit_and_announce(driver, |writing| work.write(writing))?);
            driver.memory.regions.lock().insert(Region {
                bytes: bytes.max(1),
                gpu: Some(address),
                host: Some(address),
                context: 0,
                flags: ATTACHED_TO_ALL,
                backing: Backing::ManagedVariable(Advice::default()),
            });
            self.places.insert(variable.name, (address, bytes));
            address += bytes.max(1).next_multiple_of(ALIGNMENT);
        }
        last.map_or(Ok(()), |last| driver.rings.wait(driver, last))
    }

    /// Returns address and size in bytes of a variable.
    pub(crate) fn find(&self, name: &str) -> Option<(u64, u64)> {
        self.places.get(name).copied()
    }

    /// Frees the memory once the work that was submitted before has ended.
    pub(crate) fn end(self, driver: &Driver) {
        let is_variable = |region: &Region| matches!(region.backing, Backing::ManagedVariable(_));
        let mut regions = driver.memory.regions.lock();
        for (address, _) in self.places.values() {
            regions.take(*address, is_variable);
        }
        drop(regions);
        driver.memory.host.lock().retire(driver, self.piece);
    }
}

/// Returns the work that copies an initial value.
fn copy(destination: u64, source: u64, bytes: u64) -> Work {
    match bytes {
        0 => Work::Nothing,
        bytes => Work::Copy {
            destination,
            source,
            bytes,
        },
    }
}

/// Returns the work that sets half of a pointer.
const fn half(destination: u64, pattern: u32) -> Work {
    Work::Fill {
        destination,
        bytes: 4,
        pattern,
        width: 4,
    }
}
