//! Memory that graphs allocate and free (CUDA C++ Programming Guide, "Graph Memory Nodes").
//!
//! A node has its memory, at one address, from when the node is made until the last graph with the
//! node is gone. A launch only notes whether the program may use the memory: from the launch that
//! allocates it until it is freed, by a graph or by the program, possibly after all its graphs.
//! Freed memory is not given again while earlier work may use it, so a launch submits nothing for
//! it.

use std::collections::BTreeMap;

use causeway_shim_linux::shim::Piece;

use super::ALIGNMENT;
use super::host::HostPiece;
use super::pool_kinds::PoolKind;
use super::regions::{Backing, Region, Regions};
use crate::boundary::{In, Out};
use crate::context::Context;
use crate::driver::{Driver, call_on_unless_faulted};
use crate::error::{Answer, Code};
use crate::structures::PoolProperties;

/// What is behind the memory of a node.
#[derive(Debug)]
pub(crate) struct GraphPiece {
    piece: NodePiece,
    pub(super) is_managed: bool,
    /// Whether a graph has the node.
    is_held: bool,
    /// Whether a launch has allocated it, and nothing has freed it since.
    is_allocated: bool,
}

#[derive(Debug)]
enum NodePiece {
    Device(Piece),
    Shared(HostPiece),
}

/// The memory of a node. It goes with the last graph that has the node, unless it is allocated.
pub(crate) struct NodeMemory {
    driver: &'static Driver,
    pub(crate) address: u64,
    /// Number of the region, which no later one at the address has.
    number: u64,
}

/// What a node does to memory when it is launched.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Step {
    Allocate(u64),
    Free(u64),
}

/// How much memory nodes have, in bytes.
#[derive(Debug, Default)]
pub(super) struct GraphUse {
    now: u64,
    /// What nodes had, until it is trimmed.
    cached: u64,
    /// High marks of what is used and reserved, which are the same but for their resets.
    high: [u64; 2],
}

impl GraphUse {
    fn add(&mut self, bytes: u64) {
        self.now += bytes;
        self.cached = self.cached.saturating_sub(bytes);
        let told = self.told();
        self.high = self.high.map(|high| high.max(told));
    }

    pub(super) fn remove(&mut self, bytes: u64) {
        self.now = self.now.saturating_sub(bytes);
        self.cached += bytes;
    }

    const fn told(&self) -> u64 {
        self.now + self.cached
    }

    /// Returns a `CUgraphMem_attribute`.
    fn attribute(&self, number: u32) -> Answer<u64> {
        match number {
            0 | 2 => Ok(self.told()),
            1 => Ok(self.high[0]),
            3 => Ok(self.high[1]),
            _ => Err(Code::INVALID_VALUE),
        }
    }

    /// Resets a high mark: nothing else can be set.
    fn reset(&mut self, number: u32, value: u64) -> Answer {
        let told = self.told();
        match (number, value) {
            (1, 0) => self.high[0] = told,
            (3, 0) => self.high[1] = told,
            _ => return Err(Code::INVALID_VALUE),
        }
        Ok(())
    }
}

impl GraphPiece {
    /// Gives the memory back behind the work that was submitted.
    pub(super) fn give_back(self, driver: &Driver) {
        let memory = &driver.memory;
        memory.graph_use.lock().remove(self.piece.bytes());
        match self.piece {
            NodePiece::Device(piece) => {
                let marks = driver.rings.of_freed(driver);
                memory.device.lock().free(driver, piece, marks);
            }
            NodePiece::Shared(piece) => memory.host.lock().retire(driver, piece),
        }
    }

    /// Frees it for the program. Returns whether nothing needs the memory any more.
    pub(super) fn free(&mut self) -> Answer<bool> {
        match std::mem::take(&mut self.is_allocated) {
            true => Ok(!self.is_held),
            false => Err(Code::INVALID_VALUE),
        }
    }
}

impl NodePiece {
    const fn bytes(&self) -> u64 {
        match self {
            Self::Device(piece) => piece.bytes(),
            Self::Shared(piece) => piece.bytes(),
        }
    }
}

impl NodeMemory {
    /// Allocates memory of the kind of a pool.
    pub(crate) fn new(
        driver: &'static Driver,
        context: &Context,
        (pool, bytes): (&PoolProperties, u64),
    ) -> Answer<Self> {
        let kind = PoolKind::of_properties(pool)?;
        // As documented, other processes cannot have it.
        if pool.handle_types != 0 {
            return Err(Code::NOT_SUPPORTED);
        }
        let memory = &driver.memory;
        let (piece, gpu, host) = match kind {
            PoolKind::Device => {
                let piece = memory.device.lock().allocate(driver, bytes, ALIGNMENT)?;
                let gpu = piece.address();
                (NodePiece::Device(piece), gpu, None)
            }
            PoolKind::Host | PoolKind::Managed(_) => {
                let piece = memory.allocate_shared(driver, bytes)?;
                let (gpu, host) = (piece.gpu, piece.host);
                (NodePiece::Shared(piece), gpu, Some(host))
            }
        };
        memory.graph_use.lock().add(piece.bytes());
        let region = Region {
            bytes,
            gpu: Some(gpu),
            host,
            context: context.handle,
            flags: 0,
            backing: Backing::Graph(GraphPiece {
                piece,
                is_managed: matches!(kind, PoolKind::Managed(_)),
                is_held: true,
                is_allocated: false,
            }),
        };
        let mut regions = memory.regions.lock();
        let address = regions.insert(region);
        let number = regions.number(address).unwrap_or_default();
        Ok(Self {
            driver,
            address,
            number,
        })
    }
}

