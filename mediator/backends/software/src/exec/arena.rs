//! Memory of a host thread that runs blocks: registers, local and shared memory of one block at a
//! time.

use crate::registers::{Row, WARP};

/// Bytes that a thread keeps between launches, at most.
pub(crate) const KEPT_BYTES: usize = 4 << 20;

/// Buffers that are used again for block after block and launch after launch.
#[derive(Default)]
pub(crate) struct ThreadArena {
    constants: Buffer,
    registers: Buffer,
    local: Buffer,
    shared: Buffer,
}

/// Where a launch finds its memory. Valid while the arena is borrowed by the launch.
#[derive(Clone, Copy)]
pub(super) struct Areas {
    pub(super) constants: *mut u8,
    pub(super) registers: *mut u8,
    pub(super) local: *mut u8,
    pub(super) shared: *mut u8,
}

/// Bytes of registers, local memory and shared memory that a block of a launch needs.
#[derive(Clone, Copy, Debug)]
pub(super) struct Need {
    pub(super) registers: usize,
    pub(super) local: usize,
    pub(super) shared: usize,
}

impl ThreadArena {
    /// Returns memory for a launch, with `constants` copied into it. The rest is zeroed, because an
    /// earlier launch may have been that of another session.
    pub(super) fn prepare(&mut self, constants: &[Row], need: Need) -> Areas {
        let rows = self.constants.zeroed(size_of_val(constants));
        rows[..constants.len()].copy_from_slice(constants);
        Areas {
            constants: rows.as_mut_ptr().cast(),
            registers: self.registers.zeroed(need.registers).as_mut_ptr().cast(),
            local: self.local.zeroed(need.local).as_mut_ptr().cast(),
            shared: self.shared.zeroed(need.shared).as_mut_ptr().cast(),
        }
    }

    /// Gives back what is too large to be kept for launches that may never need as much: the
    /// largest first.
    pub(super) fn trim(&mut self) {
        let mut buffers = self.buffers();
        buffers.sort_by_key(|buffer| buffer.bytes());
        let mut kept = 0;
        for buffer in buffers {
            kept += buffer.bytes();
            if kept > KEPT_BYTES {
                buffer.rows = Vec::new();
            }
        }
    }

    fn buffers(&mut self) -> [&mut Buffer; 4] {
        [
            &mut self.constants,
            &mut self.registers,
            &mut self.local,
            &mut self.shared,
        ]
    }
}

#[derive(Default)]
struct Buffer {
    rows: Vec<Row>,
}

impl Buffer {
    fn bytes(&self) -> usize {
        size_of_val(self.rows.as_slice())
    }

    /// At least `bytes` bytes of zeros, and never none.
    fn zeroed(&mut self, bytes: usize) -> &mut [Row] {
        let count = bytes.div_ceil(size_of::<Row>()).max(1);
        let kept = self.rows.len().min(count);
        self.rows[..kept].fill(Row([0; WARP]));
        if self.rows.len() < count {
            self.rows.resize(count, Row([0; WARP]));
        }
        &mut self.rows[..count]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn little_is_kept_between_launches() {
        let mut arena = ThreadArena::default();
        let mut kept = |registers, local, shared| {
            let need = Need {
                registers,
                local,
                shared,
            };
            arena.prepare(&[], need);
            arena.trim();
            arena.buffers().map(|buffer| buffer.bytes()).iter().sum()
        };
        let small: usize = kept(2 << 20, 1 << 20, 48 << 10);
        assert!(small >= 3 << 20, "{small}");
        for need in [(3 << 20, 3 << 20, 0), (64 << 20, 64 << 20, 64 << 20)] {
            let large = kept(need.0, need.1, need.2);
            assert!(large <= KEPT_BYTES, "{large}");
        }
    }

    #[test]
    fn nothing_of_an_earlier_launch_is_left() {
        let mut arena = ThreadArena::default();
        let need = Need {
            registers: 1000,
            local: 0,
            shared: 128,
        };
        let areas = arena.prepare(&[Row([7; WARP])], need);
        // SAFETY: the areas are as large as was asked for, and the arena is not used meanwhile.
        unsafe {
            areas.registers.write_bytes(0xaa, 1000);
            areas.shared.write_bytes(0xaa, 128);
        }
        let areas = arena.prepare(&[], need);
        for (base, bytes) in [(areas.registers, 1000), (areas.shared, 128)] {
            for at in 0..bytes {
                // SAFETY: as above.
                assert_eq!(unsafe { *base.add(at) }, 0);
            }
        }
    }
}
