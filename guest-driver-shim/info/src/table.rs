//! The facts as a table for people.

use std::fmt::Write as _;

use crate::facts::{ClientFacts, Facts, Path};

/// Returns the facts as text, with one line of name and value for each fact.
pub fn render(facts: &Facts) -> String {
    let mut out = String::new();
    let mut line = |name: &str, value: &str| {
        // Writing to a string cannot fail.
        let _ = writeln!(out, "{name:<12}{value}");
    };
    line("Device", &facts.device);
    if let Some(fault) = &facts.lost {
        line("Lost", fault);
    }
    let memory = &facts.memory;
    let used = format!(
        "{} used of {}, {} free, in pieces of {}",
        size(memory.used_bytes),
        size(memory.total_bytes),
        size(memory.total_bytes.saturating_sub(memory.used_bytes)),
        size(memory.granularity_bytes)
    );
    line("Memory", &used);
    let limits = &facts.limits;
    let limits = format!(
        "{} allocations, {} queues, address spaces of {}",
        limits.allocations,
        limits.queues,
        size(limits.address_space_bytes)
    );
    line("Limits", &limits);
    let compute = &facts.compute;
    let compute = format!(
        "{} units, warps of {}, blocks of up to {} threads and {} shared memory",
        compute.units,
        compute.warp_threads,
        compute.block_threads,
        size(compute.shared_bytes.into())
    );
    line("Compute", &compute);
    line("Features", &facts.features.join(" "));
    line("Protocol", &facts.protocol);
    path(&facts.path, &mut line);
    out
}

fn path(path: &Path, line: &mut impl FnMut(&str, &str)) {
    match path {
        Path::Socket { socket } => line("Reached", &format!("over the socket {socket}")),
        Path::Pci {
            function,
            caching,
            interrupts,
            stray_accesses,
            clients_max,
            clients,
        } => {
            line("Reached", &format!("as PCI function {function}"));
            line("Aperture", &format!("mapped {caching}"));
            let none = "none, so waits poll: bind the function to the driver uio_pci_generic";
            let interrupts = interrupts.as_deref().unwrap_or(none);
            line("Interrupts", interrupts);
            line("Strays", &format!("{stray_accesses} accesses hit nothing"));
            let count = format!("{} of {clients_max}", clients.len());
            line("Clients", &count);
            for client in clients {
                line("", &describe(client));
            }
        }
    }
}

fn describe(client: &ClientFacts) -> String {
    let name = client.name.as_deref().unwrap_or("?");
    let holder = match client.process {
        Some(process) if process == std::process::id() => {
            format!("{process} {name} (this program)")
        }
        Some(process) => format!("{process} {name}"),
        None if client.owns => String::from("left by a process that has ended"),
        None => String::from("a process that cannot be seen from here"),
    };
    format!("{:>2}  {holder}", client.client)
}

/// Bytes in the largest unit that divides them, or in MiB.
fn size(bytes: u64) -> String {
    const UNITS: &[(u64, &str)] = &[
        (1 << 40, "TiB"),
        (1 << 30, "GiB"),
        (1 << 20, "MiB"),
        (1 << 10, "KiB"),
    ];
    let whole = UNITS
        .iter()
        .find(|(unit, _)| bytes >= *unit && bytes.is_multiple_of(*unit));
    match whole {
        Some((unit, name)) => format!("{} {name}", bytes / unit),
        None if bytes < 1 << 20 => format!("{bytes} bytes"),
        None => format!("{:.1} MiB", bytes as f64 / f64::from(1 << 20)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_are_short() {
        for (bytes, text) in [
            (0, "0 bytes"),
            (4096, "4 KiB"),
            (64 << 30, "64 GiB"),
            ((1 << 20) + (1 << 19), "1536 KiB"),
            ((5 << 20) + 1, "5.0 MiB"),
        ] {
            assert_eq!(size(bytes), text);
        }
    }

    #[test]
    fn clients_are_told_with_who_has_them() {
        let client = |process, owns| ClientFacts {
            client: 7,
            process,
            name: process.map(|_| String::from("stream")),
            owns,
        };
        assert_eq!(describe(&client(Some(1), true)), " 7  1 stream");
        let own = describe(&client(Some(std::process::id()), true));
        assert!(own.ends_with("(this program)"), "{own}");
        assert!(describe(&client(None, true)).contains("has ended"));
    }
}
