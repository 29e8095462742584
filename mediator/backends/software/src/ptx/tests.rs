//! The parser as a whole: modules that compilers emit, constructs that the manual shows, hostile
//! text.

use super::ast::{
    Guard, Immediate, Initial, Instruction, Linkage, Module, Operand, Parameter, ScalarType,
    StateSpace, Statement,
};
use super::{ParseError, parse};

const SHARED: [(&str, &str); 8] = [
    (
        "numba_add",
        include_str!("../../../../../guest-driver-shim/programs/kernels/ptx/shared/numba_add.ptx"),
    ),
    (
        "nvcc13",
        include_str!(
            "../../../../../guest-driver-shim/programs/kernels/ptx/shared/nvcc13_five_kernels.ptx"
        ),
    ),
    (
        "nvrtc12",
        include_str!(
            "../../../../../guest-driver-shim/programs/kernels/ptx/shared/nvrtc12_five_kernels.ptx"
        ),
    ),
    (
        "nvrtc13",
        include_str!(
            "../../../../../guest-driver-shim/programs/kernels/ptx/shared/nvrtc13_five_kernels.ptx"
        ),
    ),
    (
        "tinygrad_4",
        include_str!(concat!(
            "../../../../../guest-driver-shim/programs/kernels/ptx/shared/",
            "tinygrad_elementwise_4.ptx"
        )),
    ),
    (
        "tinygrad_64",
        include_str!(concat!(
            "../../../../../guest-driver-shim/programs/kernels/ptx/shared/",
            "tinygrad_elementwise_64x32x2.ptx"
        )),
    ),
    (
        "tinygrad_matmul",
        include_str!(
            "../../../../../guest-driver-shim/programs/kernels/ptx/shared/tinygrad_matmul_64.ptx"
        ),
    ),
    (
        "tinygrad_reduce",
        include_str!(
            "../../../../../guest-driver-shim/programs/kernels/ptx/shared/tinygrad_reduce_local.ptx"
        ),
    ),
];

const HEAD: &str = ".version 8.0\n.target sm_70\n.address_size 64\n";

fn module(body: &str) -> Result<Module, ParseError> {
    parse(&format!("{HEAD}{body}"))
}

/// The statements of a kernel with this body, which begins on line 5.
fn body(text: &str) -> Vec<Statement> {
    let parsed = module(&format!(".entry k()\n{{{text}}}")).expect("the body is well formed");
    let function = parsed.functions.into_iter().next().expect("one kernel");
    function.body.expect("a body")
}

fn instruction(text: &str) -> Instruction {
    match body(text).pop() {
        Some(Statement::Instruction(instruction)) => instruction,
        other => panic!("no instruction: {other:?}"),
    }
}

fn name(text: &str) -> Operand {
    Operand::Name(text.to_owned())
}

fn refused(text: &str) -> ParseError {
    module(text).expect_err("the text is malformed")
}

/// Instructions of a body, those in blocks included.
fn instructions(statements: &[Statement]) -> usize {
    let count = |statement: &Statement| match statement {
        Statement::Instruction(_) => 1,
        Statement::Block(inner) => instructions(inner),
        _ => 0,
    };
    statements.iter().map(count).sum()
}

#[test]
fn modules_of_five_compilers_parse_completely() {
    for (origin, text) in SHARED {
        let parsed = parse(text).unwrap_or_else(|error| panic!("{origin}: {error}"));
        // Every line that ends in `;` inside a kernel and is neither a declaration nor a comment is
        // an instruction.
        let declares = |line: &&str| line.starts_with('.') || line.starts_with("//");
        let lines = text.lines().map(str::trim);
        let wanted = lines
            .filter(|line| line.ends_with(';') && !declares(line))
            .count();
        let bodies = parsed
            .functions
            .iter()
            .filter_map(|function| function.body.as_ref());
        let found: usize = bodies.map(|body| instructions(body)).sum();
        assert_eq!(found, wanted, "{origin}");
        assert!(
            parsed.functions.iter().all(|function| function.kernel),
            "{origin}"
        );
    }
}

#[test]
fn head_and_parameters() {
    let parsed = module(
        ".visible .entry add(.param .u64 a, .param .align 8 .b8 b[24],
           .param .u64 .ptr .global .align 16 c) .maxntid 128, 2 .reqntid 64 .minnctapersm 1
         .pragma \"nounroll\"; { ret; }",
    )
    .expect("well formed");
    assert_eq!(parsed.version, (8, 0));
    assert_eq!(parsed.target, "sm_70");
    let kernel = &parsed.functions[0];
    assert_eq!((kernel.name.as_str(), kernel.line), ("add", 4));
    assert_eq!(kernel.max_threads, Some([128, 2, 1]));
    assert_eq!(kernel.required_threads, Some([64, 1, 1]));
    let layout: Vec<(u32, u64)> = kernel
        .parameters
        .iter()
        .map(|parameter| match parameter {
            Parameter::Variable(variable) => (variable.align, variable.elements),
            Parameter::Register(_) => (0, 0),
        })
        .collect();
    assert_eq!(layout, [(8, 1), (8, 24), (8, 1)]);
}

