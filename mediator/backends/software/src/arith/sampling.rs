//! Operands for tests, and the processor's own arithmetic as a referee.
//!
//! Uniform bit patterns alone hardly ever meet: most of the samples are edge values, their
//! neighbours, or near the sample before, so that sums cancel, quotients come close to 1, and
//! rounding meets ties.

pub(super) mod referee;

/// SplitMix64 (Steele, Lea, Flood, 2014).
pub(super) struct Random(pub u64);

impl Random {
    pub fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut word = self.0;
        word = (word ^ (word >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        word = (word ^ (word >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        word ^ (word >> 31)
    }
}

/// `count` words of all lengths, positive and negative.
pub(super) fn words(count: usize) -> Vec<u64> {
    let mut random = Random(1);
    let word = |_| {
        let word = random.next() >> (random.next() % 64);
        if random.next() & 1 == 0 { !word } else { word }
    };
    (0..count).map(word).collect()
}

/// `count` f32 numbers of every kind.
pub(super) fn singles(count: usize) -> Vec<f32> {
    let edges = [
        0.0,
        1.0,
        f32::INFINITY,
        f32::NAN,
        f32::MAX,
        f32::MIN_POSITIVE,
        f32::from_bits(1),
        1.0 + f32::EPSILON,
    ];
    let edges = edges.map(|edge| u64::from(edge.to_bits()));
    let bits = patterns(count, &edges, 32, |small, power| {
        let value = small as f32 * 2f32.powi(power % 128);
        u64::from(value.to_bits())
    });
    bits.map(|bits| f32::from_bits(bits as u32)).collect()
}

/// `count` f64 numbers of every kind, many of them near the limits of f32.
pub(super) fn doubles(count: usize) -> Vec<f64> {
    let edges = [
        0.0,
        1.0,
        f64::INFINITY,
        f64::NAN,
        f64::MAX,
        f64::MIN_POSITIVE,
        f64::from_bits(1),
        1.0 + f64::EPSILON,
        f64::from(f32::MAX),
        f64::from(f32::MIN_POSITIVE),
        f64::from(f32::from_bits(1)),
    ];
    let edges = edges.map(f64::to_bits);
    let bits = patterns(count, &edges, 64, |small, power| {
        (small as f64 * 2f64.powi(power)).to_bits()
    });
    bits.map(f64::from_bits).collect()
}

/// Bit patterns of a format of `width` bits; `scaled` makes one of few digits out of an integer and
/// a power of two.
fn patterns(
    count: usize,
    edges: &[u64],
    width: u32,
    scaled: impl Fn(u64, i32) -> u64,
) -> impl Iterator<Item = u64> {
    let mut random = Random(2);
    let mut last = edges[1];
    let sign = 1 << (width - 1);
    (0..count).map(move |_| {
        let word = random.next();
        let jitter = (word >> 40) % 9;
        let edge = edges[(word >> 32) as usize % edges.len()];
        let near = |bits: u64| bits.wrapping_add(jitter).wrapping_sub(4);
        let bits = match word % 8 {
            0 | 1 => random.next(),
            2 => edge,
            3 => near(edge),
            4 => near(last),
            5 => near(last) ^ sign,
            // Products and quotients that are exact, or ties.
            6 => scaled(random.next() % 4096, (word >> 56) as i32 - 128),
            // As an uncorrelated neighbour, so that sums cancel in part.
            _ => last ^ (random.next() >> (64 - width / 2)),
        };
        last = if word & 0x100 == 0 { bits } else { bits ^ sign };
        last
    })
}
