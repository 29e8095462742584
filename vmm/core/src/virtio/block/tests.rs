//! Requests to a disk, as a driver makes them, and as none should.

use vm_memory::{Bytes, GuestAddress};

use super::*;
use crate::virtio::driver::{DATA, RAM_BYTES};

/// A scratch image that goes with its test.
pub(super) struct Scratch(pub std::path::PathBuf);

impl Scratch {
    pub(super) fn new(name: &str, bytes: u64) -> Self {
        let name = format!("causeway-{name}-{}.img", std::process::id());
        let path = std::env::temp_dir().join(name);
        std::fs::File::create(&path)
            .unwrap()
            .set_len(bytes)
            .unwrap();
        Self(path)
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(&self.0);
    }
}

const DISK_BYTES: u64 = 1 << 20;
const HEADER: u64 = 0x1000;
const STATUS: u64 = 0x1800;
const OK: u8 = spec::VIRTIO_BLK_S_OK as u8;
const IO_ERROR: u8 = spec::VIRTIO_BLK_S_IOERR as u8;
const UNSUPPORTED: u8 = spec::VIRTIO_BLK_S_UNSUPP as u8;

struct Disk {
    block: Block,
    memory: GuestMemoryMmap,
    scratch: Scratch,
}

fn disk(name: &str, read_only: bool) -> Disk {
    let scratch = Scratch::new(name, DISK_BYTES);
    let image = DiskImage::open(&scratch.0, read_only).unwrap();
    let mut block = Block::new(Arc::new(image));
    block.begin(bit(spec::VIRTIO_BLK_F_FLUSH));
    let memory = GuestMemoryMmap::from_ranges(&[(GuestAddress(0), RAM_BYTES as usize)]).unwrap();
    Disk {
        block,
        memory,
        scratch,
    }
}

impl Disk {
    /// Executes a request: its status, and the length that the driver is told.
    fn execute(
        &mut self,
        kind: u32,
        sector: u64,
        sent: &[(u64, u32)],
        answer: &[(u64, u32)],
    ) -> (u8, u32) {
        let header: Vec<u8> = [kind.to_le_bytes(), [0; 4]].concat();
        let header = [&header[..], &sector.to_le_bytes()].concat();
        self.memory
            .write_slice(&header, GuestAddress(HEADER))
            .unwrap();
        self.memory.write_obj(0xeeu8, GuestAddress(STATUS)).unwrap();
        let chain = Chain {
            head: 0,
            // Wherever the header is cut, it is one.
            readable: [(HEADER, 5), (HEADER + 5, 11)]
                .into_iter()
                .chain(sent.iter().copied())
                .collect(),
            writable: answer.iter().copied().chain([(STATUS, 1)]).collect(),
        };
        let written = self.block.serve(0, &chain, &self.memory).unwrap();
        (self.memory.read_obj(GuestAddress(STATUS)).unwrap(), written)
    }

    fn range(&self, sector: u64, sectors: u32, flags: u32) -> Vec<u8> {
        [
            &sector.to_le_bytes()[..],
            &sectors.to_le_bytes(),
            &flags.to_le_bytes(),
        ]
        .concat()
    }

    fn on_host(&self) -> Vec<u8> {
        std::fs::read(&self.scratch.0).unwrap()
    }
}

#[test]
fn what_is_written_is_in_the_file_and_is_read_again() {
    let mut disk = disk("write", false);
    disk.memory
        .write_slice(&[7; 1536], GuestAddress(DATA))
        .unwrap();
    let sent = [(DATA, 100), (DATA + 100, 924), (DATA + 1024, 512)];
    assert_eq!(disk.execute(spec::VIRTIO_BLK_T_OUT, 2, &sent, &[]), (OK, 1));
    assert_eq!(disk.execute(spec::VIRTIO_BLK_T_FLUSH, 0, &[], &[]), (OK, 1));
    let mut expected = vec![0; DISK_BYTES as usize];
    expected[1024..2560].fill(7);
    assert_eq!(disk.on_host(), expected);
    let answer = [(DATA + 0x10000, 1000), (DATA + 0x20000, 1048)];
    assert_eq!(
        disk.execute(spec::VIRTIO_BLK_T_IN, 1, &[], &answer),
        (OK, 2049)
    );
    let mut first = [0; 1000];
    disk.memory
        .read_slice(&mut first, GuestAddress(DATA + 0x10000))
        .unwrap();
    assert_eq!(first[..], expected[512..1512]);
    let mut second = [0; 1048];
    disk.memory
        .read_slice(&mut second, GuestAddress(DATA + 0x20000))
        .unwrap();
    assert_eq!(second[..], expected[1512..2560]);
}