#[test]
fn variables_with_initial_values() {
    let parsed = module(
        ".extern .shared .align 16 .b8 dynamic[];
         .const .align 4 .f32 weights[2][2] = {{0f3F800000, -1.5}, {2.0, 0}};
         .global .u64 pointers[] = {generic(weights)+8, weights, 0};
         .common .global .v4 .f32 color;
         .global .s8 sign = -1, other;",
    )
    .expect("well formed");
    let variables = &parsed.variables;
    assert_eq!(variables.len(), 6);
    assert!(variables[0].linkage == Linkage::Extern && variables[0].elements == 0);
    assert_eq!(variables[1].elements, 4);
    assert_eq!(
        variables[1].initial[1],
        Initial::Number(Immediate::F64((-1.5f64).to_bits()))
    );
    assert_eq!(variables[2].elements, 3);
    assert_eq!(
        variables[2].initial[0],
        Initial::Address {
            name: "weights".into(),
            offset: 8,
            generic: true
        }
    );
    assert_eq!((variables[3].align, variables[3].vector), (16, 4));
    assert_eq!(
        variables[4].initial,
        [Initial::Number(Immediate::Integer(-1))]
    );
    assert_eq!(variables[5].space, StateSpace::Global);
}

#[test]
fn registers_and_scoped_variables() {
    let found =
        body(".reg .b32 %r<4000000000>, x; .reg .v2 .f32 %v; .shared .align 16 .b8 local0[64];");
    match &found[..] {
        [
            Statement::Registers(many),
            Statement::Registers(one),
            Statement::Registers(vector),
            Statement::Variable(array),
        ] => {
            assert_eq!(many.count, Some(4_000_000_000));
            assert_eq!((one.name.as_str(), one.count), ("x", None));
            assert_eq!((vector.vector, vector.scalar), (2, ScalarType::F32));
            assert_eq!((array.align, array.elements), (16, 64));
        }
        other => panic!("{other:?}"),
    }
}

#[test]
fn guards_labels_and_modifiers() {
    let found = body("\n$L_1:\n @!%p1 bra.uni $L_1;");
    assert_eq!(
        found,
        [
            Statement::Label {
                name: "$L_1".into(),
                line: 6
            },
            Statement::Instruction(Instruction {
                guard: Some(Guard {
                    negated: true,
                    register: "%p1".into()
                }),
                opcode: "bra".into(),
                modifiers: vec!["uni".into()],
                operands: vec![name("$L_1")],
                line: 7
            })
        ]
    );
    let load = instruction("ld.global.L1::evict_last.L2::128B.v2.f32 {%f1, _}, [%rd1+-8];");
    assert_eq!(
        load.modifiers,
        ["global", "L1::evict_last", "L2::128B", "v2", "f32"]
    );
    assert_eq!(
        load.operands[0],
        Operand::Vector(vec![name("%f1"), Operand::Sink])
    );
    assert_eq!(instruction("ret;").operands, []);
    assert_eq!(
        instruction("tex.2d.v4.f32.f32 {a,b,c,d}, [t, {x,y}];").opcode,
        "tex"
    );
}

#[test]
fn calls() {
    let parsed = module(
        ".func (.param .b32 r) twice(.param .b32 x);
         .extern .func (.param .b32 r) vprintf (.param .b64 a, .param .b64 b);
         .func (.reg .u32 r) old (.reg .u32 x) { ret; }
         .entry k() {
           { .param .b32 param0; st.param.b32 [param0], 1; .param .b32 retval0;
             call.uni (retval0), twice, (param0); }
           prototype_0 : .callprototype (.param .b32 _) _ (.param .b32 _, .param .b64 _) .noreturn;
           call (retval0), %rd1, (param0, 3), prototype_0;
           call twice;
           targets: .branchtargets A, B;
           A: B: brx.idx %r1, targets; }",
    )
    .expect("well formed");
    assert_eq!(parsed.functions.len(), 4);
    assert!(parsed.functions[0].body.is_none());
    assert!(matches!(
        parsed.functions[2].results[0],
        Parameter::Register(_)
    ));
    let body = parsed.functions[3].body.as_ref().expect("a body");
    let list = |items: &[&str]| Operand::List(items.iter().copied().map(name).collect());
    match &body[0] {
        Statement::Block(inner) => match &inner[3] {
            Statement::Instruction(call) => assert_eq!(
                call.operands,
                [list(&["retval0"]), name("twice"), list(&["param0"])]
            ),
            other => panic!("{other:?}"),
        },
        other => panic!("{other:?}"),
    }
    assert!(matches!(&body[1], Statement::CallPrototype { name, .. } if name == "prototype_0"));
    match &body[2] {
        Statement::Instruction(call) => {
            assert_eq!(call.operands.len(), 4);
            assert_eq!(call.operands[3], name("prototype_0"));
        }
        other => panic!("{other:?}"),
    }
    assert!(matches!(&body[4], Statement::BranchTargets { labels, .. } if labels == &["A", "B"]));
}

