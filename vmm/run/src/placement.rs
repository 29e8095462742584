//! Which VM gets which GPU, if each gets one of the host's.

/// What a GPU has free before VMs are placed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct FreeGpu {
    /// Memory that no process uses, in bytes.
    pub memory_bytes: u64,
    /// Parts of its multiprocessors; `None` if VMs share all of them.
    pub groups: Option<u32>,
}

impl FreeGpu {
    /// Returns for how many VMs there is room, each of which takes `vm_bytes` of memory and a group
    /// of multiprocessors. The driver takes [`CONTEXT_BYTES`] beside that for each, except for the
    /// first, whose place the context had that was there when the free memory was read.
    pub fn capacity(self, vm_bytes: u64) -> u64 {
        let room = self.memory_bytes.saturating_add(CONTEXT_BYTES);
        let fit = room / vm_bytes.saturating_add(CONTEXT_BYTES);
        self.groups.map_or(fit, |groups| fit.min(groups.into()))
    }
}

/// GPU memory for the driver itself in each further process, in bytes: some hundred MiB, more on
/// larger GPUs.
const CONTEXT_BYTES: u64 = 512 << 20;

/// Places VMs, each of which takes `vm_bytes` of a GPU's memory, and returns the index of the GPU
/// of each: that which has room for the most further VMs. Where several have room for as many, it
/// is the one whose VMs have the least weight together, then the first. `weights` are those of the
/// VMs.
///
/// Room is counted in VMs, not in bytes, because GPUs of one kind never have the very same number
/// of bytes free, and weights would never count.
///
/// Returns `None` if the VMs do not fit.
pub(crate) fn place(vm_bytes: u64, weights: &[u32], gpus: &[FreeGpu]) -> Option<Vec<usize>> {
    let mut room: Vec<u64> = gpus.iter().map(|gpu| gpu.capacity(vm_bytes)).collect();
    let mut loads = vec![0; gpus.len()];
    let place_one = |weight: &u32| {
        let with_room = (0..room.len()).filter(|gpu| room[*gpu] != 0);
        // The first of equals.
        let chosen = with_room.min_by_key(|gpu| (u64::MAX - room[*gpu], loads[*gpu]))?;
        room[chosen] -= 1;
        loads[chosen] += u64::from(*weight);
        Some(chosen)
    };
    weights.iter().map(place_one).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    const GIB: u64 = 1 << 30;

    fn gpus(free_gib: &[u64]) -> Vec<FreeGpu> {
        let gpu = |gib: &u64| FreeGpu {
            memory_bytes: gib * GIB,
            groups: None,
        };
        free_gib.iter().map(gpu).collect()
    }

    #[test]
    fn the_gpu_with_the_most_room_comes_first() {
        let placed = |vms: usize, free: &[u64]| place(4 * GIB, &vec![1; vms], &gpus(free));
        assert_eq!(placed(1, &[10, 40, 20]), Some(vec![1]));
        assert_eq!(placed(4, &[79, 79]), Some(vec![0, 1, 0, 1]));
        assert_eq!(placed(3, &[9, 79]), Some(vec![1, 1, 1]));
        // A few bytes less are no reason.
        let mut nearly = gpus(&[79, 79]);
        nearly[0].memory_bytes -= 4096;
        assert_eq!(place(4 * GIB, &[1, 1], &nearly), Some(vec![0, 1]));
        assert_eq!(placed(0, &[]), Some(vec![]));
    }

    #[test]
    fn equal_gpus_share_the_weights() {
        let placed = |weights: &[u32]| place(4 * GIB, weights, &gpus(&[79, 79])).unwrap();
        assert_eq!(placed(&[4, 1, 1, 1]), [0, 1, 1, 0]);
        assert_eq!(placed(&[1, 4, 1, 1]), [0, 1, 0, 1]);
    }

    #[test]
    fn memory_of_vms_and_of_their_contexts_fits() {
        let fit = |vms: usize, free: &[u64]| place(4 * GIB, &vec![1; vms], &gpus(free)).is_some();
        assert!(fit(1, &[4]) && !fit(2, &[4]));
        // Nine GiB are two VMs, and one more context.
        assert!(!fit(2, &[8]) && fit(2, &[9]));
        assert!(fit(3, &[4, 9]) && !fit(4, &[4, 9]));
        assert!(!fit(1, &[3, 3]) && !fit(1, &[]));
        assert_eq!(place(u64::MAX, &[1], &gpus(&[4])), None);
    }

    #[test]
    fn multiprocessors_are_room_as_memory_is() {
        let mut all = gpus(&[79, 79]);
        (all[0].groups, all[1].groups) = (Some(1), Some(2));
        assert_eq!(place(GIB, &[1; 3], &all), Some(vec![1, 0, 1]));
        assert_eq!(place(GIB, &[1; 4], &all), None);
    }

    #[test]
    fn gpus_are_never_given_more_than_they_have_and_the_same_again() {
        for vms in 0..12 {
            for free in [[4, 9, 40], [0, 13, 13], [79, 3, 5]] {
                let (gpus, weights) = (gpus(&free), vec![1; vms]);
                let placed = place(4 * GIB, &weights, &gpus);
                let all: u64 = gpus.iter().map(|gpu| gpu.capacity(4 * GIB)).sum();
                assert_eq!(placed.is_some(), vms as u64 <= all, "{vms} on {free:?}");
                for (number, gpu) in gpus.iter().enumerate() {
                    let here = placed.iter().flatten().filter(|it| **it == number).count();
                    assert!(here as u64 <= gpu.capacity(4 * GIB), "{vms} on {free:?}");
                }
                assert_eq!(placed, place(4 * GIB, &weights, &gpus));
            }
        }
    }
}
