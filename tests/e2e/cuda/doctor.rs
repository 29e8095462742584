//! What `causeway doctor` finds on a machine with a GPU.

use serde_json::Value;

use crate::schema;
use crate::standin::{Machine, NAME};

fn findings(machine: &Machine) -> Vec<Value> {
    let outcome = machine.run(&["doctor", "--json"]);
    let diagnosis: Value = serde_json::from_str(&outcome.stdout).unwrap();
    assert_eq!(diagnosis["schema"], "causeway.doctor/1");
    schema::assert_valid(&diagnosis);
    let findings = diagnosis["findings"].as_array().unwrap().clone();
    let table = machine.run(&["doctor"]).stdout;
    for finding in &findings {
        assert!(table.contains(text(finding, "name")), "{finding}: {table}");
    }
    findings
}

fn text<'a>(finding: &'a Value, field: &str) -> &'a str {
    finding[field].as_str().unwrap_or_default()
}

#[track_caller]
fn finding<'a>(findings: &'a [Value], name: &str) -> &'a Value {
    let found = findings.iter().find(|finding| finding["name"] == name);
    found.unwrap_or_else(|| panic!("nothing about {name}: {findings:#?}"))
}

#[test]
fn the_gpu_and_every_attribute_are_named_with_their_values() {
    let findings = findings(&Machine::new());
    let gpu = text(finding(&findings, "CUDA"), "found").to_owned();
    for part in ["CUDA 13.0", NAME, "4 GiB", "132 SMs", "sm_90"] {
        assert!(gpu.contains(part), "{part}: {gpu}");
    }
    let all: String = findings
        .iter()
        .map(|f| text(f, "found").to_owned() + "\n")
        .collect();
    for attribute in [
        "VIRTUAL_MEMORY_MANAGEMENT_SUPPORTED is 1",
        "HANDLE_TYPE_POSIX_FILE_DESCRIPTOR_SUPPORTED is 1",
        "HANDLE_TYPE_FABRIC_SUPPORTED is 1",
        "GPU_DIRECT_RDMA_WITH_CUDA_VMM_SUPPORTED is 1",
        "GENERIC_COMPRESSION_SUPPORTED is 1",
        "MULTICAST_SUPPORTED is ",
        "HOST_NUMA_ID is ",
        "HOST_NUMA_VIRTUAL_MEMORY_MANAGEMENT_SUPPORTED is ",
        "CAN_USE_64_BIT_STREAM_MEM_OPS is ",
        "HOST_REGISTER_SUPPORTED is 1",
        "READ_ONLY_HOST_REGISTER_SUPPORTED is ",
        "PAGEABLE_MEMORY_ACCESS is 0",
    ] {
        assert!(all.contains(attribute), "{attribute}: {all}");
    }
}

#[test]
fn a_fabric_handle_that_is_not_granted_is_reported_with_the_drivers_word_and_the_reason() {
    let findings = findings(&Machine::new());
    let fabric = finding(&findings, "CUDA fabric handle");
    assert_eq!(fabric["state"], "no");
    assert!(
        text(fabric, "found").contains("CUDA_ERROR_NOT_PERMITTED"),
        "{fabric}"
    );
    assert!(text(fabric, "how").contains("IMEX channel"), "{fabric}");
}

#[test]
fn what_a_gpu_lacks_is_named_with_its_attribute_and_what_that_means() {
    // No compression, no RDMA, pageable memory.
    let machine = Machine::new().with("ATTRIBUTES", "107=0,110=0,88=1");
    let findings = findings(&machine);
    for (name, state, attribute) in [
        (
            "CUDA compressible memory",
            "no",
            "GENERIC_COMPRESSION_SUPPORTED is 0",
        ),
        (
            "CUDA peer devices",
            "no",
            "GPU_DIRECT_RDMA_WITH_CUDA_VMM_SUPPORTED is 0",
        ),
        (
            "CUDA pageable memory",
            "partly",
            "PAGEABLE_MEMORY_ACCESS is 1",
        ),
    ] {
        let found = finding(&findings, name);
        assert_eq!(found["state"], state, "{found}");
        assert!(text(found, "found").contains(attribute), "{found}");
        assert!(!text(found, "how").is_empty(), "{found}");
    }
}

#[test]
fn every_gpu_is_told_of() {
    let findings = findings(&Machine::new().with("DEVICES", 2));
    let gpus = finding(&findings, "CUDA");
    for gpu in ["GPU 0: ", "GPU 1: "] {
        assert!(text(gpus, "found").contains(gpu), "{gpus}");
    }
}

#[test]
fn a_driver_that_will_not_do_is_reported_with_the_way_out() {
    for (machine, found, how) in [
        (
            Machine::new().with("DRIVER_VERSION", 12030),
            "CUDA 12.3",
            "12.4 or later",
        ),
        (Machine::new().with("DEVICES", 0), "no GPU", "lspci"),
    ] {
        let findings = findings(&machine);
        let driver = finding(&findings, "CUDA");
        assert_eq!(driver["state"], "no");
        assert!(text(driver, "found").contains(found), "{driver}");
        assert!(text(driver, "how").contains(how), "{driver}");
    }
}

/// The finding about the one pair of a machine with two GPUs.
fn pair(machine: &Machine) -> Value {
    let outcome = machine.run(&["doctor", "--json"]);
    let diagnosis: Value = serde_json::from_str(&outcome.stdout).unwrap();
    let findings = diagnosis["findings"].as_array().unwrap();
    finding(findings, "CUDA pair").clone()
}

#[test]
fn copies_between_two_gpus_are_measured_whether_they_are_peers_or_not() {
    for (peers, reaches, way) in [
        (1, "GPUs 0 and 1: peers;", "GB/s, "),
        (
            0,
            "GPUs 0 and 1: no peers;",
            "GB/s through memory of the host, ",
        ),
    ] {
        let machine = Machine::new().with("DEVICES", 2).with("PEERS", peers);
        let found = pair(&machine);
        let said = text(&found, "found");
        assert!(said.contains(reaches), "{said}");
        assert_eq!(said.matches(way).count(), 2, "{said}");
        assert_eq!(found["pair"]["gpus"], serde_json::json!([0, 1]));
        for way in found["pair"]["ways"].as_array().unwrap() {
            assert!(way["gb_per_s"].as_f64() > Some(0.0), "{found}");
            assert!(way["latency_us"].as_f64() > Some(0.0), "{found}");
        }
        assert_eq!(machine.used_bytes(), 0);
    }
}

#[test]
fn pairs_without_memory_for_a_trial_are_told_with_what_is_free() {
    let machine = Machine::new().with("DEVICES", 2);
    let machine = machine.with("MEMORY", format!("{},{}", 4_u64 << 30, 128 << 20));
    let found = pair(&machine);
    let words = "peers; copies not measured: GPU 1 has 128 MiB free, and a trial wants 256 MiB;";
    assert!(text(&found, "found").contains(words), "{found}");
    assert_eq!(found["state"], "yes", "{found}");
}

#[test]
fn nvml_tells_the_link_where_it_is_installed() {
    for (nvlink, words) in [
        (1, "peers, linked by NVLink; copies "),
        (0, "peers, linked by PCI Express of one NUMA node; copies "),
    ] {
        let machine = Machine::new().with("DEVICES", 2).with_nvml();
        let found = pair(&machine.with("NVLINK", nvlink));
        assert!(text(&found, "found").contains(words), "{found}");
    }
    let without = pair(&Machine::new().with("DEVICES", 2));
    assert!(without["pair"]["link"].is_null(), "{without}");
}
