//! Modules that are linked from several texts.

mod support;

use std::sync::Arc;

use causeway_mediator::backend::{Module, ModuleError, Reservation, Space};
use causeway_protocol::Access;
use support::{Device, kernel};

const MAIN: &str = include_str!("ptx/link_main.ptx");
const OTHER: &str = include_str!("ptx/link_other.ptx");
const HEAD: &str = ".version 8.0\n.target sm_90\n.address_size 64\n";

/// The image of several inputs, as `src/image/container.rs` describes it.
fn image(inputs: &[&str]) -> Vec<u8> {
    let count = inputs.len() as u32;
    let mut image = [&b"CWLINK01"[..], &count.to_le_bytes(), &[0; 4]].concat();
    for input in inputs {
        image.extend((input.len() as u64).to_le_bytes());
        image.extend(input.as_bytes());
        image.resize(image.len().next_multiple_of(8), 0);
    }
    image
}

fn link(device: &Device, inputs: &[&str]) -> Result<Arc<dyn Module>, ModuleError> {
    device
        .space
        .load_module(&image(inputs), &mut Reservation::unlimited())
}

fn refusal(inputs: &[&str]) -> ModuleError {
    link(&Device::new(1), inputs).err().expect("a refusal")
}

fn assert_refused(inputs: &[&str], line: u32, parts: &[&str]) {
    let error = refusal(inputs);
    for part in parts {
        assert!(error.reason.contains(part), "{part:?} is not in {error}");
    }
    assert_eq!(error.line, line, "{error}");
}

#[test]
fn two_halves_of_a_program_call_each_other() {
    for inputs in [[MAIN, OTHER], [OTHER, &format!("{MAIN}\0rest")]] {
        let mut device = Device::new(2);
        let module = link(&device, &inputs).unwrap();
        assert_eq!(module.kernels(), ["combine"]);
        let (out, input) = (
            device.buffer(256, Access::ReadWrite),
            device.buffer(256, Access::Read),
        );
        let values: Vec<u32> = (0..64).map(|i| i * 7).collect();
        input.write_words(&values);
        let given = [out.va.to_le_bytes(), input.va.to_le_bytes()].concat();
        device
            .launch(&module, "combine", ([2, 1, 1], [32, 1, 1], 0), &given)
            .unwrap();
        // link_main.cu adds 1 and 1000, link_other.cu subtracts 5, doubles and scales.
        let want = |i: u32| {
            let scaled = (i * 7 + 1)
                .wrapping_sub(5)
                .wrapping_mul(2 * 10_u32.pow(i % 4));
            scaled.wrapping_add(1000)
        };
        let want: Vec<u32> = (0..64).map(want).collect();
        assert_eq!(out.words(64), want);
    }
}

#[test]
fn what_no_input_defines_is_named() {
    assert_refused(&[MAIN], 93, &["unresolved symbol", "`_Z5scaleii`"]);
    let variable = kernel(".extern .global .u32 far;", "\nld.global.u32 %r1, [far];");
    assert_refused(
        &[&format!("{HEAD} .global .u32 far;"), &variable],
        14,
        &["input 2 of 2", "unresolved symbol", "`far`"],
    );
    // A static function is not what another module means.
    let function = kernel(".extern .func f;", "\ncall f;");
    assert_refused(
        &[&function, &format!("{HEAD} .func f {{ ret; }}")],
        14,
        &["input 1 of 2", "unresolved symbol", "`f`"],
    );
    // Nor is a name that a module does not declare.
    let function = kernel("", "\ncall f;");
    assert_refused(
        &[&function, &format!("{HEAD} .visible .func f {{ ret; }}")],
        14,
        &["`f` is not declared"],
    );
}

#[test]
fn a_second_definition_is_named() {
    assert_refused(
        &[MAIN, OTHER, OTHER],
        18,
        &["input 3 of 3", "`offset`", "twice", "line 18 of input 2"],
    );
    let one = format!("{HEAD}.visible .func f {{ ret; }}");
    assert_refused(&[&one, &one], 4, &["symbol `f` is defined twice"]);
    let two = format!("{one} .func f {{ ret; }} .func f {{ ret; }}");
    assert_refused(&[&two], 4, &["symbol `f` is defined twice"]);
    let entry = kernel("", "");
    assert_refused(&[&entry, &entry], 5, &["symbol `k` is defined twice"]);
}

