//! The workloads, one file each.
//!
//! A new one is a file with a [`Description`] and a type that implements [`Workload`], and a line
//! in the list below.

use core::fmt;

use crate::measurement_plan::Effort;
use crate::singles::{self, Single};
use crate::{Mechanism, MechanismKind};

mod operands;
mod pattern;

/// Properties of a workload that plans and tables need.
#[derive(Clone, Copy, Debug)]
pub struct Description {
    /// Name of the workload in arguments and tables.
    pub name: &'static str,
    /// What one operation of the workload does, as text for people.
    pub what: &'static str,
    /// Unit of the workload's sizes: `B` for bytes, or what is counted.
    pub unit: &'static str,
    /// Whether the workload is on the data path, on which a mediated guest causes no exits.
    pub is_data: bool,
    /// Whether the timed part launches kernels.
    pub launches: bool,
    /// Whether operations can be timed one by one.
    pub single: Single,
    /// Returns the sizes at which a benchmark of this effort measures the workload, in the
    /// workload's unit.
    pub sizes: fn(Effort) -> &'static [u64],
    /// Returns the number of operations in a sample by this mechanism at this size, or `None` if
    /// the sample would cause too many exits.
    pub operations: fn(MechanismKind, Effort, u64) -> Option<u64>,
    /// Returns how many bytes of the program's own memory, besides GPU memory, the workload needs
    /// at this size.
    pub host_bytes: fn(u64) -> usize,
}

/// One cell of the table: a workload at one size by one mechanism.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Cell {
    /// The workload to run.
    pub workload: WorkloadKind,
    /// The mechanism by which the workload uses the GPU.
    pub mechanism: MechanismKind,
    /// Size of the workload, in its unit.
    pub size: u64,
    /// Number of operations in each sample.
    pub operations: u64,
}

/// Maximum length of a cell's name in bytes, because the name is also that of a phase, for which
/// the test device has no more room.
pub const CELL_NAME_BYTES: usize = 48;

impl fmt::Display for Cell {
    /// Writes the name of the cell, which is also the name of its phases: workload, size and
    /// mechanism.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (workload, mechanism) = (self.workload.name(), self.mechanism.name());
        write!(f, "{workload} {} {mechanism}", self.size)
    }
}

/// A workload that runs on a GPU through mechanism `M`.
pub trait Workload<M: Mechanism>: Sized {
    /// Allocates and fills memory; this part is not timed. `host` is a buffer of the program, at
    /// least as long as [`Description::host_bytes`] says.
    fn prepare(m: &mut M, cell: &Cell, host: &mut [u8]) -> Self;
    /// Executes all operations of the cell. Only this part is timed.
    fn run(&mut self, m: &mut M, cell: &Cell, host: &mut [u8]);
    /// Checks the results and frees the memory; this part is not timed.
    fn finish(self, m: &mut M, cell: &Cell, host: &mut [u8]);
}

/// Measures the time of one part of a program, and marks the part in which exits are counted.
pub trait Stopwatch {
    /// Starts to count exits, doorbells and processor time.
    fn mark(&mut self, cell: &Cell);
    /// Starts the time.
    fn start(&mut self);
    /// Ends the time and the counts. `doorbells` is the number of doorbells that were rung in this
    /// part.
    fn stop(&mut self, cell: &Cell, doorbells: u64);
}

/// Takes one sample.
fn sample<M: Mechanism, W: Workload<M>>(
    m: &mut M,
    cell: &Cell,
    host: &mut [u8],
    watch: &mut impl Stopwatch,
) {
    let launches = cell.workload.description().launches;
    let mut workload = W::prepare(m, cell, host);
    m.synchronize();
    if launches {
        m.get_ready();
    }
    let rung = m.doorbells();
    watch.mark(cell);
    if launches {
        m.wake();
    }
    watch.start();
    workload.run(m, cell, host);
    watch.stop(cell, m.doorbells() - rung);
    workload.finish(m, cell, host);
}

/// Times single operations of a cell by the clock `now` into `times`, and returns how many.
fn one_by_one<M: Mechanism, W: Workload<M>>(
    m: &mut M,
    cell: &Cell,
    host: &mut [u8],
    (times, budget): (&mut [u64], u64),
    now: impl FnMut() -> u64,
) -> usize {
    let description = cell.workload.description();
    if description.single != Single::ByItself {
        return 0;
    }
    let one = Cell {
        operations: 1,
        ..*cell
    };
    let mut workload = W::prepare(m, &one, host);
    m.synchronize();
    if description.launches {
        m.get_ready();
        m.wake();
    }
    let count = singles::fill(times, budget, now, || workload.run(m, &one, host));
    workload.finish(m, &one, host);
    count
}

