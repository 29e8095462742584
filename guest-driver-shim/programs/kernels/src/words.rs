//! Little-endian words in byte buffers, which need not be aligned.

macro_rules! words {
    ($($get:ident $put:ident $type:ty;)*) => { $(
        #[doc = concat!("The `", stringify!($type), "` with index `index`.")]
        #[inline]
        pub fn $get(bytes: &[u8], index: usize) -> $type {
            const BYTES: usize = size_of::<$type>();
            let mut word = [0; BYTES];
            word.copy_from_slice(&bytes[index * BYTES..][..BYTES]);
            <$type>::from_le_bytes(word)
        }

        #[doc = concat!("Stores the `", stringify!($type), "` with index `index`.")]
        #[inline]
        pub fn $put(bytes: &mut [u8], index: usize, value: $type) {
            const BYTES: usize = size_of::<$type>();
            bytes[index * BYTES..][..BYTES].copy_from_slice(&value.to_le_bytes());
        }
    )* };
}

words! {
    u16_at put_u16 u16;
    u32_at put_u32 u32;
    u64_at put_u64 u64;
    f32_at put_f32 f32;
    f64_at put_f64 f64;
}

/// Returns the little-endian number in up to eight bytes.
pub fn low_bytes(bytes: &[u8]) -> u64 {
    let mut word = [0; 8];
    word[..bytes.len()].copy_from_slice(bytes);
    u64::from_le_bytes(word)
}

/// Fills the buffer with `u32` words: `value` returns the word for each index.
pub fn each_u32(bytes: &mut [u8], mut value: impl FnMut(usize) -> u32) {
    for (index, word) in bytes.chunks_exact_mut(4).enumerate() {
        word.copy_from_slice(&value(index).to_le_bytes());
    }
}

/// Fills the buffer with `f32` words: `value` returns the word for each index.
pub fn each_f32(bytes: &mut [u8], mut value: impl FnMut(usize) -> f32) {
    each_u32(bytes, |index| value(index).to_bits());
}
