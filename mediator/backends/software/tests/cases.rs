//! Every kernel of the test collection, against its plain Rust reference.

mod support;

use causeway_kernels::{CASES, Case, PARAMETER_BYTES_MAX};
use causeway_protocol::Access;
use causeway_software::Engine;
use support::{Buffer, Device};

fn filled(case: &Case) -> Vec<Vec<u8>> {
    let fill = |(index, buffer): (usize, &causeway_kernels::Buffer)| {
        let mut bytes = vec![0; buffer.bytes];
        case.fill(index, &mut bytes);
        bytes
    };
    case.buffers.iter().enumerate().map(fill).collect()
}

fn run(case: &Case, device: &mut Device) -> Result<(), String> {
    let buffers: Vec<Buffer> = filled(case)
        .iter()
        .map(|bytes| {
            let buffer = device.buffer(bytes.len() as u64, Access::ReadWrite);
            buffer.write(bytes);
            buffer
        })
        .collect();
    let addresses: Vec<u64> = buffers.iter().map(|b| b.va).collect();
    let mut parameters = [0; PARAMETER_BYTES_MAX];
    let count = case.parameters(&addresses, &mut parameters);
    let module = device.load(case.ptx).map_err(|e| e.to_string())?;
    let shape = (case.grid, case.block, case.dynamic_shared);
    device
        .launch(&module, case.name, shape, &parameters[..count])
        .map_err(|e| e.to_string())?;
    let mut expected = filled(case);
    let mut views: Vec<&mut [u8]> = expected.iter_mut().map(|b| &mut b[..]).collect();
    case.reference(&mut views);
    for (index, (want, buffer)) in expected.iter().zip(&buffers).enumerate() {
        let got = buffer.bytes(want.len());
        case.compare(index, want, &got).map_err(|m| m.to_string())?;
    }
    Ok(())
}

#[test]
fn every_case_agrees_with_its_reference_if_it_is_compiled() {
    for case in CASES {
        let mut device = Device::with(Engine::Compiled);
        let ran = run(case, &mut device);
        assert_eq!(ran, Ok(()), "{}", case.name);
    }
}

#[test]
fn every_case_agrees_with_its_reference() {
    let mut failed = Vec::new();
    for case in CASES {
        let mut device = Device::new(2);
        if let Err(reason) = run(case, &mut device) {
            failed.push(format!("{}: {reason}", case.name));
        }
        for count in device.backend.launch_counts() {
            let rate = count.thread_instructions as f64 / count.busy_ns as f64 * 1e3;
            eprintln!(
                "{:24} {:>12} thread-instructions, {rate:8.0} million a second and core",
                count.kernel, count.thread_instructions
            );
        }
    }
    assert!(failed.is_empty(), "{failed:#?}");
}