macro_rules! workloads {
    ($($module:ident :: $workload:ident),+ $(,)?) => {
        $(mod $module;)+

        /// The workloads, with the numbers that samples use for them.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
        #[repr(u32)]
        pub enum WorkloadKind {
            $(
                #[doc = concat!("See the file `", stringify!($module), ".rs`.")]
                $workload,
            )+
        }

        /// All workloads, in the order of their numbers.
        pub const WORKLOADS: [WorkloadKind; [$(WorkloadKind::$workload),+].len()] =
            [$(WorkloadKind::$workload),+];

        impl WorkloadKind {
            /// Returns the properties of this workload.
            #[must_use]
            pub const fn description(self) -> &'static Description {
                match self {
                    $(Self::$workload => &$module::DESCRIPTION,)+
                }
            }
        }

        /// Runs the workload of `cell` once, to take one sample. `m` is the cell's mechanism,
        /// `host` a buffer of [`host_bytes`] bytes in the program's own memory, and `watch` times
        /// the operations.
        pub fn measure<M: Mechanism>(
            m: &mut M,
            cell: &Cell,
            host: &mut [u8],
            watch: &mut impl Stopwatch,
        ) {
            match cell.workload {
                $(WorkloadKind::$workload => {
                    sample::<M, $module::$workload<M>>(m, cell, host, watch);
                })+
            }
        }

        /// Runs operations of the workload of `cell` and times them one by one. `m` and `host` are
        /// as for [`measure`]; `now` reads a clock. Stores the times into `times` and returns their
        /// number, which is smaller if they would take longer than `budget`, both in the clock's
        /// unit. Returns 0 if fewer than [`SINGLES_MIN`](singles::SINGLES_MIN) fit, or if
        /// operations of this workload cannot be timed one by one.
        pub fn time_singles<M: Mechanism>(
            m: &mut M,
            cell: &Cell,
            host: &mut [u8],
            (times, budget): (&mut [u64], u64),
            now: impl FnMut() -> u64,
        ) -> usize {
            match cell.workload {
                $(WorkloadKind::$workload => {
                    let into = (times, budget);
                    one_by_one::<M, $module::$workload<M>>(m, cell, host, into, now)
                })+
            }
        }
    };
}

workloads! {
    store::Store,
    load::Load,
    copy_in::CopyIn,
    copy_out::CopyOut,
    launch_and_wait::LaunchAndWait,
    submit::Submit,
    allocate::Allocate,
    vector_add::VectorAdd,
    matmul::Matmul,
    trace::Trace,
}

impl WorkloadKind {
    /// Returns the workload's name in arguments and tables.
    #[must_use]
    pub const fn name(self) -> &'static str {
        self.description().name
    }

    /// Returns the workload with this name, or `None` if no workload has it.
    #[must_use]
    pub fn named(name: &str) -> Option<Self> {
        WORKLOADS.into_iter().find(|kind| kind.name() == name)
    }

    /// Returns the workload with this number, or `None` if no workload has it.
    #[must_use]
    pub fn from_wire(number: u64) -> Option<Self> {
        WORKLOADS.get(usize::try_from(number).ok()?).copied()
    }

    /// Returns the cell of this workload at `size` by `mechanism`, or `None` if a sample would
    /// cause too many exits. [`Plan::cell`](crate::measurement_plan::Plan::cell) also checks what a
    /// passed-through device supports.
    #[must_use]
    pub fn cell(self, mechanism: MechanismKind, effort: Effort, size: u64) -> Option<Cell> {
        let operations = (self.description().operations)(mechanism, effort, size)?;
        Some(Cell {
            workload: self,
            mechanism,
            size,
            operations,
        })
    }
}

/// Returns the size in bytes, a multiple of 2 MiB, of a buffer in the program's own memory that is
/// large enough for each workload at each size of this effort.
#[must_use]
pub fn host_bytes(effort: Effort) -> usize {
    let needs = WORKLOADS.iter().flat_map(|workload| {
        let description = workload.description();
        let sizes = (description.sizes)(effort).iter();
        sizes.map(|size| (description.host_bytes)(*size))
    });
    needs.max().unwrap_or(0).next_multiple_of(2 << 20)
}

