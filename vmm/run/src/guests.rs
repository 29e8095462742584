//! The embedded guests: what each does, and which are for users to try.

use std::fmt::Write as _;

/// What an embedded guest is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Purpose {
    /// Users run it to see what Causeway does.
    Product,
    /// `causeway bench` runs it.
    Benchmark,
    /// Causeway's own tests run it. Some fail or never end on purpose.
    Test,
}

/// An embedded guest, as the help of `--guest` describes it.
#[derive(Debug)]
struct Guest {
    name: &'static str,
    purpose: Purpose,
    /// What it does, and about how long that takes on two cores with back end software.
    about: &'static str,
    /// Values of `--arguments`, for guests that take arguments.
    arguments: Option<&'static str>,
}

const fn guest(name: &'static str, purpose: Purpose, about: &'static str) -> Guest {
    Guest {
        name,
        purpose,
        about,
        arguments: None,
    }
}

const fn with(arguments: &'static str, guest: Guest) -> Guest {
    Guest {
        arguments: Some(arguments),
        ..guest
    }
}

const GUESTS: [Guest; 19] = {
    use Purpose::{Benchmark, Product, Test};
    [
        guest(
            "compute",
            Product,
            "runs 22 kernels and verifies their results, 1 s",
        ),
        guest(
            "stream",
            Product,
            "10^8 loads, 10^8 stores, 10^6 packets without an exit, 5 s",
        ),
        guest(
            "sharing",
            Product,
            "with --vms 2 or more: VMs share GPU memory, 1 s",
        ),
        guest(
            "visible",
            Product,
            "GPU memory that the CPU of the guest can access, less than 1 s",
        ),
        guest(
            "hostile",
            Product,
            "attacks the device in every way; with --vms 2, beside one that \
               computes, 10 s",
        ),
        with(
            "mib=N,rounds=N",
            guest(
                "peers",
                Product,
                "with two --gpu: kernels of one GPU use memory of the other, and lose the right to; \
                 1 s",
            ),
        ),
        with(
            "rounds=N,mib=N",
            guest(
                "residue",
                Product,
                "frees memory and checks that the next \
               one to get it finds zeros, 10 s",
            ),
        ),
        with(
            "seconds=N,blocks=N,steps=N,light=1",
            guest(
                "greedy",
                Product,
                "keeps the GPU busy, to see how it is shared out between --vms VMs; 5 s",
            ),
        ),
        with(
            "repetitions=N,only=TEXT",
            guest("bench", Benchmark, "the guest of bench gpu"),
        ),
        with(
            "a plan",
            guest("mechanisms", Benchmark, "the guest of bench exits"),
        ),
        guest("exits", Test, "causes known numbers of exits"),
        guest("panic", Test, "panics, and so fails"),
        guest("spin", Test, "never ends"),
        guest("triple", Test, "crashes by a triple fault"),
        guest(
            "lost",
            Test,
            "computes until its device is lost, then goes on",
        ),
        with(
            "faults=N",
            guest(
                "endurance",
                Test,
                "with --vms 2 or more: VM 0 computes while the others lose their devices and \
                 reset them, again and again",
            ),
        ),
        with(
            "stray=ADDRESS or hold",
            guest(
                "edu",
                Test,
                "tests QEMU's educational device, with \
              --vfio",
            ),
        ),
        with(
            "hold",
            guest("partition", Test, "tests memory of --gpu vfio"),
        ),
        guest(
            "doorbell",
            Test,
            "tests QEMU's ivshmem-doorbell, with --vfio",
        ),
    ]
};

/// Returns the long help of `--guest`, which lists the embedded guests by what they are for.
pub fn help() -> String {
    let mut text = String::from(
        "Guest program that is embedded in this command, by its name. The default is compute. \
         Times are for two cores and back end software.\n",
    );
    for (purpose, title) in [
        (Purpose::Product, "Guests to try"),
        (Purpose::Benchmark, "Guests of `causeway bench`"),
        (
            Purpose::Test,
            "Guests for tests, some of which fail on purpose",
        ),
    ] {
        // Writing to a string does not fail.
        let _ = write!(text, "\n{title}:");
        for guest in GUESTS.iter().filter(|guest| guest.purpose == purpose) {
            let _ = write!(text, "\n  {}: {}", guest.name, guest.about);
            if let Some(arguments) = guest.arguments {
                let _ = write!(text, " (--arguments {arguments})");
            }
        }
        text.push('\n');
    }
    text
}

/// Returns the names of the guests that a user may want to run, for messages.
pub fn names_to_try() -> String {
    let wanted = GUESTS
        .iter()
        .filter(|guest| guest.purpose == Purpose::Product);
    let names: Vec<&str> = wanted.map(|guest| guest.name).collect();
    names.join(", ")
}

/// Returns whether the embedded guest `name` reads its arguments.
pub fn takes_arguments(name: &str) -> bool {
    let found = GUESTS.iter().find(|guest| guest.name == name);
    found.is_some_and(|guest| guest.arguments.is_some())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_embedded_guest_is_described_once() {
        let mut described: Vec<&str> = GUESTS.iter().map(|guest| guest.name).collect();
        let mut embedded = causeway_embedded::NAMES;
        described.sort_unstable();
        embedded.sort_unstable();
        assert_eq!(described, embedded);
    }

    #[test]
    fn the_help_has_products_before_fixtures_with_what_each_does() {
        let help = help();
        let at = |part: &str| help.find(part).unwrap_or_else(|| panic!("{part}: {help}"));
        assert!(at("\n  compute: runs 22 kernels") < at("\nGuests for tests"));
        assert!(at("\nGuests for tests") < at("\n  spin: never ends"));
        assert!(help.contains("(--arguments rounds=N,mib=N)"), "{help}");
        assert!(!names_to_try().contains("spin"));
    }
}
