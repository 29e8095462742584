//! What modules tell: variables, which copies can use, and attributes of kernels.

mod support;

use causeway_mediator::backend::{CopyShape, Fault, MemoryWork, Variable, Work};
use causeway_protocol::Access;
use causeway_protocol::message::Status;
use causeway_protocol::packet::RectSide;
use support::Device;

const MODULE: &str = "\
.version 8.3
.target sm_90
.address_size 64
.const .align 4 .u32 table[4] = {1, 2, 3, 4};
.global .align 4 .u32 total = 5;
.visible .entry sum(.param .u64 to)
{
    .reg .u64 %to;
    .reg .u32 %a, %b;
    .local .align 8 .b8 room[40];
    .shared .align 4 .b8 block[256];
    ld.param.u64 %to, [to];
    ld.const.u32 %a, [table+4];
    ld.global.u32 %b, [total];
    add.u32 %a, %a, %b;
    st.global.u32 [%to], %a;
    ret;
}
.visible .entry spoil(.param .u64 at)
{
    .reg .u64 %at;
    ld.param.u64 %at, [at];
    st.global.u32 [%at], 9;
    ret;
}
.visible .entry crooked(.param .u64 at)
{
    .reg .u64 %at;
    ld.param.u64 %at, [at];
    st.global.u32 [%at+2], 9;
    ret;
}
.visible .entry stop(.param .u64 at)
{
    trap;
}
";

const ONE: ([u32; 3], [u32; 3], u32) = ([1; 3], [1; 3], 0);

fn copy(device: &mut Device, destination: u64, source: u64, bytes: u64) -> Result<(), Fault> {
    device.queue.submit(Work::Memory(MemoryWork::Copy {
        destination,
        source,
        bytes,
    }))
}

#[test]
fn copies_reach_variables_also_constants_and_kernels_see_it() {
    let mut device = Device::new(1);
    let module = device.load(MODULE).unwrap();
    let table = module.variable("table").unwrap();
    let total = module.variable("total").unwrap();
    assert_eq!((table.bytes, total.bytes), (16, 4));
    assert_eq!(module.variable("sum"), None, "a kernel is no variable");
    let buffer = device.buffer(4096, Access::ReadWrite);
    buffer.write_words(&[70, 500]);
    copy(&mut device, table.address + 4, buffer.va, 4).unwrap();
    copy(&mut device, total.address, buffer.va + 4, 4).unwrap();
    let to = (buffer.va + 8).to_le_bytes();
    device.launch(&module, "sum", ONE, &to).unwrap();
    copy(&mut device, buffer.va + 12, table.address, 16).unwrap();
    assert_eq!(buffer.words(7)[2..], [570, 1, 70, 3, 4]);
}

#[test]
fn rows_reach_constants_and_end_with_their_mapping() {
    let mut device = Device::new(1);
    let module = device.load(MODULE).unwrap();
    let table = module.variable("table").unwrap();
    let buffer = device.buffer(4096, Access::ReadWrite);
    buffer.write_words(&[7, 8, 9, 10]);
    let side = |address, pitch| RectSide {
        address,
        pitch,
        rows: 2,
    };
    let mut rows = |to, from| {
        let shape = CopyShape {
            destination: to,
            source: from,
            width: 4,
            height: 2,
            depth: 1,
        };
        device
            .queue
            .submit(Work::Memory(MemoryWork::CopyRect(shape)))
    };
    rows(side(table.address, 12), side(buffer.va, 8)).unwrap();
    rows(side(buffer.va + 64, 4), side(table.address, 12)).unwrap();
    assert_eq!(buffer.words(18)[16..], [7, 9]);
    let fault = rows(side(buffer.va + 64, 4), side(buffer.va + 4090, 4)).unwrap_err();
    assert_eq!(
        (fault.status, fault.cuda_result),
        (Status::MemoryFault, 700)
    );
}

#[test]
fn kernels_write_no_constants() {
    let mut device = Device::new(1);
    let module = device.load(MODULE).unwrap();
    let table = module.variable("table").unwrap();
    let at = table.address.to_le_bytes();
    let fault = device.launch(&module, "spoil", ONE, &at).unwrap_err();
    assert_eq!(
        (fault.status, fault.cuda_result),
        (Status::MemoryFault, 700)
    );
}

#[test]
fn copies_beyond_variables_or_after_their_module_are_refused() {
    let reach = |offset: u64, is_loaded: bool| {
        let mut device = Device::new(1);
        let module = device.load(MODULE).unwrap();
        let Variable { address, .. } = module.variable("table").unwrap();
        if !is_loaded {
            drop(module);
        }
        let buffer = device.buffer(4096, Access::ReadWrite);
        copy(&mut device, buffer.va, address.wrapping_add(offset), 4)
    };
    reach(0, true).unwrap();
    // Variables of one module share pages; beyond them is nothing.
    for (offset, is_loaded) in [(0, false), (4096, true), (4094, true), (u64::MAX - 4, true)] {
        let fault = reach(offset, is_loaded).unwrap_err();
        assert_eq!(fault.status, Status::MemoryFault, "{offset:#x}");
        assert_eq!(fault.cuda_result, 700);
    }
}

#[test]
fn variables_stay_while_a_kernel_of_the_module_can_be_launched() {
    let mut device = Device::new(1);
    let module = device.load(MODULE).unwrap();
    let table = module.variable("table").unwrap();
    let kernel = module.kernel("sum").unwrap();
    drop(module);
    let buffer = device.buffer(4096, Access::ReadWrite);
    copy(&mut device, buffer.va, table.address, 4).unwrap();
    drop(kernel);
    copy(&mut device, buffer.va, table.address, 4).unwrap_err();
}

#[test]
fn attributes_are_those_of_the_program() {
    let device = Device::new(1);
    let module = device.load(MODULE).unwrap();
    let attributes = module.kernel("sum").unwrap().cuda_attributes();
    let [threads, shared, constant, local, registers, ptx, binary, ..] = attributes;
    assert_eq!(
        (threads, shared, constant),
        (Some(1024), Some(256), Some(16))
    );
    assert!(local.unwrap() >= 40, "{local:?}");
    assert!(registers.unwrap() > 0);
    assert_eq!((ptx, binary), (Some(83), Some(90)));
    assert_eq!(attributes[8], Some((48 << 10) - 256));
    assert!(attributes.iter().all(Option::is_some));
}

#[test]
fn faults_tell_what_the_driver_would() {
    for (kernel, result) in [("crooked", 716), ("spoil", 700), ("stop", 719)] {
        let mut device = Device::new(1);
        let module = device.load(MODULE).unwrap();
        let fault = device.launch(&module, kernel, ONE, &[0; 8]).unwrap_err();
        assert_eq!(fault.cuda_result, result, "{fault}");
    }
}

#[test]
fn a_text_beyond_what_is_parsed_is_refused_with_its_size() {
    let device = Device::new(1);
    let text = " ".repeat((32 << 20) + 1);
    let refused = device.load(&text).err().unwrap();
    assert!(refused.reason.contains("33554433 bytes"), "{refused}");
}
