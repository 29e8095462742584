//! The kernels that workloads launch.

use causeway_kernels::{bench, case};

/// A kernel. All mechanisms know all of them: loading modules is not what is measured.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u32)]
pub enum Kernel {
    /// Does nothing, without arguments.
    Nothing = 0,
    /// `c = a + b`: addresses of the three, and how many floats they have.
    VectorAdd = 1,
    /// `c = a * b` in tiles of 16: addresses of the three, rows, inner, columns.
    Matmul = 2,
}

/// All of them, by number.
pub const KERNELS: [Kernel; 3] = [Kernel::Nothing, Kernel::VectorAdd, Kernel::Matmul];

impl Kernel {
    /// Returns the kernel with a number.
    #[must_use]
    pub fn from_wire(number: u64) -> Option<Self> {
        KERNELS.get(usize::try_from(number).ok()?).copied()
    }

    /// Name in its module.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Nothing => bench::NOTHING,
            Self::VectorAdd => "vector_add",
            Self::Matmul => "matmul_16",
        }
    }

    /// Returns the text of its module.
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
