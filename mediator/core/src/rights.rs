//! What rights sessions have given each other to their memory, for reports and monitors.

use std::collections::BTreeMap;

use causeway_protocol::Access;
use parking_lot::Mutex;

use crate::gpus::GpuSet;

/// The rights to memory that one session has given to others, and has of others, at one moment.
/// A session without any reaches only memory of its own.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Rights {
    /// What its exports give, by GPU and right: two entries for each GPU of the run at most.
    pub given: Vec<GivenRight>,
    /// What its imports have, by GPU and right.
    pub held: Vec<HeldRight>,
}

/// What exports of a session give to sessions on one GPU.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct GivenRight {
    /// Number of the GPU whose sessions may import the memory.
    pub gpu: u32,
    /// The widest right that they can have.
    pub access: Access,
    /// Number of exports.
    pub exports: u64,
    /// Memory behind them, in bytes. Memory with several exports counts for each.
    pub bytes: u64,
    /// Imports by sessions on this GPU.
    pub imports: u64,
}

/// What a session has of others by its imports.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HeldRight {
    /// Number of the GPU that has the memory.
    pub gpu: u32,
    /// The widest right that the exports give. A session may have asked for less.
    pub access: Access,
    /// Number of imports.
    pub imports: u64,
    /// Memory behind them, in bytes. Memory that is imported several times counts for each.
    pub bytes: u64,
}

/// A party to an export: a session, and the number of its GPU.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Party {
    /// Number by which the exchange knows the session. Numbers of different exchanges are
    /// unrelated.
    pub session: u64,
    /// Number of the session's GPU.
    pub gpu: u32,
}

/// One export, as [`RightsOf`] looks at it.
#[derive(Clone, Copy, Debug)]
pub struct SeenExport {
    /// Who has made it.
    pub owner: Party,
    /// The widest right that it gives.
    pub access: Access,
    /// The GPUs whose sessions can import it.
    pub gpus: GpuSet,
    /// Size of the memory in bytes.
    pub bytes: u64,
}

/// What a session has exported and imported over its life. A leaf lock.
#[derive(Debug, Default)]
pub struct Grants(Mutex<[ByGpu; 2]>);

/// Numbers and bytes, by GPU and right.
type ByGpu = BTreeMap<(u32, Access), [u64; 2]>;

/// What a session has exported and imported so far, by GPU and right.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct GrantReport {
    /// Exports, for each GPU that they were for.
    pub exported: Vec<RightCount>,
    /// Imports, by the GPU that had the memory.
    pub imported: Vec<RightCount>,
}

/// How many exports or imports there were with one right for, or of, one GPU.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RightCount {
    /// Number of the GPU.
    pub gpu: u32,
    /// The widest right of the exports.
    pub access: Access,
    /// Number of exports or imports.
    pub count: u64,
    /// Their memory in bytes, added up.
    pub bytes: u64,
}

impl Grants {
    /// Counts an export.
    pub fn export(&self, gpus: GpuSet, access: Access, bytes: u64) {
        let [exported, _] = &mut *self.0.lock();
        gpus.iter()
            .for_each(|gpu| count(exported, (gpu, access), bytes));
    }

    /// Counts an import of memory that GPU number `gpu` has.
    pub fn import(&self, gpu: u32, access: Access, bytes: u64) {
        let [_, imported] = &mut *self.0.lock();
        count(imported, (gpu, access), bytes);
    }

    /// Returns what was counted.
    pub fn report(&self) -> GrantReport {
        let [exported, imported] = self.0.lock().clone().map(counts);
        GrantReport { exported, imported }
    }
}

fn count(counts: &mut ByGpu, of: (u32, Access), bytes: u64) {
    let [number, all] = counts.entry(of).or_default();
    *number += 1;
    *all = all.saturating_add(bytes);
}

fn counts(counts: ByGpu) -> Vec<RightCount> {
    let counts = counts.into_iter();
    let counts = counts.map(|((gpu, access), [count, bytes])| RightCount {
        gpu,
        access,
        count,
        bytes,
    });
    counts.collect()
}

