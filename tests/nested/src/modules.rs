//! Kernel modules and what they need in turn, in the order in which they can be loaded.

use std::collections::BTreeMap;
use std::path::Path;

/// A module that cannot be had.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the kernel has no module {name}: {folder}/modules.dep does not name it")]
pub struct NoModule {
    name: String,
    folder: String,
}

/// Paths of modules, relative to the folder of `modules.dep`, each behind those that it needs. Modules that are built
/// into the kernel (`modules.builtin`) need not be loaded.
pub fn in_order(
    folder: &Path,
    table: &str,
    builtin: &str,
    names: &[&str],
) -> Result<Vec<String>, NoModule> {
    let needs = parse(table);
    let mut order = Vec::new();
    for name in names {
        if builtin.lines().any(|path| is_called(path, name)) {
            continue;
        }
        let path = needs.keys().find(|path| is_called(path, name));
        let path = path.ok_or_else(|| NoModule {
            name: (*name).to_owned(),
            folder: folder.display().to_string(),
        })?;
        // modules.dep(5): all that is needed directly or indirectly, what has to be loaded first last.
        for path in needs[path].iter().rev().chain([path]) {
            if !order.iter().any(|known| known == path) {
                order.push((*path).to_owned());
            }
        }
    }
    Ok(order)
}

fn parse(table: &str) -> BTreeMap<&str, Vec<&str>> {
    let lines = table.lines().filter_map(|line| line.split_once(':'));
    lines
        .map(|(path, needs)| (path, needs.split_whitespace().collect()))
        .collect()
}

/// Dashes and underscores are the same in names of modules.
fn is_called(path: &str, name: &str) -> bool {
    let file = path.rsplit('/').next().unwrap_or(path);
    let stem = file.split_once(".ko").map_or(file, |(stem, _)| stem);
    stem.replace('-', "_") == name.replace('-', "_")
}

#[cfg(test)]
mod tests {
    use super::*;

    const TABLE: &str = "\
kernel/virt/lib/irqbypass.ko:
kernel/arch/x86/kvm/kvm.ko: kernel/virt/lib/irqbypass.ko
kernel/arch/x86/kvm/kvm-amd.ko: kernel/arch/x86/kvm/kvm.ko kernel/virt/lib/irqbypass.ko
";

    fn order(names: &[&str]) -> Result<Vec<String>, NoModule> {
        let builtin = "kernel/drivers/virtio/virtio_ring.ko\n";
        in_order(Path::new("/lib/modules/1"), TABLE, builtin, names)
    }

    #[test]
    fn a_module_comes_behind_those_it_needs_and_only_once() {
        let files = |names: &[&str]| {
            let order = order(names).unwrap();
            order
                .iter()
                .map(|path| path.rsplit('/').next().unwrap().to_owned())
                .collect::<Vec<_>>()
        };
        let all = ["irqbypass.ko", "kvm.ko", "kvm-amd.ko"];
        assert_eq!(files(&["kvm_amd"]), all);
        assert_eq!(files(&["kvm", "kvm-amd", "virtio-ring"]), all);
    }

    #[test]
    fn a_module_that_is_not_there_is_named() {
        let text = order(&["kvm-sparc"]).unwrap_err().to_string();
        assert!(
            text.contains("kvm-sparc") && text.contains("/lib/modules/1"),
            "{text}"
        );
    }
}
