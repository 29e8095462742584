//! Attributes of launches (`CUlaunchAttributeID`).

use causeway_protocol::packet::{LaunchOptions, launch_flags};

use crate::boundary::In;
use crate::error::{Answer, Code};
use crate::structures::{LaunchAttribute, LaunchConfiguration};

/// Attributes of a launch, at most: there are some 20.
const ATTRIBUTES_MAX: u32 = 256;

/// Numbers of `CUlaunchAttributeID`.
mod id {
    /// Attributes that only help a device to be fast: `IGNORE`, access policy window, policy for
    /// scheduling clusters, programmatic stream serialization, priority, two of memory
    /// synchronization domains, preferred cluster dimension, preferred shared memory carveout, and
    /// scheduling for links between devices.
    pub(super) const HINTS: [u32; 10] = [0, 1, 5, 6, 8, 9, 10, 11, 14, 16];
    /// That of streams: launches have none.
    pub(super) const POLICY: u32 = 3;
    pub(super) const CLUSTER_POLICY: u32 = 5;
    /// The last one of CUDA 13.
    pub(super) const LAST: u32 = 18;
    pub(super) const COOPERATIVE: u32 = 2;
    pub(super) const CLUSTER: u32 = 4;
}

/// Reads the attributes of a launch. Events that a launch records are not supported.
pub(crate) fn read(given: &LaunchConfiguration) -> Answer<LaunchOptions> {
    let mut read = LaunchOptions::PLAIN;
    if given.attributes_count > ATTRIBUTES_MAX {
        return Err(Code::INVALID_VALUE);
    }
    let attributes = In::<LaunchAttribute>::at(given.attributes);
    for index in 0..given.attributes_count as usize {
        let LaunchAttribute { kind, value, .. } = attributes.get_at(index)?;
        match kind {
            id::COOPERATIVE if value[0] != 0 => read.flags |= launch_flags::COOPERATIVE,
            id::COOPERATIVE => read.flags &= !launch_flags::COOPERATIVE,
            id::CLUSTER => read.cluster = cluster_of(value)?,
            id::POLICY => return Err(Code::INVALID_VALUE),
            id::CLUSTER_POLICY if value[0] > 2 => return Err(Code::INVALID_VALUE),
            unknown if unknown > id::LAST => return Err(Code::INVALID_VALUE),
            hint if id::HINTS.contains(&hint) => {}
            _ => return Err(Code::NOT_SUPPORTED),
        }
    }
    Ok(read)
}

/// Returns the blocks of a cluster in x, y and z: all or none of them are 0.
fn cluster_of(value: [u32; 16]) -> Answer<[u32; 3]> {
    let cluster = [value[0], value[1], value[2]];
    match cluster == [0; 3] || !cluster.contains(&0) {
        true => Ok(cluster),
        false => Err(Code::INVALID_CLUSTER_SIZE),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn reading(attributes: &[(u32, [u32; 3])]) -> Answer<LaunchOptions> {
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
        let none = LaunchOptions::PLAIN;
        let cooperative = LaunchOptions {
            flags: launch_flags::COOPERATIVE,
            ..none
        };
        assert_eq!(reading(&[]), Ok(none));
        assert_eq!(reading(&[(6, [1, 0, 0]), (8, [5, 0, 0])]), Ok(none));
        assert_eq!(reading(&[(0, [9; 3]), (2, [1, 0, 0])]), Ok(cooperative));
        assert_eq!(reading(&[(2, [0; 3])]), Ok(none));
        let cluster = [1, 1, 1];
        assert_eq!(
            reading(&[(4, cluster)]),
            Ok(LaunchOptions { cluster, ..none })
        );
        assert_eq!(reading(&[(4, [0; 3])]), Ok(none));
        assert_eq!(reading(&[(4, [1, 0, 1])]), Err(Code::INVALID_CLUSTER_SIZE));
        for known in [7, 12, 13] {
            assert_eq!(reading(&[(known, [0; 3])]), Err(Code::NOT_SUPPORTED));
        }
        for wrong in [(3, [1; 3]), (5, [9; 3]), (999, [0; 3])] {
            assert_eq!(reading(&[wrong]), Err(Code::INVALID_VALUE));
        }
    }
}
