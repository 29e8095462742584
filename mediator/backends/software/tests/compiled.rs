//! What is compiled computes what the interpreter does.

mod support;

use causeway_software::Engine;
use proptest::collection::vec;
use proptest::prelude::*;
use support::Device;

/// Registers of each kind that a program uses.
const REGISTERS: usize = 12;
const THREADS: usize = 32;

/// Operands of an instruction: registers of 16 bits (`h`), 32 bits (`r`), 64 bits (`d`), `.f32`
/// (`f`) or `.f64` (`g`), numbers (`#`), predicates (`p`), the opposite of one (`!`), or two
/// predicates (`|`); the result first.
type Form = (&'static str, &'static str);

const INTEGERS: &[Form] = &[
    ("add.u16", "hhh"),
    ("sub.u16", "hhh"),
    ("mul.lo.u16", "hhh"),
    ("mad.lo.u16", "hhhh"),
    ("add.s16", "hhh"),
    ("sub.s16", "hhh"),
    ("mul.lo.s16", "hhh"),
    ("mad.lo.s16", "hhhh"),
    ("add.u32", "rrr"),
    ("sub.u32", "rrr"),
    ("mul.lo.u32", "rrr"),
    ("mad.lo.u32", "rrrr"),
    ("add.s32", "rrr"),
    ("sub.s32", "rrr"),
    ("mul.lo.s32", "rrr"),
    ("mad.lo.s32", "rrrr"),
    ("and.b16", "hhh"),
    ("and.b32", "rrr"),
    ("and.b64", "ddd"),
    ("or.b16", "hhh"),
    ("or.b32", "rrr"),
    ("or.b64", "ddd"),
    ("xor.b16", "hhh"),
    ("xor.b32", "rrr"),
    ("xor.b64", "ddd"),
    ("not.b16", "hh"),
    ("not.b32", "rr"),
    ("not.b64", "dd"),
    ("min.u32", "rrr"),
    ("min.s32", "rrr"),
    ("max.u32", "rrr"),
    ("max.s32", "rrr"),
    ("shl.b32", "rrr"),
    ("shr.u32", "rrr"),
    ("shr.b32", "rrr"),
    ("shr.s32", "rrr"),
    ("add.u64", "ddd"),
    ("sub.u64", "ddd"),
    ("add.s64", "ddd"),
    ("sub.s64", "ddd"),
    ("shl.b64", "ddr"),
    ("shr.u64", "ddr"),
    ("shr.b64", "ddr"),
    ("mov.b16", "hh"),
    ("mov.b32", "rr"),
    ("mov.b64", "dd"),
    ("mov.b32", "r#"),
    ("cvta.to.global.u64", "dd"),
    ("cvta.shared.u64", "dd"),
    ("cvt.u64.u32", "dr"),
    ("cvt.s64.s32", "dr"),
    ("mul.wide.u32", "drr"),
    ("mul.wide.s32", "drr"),
    ("mad.wide.u32", "drrd"),
    ("mad.wide.s32", "drrd"),
    ("add.u32", "rr#"),
    ("shl.b32", "rr#"),
    ("mul.lo.s32", "rr#"),
    ("mad.lo.s32", "rr#r"),
    ("and.b64", "dd#"),
    ("setp.lt.s32", "pr#"),
    ("setp.eq.u32", "|rr"),
    ("setp.ne.s32", "prr"),
    ("setp.lt.u32", "prr"),
    ("setp.gt.s32", "|rr"),
    ("setp.le.s32", "prr"),
    ("setp.hs.u32", "prr"),
    ("setp.ne.u64", "pdd"),
    ("setp.lt.s64", "pdd"),
    ("setp.lt.u64", "|dd"),
    ("setp.ge.s64", "pdd"),
    ("setp.lt.and.u32", "|rrp"),
    ("setp.eq.or.s32", "prr!"),
    ("setp.gt.xor.u64", "|dd!"),
    ("selp.b32", "rrrp"),
    ("selp.b64", "dddp"),
    ("and.pred", "ppp"),
    ("or.pred", "ppp"),
    ("xor.pred", "ppp"),
    ("not.pred", "pp"),
    ("mov.pred", "p!"),
    ("mov.pred", "pp"),
];