/// Adds up the rights of one session while an exchange goes through its exports.
#[derive(Debug)]
pub struct RightsOf {
    session: u64,
    /// Exports, bytes and imports, by GPU and right.
    given: BTreeMap<(u32, Access), [u64; 3]>,
    held: ByGpu,
}

impl RightsOf {
    /// Begins to add up the rights of session number `session`.
    pub fn new(session: u64) -> Self {
        Self {
            session,
            given: BTreeMap::new(),
            held: BTreeMap::new(),
        }
    }

    /// Adds an export, which `importers` have imported: one entry for each import.
    pub fn add(&mut self, export: SeenExport, importers: impl Iterator<Item = Party>) {
        let SeenExport {
            owner,
            access,
            gpus,
            bytes,
        } = export;
        let is_own = owner.session == self.session;
        if is_own {
            for gpu in gpus.iter() {
                let [exports, all, _] = self.given.entry((gpu, access)).or_default();
                *exports += 1;
                *all = all.saturating_add(bytes);
            }
        }
        for importer in importers {
            if is_own && let Some([.., imports]) = self.given.get_mut(&(importer.gpu, access)) {
                *imports += 1;
            }
            if importer.session == self.session {
                count(&mut self.held, (owner.gpu, access), bytes);
            }
        }
    }

    /// Returns the rights.
    pub fn rights(self) -> Rights {
        let given = self.given.into_iter();
        let given = given.map(|((gpu, access), [exports, bytes, imports])| GivenRight {
            gpu,
            access,
            exports,
            bytes,
            imports,
        });
        let held = self.held.into_iter();
        let held = held.map(|((gpu, access), [imports, bytes])| HeldRight {
            gpu,
            access,
            imports,
            bytes,
        });
        Rights {
            given: given.collect(),
            held: held.collect(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_exported_and_imported_stays_counted() {
        let grants = Grants::default();
        grants.export(GpuSet::from_bits(0b101), Access::Read, 10);
        grants.export(GpuSet::only(2), Access::Read, 20);
        grants.import(5, Access::ReadWrite, 30);
        let of = |gpu, access, count, bytes| RightCount {
            gpu,
            access,
            count,
            bytes,
        };
        let report = GrantReport {
            exported: vec![of(0, Access::Read, 1, 10), of(2, Access::Read, 2, 30)],
            imported: vec![of(5, Access::ReadWrite, 1, 30)],
        };
        assert_eq!(grants.report(), report);
    }

    #[test]
    fn rights_are_added_up_by_gpu_and_access() {
        let party = |session, gpu| Party { session, gpu };
        let export = |owner, access, gpus, bytes| SeenExport {
            owner,
            access,
            gpus: GpuSet::from_bits(gpus),
            bytes,
        };
        let (one, other) = (party(1, 0), party(2, 3));
        let of = |session| {
            let mut rights = RightsOf::new(session);
            let both = [other, other].into_iter();
            rights.add(export(one, Access::ReadWrite, 0b1001, 4096), both);
            rights.add(export(one, Access::ReadWrite, 0b1000, 100), [].into_iter());
            rights.add(export(one, Access::Read, 0b1, 7), [one].into_iter());
            rights.add(
                export(other, Access::Read, 0b1, u64::MAX),
                [one].into_iter(),
            );
            rights.rights()
        };
        let given = |gpu, access, exports, bytes, imports| GivenRight {
            gpu,
            access,
            exports,
            bytes,
            imports,
        };
        let held = |gpu, access, imports, bytes| HeldRight {
            gpu,
            access,
            imports,
            bytes,
        };
        assert_eq!(
            of(1).given,
            [
                given(0, Access::Read, 1, 7, 1),
                given(0, Access::ReadWrite, 1, 4096, 0),
                given(3, Access::ReadWrite, 2, 4196, 2),
            ]
        );
        let imported = [
            held(0, Access::Read, 1, 7),
            held(3, Access::Read, 1, u64::MAX),
        ];
        assert_eq!(of(1).held, imported);
        assert_eq!(of(2).given, [given(0, Access::Read, 1, u64::MAX, 1)]);
        assert_eq!(of(2).held, [held(0, Access::ReadWrite, 2, 8192)]);
        assert_eq!(of(3), Rights::default());
    }
}
