//! Memory between sessions.

mod rig;

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Barrier};
use std::time::Duration;

use causeway_mediator::rights::Rights;
use causeway_mediator::share::{Exchange, Importer, Offer, TokenBytes};
use causeway_mediator::{Gpus, GuestSession, Mediator, Peers, Quota};
use causeway_mediator_testing::FakeBackend;
use causeway_protocol::Access;
use causeway_protocol::message::*;
use parking_lot::Mutex;
use rig::*;

#[test]
fn an_importer_gets_what_was_offered_and_no_more() {
    let rig = Rig::new();
    let (owner, importer) = (&rig.guest, rig.another());
    let memory = owner.memory(MemoryKind::Host, 2 * PAGE);
    assert_eq!(owner.export(memory, 0).unwrap_err().0, Status::BadAccess);
    let token = owner.export(memory, READ).unwrap();
    let other = owner.export(memory, READ).unwrap();
    assert_ne!(token, other, "each export has a token of its own");
    assert_eq!(
        importer.import(&token, READ_WRITE).unwrap_err().0,
        Status::AccessDenied
    );
    assert_eq!(importer.import(&token, 0).unwrap_err().0, Status::BadAccess);
    let unknown = Token {
        token: [7; TOKEN_BYTES],
    };
    assert_eq!(
        importer.import(&unknown, READ).unwrap_err().0,
        Status::BadToken
    );
    let import = importer.import(&token, READ).unwrap();
    assert_eq!((import.size, import.access), (2 * PAGE, READ));
    let space = importer.space();
    let denied = Err((Status::AccessDenied, 0));
    assert_eq!(
        importer.map_gpu(space, import.handle, PAGE, READ_WRITE),
        denied
    );
    assert_eq!(importer.map_cpu(import.handle, 0, PAGE, READ_WRITE), denied);
    let offset = importer.map_cpu(import.handle, 0, PAGE, READ).unwrap();
    assert_eq!(
        importer.set_access(0, offset, READ_WRITE).unwrap_err().0,
        Status::AccessDenied
    );
    assert_eq!(
        importer.export(import.handle, READ).unwrap_err().0,
        Status::AccessDenied
    );
    assert_eq!(importer.revoke(&token).unwrap_err().0, Status::BadToken);

    let own = owner.map_cpu(memory, 0, PAGE, READ_WRITE).unwrap();
    owner.host.map(own).unwrap().write(8, b"across").unwrap();
    let mut seen = [0; 6];
    importer
        .host
        .map(offset)
        .unwrap()
        .read(8, &mut seen)
        .unwrap();
    assert_eq!(&seen, b"across");
}

#[test]
fn an_import_cannot_be_a_command_buffer() {
    let rig = Rig::new();
    let importer = rig.another();
    let memory = rig.guest.memory(MemoryKind::Host, RING_BYTES);
    let token = rig.guest.export(memory, READ_WRITE).unwrap();
    let import = importer.import(&token, READ_WRITE).unwrap();
    let request = CreateCommandBuffer {
        space: importer.space(),
        allocation: import.handle,
        offset: 0,
        length: RING_BYTES,
    };
    let refused = causeway_mediator_testing::ask::<_, CommandBufferReply>(
        &importer.session,
        Opcode::CreateCommandBuffer,
        &request,
    );
    assert_eq!(refused.unwrap_err().0, Status::BadMemory);
}

/// An exchange that hands out once what was published last, and tells who has imported it.
#[derive(Default)]
struct Once {
    offer: Mutex<Option<Offer>>,
    importer: Mutex<Option<Importer>>,
}

impl Exchange for Once {
    fn publish(&self, _: u64, offer: Offer) -> Result<TokenBytes, Status> {
        *self.offer.lock() = Some(offer);
        Ok([1; TOKEN_BYTES])
    }

    fn fetch(&self, _: &TokenBytes, _: Access, _: &Gpus) -> Result<Offer, Status> {
        self.offer.lock().take().ok_or(Status::BadToken)
    }

    fn register(&self, _: &TokenBytes, importer: Importer) -> bool {
        *self.importer.lock() = Some(importer);
        true
    }

    fn forget(&self, _: &TokenBytes, _: u64) {}

    fn withdraw(&self, _: &TokenBytes, _: u64) -> bool {
        true
    }

    fn rights(&self, _: u64) -> Rights {
        Rights::default()
    }
}

#[test]
fn a_revocation_of_an_earlier_import_leaves_a_later_one_of_the_same_handle() {
    let rig = Rig::new();
    let importer = rig.another();
    let memory = rig.guest.memory(MemoryKind::Host, PAGE);
    let token = rig.guest.export(memory, READ).unwrap();
    let import = importer.import(&token, READ).unwrap();
    let offset = importer.map_cpu(import.handle, 0, PAGE, READ).unwrap();
    let peers = Peers {
        host: Arc::clone(&importer.host) as _,
        exchange: Arc::<Once>::default(),
    };
    // No import has this number.
    let revoke = |number| {
        let (session, patience) = (&importer.session, Duration::ZERO);
        session.revoke_import(&peers, import.handle, number, patience)
    };
    assert!(revoke(u64::MAX));
    assert!(importer.host.map(offset).is_some(), "it was another import");
}