const FLOATS: &[Form] = &[
    ("add.f32", "fff"),
    ("add.rn.f32", "fff"),
    ("sub.f32", "fff"),
    ("sub.rn.f32", "fff"),
    ("mul.f32", "fff"),
    ("mul.rn.f32", "fff"),
    ("div.rn.f32", "fff"),
    ("fma.rn.f32", "ffff"),
    ("mad.rn.f32", "ffff"),
    ("add.f64", "ggg"),
    ("add.rn.f64", "ggg"),
    ("sub.f64", "ggg"),
    ("sub.rn.f64", "ggg"),
    ("mul.f64", "ggg"),
    ("mul.rn.f64", "ggg"),
    ("div.rn.f64", "ggg"),
    ("fma.rn.f64", "gggg"),
    ("mad.rn.f64", "gggg"),
    ("cvt.rn.f32.s32", "fr"),
    ("setp.eq.f32", "|ff"),
    ("setp.ne.f32", "pff"),
    ("setp.lt.f32", "pff"),
    ("setp.le.f32", "pff"),
    ("setp.gt.f32", "pff"),
    ("setp.ge.f32", "pff"),
    ("setp.equ.f32", "pff"),
    ("setp.neu.f32", "pff"),
    ("setp.ltu.f32", "|ff"),
    ("setp.leu.f32", "pff"),
    ("setp.gtu.f32", "pff"),
    ("setp.geu.f32", "pff"),
    ("setp.num.f32", "pff"),
    ("setp.nan.f32", "pff"),
    ("setp.ne.f64", "pgg"),
    ("setp.lt.f64", "|gg"),
    ("setp.geu.f64", "pgg"),
    ("setp.nan.or.f64", "pgg!"),
    ("selp.f32", "fffp"),
    ("selp.f64", "gggp"),
];

/// An instruction: which of the forms, the numbers of its registers, and its guard: a predicate,
/// and whether it is inverted.
type Step = (usize, [usize; 4], Option<(usize, bool)>);

fn instruction(forms: &[Form], (form, registers, guard): Step) -> String {
    let (mnemonic, kinds) = forms[form % forms.len()];
    let operand = |(kind, n): (char, usize)| match kind {
        '!' => format!("!%p{n}"),
        '#' => format!("{}", [0, 1, 7, 31, 32, 0x7fff_ffff][n % 6]),
        '|' => format!("%p{n}|%p{}", (n + 1) % REGISTERS),
        kind => format!("%{kind}{n}"),
    };
    let operands: Vec<_> = kinds.chars().zip(registers).map(operand).collect();
    let guard = match guard {
        Some((n, true)) => format!("@!%p{n} "),
        Some((n, false)) => format!("@%p{n} "),
        None => String::new(),
    };
    format!("{guard}{mnemonic} {};", operands.join(", "))
}

