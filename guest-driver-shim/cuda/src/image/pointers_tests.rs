use proptest::prelude::*;

use super::*;
use crate::image::tests::PTX;

const X: &str = ".global .attribute(.managed) .align 4 .u32 x = 5;";
const X_AFTER: &str =
    ".global  .align 4 .u32 x = 5;  .global .align 8 .u64 causeway_managed_x = x;";

fn rewritten(text: &str) -> String {
    let found = with_pointers(text).expect("nothing to refuse");
    found.expect("there are managed variables").0
}

/// Returns an instruction with the register `%causeway_managed0` as the rewriting makes it.
fn with_one(instruction: &str) -> String {
    format!(
        "{{ .reg .b64 %causeway_managed<1>; ld.global.nc.u64 %causeway_managed0, \
         [causeway_managed_x]; {instruction} }}"
    )
}

#[test]
fn declarations_get_a_pointer_beside_them() {
    for (before, after) in [
        (X, X_AFTER),
        (
            ".visible .global .attribute( .managed ) .u32 x[2] = {1, 2}; // ;",
            ".visible .global  .u32 x[2] = {1, 2}; \
             .visible .global .align 8 .u64 causeway_managed_x = x; // ;",
        ),
        (
            ".weak .global .attribute(.managed, .unified(19, 95)) .align 8 .b8 x[16];",
            ".weak .global  .align 8 .b8 x[16]; \
             .weak .global .align 8 .u64 causeway_managed_x = x;",
        ),
        (
            ".extern .global .attribute(.managed) .b8 x[];",
            ".extern .global  .b8 x[]; .extern .global .align 8 .u64 causeway_managed_x;",
        ),
        (
            ".global .attribute\n(.managed) .u32 x, y;\n",
            ".global \n .u32 x, y;  .global .align 8 .u64 causeway_managed_x = x;  \
             .global .align 8 .u64 causeway_managed_y = y;\n",
        ),
    ] {
        assert_eq!(
            rewritten(&format!("{PTX}{before}")),
            format!("{PTX}{after}")
        );
    }
}

#[test]
fn instructions_use_the_pointer() {
    for (before, after) in [
        (
            "ld.global.u32 %r1, [x];",
            "ld.global.u32 %r1, [%causeway_managed0];",
        ),
        (
            "st.global.v4.u32 [x+-8], {%r1, %r2, %r3, %r4};",
            "st.global.v4.u32 [%causeway_managed0+-8], {%r1, %r2, %r3, %r4};",
        ),
        ("mov.u64 %rd1, x;", "mov.u64 %rd1, %causeway_managed0;"),
        (
            "cvta.global.u64 %rd1, x;",
            "cvta.global.u64 %rd1, %causeway_managed0;",
        ),
        (
            "atom.global.add.u32 %r1, [ x + 4 ], 1;",
            "atom.global.add.u32 %r1, [ %causeway_managed0 + 4 ], 1;",
        ),
        (
            "@!%p1 st.global.u32 [x], 1;",
            "@!%p1 st.global.u32 [%causeway_managed0], 1;",
        ),
        (
            "ld.global.u32\n%r1, // [x]\n[x] /* x; */ ;",
            "ld.global.u32\n%r1, // [x]\n[%causeway_managed0] /* x; */ ;",
        ),
        (
            "cp.async.bulk.shared::cluster.global [%r1], [x], 16, [%r2];",
            "cp.async.bulk.shared::cluster.global [%r1], [%causeway_managed0], 16, [%r2];",
        ),
    ] {
        let (before, after) = (
            format!("{{ {before} }}"),
            format!("{{ {} }}", with_one(after)),
        );
        let text = |variable: &str, body: &str| format!("{PTX}{variable}\n.entry k() {body}\n");
        assert_eq!(rewritten(&text(X, &before)), text(X_AFTER, &after));
    }
}

/// Returns what becomes of a function's body.
fn body(before: &str) -> String {
    let text = format!("{PTX}{X}\n.entry k(.param .u64 p) {{{before}}}");
    let after = rewritten(&text);
    let start = format!("{PTX}{X_AFTER}\n.entry k(.param .u64 p) {{");
    let after = after.strip_prefix(&start).expect("the rest stays");
    after.strip_suffix('}').expect("the rest stays").to_owned()
}

#[test]
fn offsets_outside_brackets_are_added_before() {
    let load = "ld.global.nc.u64 %causeway_managed0, [causeway_managed_x];";
    for (before, sum, after) in [
        (
            "mov.u64 %rd1, x+4;",
            "4",
            "mov.u64 %rd1, %causeway_managed0;",
        ),
        (
            "@%p1 mov.u64 %rd1, x + -4;",
            "-4",
            "@%p1 mov.u64 %rd1, %causeway_managed0;",
        ),
        (
            "mov.b128 %q, {x+8, %rd1};",
            "8",
            "mov.b128 %q, {%causeway_managed0, %rd1};",
        ),
    ] {
        let wanted = format!(
            "{{ .reg .b64 %causeway_managed<1>; {load} add.s64 %causeway_managed0, \
             %causeway_managed0, {sum}; {after} }}"
        );
        assert_eq!(body(before), wanted);
    }
    let two = body("mov.b128 %q, {x, x};");
    assert!(
        two.contains("%causeway_managed<2>")
            && two.ends_with("{%causeway_managed0, %causeway_managed1}; }")
    );
}

