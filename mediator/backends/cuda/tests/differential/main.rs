//! Every PTX kernel of the project on random inputs, on the CUDA back end and on the software back
//! end: equal in every bit where PTX is exact, within PTX's bounds elsewhere. Each is compared with
//! a reference, too, where there is one.
//!
//! The program needs no Rust: `cargo test -p causeway-cuda --test differential --no-run` builds it.
//! It prints a line for each kernel. `CAUSEWAY_SEEDS` is the number of fillings (usually 3), from
//! seed 0; `CAUSEWAY_REQUIRE_GPU=1` makes it fail where there is no GPU.

mod device;
mod emitted;
#[path = "../machine/mod.rs"]
mod machine;
mod own;
mod subject;

use std::process::Command;
use std::sync::Arc;

use causeway_cuda::{Config, Cuda, ENVIRONMENT};
use causeway_mediator::backend::Backend;
use causeway_software::{Config as SoftwareConfig, Software};

use device::{Device, Failure};
use subject::{Kernel, Subject};

/// Set in the child that runs a test's body.
const CHILD: &str = "CAUSEWAY_DIFFERENTIAL_CHILD";
const SEEDS: u64 = 3;

#[test]
fn back_ends_agree_on_the_stand_in() {
    const NAME: &str = "back_ends_agree_on_the_stand_in";
    if std::env::var_os(CHILD).is_some() {
        return compare_all();
    }
    let folder = match machine::standin() {
        Ok(folder) => folder,
        Err(reason) => return eprintln!("skipped: {NAME}: {reason}"),
    };
    let state = std::env::temp_dir().join(format!("differential-{}", std::process::id()));
    let mut command = child(NAME);
    command
        .env("LD_LIBRARY_PATH", folder)
        .env("CAUSEWAY_STANDIN_STATE", &state);
    let status = command.status().unwrap();
    let _ = std::fs::remove_dir_all(state);
    assert!(status.success(), "{status}");
}

#[test]
fn back_ends_agree_on_a_gpu() {
    const NAME: &str = "back_ends_agree_on_a_gpu";
    if std::env::var_os(CHILD).is_some() {
        return compare_all();
    }
    match machine::gpu() {
        Ok(_) => {
            let status = child(NAME).status().unwrap();
            assert!(status.success(), "{status}");
        }
        Err(reason) => machine::skip(NAME, &reason),
    }
}

/// A process of its own, which prints what it finds.
fn child(name: &str) -> Command {
    let mut command = Command::new(std::env::current_exe().unwrap());
    command
        .args(["--exact", name, "--nocapture", "--test-threads=1"])
        .env(CHILD, "1")
        .envs(ENVIRONMENT.iter().copied());
    command
}

fn seeds() -> u64 {
    match std::env::var("CAUSEWAY_SEEDS") {
        Ok(text) => text
            .parse()
            .ok()
            .filter(|count| *count > 0)
            .unwrap_or_else(|| panic!("CAUSEWAY_SEEDS is `{text}`, not a number from 1")),
        Err(_) => SEEDS,
    }
}

fn compare_all() {
    let cuda = Cuda::open(&Config::default()).unwrap_or_else(|e| panic!("{e}: {e:?}"));
    let software = Software::new(SoftwareConfig {
        memory_bytes: 1 << 30,
        cores: None,
        ..SoftwareConfig::default()
    });
    let name = cuda.attributes().name.clone();
    println!("\nsoftware back end: {}", software.attributes().name);
    println!("compared with:     {name}");
    if machine::is_standin(&name) {
        println!(
            "(the stand-in runs the software back end's engine: this says nothing about a GPU)"
        );
    }
    let mut devices = [Device::new(Arc::new(software)), Device::new(cuda)];
    let mut failed = Vec::new();
    for kernel in own::kernels().chain(emitted::kernels()) {
        match compare(&kernel, &mut devices) {
            Ok(line) => println!("{line}"),
            Err(Failure::TooOld(reason)) => println!("{:28} not run: {reason}", kernel.name),
            Err(Failure::Wrong(reason)) => {
                println!("{:28} WRONG: {reason}", kernel.name);
                failed.push(format!("{}: {reason}", kernel.name));
            }
        }
    }
    assert!(failed.is_empty(), "on {name}: {failed:#?}");
}

/// All fillings of one kernel. Gives the line to print.
fn compare(kernel: &Kernel, [software, cuda]: &mut [Device; 2]) -> Result<String, Failure> {
    let (mut between, mut from_reference) = (0.0_f32, 0.0_f32);
    let count = seeds();
    for seed in 0..count {
        let subject = (kernel.make)(seed);
        let at = |what: String| Failure::Wrong(format!("seed {seed}: {what}"));
        let host = software.run(&subject, seed)?;
        let gpu = cuda.run(&subject, seed)?;
        let pairs = subject.deviation("software", &host, "cuda", &gpu);
        between = between.max(pairs.map_err(at)?);
        if let Some(want) = &subject.expected {
            for (name, got) in [("software", &host), ("cuda", &gpu)] {
                let deviation = subject.deviation("the reference", want, name, got);
                from_reference = from_reference.max(deviation.map_err(at)?);
            }
        }
    }
    let Subject {
        rules, expected, ..
    } = (kernel.make)(0);
    let result = match (subject::are_exact(&rules), expected) {
        (true, Some(_)) => String::from("equal, and equal to the reference"),
        (true, None) => String::from("equal"),
        (false, _) => format!(
            "apart by up to {between:.3} of what is allowed; from the reference by \
             {from_reference:.3}"
        ),
    };
    Ok(format!("{:28} {count:4} seeds  {result}", kernel.name))
}
