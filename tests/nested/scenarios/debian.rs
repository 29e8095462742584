//! A Debian, as `mmdebstrap` makes one, as the root of guests (`--rootfs`).

use std::path::Path;

use causeway_nested::{DYNAMIC_COMPUTE, Lease};

use crate::clients::assert_no_wait_slept;
use crate::machines::{
    DEBIAN_ROOT, KERNEL, assert_data_stays_inside, install, machine_with_debian, run, shell,
};

/// The folder of a guest in which files of `--file` lie.
const FILES: &str = "/run/causeway";

/// The machine with the Debian in [`DEBIAN_ROOT`].
pub fn mounted(test: &str) -> Option<Lease> {
    let machine = machine_with_debian(test)?;
    let mount = format!(
        "[ -e {DEBIAN_ROOT}/bin ] || {{ mkdir {DEBIAN_ROOT} && \
         mount -o loop {DEBIAN_ROOT}.img {DEBIAN_ROOT}; }}"
    );
    machine.run(&shell(&mount)).assert_code(0);
    Some(machine)
}

/// What the folder has, with the times of all changes: one line for the whole.
fn state(machine: &Lease) -> String {
    let listed = machine.run(&shell(&format!("ls -lARc {DEBIAN_ROOT} | cksum")));
    listed.assert_code(0);
    listed.stdout
}

#[test]
fn python_with_modules_in_c_runs_in_a_debian_that_stays_as_it_is() {
    let Some(machine) = mounted("Python in a Debian") else {
        return;
    };
    let before = state(&machine);
    let script = "import ctypes, json, ssl, sys, zlib; \
                  assert zlib.decompress(zlib.compress(b'x' * 999)) == b'x' * 999; \
                  open('/etc/made', 'w').write(ssl.OPENSSL_VERSION); \
                  assert ctypes.CDLL(None).getppid() == 1; sys.exit(9)";
    let words = ["--kernel", KERNEL, "--rootfs", DEBIAN_ROOT];
    let program = ["--", "python3", "-c", script];
    let (outcome, _) = run(&machine, &[&words[..], &program].concat());
    outcome.assert_code(9);
    assert_eq!(state(&machine), before);
}

#[test]
#[ignore = "tinygrad runs in it, too, and compute in other guests: run it by name"]
fn compute_runs_in_a_debian_as_one_of_its_programs_without_an_exit() {
    let Some(machine) = mounted("compute in a Debian") else {
        return;
    };
    let place = format!("{DEBIAN_ROOT}/usr/local/bin/compute");
    let content = std::fs::read(DYNAMIC_COMPUTE).expect("the build made it");
    machine.write(&place, 0o755, &content);
    let words = ["--kernel", KERNEL, "--rootfs", DEBIAN_ROOT, "--", "compute"];
    let (outcome, report) = run(&machine, &words);
    outcome.assert_code(0);
    assert_data_stays_inside(&report);
    machine.run(&shell(&format!("rm {place}"))).assert_code(0);
}

#[test]
fn tinygrad_in_a_debian_launches_and_copies_without_an_exit() {
    let Some(machine) = mounted("tinygrad in a Debian") else {
        return;
    };
    let tools = install(&machine, "causeway-info");
    let scripts = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/clients/guest");
    let mut words = vec!["--kernel", KERNEL, "--rootfs", DEBIAN_ROOT, "--vcpus", "2"];
    words.extend(["--memory", "1G", "--append", "loglevel=3", "--cwd", FILES]);
    for variable in ["CAUSEWAY_CUDA_WAITS=spin", "DEV=CUDA:PTX", "CACHELEVEL=0"] {
        words.extend(["--env", variable]);
    }
    let names = ["phases.py", "tinygrad_operations.py"];
    let places = names.map(|name| format!("/tmp/{name}"));
    for (name, place) in names.iter().zip(&places) {
        let content = std::fs::read(scripts.join(name)).expect("it is in the repository");
        machine.write(place, 0o755, &content);
        words.extend(["--file", place]);
    }
    words.extend(["--file", &tools, "--"]);
    words.extend(["python3", names[1], "20"]);
    let (outcome, report) = run(&machine, &words);
    outcome.assert_code(0);
    let right = outcome.text().contains("1000 sums are right");
    assert!(right, "{}", outcome.text());
    assert_data_stays_inside(&report);
    assert_no_wait_slept(&report);
    for name in ["launch, wait", "graph, wait", "copies"] {
        let phase = report.phase(name);
        assert!(phase.is_data() && phase.operations() >= 40, "{phase:?}");
    }
}
