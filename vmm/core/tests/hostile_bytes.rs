//! Generated records, images and queues by the thousand, or as many as `CAUSEWAY_FUZZ_INPUTS` says:
//! no panic, and nothing accepted that is out of bounds. `fuzz/README.md` says more.

#[path = "../../../tests/fuzz/src/records.rs"]
mod records;
#[path = "../../../tests/fuzz/src/seeded.rs"]
#[allow(dead_code, reason = "shared with other tests, which use all of it")]
mod seeded;
#[path = "../../../tests/fuzz/src/virtio.rs"]
mod virtio;

use causeway_protocol::boot::IMAGE_BASE;
use records::{Records, load};
use seeded::Random;

/// A record with a head that means something, and tricky words behind it.
fn random_record(random: &mut Random) -> Vec<u8> {
    const SIZES: [u32; 9] = [8, 64, 32, 104, 80, 80, 40, 408, 8];
    let kind = random.below(SIZES.len() + 1);
    let usual = SIZES.get(kind).copied().unwrap_or(8);
    let bytes = if random.once_in(6) {
        random.tricky() as u32
    } else {
        usual
    };
    let mut record = [(kind as u32).to_le_bytes(), bytes.to_le_bytes()].concat();
    while record.len() < 256 {
        let word = random.tricky();
        record.extend(word.to_le_bytes());
    }
    record
}

#[test]
fn records_of_a_guest() {
    let records = Records::new();
    for index in 0..seeded::input_count(20_000) {
        let mut random = Random::of_input(seeded::seed(), index);
        records.hand(&random_record(&mut random));
    }
    records.check();
}

/// A small image that loads.
fn image() -> Vec<u8> {
    let mut image = b"\x7fELF\x02\x01\x01\0\0\0\0\0\0\0\0\0".to_vec();
    image.extend([2u16, 62].iter().flat_map(|half| half.to_le_bytes()));
    image.extend(1u32.to_le_bytes());
    image.extend(
        [IMAGE_BASE, 64, 0]
            .iter()
            .flat_map(|word| word.to_le_bytes()),
    );
    image.extend(0u32.to_le_bytes());
    image.extend(
        [64u16, 56, 1, 0, 0, 0]
            .iter()
            .flat_map(|half| half.to_le_bytes()),
    );
    image.extend([1u32, 7].iter().flat_map(|word| word.to_le_bytes()));
    let words = [120, IMAGE_BASE, IMAGE_BASE, 16, 0x1000, 0x1000];
    image.extend(words.iter().flat_map(|word: &u64| word.to_le_bytes()));
    image.extend([0x90; 16]);
    image
}

#[test]
fn images_with_spoilt_fields() {
    let good = image();
    assert!(load(&good));
    let mut accepted = 0;
    for index in 0..seeded::input_count(20_000) {
        let mut random = Random::of_input(seeded::seed(), index);
        let mut spoilt = good.clone();
        for _ in 0..=random.below(3) {
            let at = random.below(spoilt.len() - 8);
            let bytes = 1 << random.below(4);
            let word = random.tricky().to_le_bytes();
            spoilt[at..at + bytes].copy_from_slice(&word[..bytes]);
        }
        if random.once_in(8) {
            spoilt.truncate(random.below(good.len()));
        }
        accepted += u64::from(load(&spoilt));
    }
    assert!(accepted > 0, "some spoilt fields do not matter");
}

/// Requests of a disk that are mostly in order, with something spoilt.
fn random_queue(random: &mut Random) -> Vec<u8> {
    let mut bytes = Vec::new();
    for index in 0..virtio::QUEUE_SIZE as u8 {
        let position = index % 4;
        // Header, data, data, status.
        let (length, flags) = match position {
            0 => (16, 1),
            1 | 2 => (512, 1 | (2 * random.below(2) as u8)),
            _ => (1, 2),
        };
        let [low, high] = u16::to_le_bytes(length);
        let mut descriptor = [index, 0, low, high, flags, index + 1, 0, 0];
        if position == 2 && flags == 1 && random.once_in(2) {
            descriptor[4] = 3;
        }
        if random.once_in(6) {
            descriptor[random.below(virtio::DESCRIPTOR_BYTES)] = random.word() as u8;
        }
        bytes.extend(descriptor);
    }
    // Headers lie where the first descriptor of each request says, if it was left alone.
    let mut data = vec![0; 0x1000];
    for header in (0..data.len()).step_by(1024) {
        data[header] = *random.pick(&[0, 1, 1, 4, 8, 11, 13, 99]);
        let sector = random.tricky() % if random.once_in(4) { u64::MAX } else { 130 };
        data[header + 8..header + 16].copy_from_slice(&sector.to_le_bytes());
    }
    bytes.extend(data);
    bytes
}

#[test]
fn queues_of_a_disk() {
    let disk = virtio::Disk::new();
    let (inputs, mut answered) = (seeded::input_count(2_000), 0);
    for index in 0..inputs {
        let mut random = Random::of_input(seeded::seed(), index);
        answered += u64::from(disk.feed(&random_queue(&mut random)));
        assert!(
            disk.serves(),
            "after input {index} of seed {}",
            seeded::seed()
        );
    }
    eprintln!("{answered} of {inputs} queues were served to their end");
    assert!(answered > 0 && answered < inputs);
}
