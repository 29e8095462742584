//! What a session may have, and what it has.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use causeway_protocol::message::Status;

use crate::refusal::Refusal;

/// Limits of one session. A guest cannot get past them, whatever it does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Quota {
    /// GPU memory in bytes. Memory counts until nobody uses it any more, work under way included.
    pub memory_bytes: u64,
    /// Module images loaded at a time, in bytes.
    pub module_bytes: u64,
    /// Allocations, imports and registered ranges of guest RAM.
    pub allocations: u32,
    /// Command buffers; each has a thread.
    pub command_buffers: u32,
    /// Address spaces, mappings, modules, functions and exports, together.
    pub objects: u32,
}

impl Default for Quota {
    fn default() -> Self {
        Self {
            memory_bytes: 1 << 30,
            module_bytes: 64 << 20,
            allocations: 4096,
            command_buffers: 16,
            objects: 8192,
        }
    }
}

/// Guest RAM that a session may register, in bytes. Registering costs no memory but host addresses, of
/// which a process has 128 TiB for all its sessions.
const REGISTERED_BYTES_MAX: u64 = 1 << 40;

/// What is counted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Resource {
    MemoryBytes,
    ModuleBytes,
    Allocations,
    CommandBuffers,
    Objects,
    RegisteredBytes,
}

/// What a session has. Charges hold on to it, and may outlive the session.
#[derive(Debug)]
pub(crate) struct Account {
    quota: Quota,
    used: [AtomicU64; 6],
    peak_memory_bytes: AtomicU64,
}

impl Account {
    pub fn new(quota: Quota) -> Arc<Self> {
        Arc::new(Self {
            quota,
            used: Default::default(),
            peak_memory_bytes: AtomicU64::new(0),
        })
    }

    pub fn quota(&self) -> &Quota {
        &self.quota
    }

    pub fn used(&self, resource: Resource) -> u64 {
        self.used[resource as usize].load(Ordering::Acquire)
    }

    /// The most GPU memory there ever was, in bytes.
    pub fn peak_memory_bytes(&self) -> u64 {
        self.peak_memory_bytes.load(Ordering::Relaxed)
    }

    /// Takes `amount` of `resource` until the charge is dropped.
    pub fn charge(self: &Arc<Self>, resource: Resource, amount: u64) -> Result<Charge, Refusal> {
        let limit = self.limit(resource);
        let used = &self.used[resource as usize];
        let taken = used.fetch_update(Ordering::AcqRel, Ordering::Acquire, |used| {
            used.checked_add(amount).filter(|sum| *sum <= limit)
        });
        match taken {
            Ok(before) => {
                if resource == Resource::MemoryBytes {
                    self.peak_memory_bytes
                        .fetch_max(before + amount, Ordering::Relaxed);
                }
                Ok(Charge {
                    account: Arc::clone(self),
                    resource,
                    amount,
                })
            }
            Err(used) => Err(self.refusal(resource, limit, used)),
        }
    }

    fn limit(&self, resource: Resource) -> u64 {
        match resource {
            Resource::MemoryBytes => self.quota.memory_bytes,
            Resource::ModuleBytes => self.quota.module_bytes,
            Resource::Allocations => u64::from(self.quota.allocations),
            Resource::CommandBuffers => u64::from(self.quota.command_buffers),
            Resource::Objects => u64::from(self.quota.objects),
            Resource::RegisteredBytes => REGISTERED_BYTES_MAX,
        }
    }

    fn refusal(&self, resource: Resource, limit: u64, used: u64) -> Refusal {
        let free_mib = u32::try_from((limit - used.min(limit)) >> 20).unwrap_or(u32::MAX);
        let limit = u32::try_from(limit).unwrap_or(u32::MAX);
        match resource {
            Resource::MemoryBytes | Resource::ModuleBytes | Resource::RegisteredBytes => {
                Refusal::with(Status::QuotaBytes, free_mib)
            }
            Resource::Allocations => Refusal::with(Status::QuotaAllocations, limit),
            Resource::CommandBuffers => Refusal::with(Status::QuotaCommandBuffers, limit),
            Resource::Objects => Refusal::with(Status::QuotaObjects, limit),
        }
    }
}

/// A part of an account, given back when dropped.
#[derive(Debug)]
pub(crate) struct Charge {
    account: Arc<Account>,
    resource: Resource,
    amount: u64,
}

impl Drop for Charge {
    fn drop(&mut self) {
        self.account.used[self.resource as usize].fetch_sub(self.amount, Ordering::AcqRel);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_charge_is_refused_beyond_the_limit_and_given_back_on_drop() {
        let account = Account::new(Quota {
            memory_bytes: 3 << 20,
            allocations: 1,
            ..Quota::default()
        });
        let first = account.charge(Resource::MemoryBytes, 2 << 20).unwrap();
        let refused = account.charge(Resource::MemoryBytes, 2 << 20).unwrap_err();
        assert_eq!(refused, Refusal::with(Status::QuotaBytes, 1));
        drop(first);
        let _all = account.charge(Resource::MemoryBytes, 3 << 20).unwrap();
        assert_eq!(account.peak_memory_bytes(), 3 << 20);
        let _one = account.charge(Resource::Allocations, 1).unwrap();
        assert_eq!(
            account.charge(Resource::Allocations, 1).unwrap_err(),
            Refusal::with(Status::QuotaAllocations, 1)
        );
    }

    #[test]
    fn an_amount_that_overflows_is_refused() {
        let account = Account::new(Quota {
            memory_bytes: u64::MAX,
            ..Quota::default()
        });
        let _one = account.charge(Resource::MemoryBytes, 1).unwrap();
        assert!(account.charge(Resource::MemoryBytes, u64::MAX).is_err());
    }
}
