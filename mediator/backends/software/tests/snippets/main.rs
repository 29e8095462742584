//! Small pieces of PTX, each checked against what the ISA says it computes.

mod control_flow;
mod floats;
mod integers;
mod memory;
#[path = "../support/mod.rs"]
mod support;
mod together;

use support::Device;

/// Runs `body` on `threads` threads of one block; each has a word of input and a word of output.
fn each(body: &str, threads: u32, input: &[u32]) -> Vec<u32> {
    let mut device = Device::new(1);
    device
        .run(body, (1, threads), input, threads as usize)
        .unwrap_or_else(|fault| panic!("{fault}\n{body}"))
}

/// One thread: three words in (`%r1`, `%r2`, `%r3`), one word (`%r4`) out.
fn compute(body: &str, input: [u32; 3]) -> u32 {
    let body = format!(
        "ld.global.u32 %r1, [%in]; ld.global.u32 %r2, [%in+4]; ld.global.u32 %r3, [%in+8];\n\
         {body}\n st.global.u32 [%out], %r4;"
    );
    each(&body, 1, &input)[0]
}

/// The same for doubles `%d1`, `%d2` and `%d3`, `%d4` out.
fn compute64(body: &str, input: [u64; 3]) -> u64 {
    let mut device = Device::new(1);
    let body = format!(
        "ld.global.u64 %d1, [%in]; ld.global.u64 %d2, [%in+8]; ld.global.u64 %d3, [%in+16];\n\
         {body}\n st.global.u64 [%out], %d4;"
    );
    let words: Vec<u32> = input
        .iter()
        .flat_map(|d| [*d as u32, (*d >> 32) as u32])
        .collect();
    let found = device.run(&body, (1, 1), &words, 2).unwrap();
    u64::from(found[0]) | u64::from(found[1]) << 32
}

fn f(value: f32) -> u32 {
    value.to_bits()
}
