//! How a statistics file is laid out: header and descriptors, as bytes.

use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

/// Size of the header of a statistics file in bytes.
pub(super) const HEADER_BYTES: usize = size_of::<RawHeader>();
/// Most bytes that the block of values of one statistics file may have. Linux 6.18 has under 2 KiB.
pub(super) const DATA_BYTES_MAX: usize = 16 * 1024;
/// Most descriptors of one file. Linux 6.18 has under 60.
const DESCRIPTORS_MAX: u32 = 1024;
/// Longest name with its terminator. Linux has 48.
const NAME_BYTES_MAX: u32 = 256;
/// Kind of a statistic, in its flags: `KVM_STATS_TYPE_MASK` (linux/kvm.h).
const TYPE_MASK: u32 = 0xf;
/// A counter that only grows: `KVM_STATS_TYPE_CUMULATIVE`.
const TYPE_CUMULATIVE: u32 = 0;

/// `struct kvm_stats_header`.
#[derive(Clone, Copy, Debug, FromBytes, IntoBytes, KnownLayout, Immutable)]
#[repr(C)]
struct RawHeader {
    flags: u32,
    name_bytes: u32,
    descriptors: u32,
    id_offset: u32,
    descriptors_offset: u32,
    data_offset: u32,
}

/// `struct kvm_stats_desc`; the name follows.
#[derive(Clone, Copy, Debug, FromBytes, IntoBytes, KnownLayout, Immutable)]
#[repr(C)]
struct RawDescriptor {
    flags: u32,
    exponent: i16,
    values: u16,
    offset: u32,
    bucket_size: u32,
}

/// What is wrong with the layout of a statistics file of KVM (Documentation/virt/kvm/api.rst,
/// 4.133).
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum LayoutError {
    /// The file ends before its header or its descriptors do.
    #[error("KVM's statistics file ends before its header or its descriptors end")]
    Short,
    /// The number of descriptors or the length of a name is out of range.
    #[error(
        "KVM's statistics file has {descriptors} descriptors with names of {name_bytes} bytes, but \
         Causeway reads at most {DESCRIPTORS_MAX} descriptors with names of 1 to {NAME_BYTES_MAX} \
         bytes"
    )]
    Counts {
        /// Number of descriptors, as the file's header says.
        descriptors: u32,
        /// Length of each name in bytes, as the file's header says.
        name_bytes: u32,
    },
    /// The block of values is too large.
    #[error(
        "the values of KVM's statistics file take {bytes} bytes, but Causeway reads at most \
         {DATA_BYTES_MAX}"
    )]
    Data {
        /// Size of the block of values in bytes.
        bytes: u64,
    },
}

/// A header whose figures are within bounds.
#[derive(Debug)]
pub(super) struct Header(RawHeader);

impl Header {
    pub fn parse(bytes: &[u8]) -> Result<Self, LayoutError> {
        let (raw, _) = RawHeader::read_from_prefix(bytes).map_err(|_| LayoutError::Short)?;
        if raw.descriptors > DESCRIPTORS_MAX || !(1..=NAME_BYTES_MAX).contains(&raw.name_bytes) {
            return Err(LayoutError::Counts {
                descriptors: raw.descriptors,
                name_bytes: raw.name_bytes,
            });
        }
        Ok(Self(raw))
    }

    pub fn descriptors_offset(&self) -> u64 {
        self.0.descriptors_offset.into()
    }

    pub fn descriptors_bytes(&self) -> usize {
        self.descriptor_bytes() * self.0.descriptors as usize
    }

    fn descriptor_bytes(&self) -> usize {
        size_of::<RawDescriptor>() + self.0.name_bytes as usize
    }
}

/// One of KVM's statistics that only grow, such as a number of exits.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Counter {
    /// KVM's name of the counter.
    pub name: String,
    /// Offset of the counter in the block of values, in bytes.
    offset: usize,
}

impl Counter {
    pub(super) fn value(&self, data: &[u8]) -> u64 {
        data.get(self.offset..)
            .and_then(|rest| u64::read_from_prefix(rest).ok())
            .map_or(0, |(value, _)| value)
    }
}

/// The counters that a statistics file of KVM contains, and their places in the file. Statistics of
/// other kinds, such as peaks and histograms, are left out.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Layout {
    counters: Vec<Counter>,
    data_offset: u64,
    data_bytes: usize,
}

