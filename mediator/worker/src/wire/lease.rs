//! The numbers that stand for orders and reports about leases.

use std::time::Duration;

use causeway_mediator::{LeaseOrder, LeaseReport};

use super::{Lease, LeaseReported};

/// What a session says to its lender.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u32)]
pub(super) enum Report {
    Wanted = 0,
    Stopped = 1,
    Returned = 2,
}

impl LeaseReported {
    pub fn new(report: LeaseReport) -> Self {
        let (report, number) = match report {
            LeaseReport::Wanted => (Report::Wanted, 0),
            LeaseReport::Stopped(number) => (Report::Stopped, number),
            LeaseReport::Returned(number) => (Report::Returned, number),
        };
        let report = report as u32;
        Self { report, number }
    }

    /// Returns the report; `None` if it is unknown.
    pub fn report(&self) -> Option<LeaseReport> {
        let all = [Report::Wanted, Report::Stopped, Report::Returned];
        Some(match all.get(self.report as usize)? {
            Report::Wanted => LeaseReport::Wanted,
            Report::Stopped => LeaseReport::Stopped(self.number),
            Report::Returned => LeaseReport::Returned(self.number),
        })
    }
}

impl Lease {
    pub fn new(order: LeaseOrder) -> Self {
        let (order, number, within) = match order {
            LeaseOrder::Free => (Order::Free, 0, Duration::ZERO),
            LeaseOrder::Ask => (Order::Ask, 0, Duration::ZERO),
            LeaseOrder::Grant(number) => (Order::Grant, number, Duration::ZERO),
            LeaseOrder::Return(within) => (Order::Return, 0, within),
        };
        Self {
            order: order as u32,
            number,
            within_ns: u64::try_from(within.as_nanos()).unwrap_or(u64::MAX),
        }
    }

    /// Returns the order; `None` if it is unknown.
    pub fn order(&self) -> Option<LeaseOrder> {
        let all = [Order::Free, Order::Ask, Order::Grant, Order::Return];
        Some(match all.get(self.order as usize)? {
            Order::Free => LeaseOrder::Free,
            Order::Ask => LeaseOrder::Ask,
            Order::Grant => LeaseOrder::Grant(self.number),
            Order::Return => LeaseOrder::Return(Duration::from_nanos(self.within_ns)),
        })
    }
}

/// What a lender says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u32)]
pub(super) enum Order {
    Free = 0,
    Ask = 1,
    Grant = 2,
    Return = 3,
}
