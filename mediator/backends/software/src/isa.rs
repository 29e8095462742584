//! Which vector instructions of the host the lane loops are compiled for.

/// Instruction set of the host that lane loops may use. Chosen once, when a kernel is lowered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Isa {
    /// Instructions that every x86-64 processor has.
    Baseline,
    /// x86-64-v3: AVX2, FMA and the instructions that came with them.
    Avx2,
}

impl Isa {
    /// Returns the best instruction set of this host.
    pub(crate) fn detect() -> Self {
        let has_all = is_x86_feature_detected!("avx2")
            && is_x86_feature_detected!("fma")
            && is_x86_feature_detected!("f16c")
            && is_x86_feature_detected!("bmi1")
            && is_x86_feature_detected!("bmi2")
            && is_x86_feature_detected!("lzcnt")
            && is_x86_feature_detected!("popcnt");
        if has_all { Self::Avx2 } else { Self::Baseline }
    }

    /// Returns the name of the instruction set for messages.
    pub(crate) const fn name(self) -> &'static str {
        match self {
            Self::Baseline => "x86-64",
            Self::Avx2 => "AVX2",
        }
    }
}