/// What `k` stores when each of `definitions` is an input beside it.
fn value_of_f(definitions: &[&str]) -> u32 {
    let mut device = Device::new(1);
    let caller = kernel(
        ".extern .func (.reg .u32 r) f;",
        "call (%r1), f; st.global.u32 [%o], %r1;",
    );
    let mut inputs = vec![caller];
    inputs.extend(definitions.iter().map(|d| format!("{HEAD}{d}")));
    let inputs: Vec<&str> = inputs.iter().map(String::as_str).collect();
    let module = link(&device, &inputs).unwrap();
    device.run_module(&module, (1, 1), &[], 1).unwrap()[0]
}

#[test]
fn weak_definitions_give_way() {
    let weak = |n: u32| format!(".weak .func (.reg .u32 r) f {{ mov.u32 r, {n}; ret; }}");
    let strong = ".visible .func (.reg .u32 r) f { mov.u32 r, 3; ret; }";
    assert_eq!(value_of_f(&[&weak(1), &weak(2)]), 1);
    assert_eq!(value_of_f(&[&weak(1), strong, &weak(2)]), 3);
}

#[test]
fn shared_variables_are_one_if_linked_and_apart_if_static() {
    let function = format!(
        "{HEAD}.extern .shared .b32 joint; .shared .b32 own;\n\
         .visible .func put(.reg .u32 v) {{ st.shared.u32 [own], v; st.shared.u32 [joint], v; ret; }}"
    );
    let caller = kernel(
        ".visible .shared .b32 joint; .shared .b32 own; .extern .func put(.reg .u32 v);",
        "st.shared.u32 [own], 5; st.shared.u32 [joint], 5; call put, (9);\n\
         ld.shared.u32 %r1, [own]; ld.shared.u32 %r2, [joint];\n\
         st.global.u32 [%o], %r1; st.global.u32 [%o+4], %r2;",
    );
    let mut device = Device::new(1);
    let module = link(&device, &[&function, &caller]).unwrap();
    let found = device.run_module(&module, (1, 1), &[], 2).unwrap();
    assert_eq!(found, [5, 9]);
}

#[test]
fn variables_are_found_by_name_and_the_linked_one_first() {
    let device = support::Device::new(1);
    let space = device.backend.space(Arc::default());
    let of = |text: &str| format!("{HEAD}{text}");
    let inputs = [
        of(".global .u32 x = 1; .common .global .b8 room[4];"),
        of(".visible .global .u64 x = 2; .common .global .b8 room[16];"),
        of(".extern .global .u64 x; .global .u64 pointer = x;"),
    ];
    let inputs: Vec<&str> = inputs.iter().map(String::as_str).collect();
    let module = space.load(&image(&inputs)).unwrap();
    let (x, bytes) = module.variable("x").unwrap();
    assert_eq!((bytes, space.load_u32(x)), (8, Some(2)));
    assert_eq!(module.variable("room").unwrap().1, 16);
    let (pointer, _) = module.variable("pointer").unwrap();
    assert_eq!(space.load_u32(pointer), Some(x as u32));
    assert_eq!(space.load_u32(pointer + 4), Some((x >> 32) as u32));
}

#[test]
fn hostile_images_are_refused() {
    let device = Device::new(1);
    let load = |image: &[u8]| device.space.load(image).expect_err("a refusal");
    for (bytes, part) in [
        (image(&[]), "0 inputs"),
        (image(&vec![""; 257]), "257 inputs"),
        (
            image(&[MAIN, ""]),
            "input 2 of 2: the module image is empty",
        ),
        (
            image(&[OTHER, "\x7fELF"]),
            "input 2 of 2: the module image is an ELF",
        ),
        (
            image(&[OTHER, ".version"]),
            "input 2 of 2: expected a version",
        ),
        (image(&[MAIN, OTHER])[..4000].to_vec(), "damaged"),
        (image(&["CWLINK01"]), "an image of several inputs"),
    ] {
        let error = load(&bytes);
        assert!(error.reason.contains(part), "{part:?} is not in {error}");
    }
    // 200 trees that would each be allowed are too much together.
    let body = "add.u32 %r1, %r2, %r3;".repeat(4000);
    let function = |n: usize| format!("{HEAD} .func f{n} {{ .reg .u32 %r<4>; {body} }}");
    let many: Vec<String> = (0..200).map(function).collect();
    let many: Vec<&str> = many.iter().map(String::as_str).collect();
    assert!(device.space.load(many[0].as_bytes()).is_ok());
    let error = load(&image(&many));
    assert!(error.reason.contains("syntax tree"), "{error}");
}
