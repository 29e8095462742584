//! What holds of this repository.

use std::fs;

use causeway_layout::circles::circles;
use causeway_layout::dependencies::{Package, Rule, forbidden, packages, tree};
use causeway_layout::repository;

/// Workspaces: the repository's own, and those of programs that run without an operating system.
const WORKSPACES: &[&str] = &[
    "",
    "guest-driver-shim/programs/bare",
    "examples/bare-guest",
    "examples/workload",
];

/// Modules in a circle, at most.
const CIRCLE_MAX: usize = 3;

/// Crates with a larger circle, and its size. None may grow, or join them. The two libraries that
/// answer the CUDA driver API have one global object for everything, which every part finds the
/// others by.
const KNOWN_CIRCLES: &[(&str, usize)] = &[
    ("guest-driver-shim/cuda", 40),
    ("tests/standin-cuda", 22),
    ("tests/nested", 4),
];

/// Crates that libraries must be built without.
const HEAVY: &[(&str, &[&str])] = &[
    (
        "causeway-vmm",
        &["ratatui", "plotters", "causeway-software"],
    ),
    ("causeway-run", &["ratatui", "plotters"]),
];

/// Which crates may be needed by those of a folder. The first that holds a crate counts.
const RULES: &[Rule] = &[
    Rule {
        folder: "protocol",
        may_need: &[],
    },
    // Plain CUDA programs that `bench gpu` compares with run the embedded kernels.
    Rule {
        folder: "mediator/backends/cuda",
        may_need: &["protocol", "mediator", "guest-driver-shim/programs/kernels"],
    },
    Rule {
        folder: "mediator",
        may_need: &["protocol"],
    },
    // Bare guests speak with devices that only the VMM has: the test device, and those of
    // benchmarks.
    Rule {
        folder: "guest-driver-shim/programs/bare",
        may_need: &[
            "protocol",
            "guest-driver-shim",
            "vmm/testdev/records",
            "vmm/bench/workloads",
        ],
    },
    Rule {
        folder: "guest-driver-shim/bare",
        may_need: &["protocol", "guest-driver-shim/core", "vmm/testdev/records"],
    },
    // Programs in Linux guests report to the test device, and end their VM through it.
    Rule {
        folder: "guest-driver-shim/programs/linux",
        may_need: &["protocol", "guest-driver-shim", "vmm/testdev/records"],
    },
    Rule {
        folder: "guest-driver-shim/linux",
        may_need: &["protocol", "guest-driver-shim", "vmm/testdev/records"],
    },
    Rule {
        folder: "guest-driver-shim/init",
        may_need: &["protocol", "guest-driver-shim", "vmm/testdev/records"],
    },
    Rule {
        folder: "guest-driver-shim",
        may_need: &["protocol"],
    },
    Rule {
        folder: "vmm",
        may_need: &["protocol", "mediator", "guest-driver-shim"],
    },
    Rule {
        folder: "tests",
        may_need: &["protocol", "mediator", "guest-driver-shim", "vmm"],
    },
    // Programs of users need what users need, and nothing that only tests do.
    Rule {
        folder: "examples",
        may_need: &["protocol", "mediator", "guest-driver-shim", "vmm"],
    },
];

fn all_packages() -> Vec<Package> {
    let repository = repository();
    let workspaces = WORKSPACES.iter();
    workspaces
        .flat_map(|folder| packages(&repository, folder))
        .collect()
}

#[test]
fn dependencies_run_one_way_and_the_product_needs_nothing_under_tests() {
    let packages = all_packages();
    assert!(packages.len() > 25, "cargo names {} crates", packages.len());
    let forbidden = forbidden(&packages, RULES);
    assert!(forbidden.is_empty(), "{forbidden:#?}");
}

#[test]
fn only_tests_need_the_fakes_of_the_mediator() {
    let packages = all_packages().into_iter();
    let users: Vec<String> = packages
        .filter(|package| package.needs.iter().any(|need| need == "mediator/testing"))
        .map(|package| package.folder)
        .filter(|folder| !folder.starts_with("tests/"))
        .collect();
    assert!(users.is_empty(), "{users:#?}");
}

#[test]
fn no_circle_of_modules_is_larger_than_three() {
    let repository = repository();
    let mut large = Vec::new();
    for package in all_packages() {
        let source = repository.join(&package.folder).join("src");
        let roots = ["lib.rs", "main.rs"].map(|name| source.join(name));
        for root in roots
            .iter()
            .filter(|root| fs::exists(root).unwrap_or(false))
        {
            for circle in circles(root) {
                let known = KNOWN_CIRCLES
                    .iter()
                    .find(|(folder, _)| *folder == package.folder);
                if circle.len() > known.map_or(CIRCLE_MAX, |(_, size)| *size) {
                    large.push(format!("{}: {}", package.folder, circle.join(" ")));
                }
            }
        }
    }
    assert!(large.is_empty(), "{large:#?}");
}

#[test]
fn the_vmm_needs_no_terminal_library_no_plots_and_no_ptx_engine() {
    let repository = repository();
    for (package, heavy) in HEAVY {
        let needed = tree(&repository, package);
        assert!(
            needed.iter().any(|name| name == "causeway-mediator"),
            "{needed:?}"
        );
        let found: Vec<_> = heavy
            .iter()
            .filter(|name| needed.iter().any(|n| n == *name))
            .collect();
        assert!(found.is_empty(), "{package} needs {found:?}");
    }
}

#[test]
fn every_crate_says_what_it_is_and_its_licenses_are_here() {
    let repository = repository();
    for package in all_packages() {
        let manifest = repository.join(&package.folder).join("Cargo.toml");
        let manifest = fs::read_to_string(manifest).unwrap();
        for key in ["\ndescription = \"", "\nlicense"] {
            assert!(manifest.contains(key), "{} has no {key:?}", package.folder);
        }
    }
    for (file, words) in [
        ("LICENSE-APACHE", "Apache License"),
        (
            "LICENSE-MIT",
            "Permission is hereby granted, free of charge",
        ),
    ] {
        let text = fs::read_to_string(repository.join(file)).unwrap();
        assert!(text.contains(words), "{file}");
    }
}

#[test]
fn the_index_of_documents_names_every_document_and_example() {
    let repository = repository();
    let index = fs::read_to_string(repository.join("docs/README.md")).unwrap();
    let mut missing = Vec::new();
    for (folder, before) in [("docs", "("), ("examples", "(../examples/")] {
        for entry in fs::read_dir(repository.join(folder)).unwrap() {
            let name = entry.unwrap().file_name().into_string().unwrap();
            let is_listed = index.contains(&format!("{before}{name}"));
            let needs_none = ["README.md", "benchmarks", "pictures"].contains(&&*name);
            if !is_listed && !needs_none {
                missing.push(format!("{folder}/{name}"));
            }
        }
    }
    assert!(
        missing.is_empty(),
        "docs/README.md does not name {missing:?}"
    );
}
