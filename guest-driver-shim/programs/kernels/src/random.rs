//! Generates the pseudorandom numbers of the inputs.

/// Selects the numbers with which the buffers of a case are filled. Even seeds give numbers in
/// -1..1, and 0 is the usual seed. Odd seeds give numbers of many magnitudes if the case's kernel
/// can process them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Seed(pub u64);

impl Seed {
    /// Returns a generator of numbers for this seed. `stream` distinguishes the buffers of all
    /// cases, so that each gets its own sequence.
    pub fn generator(self, stream: u64) -> Generator {
        let mut generator = Generator::new(stream);
        generator.state ^= self.0.wrapping_mul(0xa076_1d64_78bd_642f);
        generator.is_wide = self.0 % 2 == 1;
        generator
    }
}

/// Generates pseudorandom numbers by SplitMix64 (Steele, Lea, Flood: "Fast splittable pseudorandom
/// number generators", 2014).
#[derive(Debug)]
pub struct Generator {
    state: u64,
    is_wide: bool,
}

impl Generator {
    /// Returns the generator of the sequence that belongs to `seed`.
    pub fn new(seed: u64) -> Self {
        Self {
            state: seed.wrapping_mul(0xd1b5_4a32_d192_ed03),
            is_wide: false,
        }
    }

    /// Returns the next 64 bits.
    pub fn u64(&mut self) -> u64 {
        self.state = self.state.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let z = (self.state ^ (self.state >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    /// Returns the next 32 bits.
    pub fn u32(&mut self) -> u32 {
        (self.u64() >> 32) as u32
    }

    /// Returns a number in `-1.0..1.0`, with all 24 bits of the significand in use.
    pub fn f32(&mut self) -> f32 {
        ((self.u64() >> 39) as f32) * (2.0 / 33_554_432.0) - 1.0
    }

    /// Returns a number in `-1.0..1.0`, with 52 bits after the binary point.
    pub fn f64(&mut self) -> f64 {
        ((self.u64() >> 11) as f64) * (2.0 / 9_007_199_254_740_992.0) - 1.0
    }

    /// Returns a number in `-1.0..1.0`; for an odd seed also zero or any magnitude from 2^-30 to
    /// 2^33. Sums of a thousand products of two such numbers neither overflow nor underflow.
    pub fn moderate(&mut self) -> f32 {
        if !self.is_wide {
            return self.f32();
        }
        let bits = self.u32();
        match bits >> 23 & 63 {
            0 => 0.0,
            exponent => f32::from_bits(bits & 0x807f_ffff | (exponent + 96) << 23),
        }
    }

    /// Returns a number in `-1.0..1.0`; for an odd seed any finite number, including subnormal
    /// numbers and both zeros.
    pub fn finite(&mut self) -> f32 {
        if !self.is_wide {
            return self.f32();
        }
        let bits = self.u32();
        match bits >> 23 & 0xff {
            // The bits are those of a NaN or an infinity: they become a subnormal number.
            0xff => f32::from_bits(bits & 0x807f_ffff),
            _ => f32::from_bits(bits),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_usual_filling_is_the_plain_sequence_and_others_differ() {
        let first = |mut generator: Generator| generator.u64();
        assert_eq!(first(Seed(0).generator(7)), first(Generator::new(7)));
        for seed in 1..100 {
            assert_ne!(first(Seed(seed).generator(7)), first(Generator::new(7)));
            assert_ne!(
                first(Seed(seed).generator(7)),
                first(Seed(seed).generator(8))
            );
        }
    }

    #[test]
    fn numbers_stay_within_what_is_promised() {
        for seed in 0..8 {
            let mut random = Seed(seed).generator(1);
            let mut small = 0;
            for _ in 0..10_000 {
                let (moderate, finite) = (random.moderate(), random.finite());
                let magnitude = moderate.abs();
                let limits = 1.0 / 1_073_741_824.0..8_589_934_592.0;
                assert!(magnitude < 1.0 || limits.contains(&magnitude), "{moderate}");
                assert!(seed % 2 == 0 || magnitude == 0.0 || limits.contains(&magnitude));
                assert!(finite.is_finite());
                small += u32::from(magnitude < 0.001);
            }
            assert_eq!(seed % 2 == 1, small > 1000, "{small} in filling {seed}");
        }
    }
}
