//! Images come and go while a driver looks on.

use std::sync::Arc;

use virtio_bindings::virtio_blk as spec;
use vm_memory::{Bytes, GuestAddress};

use super::*;
use crate::virtio::Block;
use crate::virtio::block::tests::Scratch;
use crate::virtio::driver::{DATA, Machine, RUNNING};
use crate::virtio::registers::Structure;

/// Where a request has its header, and its status.
const HEADER: u64 = DATA + 0x1000;
const STATUS: u64 = DATA + 0x2000;
const SECTORS: u64 = 16;

struct Rig {
    machine: Machine,
    slot: Arc<DiskSlot>,
    scratch: Scratch,
}

fn rig(name: &str) -> Rig {
    let slot = Arc::<DiskSlot>::default();
    Rig {
        machine: Machine::new(Box::new(Block::of_slot(Arc::clone(&slot)))),
        slot,
        scratch: Scratch::new(name, SECTORS * 512),
    }
}

impl Rig {
    fn image(&self, read_only: bool) -> DiskImage {
        DiskImage::open(&self.scratch.0, read_only).unwrap()
    }

    fn sectors(&self) -> u64 {
        u64::from_le_bytes(self.machine.load(Structure::Device, 0))
    }

    fn generation(&self) -> u8 {
        let [generation] = self.machine.load(Structure::Common, 0x15);
        generation
    }

    /// The causes of interrupts since the last call.
    fn causes(&self) -> u8 {
        let [causes] = self.machine.load(Structure::InterruptStatus, 0);
        causes
    }

    /// Transfers the first sector, and returns the status.
    fn transfer(&mut self, kind: u32) -> u32 {
        let memory = self.machine.ram.memory();
        let header = [kind.to_le_bytes(), [0; 4], [0; 4], [0; 4]].concat();
        memory.write_slice(&header, GuestAddress(HEADER)).unwrap();
        memory.write_obj(0xee_u8, GuestAddress(STATUS)).unwrap();
        let into = kind == spec::VIRTIO_BLK_T_IN;
        self.machine
            .submit(&[(HEADER, 16, false), (DATA, 512, into), (STATUS, 1, true)]);
        self.machine.answer();
        self.machine.read_ram::<u8>(STATUS).into()
    }
}

#[test]
fn an_image_comes_and_goes_and_the_driver_is_told_each_time() {
    let mut rig = rig("slot");
    rig.machine.start(0);
    assert_eq!((rig.sectors(), rig.causes()), (0, 0));
    assert_eq!(
        rig.transfer(spec::VIRTIO_BLK_T_IN),
        spec::VIRTIO_BLK_S_IOERR
    );
    rig.causes();
    let before = rig.generation();
    rig.slot.insert(rig.image(false)).unwrap();
    assert_eq!((rig.sectors(), rig.causes()), (SECTORS, 2));
    assert_ne!(rig.generation(), before);
    let memory = rig.machine.ram.memory();
    memory.write_slice(&[7; 512], GuestAddress(DATA)).unwrap();
    assert_eq!(rig.transfer(spec::VIRTIO_BLK_T_OUT), spec::VIRTIO_BLK_S_OK);
    rig.causes();
    drop(rig.slot.remove().unwrap());
    assert_eq!((rig.sectors(), rig.causes()), (0, 2));
    assert_eq!(
        rig.transfer(spec::VIRTIO_BLK_T_IN),
        spec::VIRTIO_BLK_S_IOERR
    );
    assert_eq!(std::fs::read(&rig.scratch.0).unwrap()[..512], [7; 512]);
    // Nobody has it any more.
    rig.image(false);
    assert!(rig.slot.remove().is_none());
}

#[test]
fn an_image_that_is_there_stays_and_one_that_may_not_be_written_is_not() {
    let mut rig = rig("slot-full");
    rig.machine.start(0);
    rig.slot.insert(rig.image(true)).unwrap();
    let refused = rig.slot.insert(rig.image(true)).unwrap_err();
    assert_eq!(refused.path(), rig.scratch.0);
    assert_eq!(
        rig.transfer(spec::VIRTIO_BLK_T_OUT),
        spec::VIRTIO_BLK_S_IOERR
    );
    assert_eq!(rig.transfer(spec::VIRTIO_BLK_T_IN), spec::VIRTIO_BLK_S_OK);
}

#[test]
fn a_change_before_the_driver_runs_is_told_when_it_does() {
    let mut rig = rig("slot-early");
    assert!(rig.machine.negotiate(crate::virtio::device::VERSION_1));
    assert_eq!(rig.sectors(), 0);
    rig.slot.insert(rig.image(false)).unwrap();
    assert_eq!(rig.causes(), 0, "no driver that could be told");
    rig.machine
        .place_queue(16, DATA, DATA + 0x400, DATA + 0x800);
    rig.machine.set_status(RUNNING);
    assert_eq!((rig.sectors(), rig.causes()), (SECTORS, 2));
    // The next driver reads the size itself. No interrupt comes.
    rig.machine.start(0);
    assert_eq!((rig.sectors(), rig.causes()), (SECTORS, 0));
}

#[test]
fn an_image_that_comes_while_the_machine_is_made_is_there() {
    let scratch = Scratch::new("slot-first", SECTORS * 512);
    let slot = Arc::<DiskSlot>::default();
    let block = Block::of_slot(Arc::clone(&slot));
    slot.insert(DiskImage::open(&scratch.0, false).unwrap())
        .unwrap();
    let machine = Machine::new(Box::new(block));
    let rig = Rig {
        machine,
        slot,
        scratch,
    };
    assert_eq!(rig.sectors(), SECTORS);
}

#[test]
fn a_machine_that_is_gone_is_told_nothing() {
    let Rig {
        machine,
        slot,
        scratch,
    } = rig("slot-gone");
    drop(machine);
    slot.insert(DiskImage::open(&scratch.0, false).unwrap())
        .unwrap();
    assert!(slot.remove().is_some());
}
