use causeway_cuda::{Config, Cuda, Sms};
use causeway_mediator::backend::Backend;
use causeway_protocol::registers::features;

use crate::support::{is_child, is_on_standin, refusal};

fn sms(count: u32, group: u32) -> Config {
    Config {
        sms: Some(Sms { count, group }),
        ..Config::default()
    }
}

#[test]
fn without_a_library_the_way_out_is_named() {
    let name = "opening::without_a_library_the_way_out_is_named";
    if !is_child(name, &[("LD_LIBRARY_PATH", "")]) {
        return;
    }
    match Cuda::open(&Config::default()) {
        Err(error) => assert!(error.to_string().contains("--gpu software"), "{error}"),
        Ok(_) => eprintln!("skipped: this machine has a CUDA driver"),
    }
}

#[test]
fn without_a_gpu() {
    if is_child(
        "opening::without_a_gpu",
        &[("CAUSEWAY_STANDIN_DEVICES", "0")],
    ) {
        assert!(refusal(&Config::default()).contains("finds no GPU"));
    }
}

#[test]
fn with_an_old_driver() {
    if is_child(
        "opening::with_an_old_driver",
        &[("CAUSEWAY_STANDIN_DRIVER_VERSION", "12020")],
    ) {
        let text = refusal(&Config::default());
        assert!(
            text.contains("for CUDA 12.2") && text.contains("12.4"),
            "{text}"
        );
    }
}

#[test]
fn without_virtual_memory_management() {
    if is_child(
        "opening::without_virtual_memory_management",
        &[("CAUSEWAY_STANDIN_ATTRIBUTES", "102=0")],
    ) {
        let text = refusal(&Config::default());
        assert!(
            text.contains("VIRTUAL_MEMORY_MANAGEMENT_SUPPORTED"),
            "{text}"
        );
    }
}

#[test]
fn every_input_beyond_the_card_is_refused_with_what_there_is() {
    let name = "opening::every_input_beyond_the_card_is_refused_with_what_there_is";
    if !is_child(name, &[("CAUSEWAY_STANDIN_DEVICES", "2")]) {
        return;
    }
    let index = Config {
        device: 2,
        ..Config::default()
    };
    let memory = Config {
        memory_bytes: Some(5 << 30),
        ..Config::default()
    };
    let cases = [
        (index, "no GPU 2: the driver has 2 (Causeway stand-in"),
        (memory, "has 4096 MiB of memory, not 5120"),
        (sms(133, 0), "has 132 multiprocessors, not 133"),
        (sms(0, 0), "not 0"),
        (sms(33, 3), "132 multiprocessors: with 40 for each VM"),
    ];
    for (config, part) in cases {
        let text = refusal(&config);
        assert!(text.contains(part), "{part}: {text}");
    }
}

#[test]
fn what_is_opened_tells_what_it_is() {
    let name = "opening::what_is_opened_tells_what_it_is";
    if !is_child(name, &[]) {
        return;
    }
    let config = Config {
        memory_bytes: Some(1 << 30),
        ..sms(30, 3)
    };
    let cuda = Cuda::open(&config).unwrap();
    let attributes = cuda.attributes();
    assert_eq!(attributes.compute_units, 32, "rounded up");
    assert_eq!(attributes.memory_bytes, 1 << 30);
    assert_eq!(attributes.granularity_bytes, 2 << 20);
    assert_eq!(
        (attributes.warp_threads, attributes.block_threads_max),
        (32, 1024)
    );
    assert!(attributes.name.starts_with("cuda, "));
    assert_eq!(
        attributes.name.contains("Causeway stand-in"),
        is_on_standin()
    );
    assert!(attributes.va.end - attributes.va.start >= 1 << 30);
    let all = features::KERNELS | features::GUEST_RAM | features::SHARING;
    assert_eq!(attributes.features & all, all);
    assert_eq!(attributes.features & features::DEVICE_VISIBLE, 0);
    assert!(!cuda.is_poisoned());
    cuda.uuid().unwrap();
}