#[test]
fn debug_information_is_skipped() {
    let parsed = module(
        ".file 1 \"a.cu\", 1700000000, 1234\n.file 2 \"b \\\" .cu\"
         .entry k() {
           .loc 1 3 5
           .loc 2 7 1, function_name $L__info_string0+4, inlined_at 1 3 9
           ret; }
         .section .debug_str { $L__info_string0: .b8 107,0\n.b64 .debug_abbrev\n { .b8 1 } }",
    )
    .expect("well formed");
    assert_eq!(parsed.functions[0].body.as_ref().map(Vec::len), Some(1));
}

#[test]
fn shifted_array_offsets_use_the_declared_element() {
    let mov = instruction(".shared .f64 a[8]; mov.u64 %rd1, a[2];");
    let wanted = Operand::NameOffset {
        name: "a".into(),
        offset: 16,
    };
    assert_eq!(mov.operands[1], wanted);
}

#[test]
fn errors_name_line_token_and_expectation() {
    let cases: [(&str, u32, &[&str]); 14] = [
        (
            ".entry k() {\n add.s32 %r1 %r2; }",
            5,
            &["`%r2`", "`,` or `;`"],
        ),
        (".entry k() {\n\n .bogus x; }", 6, &["`.bogus`"]),
        (".entry k() { ret;", 4, &["`}`"]),
        (
            ".entry k() { mov.u32 %r1, 99999999999999999999; }",
            4,
            &["99999999999999999999", "64"],
        ),
        (".entry k() { ret; } }", 4, &["`}`", "directive"]),
        (".entry k( { }", 4, &["`.param`", "`{`"]),
        (".global .b8 x[1<<60];", 4, &["`x`", "bytes"]),
        (".global .b8 x[4294967296][4294967296];", 4, &["`x`"]),
        (".global .b8 x[0-1];", 4, &["positive"]),
        (".global .b32 x[2] = {1,2,3};", 4, &["3", "2"]),
        (".global .texref t;", 4, &["`.texref`"]),
        (".alias f, g;", 4, &["`.alias`"]),
        (
            ".entry k() { .reg .b32 %r<4294967296>; }",
            4,
            &["4294967296"],
        ),
        (".global .align 3 .b8 x;", 4, &["3", "power of two"]),
    ];
    for (text, line, parts) in cases {
        let error = refused(text);
        assert_eq!(error.line, line, "{text}: {error}");
        for part in parts {
            assert!(error.reason.contains(part), "{text}: {error}");
        }
    }
}

#[test]
fn texts_that_are_no_modules() {
    for text in [
        "",
        "hello",
        "\u{7f}ELF",
        ".version",
        ".version 8",
        ".version 8.0",
        "é",
        "\0",
    ] {
        assert!(parse(text).is_err(), "{text:?}");
    }
    let narrow = parse(".version 8.0 .target sm_70 .address_size 32").expect_err("32 bits");
    assert!(narrow.reason.contains("32"), "{narrow}");
}

#[test]
fn nesting_is_bounded() {
    for open in [
        "{",
        "mov.b32 %r, (",
        "mov.b32 %r, -",
        "mov.b32 %r, {",
        "mov.b32 %r, 1?",
    ] {
        let repeated = open.rsplit(' ').next().unwrap_or(open);
        let text = format!(".entry k() {{ {open}{}", repeated.repeat(100_000));
        let error = refused(&text);
        assert!(error.reason.contains("deep"), "{open}: {error}");
    }
    assert!(
        refused(&format!(".global .b8 x[] = {}", "{".repeat(100_000)))
            .reason
            .contains("deep")
    );
}

#[test]
fn the_size_of_the_tree_is_bounded() {
    for costly in [
        "a:",
        "mov a,b;",
        ".reg .pred p;",
        ".local .b16 x;",
        "x{a,b,c,d};",
        "a.b.c;",
    ] {
        let text = format!(
            ".entry k() {{ {} }}",
            costly.repeat((8 << 20) / costly.len())
        );
        let error = refused(&text);
        assert!(error.reason.contains("128 MiB"), "{costly}: {error}");
    }
    let values = format!(".const .b8 x[] = {{ {} 0 }};", "0,".repeat(3 << 20));
    assert!(refused(&values).reason.contains("128 MiB"));
}

#[test]
fn large_modules_of_compilers_fit() {
    let (_, text) = SHARED[2];
    let kernels = text.find(".visible").expect("a kernel");
    let large = format!("{HEAD}{}", text[kernels..].repeat(300));
    assert!(large.len() > 2 << 20);
    assert_eq!(parse(&large).map(|module| module.functions.len()), Ok(1500));
}

#[test]
fn a_long_name_does_not_make_a_long_message() {
    let error = refused(&format!(".entry k() {{ ret {} x; }}", "n".repeat(1 << 20)));
    assert!(error.to_string().len() < 200, "{error}");
}

mod hostile;
