//! Modules and their functions.

use causeway_mediator_testing::{Batch, ask};
use causeway_protocol::message::*;

use crate::rig::*;

#[test]
fn modules_are_refused_with_a_line_and_a_log_and_functions_die_with_them() {
    let rig = Rig::new();
    rig.backend.define("add", 24, |_| Ok(()));
    let guest = &rig.guest;
    let space = guest.space();
    let text = "kernel add\nnonsense";
    guest.host.ram_mapping().write(0, text.as_bytes()).unwrap();
    let mut batch = Batch::new();
    let request = LoadModule {
        space,
        log_bytes: 64,
        image_address: 0,
        image_bytes: text.len() as u64,
        log_address: 4096,
    };
    batch.push(Opcode::LoadModule, &request).run(&guest.session);
    assert_eq!(batch.outcome(0), (Some(Status::BadModule), 2));
    let reply: LoadModuleReply = batch.reply(0).unwrap();
    let mut log = vec![0; reply.log_bytes as usize];
    guest.host.ram_mapping().read(4096, &mut log).unwrap();
    assert_eq!(
        String::from_utf8(log).unwrap(),
        "line 2: not a line of a fake module"
    );
    assert_eq!(reply.handle, 0);

    for (image_address, image_bytes) in [(0, 0), (0, MODULE_BYTES_MAX + 1), (RAM_BYTES - 8, 16)] {
        let request = LoadModule {
            image_address,
            image_bytes,
            ..request
        };
        let refused = ask::<_, LoadModuleReply>(&guest.session, Opcode::LoadModule, &request);
        assert_eq!(refused.unwrap_err().0, Status::BadRange, "{image_bytes}");
    }

    let module = guest.load_module(space, "kernel add", 0).unwrap();
    assert_eq!(guest.kernel(module, "sub").unwrap_err().0, Status::NoKernel);
    let kernel = guest.kernel(module, "add").unwrap();
    assert_eq!((kernel.parameters, kernel.parameter_bytes), (3, 24));
    assert_eq!(
        kernel.layout[2],
        Parameter {
            offset: 16,
            size: 8
        }
    );
    assert_eq!(guest.kernel(module, "add").unwrap().handle, kernel.handle);
    assert_eq!(
        guest.kernel(space, "add").unwrap_err(),
        (Status::BadHandle, space)
    );
    guest.by_handle(Opcode::UnloadModule, module).unwrap();
    assert_eq!(
        guest.kernel(module, "add").unwrap_err().0,
        Status::BadHandle
    );
    assert_eq!(rig.backend.live().modules, 0);
}

#[test]
fn a_function_name_says_its_length_and_is_zero_behind_it() {
    let rig = Rig::new();
    rig.backend.define("add", 0, |_| Ok(()));
    let guest = &rig.guest;
    let module = guest.load_module(guest.space(), "kernel add", 0).unwrap();
    let mut request = GetKernel {
        module,
        name_bytes: 3,
        ..GetKernel::default()
    };
    request.name[..4].copy_from_slice(b"addx");
    let refused = ask::<_, KernelReply>(&guest.session, Opcode::GetKernel, &request);
    assert_eq!(refused.unwrap_err(), (Status::ReservedNotZero, 16 + 8 + 3));
    for name_bytes in [0, 513, u32::MAX] {
        request.name_bytes = name_bytes;
        let refused = ask::<_, KernelReply>(&guest.session, Opcode::GetKernel, &request);
        assert_eq!(refused.unwrap_err().0, Status::BadRange);
    }
}