#[test]
fn a_revocation_waits_for_what_uses_the_memory_and_tells_if_that_goes_on() {
    let exchange = Arc::<Once>::default();
    let gpus = Gpus::default();
    let mediator = Mediator::with_exchange(FakeBackend::new(), Arc::clone(&exchange) as _, gpus);
    let [owner, importer] = [(); 2].map(|()| Guest::open(&mediator, Quota::default()));
    let peers = Peers {
        host: Arc::clone(&importer.host) as _,
        exchange: Arc::clone(&exchange) as _,
    };
    let imported = || {
        let memory = owner.memory(MemoryKind::Host, PAGE);
        let token = owner.export(memory, READ).unwrap();
        let handle = importer.import(&token, READ).unwrap().handle;
        importer.map_cpu(handle, 0, PAGE, READ).unwrap();
        let import = exchange.importer.lock().take().unwrap().import;
        (memory, handle, import)
    };
    let revoke = |handle, import, patience| {
        let session = &importer.session;
        session.revoke_import(&peers, handle, import, patience)
    };
    // The owner holds on to the same memory, as work of the importer would.
    let (_, handle, import) = imported();
    assert!(!revoke(handle, import, Duration::ZERO));
    let (memory, handle, import) = imported();
    std::thread::scope(|scope| {
        let waits = scope.spawn(|| revoke(handle, import, Duration::from_secs(20)));
        eventually("the end of the mapping", || {
            importer.host.placements().is_empty()
        });
        std::thread::sleep(Duration::from_millis(2));
        owner.free(memory).unwrap();
        assert!(waits.join().unwrap());
    });
}

/// Ways in which an export ends.
fn revoked_by(end: impl Fn(&Guest, u32, &Token)) {
    let rig = Rig::new();
    let (owner, importer) = (&rig.guest, rig.another());
    let memory = owner.memory(MemoryKind::Host, PAGE);
    let token = owner.export(memory, READ_WRITE).unwrap();
    let import = importer.import(&token, READ_WRITE).unwrap().handle;
    let space = importer.space();
    let va = importer.map_gpu(space, import, PAGE, READ_WRITE).unwrap();
    importer.map_cpu(import, 0, PAGE, READ_WRITE).unwrap();
    end(owner, memory, &token);
    assert!(importer.host.placements().is_empty());
    let revoked = Err((Status::Revoked, 0));
    assert_eq!(importer.map_gpu(space, import, PAGE, READ), revoked);
    assert_eq!(importer.map_cpu(import, 0, PAGE, READ), revoked);
    assert_eq!(
        importer.unmap(Opcode::UnmapGpu, space, va),
        Err((Status::BadRange, 0)),
        "the GPU mapping is gone"
    );
    assert_eq!(
        importer.import(&token, READ).unwrap_err().0,
        Status::BadToken
    );
    importer.free(import).unwrap();
    assert_eq!(importer.free(import).unwrap_err().0, Status::BadHandle);
    owner.session.close();
    assert_eq!(rig.backend.live().bytes, 0);
}

#[test]
fn revoking_takes_the_memory_from_importers() {
    revoked_by(|owner, _, token| {
        owner.revoke(token).unwrap();
        assert_eq!(owner.revoke(token).unwrap_err().0, Status::BadToken);
    });
}

#[test]
fn freeing_revokes() {
    revoked_by(|owner, memory, _| owner.free(memory).unwrap());
}

#[test]
fn reset_and_close_revoke() {
    revoked_by(|owner, _, _| owner.session.reset());
    revoked_by(|owner, _, _| owner.session.close());
}

#[test]
fn memory_counts_for_its_owner_alone_and_an_importer_may_go_first() {
    let rig = Rig::new();
    let (owner, importer) = (&rig.guest, rig.another());
    let memory = owner.memory(MemoryKind::Host, 4 * PAGE);
    let token = owner.export(memory, READ_WRITE).unwrap();
    for _ in 0..3 {
        let import = importer.import(&token, READ_WRITE).unwrap().handle;
        importer.map_cpu(import, 0, PAGE, READ).unwrap();
        assert_eq!(importer.attributes().memory_used_bytes, 0);
        importer.free(import).unwrap();
        assert!(importer.host.placements().is_empty());
    }
    importer.import(&token, READ).unwrap();
    drop(importer);
    assert_eq!(owner.attributes().memory_used_bytes, 4 * PAGE);
    owner.revoke(&token).unwrap();
    owner.free(memory).unwrap();
    assert_eq!(rig.backend.live().bytes, 0);
}

