//! The generator of the inputs.

/// SplitMix64 (Steele, Lea, Flood: "Fast splittable pseudorandom number generators", 2014).
pub struct Generator(u64);

impl Generator {
    /// The sequence that belongs to a seed.
    pub fn new(seed: u64) -> Self {
        Self(seed.wrapping_mul(0xd1b5_4a32_d192_ed03))
    }

    /// The next 64 bits.
    pub fn u64(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let z = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    /// The next 32 bits.
    pub fn u32(&mut self) -> u32 {
        (self.u64() >> 32) as u32
    }

    /// A number in `-1.0..1.0`, with all 24 bits of the significand in use.
    pub fn f32(&mut self) -> f32 {
        ((self.u64() >> 39) as f32) * (2.0 / 33_554_432.0) - 1.0
    }

    /// A number in `-1.0..1.0`, with 52 bits after the point.
    pub fn f64(&mut self) -> f64 {
        ((self.u64() >> 11) as f64) * (2.0 / 9_007_199_254_740_992.0) - 1.0
    }
}