#[test]
fn what_is_not_whole_sectors_of_the_disk_is_refused() {
    let mut disk = disk("bounds", false);
    let last = DISK_BYTES / 512 - 1;
    for kind in [spec::VIRTIO_BLK_T_IN, spec::VIRTIO_BLK_T_OUT] {
        let mut transfer = |sector, bytes: u32| match kind {
            spec::VIRTIO_BLK_T_IN => disk.execute(kind, sector, &[], &[(DATA, bytes)]).0,
            _ => disk.execute(kind, sector, &[(DATA, bytes)], &[]).0,
        };
        assert_eq!(transfer(last, 512), OK);
        for (sector, bytes) in [
            (last, 1024),
            (last + 1, 512),
            (0, 511),
            (0, 513),
            (0, 4 << 20),
            (u64::MAX, 512),
            (u64::MAX / 512, 512),
            (1 << 55, 512),
        ] {
            assert_eq!(transfer(sector, bytes), IO_ERROR, "{sector} {bytes}");
        }
    }
    assert_eq!(disk.on_host().len() as u64, DISK_BYTES);
}

#[test]
fn a_read_only_disk_says_so_and_is_not_written() {
    let mut disk = disk("ro", true);
    let offered = disk.block.features();
    assert_eq!(
        offered & bit(spec::VIRTIO_BLK_F_RO),
        bit(spec::VIRTIO_BLK_F_RO)
    );
    assert_eq!(offered & bit(spec::VIRTIO_BLK_F_DISCARD), 0);
    disk.memory
        .write_slice(&[7; 512], GuestAddress(DATA))
        .unwrap();
    let range = disk.range(0, 1, 0);
    disk.memory
        .write_slice(&range, GuestAddress(DATA + 512))
        .unwrap();
    assert_eq!(
        disk.execute(spec::VIRTIO_BLK_T_OUT, 0, &[(DATA, 512)], &[])
            .0,
        IO_ERROR
    );
    for kind in [spec::VIRTIO_BLK_T_DISCARD, spec::VIRTIO_BLK_T_WRITE_ZEROES] {
        assert_eq!(disk.execute(kind, 0, &[(DATA + 512, 16)], &[]).0, IO_ERROR);
    }
    assert_eq!(
        disk.execute(spec::VIRTIO_BLK_T_IN, 0, &[], &[(DATA, 512)])
            .0,
        OK
    );
    assert!(disk.on_host().iter().all(|byte| *byte == 0));
}

