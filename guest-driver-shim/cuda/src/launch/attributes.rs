//! Attributes of launches (`CUlaunchAttributeID`).

use crate::boundary::In;
use crate::error::{Answer, Code};
use crate::structures::{LaunchAttribute, LaunchConfiguration};

/// Attributes of a launch, at most: there are some 20.
const ATTRIBUTES_MAX: u32 = 256;

/// Blocks of a cluster, at most, as on an H200 with non-portable sizes.
const CLUSTER_BLOCKS_MAX: u64 = 16;

/// Numbers of `CUlaunchAttributeID`.
mod id {
    /// Attributes that only help a device to be fast: `IGNORE`, access policy window, policy for scheduling clusters, programmatic stream serialization,
    /// priority, two of memory synchronization domains, preferred cluster dimension, preferred
    /// shared memory carveout, and scheduling for links between devices.
    pub(super) const HINTS: [u32; 10] = [0, 1, 5, 6, 8, 9, 10, 11, 14, 16];
    /// That of streams: launches have none.
    pub(super) const POLICY: u32 = 3;
    pub(super) const CLUSTER_POLICY: u32 = 5;
    /// The last one of CUDA 13.
    pub(super) const LAST: u32 = 18;
    pub(super) const COOPERATIVE: u32 = 2;
    pub(super) const CLUSTER: u32 = 4;
}

/// What the attributes of a launch ask for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Attributes {
    pub(crate) is_cooperative: bool,
}

/// Reads the attributes of a launch. A cluster of more than one block, and events that a launch
/// records, are not supported.
pub(crate) fn read(given: &LaunchConfiguration) -> Answer<Attributes> {
    let mut read = Attributes::default();
    if given.attributes_count > ATTRIBUTES_MAX {
        return Err(Code::INVALID_VALUE);
    }
    let attributes = In::<LaunchAttribute>::at(given.attributes);
    for index in 0..given.attributes_count as usize {
        let LaunchAttribute { kind, value, .. } = attributes.get_at(index)?;
        match kind {
            id::COOPERATIVE => read.is_cooperative = value[0] != 0,
            id::CLUSTER if value[..3] == [1; 3] => {}
            id::CLUSTER => check_cluster(given.grid, value)?,
            id::POLICY => return Err(Code::INVALID_VALUE),
            id::CLUSTER_POLICY if value[0] > 2 => return Err(Code::INVALID_VALUE),
            unknown if unknown > id::LAST => return Err(Code::INVALID_VALUE),
            hint if id::HINTS.contains(&hint) => {}
            _ => return Err(Code::NOT_SUPPORTED),
        }
    }
    Ok(read)
}

/// Refuses a cluster, by what is wrong with it.
fn check_cluster(grid: [u32; 3], value: [u32; 16]) -> Answer {
    let sides = &value[..3];
    let blocks = sides.iter().map(|side| u64::from(*side)).product::<u64>();
    let divides = sides
        .iter()
        .zip(grid)
        .all(|(side, blocks)| blocks.checked_rem(*side) == Some(0));
    match divides && blocks <= CLUSTER_BLOCKS_MAX {
        true => Err(Code::NOT_SUPPORTED),
        false => Err(Code::INVALID_CLUSTER_SIZE),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn reading(attributes: &[(u32, [u32; 3])]) -> Answer<Attributes> {
        let attributes: Vec<LaunchAttribute> = attributes
            .iter()
            .map(|(kind, first)| {
                let mut value = [0; 16];
                value[..3].copy_from_slice(first);
                LaunchAttribute {
                    kind: *kind,
                    padding: 0,
                    value,
                }
            })
            .collect();
        read(&LaunchConfiguration {
            grid: [1; 3],
            block: [1; 3],
            shared_bytes: 0,
            padding: 0,
            stream: 0,
            attributes: attributes.as_ptr() as usize,
            attributes_count: attributes.len() as u32,
            padding_behind: 0,
        })
    }

    #[test]
    fn hints_change_nothing_and_the_rest_is_refused() {
        let none = Attributes::default();
        let cooperative = Attributes {
            is_cooperative: true,
        };
        assert_eq!(reading(&[]), Ok(none));
        assert_eq!(
            reading(&[(6, [1, 0, 0]), (8, [5, 0, 0]), (4, [1; 3])]),
            Ok(none)
        );
        assert_eq!(reading(&[(0, [9; 3]), (2, [1, 0, 0])]), Ok(cooperative));
        assert_eq!(reading(&[(2, [0; 3])]), Ok(none));
        for cluster in [[2, 1, 1], [1, 0, 1], [64, 1, 1]] {
            assert_eq!(reading(&[(4, cluster)]), Err(Code::INVALID_CLUSTER_SIZE));
        }
        assert_eq!(check_cluster([4; 3], [2; 16]), Err(Code::NOT_SUPPORTED));
        for known in [7, 12, 13] {
            assert_eq!(reading(&[(known, [0; 3])]), Err(Code::NOT_SUPPORTED));
        }
        for wrong in [(3, [1; 3]), (5, [9; 3]), (999, [0; 3])] {
            assert_eq!(reading(&[wrong]), Err(Code::INVALID_VALUE));
        }
    }
}
