//! Which devices a program sees, and in which order: `CUDA_VISIBLE_DEVICES` (CUDA C++ Programming
//! Guide, "CUDA Environment Variables").

/// Names the devices.
pub(crate) const VARIABLE: &str = "CUDA_VISIBLE_DEVICES";

/// Returns whether no device can have the first entry of `list`: then all are hidden.
pub(crate) fn shows_nothing(list: &str) -> bool {
    let first = entries(list).next().unwrap_or_default();
    first.parse::<u32>().is_err() && !first.starts_with("GPU-")
}

/// Returns the places in `uuids` of the devices that `list` names, in its order. An entry is the
/// number of a device, or begins as the UUID of one device does, and of no other. Another entry
/// hides all behind it, and so does a device that is named again.
pub(crate) fn of(list: &str, uuids: &[String]) -> Vec<usize> {
    let mut shown = Vec::new();
    for entry in entries(list) {
        match named(entry, uuids) {
            Some(index) if !shown.contains(&index) => shown.push(index),
            _ => break,
        }
    }
    shown
}

fn entries(list: &str) -> impl Iterator<Item = &str> {
    list.split(',').map(str::trim)
}

/// Returns the place of the device that an entry names.
fn named(entry: &str, uuids: &[String]) -> Option<usize> {
    let Some(prefix) = entry.strip_prefix("GPU-") else {
        let number: usize = entry.parse().ok()?;
        return (number < uuids.len()).then_some(number);
    };
    let prefix = format!("GPU-{}", prefix.to_ascii_lowercase());
    let begins = |uuid: &String| uuid.starts_with(&prefix);
    let first = uuids.iter().position(begins)?;
    let is_only = !uuids[first + 1..].iter().any(begins);
    is_only.then_some(first)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shown(list: &str, count: usize) -> Vec<usize> {
        let uuids = ["GPU-1234ab", "GPU-12cdef", "GPU-99"].map(String::from);
        of(list, &uuids[..count])
    }

    #[test]
    fn a_list_without_the_device_hides_it() {
        for list in ["0", "0,1", " 0 ", "GPU-1234ab", " GPU-1234AB,0", "GPU-"] {
            assert_eq!(shown(list, 1), [0], "{list}");
        }
        for list in ["", "-1", "1,0", "none", "MIG-1", "gpu-12", "GPU-13"] {
            assert!(shown(list, 1).is_empty(), "{list}");
        }
        for list in ["", "-1", "none", "MIG-1", "gpu-12"] {
            assert!(shows_nothing(list), "{list}");
        }
        assert!(!shows_nothing("1,0") && !shows_nothing("GPU-13"));
    }

    #[test]
    fn devices_come_in_the_order_of_the_list_until_an_entry_names_none() {
        for (list, wanted) in [
            ("1,0", &[1, 0][..]),
            ("2,-1,0", &[2]),
            ("0,3,1", &[0]),
            ("GPU-99,GPU-1234", &[2, 0]),
            ("GPU-12,0", &[]),
            ("1, 2 ,1,0", &[1, 2]),
        ] {
            assert_eq!(shown(list, 3), wanted, "{list}");
        }
    }
}