/// Loads all registers of two kinds, makes registers of other kinds of them, compares them,
/// executes `steps`, and stores all registers, those of 32 bits with what the predicates say and
/// with those of 16 bits. Each thread has registers of 32 bits in the first part of its memory and
/// of 64 bits behind.
fn body(steps: &str, [words, doubles]: [char; 2]) -> String {
    let (kind, number) = match words {
        'f' => ("f32", "0f42280000"),
        _ => ("s32", "42"),
    };
    // Registers of other kinds, and what becomes of them.
    let others = |n: usize| match words {
        'f' => [format!("mov.b32 %r{n}, %f{n};"), String::new()],
        _ => [
            format!("cvt.u16.u32 %h{n}, %r{n};"),
            format!("cvt.s32.s16 %r50, %h{n}; add.s32 %r{n}, %r{n}, %r50;"),
        ],
    };
    let lines = (0..REGISTERS).map(|n| {
        let (word, double) = (128 * n, 128 * REGISTERS + 256 * n);
        let [other, merge] = others(n);
        (
            format!(
                "ld.global.b32 %{words}{n}, [%i+{word}]; \
                 ld.global.b64 %{doubles}{n}, [%d62+{double}];"
            ),
            format!(
                "{other} setp.lt.{kind} %p{n}, %{words}{n}, %{words}{};",
                (n + 1) % REGISTERS
            ),
            merge + &format!(
                "@%p{n} mov.{kind} %{words}{n}, {number}; st.global.b32 [%o+{word}], %{words}{n}; \
                 st.global.b64 [%d61+{double}], %{doubles}{n};"
            ),
        )
    });
    let [mut loads, mut tests, mut stores] = [const { String::new() }; 3];
    for (load, test, store) in lines {
        loads += &load;
        tests += &test;
        stores += &store;
    }
    format!(
        "mul.wide.u32 %d63, %t, 8; add.u64 %d62, %in, %d63; add.u64 %d61, %out, %d63;\n\
         {loads}\n{tests}\n{steps}\n{stores}"
    )
}

fn both(body: &str, input: &[u32]) -> [Vec<u32>; 2] {
    if !is_x86_feature_detected!("avx2") {
        eprintln!("skipped: this processor lacks AVX2, so both are interpreted");
    }
    [Engine::Interpreter, Engine::Compiled].map(|engine| {
        let ran = Device::with(engine).run(body, (1, THREADS as u32), input, input.len());
        ran.unwrap_or_else(|fault| panic!("{fault}\n{body}"))
    })
}

/// Returns floats of 32 bits, and of 64 bits behind them, with the same NaN for each: which one of
/// two operands an instruction gives is nowhere said.
fn with_one_nan(mut words: Vec<u32>) -> Vec<u32> {
    let (singles, doubles) = words.split_at_mut(REGISTERS * THREADS);
    for single in singles {
        if f32::from_bits(*single).is_nan() {
            *single = f32::NAN.to_bits();
        }
    }
    for double in doubles.as_chunks_mut::<2>().0 {
        let bits = u64::from(double[0]) | u64::from(double[1]) << 32;
        if f64::from_bits(bits).is_nan() {
            *double = [0, 0x7ff8_0000];
        }
    }
    words
}

/// Words of the input: those of 32 bits, and two for each of 64 bits.
const WORDS: usize = 3 * REGISTERS * THREADS;

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let register = 0..REGISTERS;
    let registers = [
        register.clone(),
        register.clone(),
        register.clone(),
        register,
    ];
    let guard = proptest::option::weighted(0.2, (0..REGISTERS, any::<bool>()));
    vec((0_usize..1000, registers, guard), 2..60)
}

/// Integers of which many are such as make a difference.
fn integer() -> impl Strategy<Value = u32> {
    prop_oneof![any::<u32>(), 0_u32..70, Just(u32::MAX), Just(1 << 31)]
}

proptest! {
    #[test]
    fn integers_are_the_same(steps in steps(), input in vec(integer(), WORDS)) {
        let text: Vec<_> = steps.iter().map(|step| instruction(INTEGERS, *step)).collect();
        let body = body(&text.join("\n"), ['r', 'd']);
        let [interpreted, compiled] = both(&body, &input);
        prop_assert_eq!(interpreted, compiled);
    }

    #[test]
    fn floats_are_the_same(
        steps in steps(),
        words in vec(proptest::num::f32::ANY, REGISTERS * THREADS),
        doubles in vec(proptest::num::f64::ANY, REGISTERS * THREADS),
    ) {
        let text: Vec<_> = steps.iter().map(|step| instruction(FLOATS, *step)).collect();
        let body = body(&text.join("\n"), ['f', 'g']);
        let words = words.iter().map(|word| word.to_bits());
        let doubles = doubles.iter().map(|double| double.to_bits());
        let halves = doubles.flat_map(|double| [double as u32, (double >> 32) as u32]);
        let input: Vec<u32> = words.chain(halves).collect();
        let [interpreted, compiled] = both(&body, &input).map(with_one_nan);
        prop_assert_eq!(interpreted, compiled);
    }
}

