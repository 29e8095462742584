//! NUMA nodes from which memory comes (set_mempolicy(2), mbind(2)).

use std::io;

use crate::{Mapping, MemoryError};

/// Nodes that a Linux kernel can have at most (`MAX_NUMNODES`).
const NODES_MAX: usize = 1024;
/// Bits in one word of a set of nodes.
const WORD_BITS: usize = u64::BITS as usize;
/// The number of bits that the kernel is told: it takes one off.
const BITS_TOLD: usize = NODES_MAX + 1;

/// A set of nodes, as system calls take it.
type Nodes = [u64; NODES_MAX / WORD_BITS];

impl Mapping {
    /// Lets pages of this mapping come from NUMA node `node` only, from now on. That holds for the
    /// memory object, so for each mapping of this range in any process. Pages that exist stay where
    /// they are. When the node is full, the kernel makes room there, and kills a process if it
    /// cannot.
    ///
    /// # Errors
    /// [`MemoryError::Node`] if the kernel refuses: it has no such node, this process may not use
    /// it, or a filter forbids the system call.
    pub fn bind_to_node(&self, node: u32) -> Result<(), MemoryError> {
        let fail = |source| MemoryError::Node {
            bytes: self.bytes(),
            node,
            source,
        };
        let nodes = set_of(node).map_err(fail)?;
        // SAFETY: changes where pages come from, and no content. The range is mapped while `self`
        // lives, and the kernel reads no more of `nodes` than there is.
        let result = unsafe {
            libc::syscall(
                libc::SYS_mbind,
                self.as_ptr().as_ptr(),
                self.bytes(),
                libc::MPOL_BIND,
                nodes.as_ptr(),
                BITS_TOLD,
                0,
            )
        };
        checked(result).map_err(fail)
    }
}

/// From which NUMA nodes a thread gets its memory, where nothing else is said of that memory. The
/// threads and processes that it starts begin with the same policy.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MemoryPolicy {
    mode: i32,
    nodes: Nodes,
}

impl MemoryPolicy {
    /// Returns the policy by which memory comes from `node` as long as that has some free, and then
    /// from others.
    ///
    /// # Errors
    /// `InvalidInput` if a kernel can have no such node.
    pub fn prefers(node: u32) -> io::Result<Self> {
        Ok(Self {
            mode: libc::MPOL_PREFERRED,
            nodes: set_of(node)?,
        })
    }

    /// Returns the policy of the calling thread.
    ///
    /// # Errors
    /// The kernel's error.
    pub fn of_this_thread() -> io::Result<Self> {
        Self::read(std::ptr::null(), 0)
    }

    /// Makes this the policy of the calling thread.
    ///
    /// # Errors
    /// The kernel's error.
    pub fn apply(&self) -> io::Result<()> {
        // SAFETY: changes where pages come from, and the kernel reads no more of `nodes` than there
        // is.
        let result = unsafe {
            libc::syscall(
                libc::SYS_set_mempolicy,
                self.mode,
                self.nodes.as_ptr(),
                BITS_TOLD,
            )
        };
        checked(result)
    }

    fn read(address: *const u8, flags: i32) -> io::Result<Self> {
        let mut policy = Self {
            mode: 0,
            nodes: [0; NODES_MAX / WORD_BITS],
        };
        // SAFETY: the kernel stores an integer, and no more of `nodes` than there is. It looks up
        // the address, and does not follow it.
        let result = unsafe {
            libc::syscall(
                libc::SYS_get_mempolicy,
                &raw mut policy.mode,
                policy.nodes.as_mut_ptr(),
                BITS_TOLD,
                address,
                flags,
            )
        };
        checked(result).map(|()| policy)
    }
}

/// Returns the set of one node.
fn set_of(node: u32) -> io::Result<Nodes> {
    let mut nodes = [0; NODES_MAX / WORD_BITS];
    let node = node as usize;
    let word = nodes.get_mut(node / WORD_BITS);
    *word.ok_or(io::ErrorKind::InvalidInput)? |= 1 << (node % WORD_BITS);
    Ok(nodes)
}

fn checked(result: libc::c_long) -> io::Result<()> {
    match result {
        0 => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
}

#[cfg(test)]
mod tests {
    use causeway_protocol::Access;

    use super::*;
    use crate::{LARGE_PAGE_BYTES, PageSize, SharedMemory};

    /// Asks for the policy of an address (`MPOL_F_ADDR` of linux/mempolicy.h).
    const OF_ADDRESS: i32 = 2;

    fn has_nodes() -> bool {
        let found = std::fs::exists("/sys/devices/system/node/node0").unwrap();
        if !found {
            eprintln!("skipped: this kernel has no NUMA node 0");
        }
        found
    }

    #[test]
    fn a_set_has_the_bit_of_its_node() {
        for node in [0, 1, 63, 64, 130, 1023] {
            let set = set_of(node).unwrap();
            let has = |bit: u32| set[bit as usize / 64] >> (bit % 64) & 1 == 1;
            assert!((0..1024).all(|bit| has(bit) == (bit == node)), "{node}");
        }
        let refused = set_of(1024).unwrap_err();
        assert_eq!(refused.kind(), io::ErrorKind::InvalidInput);
    }

    #[test]
    fn memory_is_bound_to_a_node_in_all_of_its_mappings() {
        if !has_nodes() {
            return;
        }
        for pages in [PageSize::Small, PageSize::Large] {
            let bytes = 2 * LARGE_PAGE_BYTES;
            let memory = SharedMemory::new("test", bytes, pages).unwrap();
            let map = || memory.map(0, bytes, Access::ReadWrite).unwrap();
            let (one, other) = (map(), map());
            one.bind_to_node(0).unwrap();
            for mapping in [one, other] {
                let policy = MemoryPolicy::read(mapping.as_ptr().as_ptr(), OF_ADDRESS);
                let (mode, nodes) = (libc::MPOL_BIND, set_of(0).unwrap());
                assert_eq!(policy.unwrap(), MemoryPolicy { mode, nodes });
                mapping.write(0, b"text").unwrap();
            }
        }
    }

    #[test]
    fn a_node_that_does_not_exist_is_refused_with_its_number() {
        let memory = SharedMemory::new("test", 1 << 20, PageSize::Small).unwrap();
        let mapping = memory.map(0, 1 << 20, Access::ReadWrite).unwrap();
        for node in [1023, 1024, u32::MAX] {
            let refused = mapping.bind_to_node(node).unwrap_err().to_string();
            let words = format!("1048576 bytes of memory on NUMA node {node} ");
            assert!(refused.contains(&words), "{refused}");
        }
    }

    #[test]
    fn a_thread_passes_its_policy_on_and_gets_its_old_one_back() {
        if !has_nodes() {
            return;
        }
        let before = MemoryPolicy::of_this_thread().unwrap();
        let wanted = MemoryPolicy::prefers(0).unwrap();
        assert_ne!(before, wanted);
        wanted.apply().unwrap();
        let inherited = std::thread::spawn(|| MemoryPolicy::of_this_thread().unwrap());
        assert_eq!(inherited.join().unwrap(), wanted);
        before.apply().unwrap();
        assert_eq!(MemoryPolicy::of_this_thread().unwrap(), before);
    }
}