/// Returns the most exits that a sample may take. An exit takes about 25 µs on a software KVM.
const fn exits_max(effort: Effort) -> u64 {
    match effort {
        Effort::Quick => 12 << 10,
        Effort::Full => 64 << 10,
    }
}

/// Returns how many exits are enough for a sample of several operations. Most of the time of a
/// quick benchmark goes to exits.
const fn exits_enough(effort: Effort) -> u64 {
    match effort {
        Effort::Quick => 3 << 10,
        Effort::Full => exits_max(effort),
    }
}

/// Returns the number of operations in a sample: `wanted`, or fewer so that several take at most
/// [`exits_enough`] exits, and one at most [`exits_max`]. Each operation takes `exits_each`.
/// Returns `None` if one operation takes more.
fn within_exits(effort: Effort, wanted: u64, exits_each: u64) -> Option<u64> {
    let enough = exits_enough(effort) / exits_each.max(1);
    (exits_each <= exits_max(effort)).then_some(wanted.min(enough.max(1)))
}

/// Returns how many operations on `bytes` bytes take long enough to be timed; at most `most`.
fn of_bytes(bytes: u64, most: u64) -> u64 {
    ((16 << 20) / bytes.max(1)).clamp(1, most)
}

/// Returns how many copies of `bytes` bytes to or from a PCI device to time. A slow device takes a
/// microsecond for 8 bytes, so a second for 8 MiB.
fn over_a_bus(bytes: u64) -> u64 {
    ((1 << 20) / bytes.max(1)).clamp(1, 2000)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::measurement_plan::Plan;
    use crate::{DeviceMemory, MECHANISMS};
    use std::collections::BTreeSet;
    use std::string::{String, ToString};
    use std::vec::Vec;

    #[test]
    fn numbers_and_names_lead_back() {
        for (number, workload) in (0..).zip(WORKLOADS) {
            assert_eq!(WorkloadKind::from_wire(number), Some(workload));
            assert_eq!(WorkloadKind::named(workload.name()), Some(workload));
        }
        assert_eq!(WorkloadKind::from_wire(WORKLOADS.len() as u64), None);
    }

    #[test]
    fn samples_take_as_many_exits_as_are_enough_or_one_operation() {
        let quick = |wanted, exits_each| within_exits(Effort::Quick, wanted, exits_each);
        assert_eq!(quick(200, 4), Some(200));
        assert_eq!(quick(32, 512), Some(6), "3072 exits");
        assert_eq!(
            quick(32, 8192),
            Some(1),
            "more than enough, and one operation"
        );
        assert_eq!(quick(32, 12_288), Some(1));
        assert_eq!(quick(32, 12_289), None);
        assert_eq!(quick(32, 0), Some(32));
        let full = |exits_each| within_exits(Effort::Full, 32, exits_each);
        assert_eq!(
            [full(512), full(8192), full(65_537)],
            [Some(32), Some(8), None]
        );
    }

    #[test]
    fn names_of_all_cells_differ_and_fit() {
        for effort in [Effort::Quick, Effort::Full] {
            let cells = Plan::all(effort, 1).with_device(Some(DeviceMemory {
                bytes: u64::MAX,
                ..DeviceMemory::default()
            }));
            let names: Vec<String> = cells.cells().map(|cell| cell.to_string()).collect();
            for name in &names {
                assert!(name.len() <= CELL_NAME_BYTES, "{name}");
            }
            let different: BTreeSet<&String> = names.iter().collect();
            assert_eq!(different.len(), names.len());
        }
    }

    #[test]
    fn every_size_is_measured_natively_and_the_first_by_all() {
        for workload in WORKLOADS {
            for effort in [Effort::Quick, Effort::Full] {
                let sizes = (workload.description().sizes)(effort);
                for size in sizes {
                    let native = workload.cell(MechanismKind::Native, effort, *size);
                    assert!(native.is_some_and(|cell| cell.operations != 0));
                }
                for mechanism in MECHANISMS {
                    let cell = workload.cell(mechanism, effort, sizes[0]);
                    assert!(cell.is_some(), "{} by {mechanism:?}", workload.name());
                }
            }
        }
    }
}
