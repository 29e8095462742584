//! Values of 128 bits as arguments and results of functions.

mod support;

use support::{Device, kernel};

/// A function that swaps the halves of its argument. `result` and `argument` say how they are
/// passed, `load` and `store` how they are read and written.
fn swap(result: &str, argument: &str, load: &str, store: &str) -> String {
    format!(
        ".func ({result} .b128 r) swap({argument} .b128 a) {{\n\
        .reg .b128 %x, %y; .reg .b64 %l, %h;\n\
        {load} mov.b128 {{%l, %h}}, %x; mov.b128 %y, {{%h, %l}}; {store} ret; }}"
    )
}

/// Each thread swaps (number, number + 1000), and adds ten times the one to the other.
fn body(result: &str, argument: &str, before: &str, after: &str) -> String {
    format!(
        ".reg .b128 %q, %s; cvt.u64.u32 %d1, %t; add.u64 %d2, %d1, 1000;\n\
        mov.b128 %q, {{%d1, %d2}};\n\
        {{ .param .b128 p; .param .b128 o; {before}\n\
        call ({result}), swap, ({argument}); {after} }}\n\
        mov.b128 {{%d3, %d4}}, %s; mad.lo.u64 %d3, %d3, 10, %d4; cvt.u32.u64 %r1, %d3;\n\
        st.global.u32 [%o], %r1;"
    )
}

#[test]
fn every_thread_gets_its_own_value_however_it_is_passed() {
    for in_register in [false, true] {
        for by_register in [false, true] {
            let function = match in_register {
                true => swap(".reg", ".reg", "mov.b128 %x, a;", "mov.b128 r, %y;"),
                false => swap(
                    ".param",
                    ".param",
                    "ld.param.b128 %x, [a];",
                    "st.param.b128 [r], %y;",
                ),
            };
            let body = match by_register {
                true => body("%s", "%q", "", ""),
                false => body("o", "p", "st.param.b128 [p], %q;", "ld.param.b128 %s, [o];"),
            };
            let mut device = Device::new(1);
            let module = device.load(&kernel(&function, &body)).unwrap();
            let found = device.run_module(&module, (2, 64), &[], 128).unwrap();
            let wanted: Vec<u32> = (0..128).map(|t| 10 * (t + 1000) + t).collect();
            assert_eq!(found, wanted, "{in_register} {by_register}");
        }
    }
}
