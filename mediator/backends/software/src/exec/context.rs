//! What an operation can reach: registers of the running warp, and the memory of its block and
//! launch.

use causeway_cpu_queue::{Entry, Table};

use super::fault::Trouble;
use super::grid::Grid;
use super::launch::Launch;
use crate::program::Program;
use crate::registers::{FrameBytes, Guard, Slot};
use crate::system::System;
use crate::texture::TextureTable;

/// Entries of [`Context::cached`]: an access uses that of its instruction's number modulo this.
/// Most loops access few arrays, each by its own instructions.
pub(super) const SITES: usize = 16;

/// A stretch of memory that belongs to a block, a warp or a launch, and to this host thread alone.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Area {
    /// First byte.
    pub(crate) base: *mut u8,
    /// Bytes; for local memory, those of one lane.
    pub(crate) bytes: u32,
}

/// State of the running warp that operations use.
#[derive(Debug)]
pub(crate) struct Context<'l> {
    /// Lanes that execute; never empty when an operation runs.
    pub(crate) mask: u32,
    /// Registers of the current frame, and constants.
    banks: [*mut u8; 2],
    /// Registers of the whole warp.
    registers: *mut u8,
    /// The current frame.
    pub(super) frame: FrameBytes,
    /// Blocks and threads of the launch.
    pub(super) grid: &'l Grid,
    /// Mappings.
    pub(super) table: &'l Table,
    /// Its entries.
    pub(super) entries: &'l [Entry],
    /// Textures and surfaces.
    pub(super) textures: &'l TextureTable,
    /// Indices of the mappings used last, by the numbers of the instructions modulo [`SITES`].
    pub(super) cached: [usize; SITES],
    /// Shared memory of the block.
    pub(super) shared: Area,
    /// Local memory of the warp, one lane behind the other.
    pub(super) local: Area,
    /// Parameters of the kernel.
    pub(super) parameters: Area,
    /// Memory with which the blocks of the launch wait for each other.
    pub(super) workspace: Area,
    /// Position of the block in the grid.
    pub(super) block: [u32; 3],
    /// Number of the warp in the block.
    pub(super) warp: u32,
    /// Why the last operation failed.
    pub(super) trouble: Option<Trouble>,
    /// What the functions of the back end work on that kernels call.
    pub(super) system: &'l System,
    /// The kernel.
    pub(super) program: &'l Program,
}

impl<'l> Context<'l> {
    /// A context for a launch; `constants` are those of the program. Warp and block are bound
    /// later, and so is memory.
    pub(super) fn new(launch: &'l Launch, constants: *mut u8) -> Self {
        let Launch { grid, visible, .. } = launch;
        let table = &visible.table;
        let nothing = Area {
            base: std::ptr::null_mut(),
            bytes: 0,
        };
        Self {
            mask: 0,
            banks: [std::ptr::null_mut(), constants],
            registers: std::ptr::null_mut(),
            frame: FrameBytes::default(),
            grid,
            table,
            entries: table.entries(),
            textures: &visible.textures,
            cached: [0; SITES],
            shared: nothing,
            local: nothing,
            parameters: nothing,
            workspace: nothing,
            block: [0; 3],
            warp: 0,
            trouble: None,
            system: &launch.system,
            program: &launch.program,
        }
    }

    /// Makes `warp` the running one, with its registers and local memory.
    pub(super) fn bind_warp(&mut self, warp: u32, registers: *mut u8, local: Area) {
        self.warp = warp;
        self.registers = registers;
        self.local = local;
    }

    /// Makes `frame` the current one.
    #[inline(always)]
    pub(super) fn bind_frame(&mut self, frame: FrameBytes) {
        self.frame = frame;
        self.banks[0] = self.registers.wrapping_add(frame.registers as usize);
    }

    /// The current frame and the constants.
    #[inline(always)]
    pub(super) fn banks(&self) -> [*mut u8; 2] {
        self.banks
    }

    /// The lanes of a register. Valid for the class that lowering gave the register, while the
    /// frame is bound.
    #[inline(always)]
    pub(super) fn slot<T>(&self, slot: Slot) -> *mut T {
        self.banks[slot.bank()]
            .wrapping_add(slot.offset())
            .cast::<T>()
    }

    /// A predicate register.
    #[inline(always)]
    pub(super) fn predicate(&self, slot: Slot) -> u32 {
        // SAFETY: lowering gives predicates a 32-bit word in the bound frame, or in the constants.
        unsafe { *self.slot::<u32>(slot) }
    }

    /// Sets the active lanes of a predicate register.
    #[inline(always)]
    pub(super) fn set_predicate(&self, slot: Slot, truth: u32) {
        let target = self.slot::<u32>(slot);
        // SAFETY: as in `predicate`; constants are never a destination.
        unsafe { *target = (*target & !self.mask) | (truth & self.mask) };
    }

    /// Sets a predicate register to one truth for all active lanes.
    #[inline(always)]
    pub(super) fn set_uniform(&self, slot: Slot, truth: bool) {
        self.set_predicate(slot, u32::from(truth).wrapping_neg());
    }

    /// Lanes for which a guard holds.
    #[inline(always)]
    pub(super) fn guarded(&self, guard: Guard) -> u32 {
        self.predicate(guard.slot) ^ guard.invert
    }

    /// One lane of a word register.
    #[inline(always)]
    pub(super) fn word(&self, slot: Slot, lane: u32) -> u32 {
        debug_assert!(lane < 32);
        // SAFETY: lowering gives the operand a word register in the bound frame; there are 32
        // lanes.
        unsafe { *self.slot::<u32>(slot).add(lane as usize & 31) }
    }

    /// All lanes of a word register.
    #[inline(always)]
    pub(super) fn words(&self, slot: Slot) -> [u32; 32] {
        // SAFETY: as in `word`.
        unsafe { *self.slot::<[u32; 32]>(slot) }
    }

    /// Sets the active lanes of a word register.
    #[inline(always)]
    pub(super) fn set_words(&self, slot: Slot, values: &[u32; 32]) {
        // SAFETY: as in `word`; the copy is made before the register is written.
        let target = unsafe { &mut *self.slot::<[u32; 32]>(slot) };
        if self.mask == u32::MAX {
            *target = *values;
            return;
        }
        for (lane, value) in values.iter().enumerate() {
            if self.mask & (1 << lane) != 0 {
                target[lane] = *value;
            }
        }
    }
}
