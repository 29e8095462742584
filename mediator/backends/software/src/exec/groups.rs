//! Groups of lanes: those of a warp that are at the same place together.

use crate::registers::FrameBytes;

/// What a group waits for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum State {
    /// Nothing.
    Ready,
    /// Other lanes, at an operation across lanes.
    Converging,
    /// The completion of a barrier of the block that was in this generation.
    Barrier { id: u32, generation: u64 },
}

/// Lanes of a warp that are at the same place.
#[derive(Clone, Copy, Debug)]
pub(super) struct Group {
    /// The lanes, as a mask.
    pub(super) mask: u32,
    /// Position of the next operation.
    pub(super) pc: u32,
    /// Frame of the function in which the lanes are.
    pub(super) frame: FrameBytes,
    /// What the lanes wait for.
    pub(super) state: State,
    /// Number of slices used up. Groups with fewer run first, so that lanes which spin let others
    /// run.
    pub(super) slices: u32,
}

impl Group {
    /// Returns whether both groups are at the same place, so that their lanes can be one group.
    pub(super) fn meets(&self, other: &Self) -> bool {
        self.pc == other.pc && self.frame == other.frame && self.state == other.state
    }

    /// Returns a key by which groups are ordered; the group with the least key runs first. It has
    /// used the fewest slices, then is in the deepest call, then at the lowest position.
    pub(super) fn order(&self) -> (u32, std::cmp::Reverse<u32>, u32) {
        (
            self.slices,
            std::cmp::Reverse(self.frame.registers),
            self.pc,
        )
    }

    /// Returns whether the group `running` must stop, because `self` runs before it or joins it.
    pub(super) fn goes_before(&self, running: &Self) -> bool {
        self.state == State::Ready && (self.order() < running.order() || self.meets(running))
    }
}

/// The groups of a warp that are not running.
#[derive(Debug)]
pub(super) struct Groups {
    /// The groups, in no order.
    pub(super) waiting: Vec<Group>,
    /// Lanes of the warp that have not ended.
    pub(super) running: u32,
}

impl Groups {
    /// Leaves those lanes of a running group behind, one operation further, that are not in `mask`.
    pub(super) fn split(&mut self, group: &mut Group, mask: u32) {
        self.leave(group, mask, group.pc + 1);
    }

    /// Leaves those lanes of a running group behind, where they are, that are not in `mask`.
    pub(super) fn leave_others(&mut self, group: &mut Group, mask: u32) {
        self.leave(group, mask, group.pc);
    }

    fn leave(&mut self, group: &mut Group, mask: u32, pc: u32) {
        if mask != group.mask {
            self.waiting.push(Group {
                mask: group.mask & !mask,
                pc,
                ..*group
            });
            group.mask = mask;
        }
    }
}

/// Takes the lanes of every group that meets `group` out of `groups` and adds them to it.
pub(super) fn merge(groups: &mut Vec<Group>, group: &mut Group) {
    groups.retain(|other| {
        let meets = other.meets(group);
        if meets {
            group.mask |= other.mask;
            group.slices = group.slices.min(other.slices);
        }
        !meets
    });
}

#[cfg(test)]
mod tests {
    use super::*;

    fn group(mask: u32, pc: u32, depth: u32, slices: u32) -> Group {
        Group {
            mask,
            pc,
            frame: FrameBytes {
                registers: depth,
                local: 0,
            },
            state: State::Ready,
            slices,
        }
    }

    #[test]
    fn behind_and_deep_go_first_until_their_slice_is_used_up() {
        let running = group(1, 10, 0, 0);
        assert!(group(2, 9, 0, 0).goes_before(&running));
        assert!(group(2, 10, 0, 5).goes_before(&running), "they meet");
        assert!(!group(2, 11, 0, 0).goes_before(&running));
        assert!(group(2, 99, 128, 0).goes_before(&running), "in a call");
        assert!(!group(2, 9, 0, 1).goes_before(&running), "it has spun");
        let waiting = Group {
            state: State::Converging,
            ..group(2, 9, 0, 0)
        };
        assert!(!waiting.goes_before(&running));
    }

    #[test]
    fn groups_at_one_place_become_one() {
        let mut groups = vec![group(2, 7, 0, 1), group(4, 8, 0, 0), group(8, 7, 128, 0)];
        let mut first = group(1, 7, 0, 3);
        merge(&mut groups, &mut first);
        assert_eq!((first.mask, first.slices, groups.len()), (3, 1, 2));
    }
}