impl Drop for NodeMemory {
    fn drop(&mut self) {
        let mut regions = self.driver.memory.regions.lock();
        if regions.number(self.address) != Some(self.number) {
            // It went with its context.
            return;
        }
        let Some(found) = find(&mut regions, self.address) else {
            return;
        };
        found.is_held = false;
        if found.is_allocated {
            return;
        }
        let taken = regions.take(self.address, |_| true);
        drop(regions);
        if let Some(region) = taken {
            self.driver.memory.give_back(self.driver, region);
        }
    }
}

/// Returns the memory of a node that begins at an address.
fn find(regions: &mut Regions, address: u64) -> Option<&mut GraphPiece> {
    match regions.find_mut(address) {
        Some((
            start,
            Region {
                backing: Backing::Graph(found),
                ..
            },
        )) if start == address => Some(found),
        _ => None,
    }
}

/// Returns whether a node's memory begins at an address.
pub(crate) fn is_of_node(driver: &Driver, address: u64) -> bool {
    find(&mut driver.memory.regions.lock(), address).is_some()
}

/// Notes what a launch does to memory. Without `frees_before`, it may not allocate what is
/// allocated. Returns the memory that nobody has behind the launch: the caller gives it back then.
pub(crate) fn launch(driver: &Driver, steps: &[Step], frees_before: bool) -> Answer<Vec<Region>> {
    let mut regions = driver.memory.regions.lock();
    check(&mut regions, steps, frees_before)?;
    let mut freed = Vec::new();
    for step in steps {
        match *step {
            Step::Allocate(address) => {
                if let Some(found) = find(&mut regions, address) {
                    found.is_allocated = true;
                }
            }
            Step::Free(address) => {
                let is_over = find(&mut regions, address).map(GraphPiece::free);
                if let Some(Ok(true)) = is_over {
                    freed.extend(regions.take(address, |_| true));
                }
            }
        }
    }
    Ok(freed)
}

/// Gives back what [`launch`] has returned, behind the work that was submitted.
pub(crate) fn give_back(driver: &Driver, freed: Vec<Region>) {
    for region in freed {
        driver.memory.give_back(driver, region);
    }
}

fn check(regions: &mut Regions, steps: &[Step], frees_before: bool) -> Answer {
    let mut allocated = BTreeMap::new();
    for step in steps {
        let (Step::Allocate(address) | Step::Free(address)) = *step;
        let found = find(regions, address).ok_or(Code::INVALID_VALUE)?;
        let is_allocated = allocated.entry(address).or_insert(found.is_allocated);
        match step {
            Step::Allocate(_) if *is_allocated && !frees_before => return Err(Code::INVALID_VALUE),
            Step::Free(_) if !*is_allocated => return Err(Code::INVALID_VALUE),
            _ => *is_allocated = matches!(step, Step::Allocate(_)),
        }
    }
    Ok(())
}

/// Frees a node's memory by a call of the program. Returns `None` if the address is not that of a
/// node's memory, and the region that goes, if it does.
pub(super) fn free(regions: &mut Regions, address: u64) -> Option<Answer<Option<Region>>> {
    let is_over = find(regions, address)?.free();
    Some(is_over.map(|is_over| match is_over {
        true => regions.take(address, |_| true),
        false => None,
    }))
}

#[unsafe(no_mangle)]
extern "C" fn cuDeviceGetGraphMemAttribute(device: i32, attribute: u32, value: Out<u64>) -> u32 {
    call_on_unless_faulted(device, |driver| {
        value.set(driver.memory.graph_use.lock().attribute(attribute)?)
    })
}

#[unsafe(no_mangle)]
extern "C" fn cuDeviceSetGraphMemAttribute(device: i32, attribute: u32, value: In<u64>) -> u32 {
    call_on_unless_faulted(device, |driver| {
        let value = value.get()?;
        driver.memory.graph_use.lock().reset(attribute, value)
    })
}

#[unsafe(no_mangle)]
extern "C" fn cuDeviceGraphMemTrim(device: i32) -> u32 {
    call_on_unless_faulted(device, |driver| {
        driver.memory.graph_use.lock().cached = 0;
        driver.memory.device.lock().trim(driver)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn memory_of_graphs_is_counted_until_it_is_trimmed() {
        let mut used = GraphUse::default();
        used.add(512);
        used.remove(512);
        assert_eq!(used.attribute(0), Ok(512));
        used.cached = 0;
        assert_eq!((used.attribute(2), used.attribute(3)), (Ok(0), Ok(512)));
        assert_eq!(used.reset(3, 1), Err(Code::INVALID_VALUE));
        assert_eq!(used.reset(0, 0), Err(Code::INVALID_VALUE));
        used.reset(3, 0).unwrap();
        assert_eq!((used.attribute(1), used.attribute(3)), (Ok(512), Ok(0)));
        assert_eq!(used.attribute(4), Err(Code::INVALID_VALUE));
    }
}
