//! Inputs by number from a seed, for runs that count them.

/// How many inputs to run: `CAUSEWAY_FUZZ_INPUTS`, or `usual`.
pub fn input_count(usual: u64) -> u64 {
    number("CAUSEWAY_FUZZ_INPUTS").unwrap_or(usual)
}

/// `CAUSEWAY_FUZZ_SEED`, or 1.
pub fn seed() -> u64 {
    number("CAUSEWAY_FUZZ_SEED").unwrap_or(1)
}

fn number(variable: &str) -> Option<u64> {
    let text = std::env::var(variable).ok()?;
    let number = text.parse();
    Some(number.unwrap_or_else(|_| panic!("{variable} is `{text}`, not a number")))
}

/// SplitMix64 (Steele, Lea, Flood, 2014): good enough to choose, and the same everywhere.
pub struct Random(u64);

impl Random {
    /// The generator of input `index` of `seed`.
    pub fn of_input(seed: u64, index: u64) -> Self {
        Self(seed.wrapping_mul(0xd134_2543_de82_ef95) ^ index)
    }

    /// Any word.
    pub fn word(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut word = self.0;
        word = (word ^ (word >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        word = (word ^ (word >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        word ^ (word >> 31)
    }

    /// A number below `limit`, which is not zero.
    pub fn below(&mut self, limit: usize) -> usize {
        (self.word() % limit as u64) as usize
    }

    /// True once in `times`.
    pub fn once_in(&mut self, times: u64) -> bool {
        self.word().is_multiple_of(times)
    }

    /// One of `items`, which are not empty.
    pub fn pick<'a, T>(&mut self, items: &'a [T]) -> &'a T {
        &items[self.below(items.len())]
    }

    /// A number of the kind that decoders trip over: small, near a power of two, near the end, or
    /// any.
    pub fn tricky(&mut self) -> u64 {
        let near = (self.word() % 5).wrapping_sub(2);
        match self.word() % 5 {
            0 | 1 => self.word() % 8,
            2 => (1_u64 << (self.word() % 64)).wrapping_add(near),
            3 => 0_u64.wrapping_add(near),
            _ => self.word(),
        }
    }
}
