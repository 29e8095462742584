//! Findings about processors: whether a guest and the thread that executes its packets have one
//! each, and whether Linux lets that thread preempt the guest where they share one.

use std::io;
use std::time::Duration;

use causeway_scheduling::SLICE_MIN;

use crate::check::Check;

/// Checks processors and time slices, and returns the findings.
pub fn findings() -> Vec<Check> {
    let slice = std::thread::spawn(|| {
        causeway_scheduling::set_slice(SLICE_MIN)?;
        causeway_scheduling::slice()
    });
    let slice = slice.join();
    let slice = slice.unwrap_or_else(|_| Err(io::Error::other("the thread panicked")));
    // It has the affinity of the process and the quota of its control group in it.
    let usable = std::thread::available_parallelism().map_or(1, usize::from);
    vec![processors(usable), slices(slice)]
}

fn processors(usable: usize) -> Check {
    const NAME: &str = "processors";
    if usable >= 2 {
        let vcpus = usable - 1;
        return Check::yes(
            NAME,
            format!("{usable} usable"),
            format!(
                "{vcpus} virtual CPU{s} and one thread that executes packets run at a time; beyond \
                 that, and beside other load, they share processors",
                s = if vcpus == 1 { "" } else { "s" }
            ),
        );
    }
    Check::partly(
        NAME,
        "1 usable",
        "guests run, but a guest that waits for its GPU shares the processor with the thread that \
         executes its packets: a launch that is waited for takes a time slice more, 0.1 ms with \
         short slices and milliseconds without; all times of mediated work in `run` and `bench` \
         include that",
        "let the process use two processors or more: taskset(1), cpuset.cpus and cpu.max of its \
         control group, or a host with more",
    )
}

fn slices(slice: io::Result<Duration>) -> Check {
    const NAME: &str = "short time slices";
    const WITHOUT: &str = "where a guest and the thread that executes its packets share a \
                           processor, that thread waits until the guest's slice ends: some \
                           milliseconds for a launch that is waited for";
    match slice {
        Ok(slice) if slice == SLICE_MIN => Check::yes(
            NAME,
            format!("sched_setattr sets {} µs", slice.as_micros()),
            "threads that execute packets preempt guests that spin, where they share a processor",
        ),
        Ok(slice) => Check::partly(
            NAME,
            match slice.is_zero() {
                true => "this kernel has one slice for all threads".to_owned(),
                false => format!("the shortest is {} µs", slice.as_micros()),
            },
            WITHOUT,
            "use Linux 6.12 or later, or let guests have processors of their own",
        ),
        Err(e) => Check::partly(
            NAME,
            format!("sched_setattr: {e}"),
            WITHOUT,
            "allow sched_setattr in the container or sandbox (no privilege is needed)",
        ),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::check::State;

    #[test]
    fn one_processor_and_long_slices_are_told_with_what_they_cost() {
        let one = processors(1);
        assert_eq!(one.state, State::Partly);
        assert!(one.means.contains("shares the processor") && one.how.is_some());
        let two = processors(2);
        assert_eq!(two.state, State::Yes);
        assert!(two.means.starts_with("1 virtual CPU and"), "{two:?}");
        assert!(processors(9).means.starts_with("8 virtual CPUs and"));
        assert_eq!(slices(Ok(SLICE_MIN)).state, State::Yes);
        for (slice, found) in [
            (Ok(Duration::ZERO), "one slice for all"),
            (Ok(Duration::from_millis(3)), "3000 µs"),
            (Err(io::ErrorKind::PermissionDenied.into()), "permission"),
        ] {
            let check = slices(slice);
            assert_eq!(check.state, State::Partly);
            assert!(check.found.contains(found), "{check:?}");
            assert!(check.means.contains("milliseconds"), "{check:?}");
        }
    }
}