#[test]
fn ranges_are_discarded_and_zeroed_within_the_disk() {
    let mut disk = disk("zero", false);
    let kinds = [
        (spec::VIRTIO_BLK_T_DISCARD, 0),
        (spec::VIRTIO_BLK_T_WRITE_ZEROES, 0),
        (spec::VIRTIO_BLK_T_WRITE_ZEROES, 1),
    ];
    for (kind, flags) in kinds {
        disk.memory
            .write_slice(&[7; 4096], GuestAddress(DATA))
            .unwrap();
        assert_eq!(
            disk.execute(spec::VIRTIO_BLK_T_OUT, 8, &[(DATA, 4096)], &[])
                .0,
            OK
        );
        let two = [disk.range(9, 1, flags), disk.range(11, 2, flags)].concat();
        disk.memory.write_slice(&two, GuestAddress(DATA)).unwrap();
        assert_eq!(disk.execute(kind, 0, &[(DATA, 32)], &[]), (OK, 1));
        let zeroed = |sector: usize| disk.on_host()[sector * 512..][..512] == [0; 512];
        let zero: Vec<usize> = (8..16).filter(|s| zeroed(*s)).collect();
        assert_eq!(zero, [9, 11, 12], "{kind} {flags}");
    }
    let end = DISK_BYTES / 512;
    for (sector, sectors, flags, status) in [
        (end - 1, 2, 0, IO_ERROR),
        (u64::MAX, 1, 0, IO_ERROR),
        (0, u32::MAX, 0, IO_ERROR),
        (0, 1, 2, UNSUPPORTED),
    ] {
        let range = disk.range(sector, sectors, flags);
        disk.memory.write_slice(&range, GuestAddress(DATA)).unwrap();
        for (kind, _) in kinds {
            assert_eq!(disk.execute(kind, 0, &[(DATA, 16)], &[]).0, status);
        }
    }
    for bytes in [8, 15, 17, 16 * (request::RANGES_MAX as u32 + 1)] {
        assert_eq!(
            disk.execute(spec::VIRTIO_BLK_T_DISCARD, 0, &[(DATA, bytes)], &[])
                .0,
            IO_ERROR
        );
    }
    assert_eq!(
        disk.execute(spec::VIRTIO_BLK_T_DISCARD, 0, &[], &[]).0,
        IO_ERROR
    );
    assert_eq!(disk.on_host().len() as u64, DISK_BYTES);
}

#[test]
fn it_says_its_file_name_and_does_not_do_what_it_does_not_know() {
    let mut disk = disk("id", false);
    assert_eq!(
        disk.execute(spec::VIRTIO_BLK_T_GET_ID, 0, &[], &[(DATA, 20)]),
        (OK, 21)
    );
    let mut id = [0; 20];
    disk.memory.read_slice(&mut id, GuestAddress(DATA)).unwrap();
    assert!(id.starts_with(b"causeway-id-"), "{id:?}");
    assert_eq!(
        disk.execute(spec::VIRTIO_BLK_T_GET_ID, 0, &[], &[(DATA, 19)])
            .0,
        IO_ERROR
    );
    for kind in [2, 3, 5, 14, 1 << 31, u32::MAX] {
        assert_eq!(disk.execute(kind, 0, &[], &[]).0, UNSUPPORTED, "{kind}");
    }
}

#[test]
fn a_request_without_header_or_status_cannot_even_be_refused() {
    let mut disk = disk("malformed", false);
    for (readable, writable) in [(15, 1), (0, 1), (16, 0)] {
        let chain = Chain {
            head: 0,
            readable: [(HEADER, readable)].into_iter().collect(),
            writable: [(STATUS, writable)].into_iter().collect(),
        };
        let error = disk.block.serve(0, &chain, &disk.memory).unwrap_err();
        assert!(matches!(error, ServeError::Malformed { .. }), "{error}");
    }
}

#[test]
fn an_image_that_was_cut_off_is_an_error_to_the_guest_and_no_more() {
    let mut disk = disk("cut", false);
    std::fs::OpenOptions::new()
        .write(true)
        .open(&disk.scratch.0)
        .unwrap()
        .set_len(512)
        .unwrap();
    assert_eq!(
        disk.execute(spec::VIRTIO_BLK_T_IN, 1, &[], &[(DATA, 512)]),
        (IO_ERROR, 0)
    );
    assert_eq!(
        disk.execute(spec::VIRTIO_BLK_T_IN, 0, &[], &[(DATA, 512)]),
        (OK, 513)
    );
}

#[test]
fn the_configuration_is_where_the_specification_has_it() {
    let disk = disk("configuration", false);
    let bytes = disk.block.configuration();
    let word = |at: usize| u32::from_le_bytes(bytes[at..at + 4].try_into().unwrap());
    assert_eq!(u64::from(word(0)), DISK_BYTES / 512);
    assert_eq!((word(8), word(12), word(20)), (1 << 20, 126, 512));
    assert_eq!(bytes[34..36], [1, 0], "one queue");
    assert_eq!(word(36), ZERO_SECTORS_MAX);
    assert_eq!(bytes[56], 1, "zeroing may unmap");
}
