//! The keys `weight=` and `share=` of `--gpu`: how much of the device's time each VM gets.

use causeway_backend_options::{OptionError, Value};
use causeway_mediator::Compute;

/// What was typed: a number for each VM, in order. The last one stands for the VMs that follow.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct ComputeLists {
    weights: Vec<u32>,
    shares_percent: Vec<u32>,
}

impl ComputeLists {
    pub fn set_weights(&mut self, value: Value<'_>) -> Result<(), OptionError> {
        self.weights = value.numbers(Compute::WEIGHTS)?;
        Ok(())
    }

    pub fn set_shares(&mut self, value: Value<'_>) -> Result<(), OptionError> {
        self.shares_percent = value.numbers(Compute::SHARES_PERCENT)?;
        Ok(())
    }

    /// Returns whether the user has typed neither key.
    pub fn is_empty(&self) -> bool {
        self.weights.is_empty() && self.shares_percent.is_empty()
    }

    /// Returns what the VM number `vm` gets, counted from 0.
    pub fn of(&self, vm: u32) -> Compute {
        let pick = |list: &[u32]| list.get(vm as usize).or(list.last()).copied();
        Compute {
            weight: pick(&self.weights),
            share_percent: pick(&self.shares_percent).filter(|percent| *percent < 100),
        }
    }
}