#[test]
fn labels_and_places_in_the_source_stay_before_the_scope() {
    let load = with_one("ld.global.u32 %r1, [%causeway_managed0];");
    for before in [
        "$L__BB0_2: ",
        "first: second:\n",
        ".loc 1 2 3 ",
        ".loc\t1 2 3, function_name x, inlined_at 1 3 4\n",
        ".loc 1 2 3, function_name $L__info_string0 + 8, inlined_at 1 3 4\n",
        ".pragma \"x;\"; ",
        "ret; { .reg .b32 %x; } ",
        "mbarrier.init.shared::cta.b64 [%r1], 1; ",
    ] {
        let text = format!("{before}ld.global.u32 %r1, [x];");
        assert_eq!(body(&text), format!("{before}{load}"));
    }
}

#[test]
fn names_of_a_scope_hide_the_variable_in_it() {
    let (load, after) = (
        "ld.global.u32 %r1, [x];",
        with_one("ld.global.u32 %r1, [%causeway_managed0];"),
    );
    for (before, wanted) in [
        (format!(".reg .b64 x; {load}"), None),
        (format!(".reg .b64 y, x; {{ {load} }}"), None),
        (format!(".local .align 4 .b8 x[8]; {load}"), None),
        (format!("{{ .param .align 4 .b8 x[8]; {load} }}"), None),
        (
            format!("{{ .reg .b64 x; {load} }} {load}"),
            Some(format!("{{ .reg .b64 x; {load} }} {after}")),
        ),
        (
            format!("{load} .reg .b64 x; {load}"),
            Some(format!("{after} .reg .b64 x; {load}")),
        ),
        (
            format!(".reg .b64 x<4>, xy; {load}"),
            Some(format!(".reg .b64 x<4>, xy; {after}")),
        ),
    ] {
        assert_eq!(body(&before), wanted.unwrap_or(before));
    }
    let numbered = X.replace('x', "x3");
    for (registers, is_hidden) in [("x<4>", true), ("x<3>", false), ("x", false)] {
        let load = "ld.global.u32 %r1, [x3];";
        let text = format!("{numbered} .entry k() {{ .reg .b64 {registers}; {load} }}");
        assert_eq!(rewritten(&text).contains(load), is_hidden, "{registers}");
    }
    let parameter =
        format!("{X}\n.func (.reg .b32 r) f(.param .align 8 .b8 x[8], .reg .u32 y) {{ {load} }}");
    assert!(rewritten(&parameter).ends_with(&format!("{{ {load} }}")));
    let result = format!("{X}\n.func (.param .b32 x) f() {{ {load} }}");
    assert!(rewritten(&result).ends_with(&format!("{{ {load} }}")));
}

#[test]
fn what_is_no_code_stays() {
    let rest = "\n// x\n.extern .func f(.param .b32 x);\n.section .debug_info { .b64 x }\n\
        .file 1 \"x;{\"\n.global .u32 y = 5;\n.entry k() { call f, (%r1); }\n";
    assert_eq!(
        rewritten(&format!("{PTX}{X}{rest}")),
        format!("{PTX}{X_AFTER}{rest}")
    );
}

#[test]
fn text_without_managed_variables_stays() {
    for text in [
        PTX.to_owned(),
        format!("{PTX}.global .u32 x; // .attribute(.managed)"),
        format!("{PTX}.global .attribute(.unified(1, 2)) .u32 x; .pragma \".managed\";"),
    ] {
        assert_eq!(with_pointers(&text), Ok(None));
    }
}

#[test]
fn what_pointers_cannot_express_is_refused() {
    for text in [
        format!("{X} .global .u64 y = x;"),
        format!("{X} .const .u64 y[2] = {{0, generic(x)+4}};"),
        format!("{X} .entry k() {{ ld.global.u32 %r1, x[2]; }}"),
        ".entry k() { .global .attribute(.managed) .u32 x; }".to_owned(),
        format!("{X} .entry k() {{ .global .u64 y = x; }}"),
    ] {
        assert!(with_pointers(&text).is_err(), "{text}");
    }
}

proptest! {
    #[test]
    fn nothing_makes_it_panic(parts in prop::collection::vec(0_usize..30, 0..60)) {
        let words = [
            ".global", ".attribute", "(", ")", ".managed", "x", "y", ";", "{", "}", "[", "]", "=",
            ",", ":", "+", "<", ">", "4", ".entry", ".func", ".reg", ".loc", ".section",
            "function_name", "mov.u64", "@%p", "//", "\n", X,
        ];
        let text: Vec<&str> = parts.into_iter().map(|part| words[part]).collect();
        let text = text.join(" ");
        let _ = with_pointers(&text);
        let _ = with_pointers(&format!("{X} .entry k() {{ {text} }}"));
    }
}