#[test]
fn each_instruction_is_the_same() {
    let input: Vec<u32> = (0..WORDS as u32)
        .map(|n| n.wrapping_mul(0x9e37_79b9) >> (n % 9))
        .collect();
    for forms in [INTEGERS, FLOATS] {
        for form in 0..forms.len() {
            let kinds = if forms == INTEGERS {
                ['r', 'd']
            } else {
                ['f', 'g']
            };
            // Three times, into another register, into a source and under a guard.
            let guard = Some((4, form % 2 == 0));
            let steps = [
                ([5, 1, 2, 3], None),
                ([1, 1, 2, 3], None),
                ([2, 1, 2, 3], guard),
            ];
            let steps = steps.map(|(registers, guard)| (form, registers, guard));
            let text = steps.map(|step| instruction(forms, step)).join("\n");
            let mut results = both(&body(&text, kinds), &input);
            if forms == FLOATS {
                results = results.map(with_one_nan);
            }
            let [interpreted, compiled] = results;
            assert_eq!(interpreted, compiled, "{text}");
        }
    }
}

/// Executes the body of a kernel in a function that it calls, whose registers are elsewhere.
fn in_function(body: &str) -> String {
    let inner = support::kernel("", body);
    let function = inner.replace(".visible .entry k(", ".func k2(");
    let head = function.find(".func").unwrap();
    let call = "{ .param .b64 a; .param .b64 b; st.param.b64 [a], %out; st.param.b64 [b], %in;\n\
                call k2, (a, b); }";
    support::kernel(&function[head..], call)
}

#[test]
fn runs_in_functions_and_warps_that_are_not_full_are_the_same() {
    let input: Vec<u32> = (0..WORDS as u32)
        .map(|n| n.wrapping_mul(0x9e37_79b9))
        .collect();
    let steps = (0..INTEGERS.len()).map(|form| (form, [form % 7, 1, form % 5, 3], None));
    let steps: Vec<_> = steps.map(|step| instruction(INTEGERS, step)).collect();
    let body = body(&steps.join("\n"), ['r', 'd']);
    for threads in [THREADS as u32, 20] {
        for text in [support::kernel("", &body), in_function(&body)] {
            let [interpreted, compiled] = [Engine::Interpreter, Engine::Compiled].map(|engine| {
                let mut device = Device::with(engine);
                let module = device.load(&text).unwrap_or_else(|e| panic!("{e}\n{text}"));
                device
                    .run_module(&module, (1, threads), &input, input.len())
                    .unwrap()
            });
            assert!(interpreted.iter().any(|word| *word != 0));
            assert_eq!(interpreted, compiled);
        }
    }
}

#[test]
fn lanes_that_go_another_way_are_left_as_they_are() {
    let input: Vec<u32> = (1..=WORDS as u32).collect();
    let steps = (0..INTEGERS.len()).map(|form| (form, [form % 7, 1, form % 5, 3], None));
    let steps: Vec<_> = steps.map(|step| instruction(INTEGERS, step)).collect();
    let steps = steps.join("\n");
    let branch = format!("setp.lt.u32 %p20, %t, 16; @%p20 bra over;\n{steps}\nover:");
    let [interpreted, compiled] = both(&body(&branch, ['r', 'd']), &input);
    assert_eq!(interpreted, compiled);
    let [everywhere, _] = both(&body(&steps, ['r', 'd']), &input);
    assert_ne!(interpreted, everywhere);
}
