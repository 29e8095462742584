//! The kernels that workloads launch.

use causeway_kernels::{bench, case};

/// A GPU kernel that workloads launch. Every mechanism loads all kernels in advance, because
/// loading is not measured.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u32)]
pub enum Kernel {
    /// An empty kernel without parameters.
    Nothing = 0,
    /// Adds two vectors of floats, `c = a + b`. Parameters: addresses of a, b and c, and their
    /// number of elements.
    VectorAdd = 1,
    /// Multiplies two matrices of floats in tiles of 16 by 16, `c = a * b`. Parameters: addresses
    /// of a, b and c, rows of a, columns of a, columns of b.
    Matmul = 2,
}

/// All kernels, in the order of their numbers.
pub const KERNELS: [Kernel; 3] = [Kernel::Nothing, Kernel::VectorAdd, Kernel::Matmul];

impl Kernel {
    /// Returns the kernel with this number, or `None` if no kernel has it.
    #[must_use]
    pub fn from_wire(number: u64) -> Option<Self> {
        KERNELS.get(usize::try_from(number).ok()?).copied()
    }

    /// Returns the name of the kernel in its module.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Nothing => bench::NOTHING,
            Self::VectorAdd => "vector_add",
            Self::Matmul => "matmul_16",
        }
    }

    /// Returns the PTX text of the module that contains the kernel.
    #[must_use]
    pub fn ptx(self) -> &'static str {
        match self {
            Self::Nothing => bench::PTX,
            Self::VectorAdd | Self::Matmul => case(self.name()).map_or("", |case| case.ptx),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::format;

    #[test]
    fn every_kernel_is_in_its_module_and_has_its_number() {
        for (number, kernel) in (0..).zip(KERNELS) {
            let entry = format!(".entry {}(", kernel.name());
            assert!(kernel.ptx().contains(&entry), "{entry}");
            assert_eq!(Kernel::from_wire(number), Some(kernel));
        }
        assert_eq!(Kernel::from_wire(3), None);
        assert_eq!(Kernel::from_wire(u64::MAX), None);
    }
}