/// Two sessions that import from each other, revoke, reset and free at once: nobody waits for ever,
/// and in the end everything is released.
#[test]
fn crossing_revocations_do_not_deadlock_and_leave_nothing() {
    let rig = Rig::new();
    let guests = [&rig.guest, &rig.another()];
    let done = AtomicBool::new(false);
    let letters = std::sync::Mutex::new([None, None]);
    std::thread::scope(|scope| {
        for (me, guest) in guests.into_iter().enumerate() {
            let (letters, done) = (&letters, &done);
            scope.spawn(move || {
                for round in 0..400u32 {
                    let memory = guest.memory(MemoryKind::Host, PAGE);
                    let token = guest.export(memory, READ_WRITE).unwrap();
                    letters.lock().unwrap()[me] = Some(token);
                    if round % 3 == 0 {
                        std::thread::yield_now();
                    }
                    match round % 40 {
                        39 => {
                            guest.session.reset();
                            guest.hello();
                        }
                        n if n % 2 == 0 => guest.free(memory).unwrap(),
                        _ => {
                            guest.revoke(&token).unwrap();
                            guest.free(memory).unwrap();
                        }
                    }
                }
                done.store(true, Ordering::Release);
            });
            let guest = guests[1 - me];
            scope.spawn(move || {
                while !done.load(Ordering::Acquire) {
                    let token = letters.lock().unwrap()[me];
                    let Some(import) = token.and_then(|t| guest.import(&t, READ).ok()) else {
                        continue;
                    };
                    // The handle may end in between, by revocation or by the other thread's reset.
                    let _ = guest.map_cpu(import.handle, 0, PAGE, READ);
                    let _ = guest.free(import.handle);
                }
            });
        }
    });
    for guest in guests {
        guest.session.close();
        assert!(guest.host.placements().is_empty());
    }
    assert_eq!(rig.backend.live(), NOTHING);
}

/// While a reset waits for a kernel, another CPU of the guest imports again, and gets the handle
/// that the import before the reset had. What the reset gives up late must not be this one: the
/// owner could never take it back.
#[test]
fn an_import_made_during_a_reset_can_be_revoked() {
    let rig = Rig::new();
    let (owner, importer) = (&rig.guest, rig.another());
    let token = owner.export(owner.memory(MemoryKind::Host, PAGE), READ);
    let token = token.unwrap();
    let before = importer.import(&token, READ).unwrap().handle;
    let (running, go) = <(Arc<AtomicBool>, Arc<AtomicBool>)>::default();
    let (runs, gate) = (Arc::clone(&running), Arc::clone(&go));
    rig.backend.define("hold", 0, move |_| {
        runs.store(true, Ordering::Release);
        while !gate.load(Ordering::Acquire) {
            std::thread::yield_now();
        }
        Ok(())
    });
    let space = importer.space();
    let module = importer.load_module(space, "kernel hold", 0).unwrap();
    let kernel = importer.kernel(module, "hold").unwrap().handle;
    let mut queue = importer.command_buffer(space);
    queue.submit(&[&launch(kernel, &[])]);
    eventually("the kernel", || running.load(Ordering::Acquire));
    let after = std::thread::scope(|scope| {
        scope.spawn(|| importer.session.reset());
        // The fresh session has not been greeted yet.
        eventually("the end of the old life", || importer.try_space().is_err());
        importer.hello();
        let after = importer.import(&token, READ);
        go.store(true, Ordering::Release);
        after.unwrap().handle
    });
    assert_eq!(after, before, "or this test shows nothing");
    importer.map_cpu(after, 0, PAGE, READ).unwrap();
    owner.revoke(&token).unwrap();
    assert!(importer.host.placements().is_empty(), "taken back");
}

/// Operations that were admitted just before the end must not create anything after it.
#[test]
fn nothing_is_created_in_a_closed_session() {
    let rig = Rig::new();
    for round in 0..400 {
        let memory = rig.guest.memory(MemoryKind::Host, PAGE);
        let token = rig.guest.export(memory, READ).unwrap();
        let closing = rig.another();
        let ready = Barrier::new(3);
        let lost = Err((Status::DeviceLost, 0));
        std::thread::scope(|scope| {
            scope.spawn(|| {
                ready.wait();
                while closing.try_space() != lost {}
            });
            scope.spawn(|| {
                ready.wait();
                while closing.import(&token, READ).map(drop) != lost.map(drop) {}
            });
            ready.wait();
            (0..round % 50).for_each(|_| std::hint::spin_loop());
            closing.session.close();
        });
        rig.guest.free(memory).unwrap();
        assert_eq!(rig.backend.live(), NOTHING, "round {round}");
    }
}
