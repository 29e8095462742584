//! The limits of a session, and what the session uses of each resource.
//!
//! To add a limit, add a line to the table below, and charge for the resource where it is taken
//! ([`Account::charge`]). A key of `--gpu` is a line in `vmm/run/src/gpu.rs`, one of
//! `causeway limit` a line in `vmm/stat/publisher/src/limits/keys.rs`.

mod change;

use std::ops::RangeInclusive;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use causeway_protocol::message::Status;

use crate::arbiter::Compute;
use crate::refusal::Refusal;
pub use change::LimitError;

macro_rules! limits {
    ($(
        $(#[doc = $doc:literal])+
        $limit:ident: $resource:ident = $default:expr, $status:ident;
    )*) => {
        /// The most that one session may use of each resource. A request of the guest that exceeds
        /// a limit fails.
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        pub struct Quota {
            $($(#[doc = $doc])+ pub $limit: u64,)*
            /// The session's part of the device's time. It is no limit on requests.
            pub compute: Compute,
        }

        /// A change of some limits of a session. What is `None` stays as it is.
        #[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
        pub struct LimitChange {
            $($(#[doc = $doc])+ pub $limit: Option<u64>,)*
            /// A new [`Compute::weight`]; `Some(None)` takes the weight away.
            pub weight: Option<Option<u32>>,
            /// A new [`Compute::share_percent`]; `Some(None)` takes the cap away.
            pub share_percent: Option<Option<u32>>,
        }

        impl LimitChange {
            /// Returns the change to `quota`, which leaves weight and cap as they are.
            pub fn to(quota: &Quota) -> Self {
                Self {
                    $($limit: Some(quota.$limit),)*
                    weight: None,
                    share_percent: None,
                }
            }

            /// Returns the new values of limits, in the order of the fields of [`Quota`].
            fn limits(&self) -> [Option<u64>; Quota::LIMITS] {
                [$(self.$limit),*]
            }
        }

        /// What is limited.
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        pub(crate) enum Resource {
            $($resource,)*
        }

        impl Quota {
            /// The limits of a session for which the user has chosen no others.
            pub const DEFAULT: Self = Self {
                $($limit: $default,)*
                compute: Compute::DEFAULT,
            };
            /// Number of limits in a quota.
            pub const LIMITS: usize = [$(stringify!($limit)),*].len();

            /// Makes a quota from the values of all limits, in the order of the fields of
            /// [`Quota`], with the default part of the device's time.
            pub fn from_limits(limits: [u64; Self::LIMITS]) -> Self {
                let [$($limit),*] = limits;
                Self {
                    $($limit,)*
                    compute: Compute::DEFAULT,
                }
            }

            /// Returns the values of all limits, in the order of the fields of [`Quota`].
            pub fn limits(&self) -> [u64; Self::LIMITS] {
                [$(self.$limit),*]
            }
        }

        impl Resource {
            /// Returns the status of a request that asks for more than the limit.
            fn status(self) -> Status {
                match self { $(Self::$resource => Status::$status,)* }
            }
        }
    };
}

limits! {
    /// GPU memory in bytes, that of arrays included, with what launches take of the host's memory
    /// while they are executed. Freed memory and arrays count until the last work, recording or
    /// texture that uses them has ended. What a back end fills an array from while it creates it is
    /// in no quota: a session creates one array at a time.
    memory_bytes: MemoryBytes = 1 << 30, QuotaBytes;
    /// Images of loaded modules, and 16 times the packets of recordings, in bytes. An image is
    /// copied when it is loaded. What a load needs while it is under way is in no quota: the loads
    /// of all sessions wait until together they need little enough.
    module_bytes: ModuleBytes = 1 << 30, QuotaBytes;
    /// Allocations, arrays, imports, registered ranges of guest RAM, and modules for whose
    /// variables, heap or machine code the back end makes an object of the host's memory.
    allocations: Allocations = 4096, QuotaAllocations;
    /// Command buffers, each of which has a thread on the host.
    command_buffers: CommandBuffers = 64, QuotaCommandBuffers;
    /// Address spaces, mappings, modules, functions, recordings, exports, arrays, textures and
    /// surfaces, counted together.
    objects: Objects = 8192, QuotaObjects;
    /// Registered guest RAM in bytes. Registration takes no memory, but host addresses, of which a
    /// process has 128 TiB for all its sessions.
    registered_bytes: RegisteredBytes = 1 << 40, QuotaBytes;
    /// Time that a kernel, a copy or a replay may take by the clock, in milliseconds, or a little
    /// longer; [`Quota::UNLIMITED`] is no limit. Longer work loses the session. On back ends whose
    /// work runs behind, somebody else has to watch: see [`Pulse`](crate::backend::Pulse).
    work_ms: WorkMs = Self::UNLIMITED, Overdue;
    /// Control messages in each second. More wait, after a tenth of a second's worth at once; the
    /// largest number is no limit.
    requests: Requests = Self::UNLIMITED, Busy;
}

impl Default for Quota {
    fn default() -> Self {
        Self::DEFAULT
    }
}

impl Quota {
    /// What users may choose for [`Self::memory_bytes`], in MiB.
    pub const MEMORY_MIB: RangeInclusive<u64> = 1..=1 << 20;
    /// What users may choose for [`Self::allocations`].
    pub const ALLOCATIONS: RangeInclusive<u32> = 1..=1 << 16;
    /// What users may choose for [`Self::command_buffers`].
    pub const COMMAND_BUFFERS: RangeInclusive<u32> = 1..=256;
    /// What users may choose for [`Self::work_ms`].
    pub const WORK_MS: RangeInclusive<u32> = 10..=3_600_000;
    /// What users may choose for [`Self::requests`].
    pub const REQUESTS: RangeInclusive<u32> = 1..=1_000_000;
    /// [`Self::work_ms`] and [`Self::requests`] without a limit.
    pub const UNLIMITED: u64 = u64::MAX;
}

/// The limits of a session at present. They change while other threads read them, each for itself:
/// a reader may see the new value of one limit and the old value of another.
#[derive(Debug)]
pub struct LiveLimits([AtomicU64; Quota::LIMITS]);

impl LiveLimits {
    /// Returns the limits `quota`, without its part of the device's time.
    pub fn new(quota: &Quota) -> Self {
        Self(quota.limits().map(AtomicU64::new))
    }

    /// Returns the present limits, with the default part of the device's time.
    pub fn quota(&self) -> Quota {
        let limits = self.0.each_ref();
        Quota::from_limits(limits.map(|limit| limit.load(Ordering::Relaxed)))
    }

    /// Makes `change`, but for weight and cap.
    pub fn change(&self, change: &LimitChange) {
        for (limit, wanted) in self.0.iter().zip(change.limits()) {
            if let Some(wanted) = wanted {
                limit.store(wanted, Ordering::Relaxed);
            }
        }
    }

    fn get(&self, resource: Resource) -> u64 {
        self.0[resource as usize].load(Ordering::Relaxed)
    }
}

/// What a session may use and what it uses. Charges share it, and may outlive the session.
#[derive(Debug)]
pub(crate) struct Account {
    limits: LiveLimits,
    used: [AtomicU64; Quota::LIMITS],
    peak_memory_bytes: AtomicU64,
}

impl Account {
    pub fn new(quota: Quota) -> Arc<Self> {
        Arc::new(Self {
            limits: LiveLimits::new(&quota),
            used: Default::default(),
            peak_memory_bytes: AtomicU64::new(0),
        })
    }

    /// Returns the present limits, with the default part of the device's time.
    pub fn quota(&self) -> Quota {
        self.limits.quota()
    }

    /// Makes `change`, but for weight and cap. A limit below what is in use takes nothing away:
    /// further charges fail until enough was given back.
    pub fn change(&self, change: &LimitChange) {
        self.limits.change(change);
    }

    pub fn used(&self, resource: Resource) -> u64 {
        self.used[resource as usize].load(Ordering::Acquire)
    }

    /// Returns the largest amount of GPU memory that the session has used at any one time, in
    /// bytes.
    pub fn peak_memory_bytes(&self) -> u64 {
        self.peak_memory_bytes.load(Ordering::Relaxed)
    }

    /// Counts `amount` of `resource` as used by the session until the returned charge is dropped.
    /// Fails with the status of the limit if the session would then use more than its quota allows.
    pub fn charge(self: &Arc<Self>, resource: Resource, amount: u64) -> Result<Charge, Refusal> {
        let mut charge = Charge::nothing(self, resource);
        charge.grow(amount)?;
        Ok(charge)
    }

    /// Returns the limit of `resource`.
    pub fn limit(&self, resource: Resource) -> u64 {
        self.limits.get(resource)
    }

    /// Counts `amount` of `resource` as used.
    fn take(&self, resource: Resource, amount: u64) -> Result<(), Refusal> {
        let limit = self.limit(resource);
        let used = &self.used[resource as usize];
        let taken = used.fetch_update(Ordering::AcqRel, Ordering::Acquire, |used| {
            // Nothing is granted also to a session beyond a limit that was lowered.
            let is_granted = |sum: &u64| *sum <= limit || amount == 0;
            used.checked_add(amount).filter(is_granted)
        });
        let before = taken.map_err(|used| refusal(resource, limit, used))?;
        if resource == Resource::MemoryBytes {
            self.peak_memory_bytes
                .fetch_max(before + amount, Ordering::Relaxed);
        }
        Ok(())
    }

    fn give_back(&self, resource: Resource, amount: u64) {
        self.used[resource as usize].fetch_sub(amount, Ordering::AcqRel);
    }
}

/// Returns the refusal of a request beyond `limit`. Its detail is the free memory in MiB, or the
/// limit.
fn refusal(resource: Resource, limit: u64, used: u64) -> Refusal {
    let status = resource.status();
    let detail = match status {
        Status::QuotaBytes => limit.saturating_sub(used) >> 20,
        _ => limit,
    };
    Refusal::with(status, u32::try_from(detail).unwrap_or(u32::MAX))
}

/// A part of what a session uses. Dropping it gives the part back.
#[derive(Debug)]
pub(crate) struct Charge {
    account: Arc<Account>,
    resource: Resource,
    amount: u64,
}

impl Charge {
    /// Returns a charge that counts nothing yet.
    pub fn nothing(account: &Arc<Account>, resource: Resource) -> Self {
        Self {
            account: Arc::clone(account),
            resource,
            amount: 0,
        }
    }

    /// Returns how much of the limit neither this charge nor another one counts.
    pub fn left(&self) -> u64 {
        let used = self.account.used(self.resource);
        self.limit().saturating_sub(used)
    }

    /// Returns the session's limit of the resource.
    pub fn limit(&self) -> u64 {
        self.account.limit(self.resource)
    }

    /// Counts `amount` more. Fails as [`Account::charge`] does; the charge then keeps its amount.
    pub fn grow(&mut self, amount: u64) -> Result<(), Refusal> {
        self.account.take(self.resource, amount)?;
        self.amount += amount;
        Ok(())
    }

    /// Counts `amount` instead of what the charge counts now. Fails as [`Self::grow`] does.
    pub fn resize(&mut self, amount: u64) -> Result<(), Refusal> {
        match amount.checked_sub(self.amount) {
            Some(more) => self.grow(more),
            None => {
                self.account.give_back(self.resource, self.amount - amount);
                self.amount = amount;
                Ok(())
            }
        }
    }
}

impl Drop for Charge {
    fn drop(&mut self) {
        self.account.give_back(self.resource, self.amount);
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
    fn a_charge_grows_within_the_limit_and_shrinks() {
        let account = Account::new(Quota {
            allocations: 10,
            ..Quota::default()
        });
        let mut charge = Charge::nothing(&account, Resource::Allocations);
        charge.grow(4).unwrap();
        charge.resize(9).unwrap();
        assert_eq!((charge.left(), charge.limit()), (1, 10));
        assert!(charge.grow(2).is_err() && charge.resize(11).is_err());
        assert_eq!(account.used(Resource::Allocations), 9);
        charge.resize(3).unwrap();
        assert_eq!(account.used(Resource::Allocations), 3);
        drop(charge);
        assert_eq!(account.used(Resource::Allocations), 0);
    }

    #[test]
    fn a_lowered_limit_takes_nothing_away_and_refuses_until_enough_is_free() {
        let account = Account::new(Quota {
            allocations: 4,
            ..Quota::default()
        });
        let mut charge = account.charge(Resource::Allocations, 3).unwrap();
        let to = |allocations| LimitChange {
            allocations: Some(allocations),
            ..LimitChange::default()
        };
        account.change(&to(2));
        assert_eq!(account.used(Resource::Allocations), 3);
        let refused = account.charge(Resource::Allocations, 1).unwrap_err();
        assert_eq!(refused, Refusal::with(Status::QuotaAllocations, 2));
        assert_eq!((charge.left(), charge.limit()), (0, 2));
        charge.resize(3).unwrap();
        charge.resize(1).unwrap();
        drop(account.charge(Resource::Allocations, 1).unwrap());
        account.change(&to(5));
        charge.grow(4).unwrap();
        let other_limits = Quota {
            allocations: 5,
            ..Quota::default()
        };
        assert_eq!(account.quota(), other_limits, "others stay as they are");
    }

    #[test]
    fn a_change_to_a_quota_sets_all_its_limits() {
        let live = LiveLimits::new(&Quota::default());
        let wanted = Quota::from_limits(std::array::from_fn(|i| i as u64 + 1));
        live.change(&LimitChange::to(&wanted));
        assert_eq!(live.quota(), wanted);
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
