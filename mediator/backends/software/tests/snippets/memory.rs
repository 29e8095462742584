//! Loads and stores, and the spaces that they go to.

use causeway_protocol::Access;

use crate::each;
use crate::support::{Device, kernel};

#[test]
fn addresses_of_every_space_are_generic_too() {
    let before = ".const .align 4 .u32 table[4] = {10, 20, 30, 40}; \
        .global .align 8 .u64 pointer = generic(table);";
    let body = ".shared .b32 s[64]; .local .b32 l[4];\n\
        mov.u64 %d1, s; cvta.shared.u64 %d2, %d1; mad.wide.u32 %d2, %tid, 4, %d2; \
        st.u32 [%d2], %tid;\n\
        mov.u64 %d3, l; cvta.local.u64 %d4, %d3; add.u32 %r1, %tid, 100; st.u32 [%d4+8], %r1; \
        ld.local.u32 %r2, [l+8];\n\
        cvta.to.shared.u64 %d5, %d2; ld.shared.u32 %r3, [%d5]; ld.global.u64 %d6, [pointer]; \
        ld.u32 %r4, [%d6+8];\n\
        ld.const.u32 %r5, [table+4]; mov.u64 %d7, pin; cvta.param.u64 %d8, %d7; \
        ld.u64 %d9, [%d8]; sub.u64 %d9, %d9, %in;\n\
        cvt.u32.u64 %r6, %d9; isspacep.shared %p1, %d2; isspacep.local %p2, %d4; \
        isspacep.global %p3, %out; isspacep.const %p4, %d6;\n\
        isspacep.global %p5, %d4; and.pred %p1, %p1, %p2; and.pred %p1, %p1, %p3; \
        and.pred %p1, %p1, %p4; not.pred %p5, %p5;\n\
        and.pred %p1, %p1, %p5; selp.u32 %r7, 1000, 0, %p1; add.u32 %r2, %r2, %r3; \
        add.u32 %r2, %r2, %r4; add.u32 %r2, %r2, %r5;\n\
        add.u32 %r2, %r2, %r6; add.u32 %r2, %r2, %r7; st.global.u32 [%o], %r2;";
    let mut device = Device::new(1);
    let module = device.load(&kernel(before, body)).unwrap();
    let found = device.run_module(&module, (1, 64), &[], 64).unwrap();
    assert_eq!(
        found,
        (0..64)
            .map(|t| t + 100 + t + 30 + 20 + 1000)
            .collect::<Vec<u32>>()
    );
}

#[test]
fn vectors_and_narrow_types_move_through_memory() {
    let body = "mul.wide.u32 %d1, %tid, 16; add.u64 %d2, %in, %d1; \
        ld.global.v4.u32 {%r1,%r2,%r3,%r4}, [%d2];\n\
        add.u64 %d3, %out, %d1; st.global.v4.u32 [%d3], {%r4,%r3,%r2,%r1};";
    let input: Vec<u32> = (0..64).collect();
    let mut device = Device::new(1);
    let found = device.run(body, (1, 16), &input, 64).unwrap();
    assert_eq!(found[..8], [3, 2, 1, 0, 7, 6, 5, 4]);
    let body =
        "ld.global.v2.u64 {%d1, %in}, [%in]; add.u64 %d1, %d1, %in; st.global.u64 [%out], %d1;";
    assert_eq!(device.run(body, (1, 1), &[5, 0, 7, 0], 2).unwrap(), [12, 0]);
    let body = "ld.global.s8 %r1, [%in+1]; ld.global.u8 %r2, [%in+1]; ld.global.s16 %d1, [%in]; \
        cvt.u32.u64 %r3, %d1;\n\
        st.global.u32 [%out], %r1; st.global.u32 [%out+4], %r2; st.global.u32 [%out+8], %r3; \
        st.global.u8 [%out+13], %r2;\n\
        st.global.u16 [%out+18], %d1;";
    let found = device.run(body, (1, 1), &[0xff90], 5).unwrap();
    assert_eq!(found, [u32::MAX, 0xff, 0xffff_ff90, 0xff00, 0xff90_0000]);
}

#[test]
fn shared_memory_can_be_dynamic() {
    let before = ".extern .shared .align 16 .b8 dynamic[];";
    let body = ".shared .align 4 .b8 fixed[20]; mov.u64 %d1, dynamic; \
        mad.wide.u32 %d1, %tid, 4, %d1; st.shared.u32 [%d1], %tid;\n\
        mov.u32 %r9, fixed; bar.sync 0; mov.u64 %d2, dynamic; ld.shared.u32 %r1, [%d2+124]; \
        mov.u32 %r2, %dynamic_smem_size;\n\
        add.u32 %r1, %r1, %r2; cvt.u32.u64 %r3, %d2; add.u32 %r1, %r1, %r3; \
        st.global.u32 [%o], %r1;";
    let mut device = Device::new(1);
    let module = device.load(&kernel(before, body)).unwrap();
    let out = device.buffer(4096, Access::ReadWrite);
    let given = [out.va.to_le_bytes(), out.va.to_le_bytes()].concat();
    device
        .launch(&module, "k", ([1, 1, 1], [32, 1, 1], 256), &given)
        .unwrap();
    assert_eq!(out.words(1), [31 + 256 + 32]);
}

#[test]
fn asynchronous_copies_copy() {
    let body = ".shared .align 16 .b8 s[512]; mov.u64 %d1, s; mul.wide.u32 %d2, %tid, 16; \
        add.u64 %d3, %d1, %d2; add.u64 %d4, %in, %d2;\n\
        cvt.u32.u64 %r1, %d3; and.b32 %r2, %tid, 15; \
        cp.async.cg.shared.global [%r1], [%d4], 16, %r2; cp.async.commit_group;\n\
        cp.async.wait_group 0; bar.sync 0; ld.shared.u32 %r3, [%d3+4]; st.global.u32 [%o], %r3;";
    let input: Vec<u32> = (0..128).map(|i| i * 0x0101_0101).collect();
    let found = each(body, 32, &input);
    for (t, word) in found.iter().enumerate() {
        let given = (t % 16).saturating_sub(4).min(4) as u32;
        let mask = if given == 4 {
            u32::MAX
        } else {
            (1 << (8 * given)) - 1
        };
        assert_eq!(*word, input[4 * t + 1] & mask, "{t}");
    }
}
