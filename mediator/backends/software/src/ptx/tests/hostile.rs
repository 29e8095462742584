//! Text that no compiler wrote: never a panic, always a line.

use proptest::prelude::*;

use super::SHARED;
use crate::ptx::parse;

#[path = "../../../../../../tests/fuzz/src/seeded.rs"]
#[allow(dead_code, reason = "shared with other tests, which use all of it")]
mod seeded;
use seeded::Random;

/// Pieces that steer a mutation into the corners of the grammar.
const PIECES: [&str; 48] = [
    "{",
    "}",
    "(",
    ")",
    "[",
    "]",
    "<",
    ">",
    ";",
    ",",
    ":",
    "|",
    "@",
    "!",
    "-",
    "+",
    "=",
    "<<",
    "?",
    ".reg",
    ".param",
    ".shared",
    ".align",
    ".v4",
    ".b8",
    ".pred",
    ".func",
    ".entry",
    ".loc 1 2 3",
    ".pragma",
    ".callprototype",
    ".branchtargets",
    ".section",
    ".extern",
    "call",
    "_",
    "generic",
    "%r<4294967295>",
    "0x",
    "0f",
    "0d",
    "4294967295",
    "18446744073709551615",
    "1e",
    "/*",
    "//",
    "\"",
    "::",
];

proptest! {
    #![proptest_config(ProptestConfig { cases: 512, ..ProptestConfig::default() })]

    #[test]
    fn mutated_modules_never_panic(
        which in 0..SHARED.len(),
        edits in prop::collection::vec(
            (any::<prop::sample::Index>(), 0..64_usize, 0..PIECES.len()), 1..8),
    ) {
        let mut text = SHARED[which].1.as_bytes().to_vec();
        for (place, cut, piece) in edits {
            let at = place.index(text.len());
            let end = (at + cut).min(text.len());
            text.splice(at..end, PIECES[piece].bytes());
        }
        check(&String::from_utf8(text).expect("mutations are ASCII"));
    }

    #[test]
    fn arbitrary_text_never_panics(text in ".{0,200}") {
        check(&format!(".version 8.0 .target sm_70 .entry k() {{ {text}"));
    }
}

/// Parses, and looks at the refusal.
fn check(text: &str) {
    if let Err(error) = parse(text) {
        let lines = text.bytes().filter(|&byte| byte == b'\n').count() + 1;
        assert!((1..=lines).contains(&(error.line as usize)), "{error}");
        assert!(
            !error.reason.is_empty() && error.reason.len() < 300,
            "{error}"
        );
    }
}

/// A head and a stretch of a real module, with some of its bytes replaced by pieces.
fn mutated(random: &mut Random) -> String {
    let (_, module) = random.pick(&SHARED);
    let begin = random.below(module.len());
    let end = (begin + 1 + random.below(600)).min(module.len());
    let mut text = b".version 8.0\n.target sm_70\n".to_vec();
    let heads: [&[u8]; 3] = [b"", b".entry k() {\n", b".global .b32 x[] = "];
    text.extend(*random.pick(&heads));
    // From the beginning of a line, or from anywhere.
    let line = module[..begin].rfind('\n').map_or(0, |newline| newline + 1);
    let begin = if random.once_in(4) { begin } else { line };
    text.extend(&module.as_bytes()[begin..end]);
    for _ in 0..random.below(6) {
        let at = random.below(text.len());
        let cut = (at + random.below(16)).min(text.len());
        text.splice(at..cut, random.pick(&PIECES).bytes());
    }
    if random.once_in(16) {
        let at = random.below(text.len());
        text[at] = random.word() as u8 & 0x7f;
    }
    String::from_utf8(text).expect("mutations are ASCII")
}

/// As many inputs as `CAUSEWAY_FUZZ_INPUTS` says.
#[test]
fn counted_inputs_never_panic() {
    let seed = seeded::seed();
    for index in 0..seeded::input_count(20_000) {
        let text = mutated(&mut Random::of_input(seed, index));
        let outcome = std::panic::catch_unwind(|| check(&text));
        assert!(outcome.is_ok(), "input {index} of seed {seed}: {text}");
    }
}