impl Layout {
    pub(super) fn parse(header: &Header, descriptors: &[u8]) -> Result<Self, LayoutError> {
        let descriptors = descriptors.get(..header.descriptors_bytes());
        let descriptors = descriptors.ok_or(LayoutError::Short)?;
        let mut counters = Vec::new();
        let mut data_bytes = 0;
        for bytes in descriptors.chunks_exact(header.descriptor_bytes()) {
            let (raw, name) =
                RawDescriptor::read_from_prefix(bytes).map_err(|_| LayoutError::Short)?;
            let end = u64::from(raw.offset) + 8 * u64::from(raw.values);
            if end > DATA_BYTES_MAX as u64 {
                return Err(LayoutError::Data { bytes: end });
            }
            if raw.flags & TYPE_MASK == TYPE_CUMULATIVE && raw.values == 1 {
                data_bytes = data_bytes.max(end as usize);
                counters.push(Counter {
                    name: text(name),
                    offset: raw.offset as usize,
                });
            }
        }
        Ok(Self {
            counters,
            data_offset: header.0.data_offset.into(),
            data_bytes,
        })
    }

    /// Returns the counters of the file, in KVM's order.
    pub fn counters(&self) -> &[Counter] {
        &self.counters
    }

    pub(super) fn data_offset(&self) -> u64 {
        self.data_offset
    }

    /// Returns the size in bytes of the block of values up to the last counter.
    pub(super) fn data_bytes(&self) -> usize {
        self.data_bytes
    }
}

fn text(name: &[u8]) -> String {
    let end = name.iter().position(|b| *b == 0).unwrap_or(name.len());
    String::from_utf8_lossy(&name[..end]).into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const NAME_BYTES: usize = 16;

    fn header(descriptors: u32) -> RawHeader {
        RawHeader {
            flags: 0,
            name_bytes: NAME_BYTES as u32,
            descriptors,
            id_offset: 24,
            descriptors_offset: 40,
            data_offset: 400,
        }
    }

    fn descriptor(flags: u32, values: u16, offset: u32, name: &str) -> Vec<u8> {
        let raw = RawDescriptor {
            flags,
            exponent: 0,
            values,
            offset,
            bucket_size: 0,
        };
        let mut bytes = raw.as_bytes().to_vec();
        bytes.extend(name.as_bytes());
        bytes.resize(size_of::<RawDescriptor>() + NAME_BYTES, 0);
        bytes
    }

    #[test]
    fn counters_are_found_and_other_kinds_left_out() {
        let descriptors = [
            descriptor(0x00, 1, 0, "exits"),
            descriptor(0x01, 1, 8, "guest_mode"),
            descriptor(0x04, 32, 16, "halt_wait_hist"),
            descriptor(0x50, 1, 272, "io_exits"),
        ]
        .concat();
        let header = Header::parse(header(4).as_bytes()).unwrap();
        let layout = Layout::parse(&header, &descriptors).unwrap();
        let names: Vec<_> = layout.counters().iter().map(|c| c.name.as_str()).collect();
        assert_eq!(names, ["exits", "io_exits"]);
        assert_eq!((layout.data_offset(), layout.data_bytes()), (400, 280));
        let mut data = vec![0; 280];
        data[272..].copy_from_slice(&7u64.to_le_bytes());
        assert_eq!(layout.counters()[1].value(&data), 7);
        assert_eq!(layout.counters()[1].value(&data[..275]), 0);
    }

    #[test]
    fn figures_beyond_reason_are_refused() {
        assert_eq!(Header::parse(&[0; 23]).unwrap_err(), LayoutError::Short);
        assert!(Header::parse(header(1 << 20).as_bytes()).is_err());
        let one = Header::parse(header(1).as_bytes()).unwrap();
        assert_eq!(Layout::parse(&one, &[0; 16]), Err(LayoutError::Short));
        let far = descriptor(0, 1, u32::MAX, "far");
        assert!(matches!(
            Layout::parse(&one, &far),
            Err(LayoutError::Data { .. })
        ));
    }

    proptest! {
        #[test]
        fn any_bytes_are_taken_or_refused(
            head in prop::collection::vec(any::<u8>(), 24),
            body in prop::collection::vec(any::<u8>(), 0..4096),
        ) {
            if let Ok(header) = Header::parse(&head)
                && let Ok(layout) = Layout::parse(&header, &body)
            {
                prop_assert!(layout.data_bytes() <= DATA_BYTES_MAX);
            }
        }
    }
}
