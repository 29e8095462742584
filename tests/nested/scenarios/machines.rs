//! The emulated machine with the `causeway` command of this build in it, and kernels for its
//! guests.

use std::io::Write;
use std::path::{Path, PathBuf};
use std::sync::Once;
use std::time::Duration;

use causeway_embedded_linux::image;
use causeway_nested::{
    Command, Contents, ContentsError, Lease, Machine, Outcome, Requirements, Shape,
    first_word_initramfs,
};

use crate::report::Report;

/// The command under test, in the machine.
pub const CAUSEWAY: &str = "/bin/causeway";
/// Where runs write their reports.
pub const REPORT: &str = "/tmp/report.json";
/// Debian's kernel for cloud machines, for guests; its modules are found beside it.
pub const KERNEL: &str = "/guest/cloud/boot/vmlinuz";
/// Debian's generic kernel, likewise, where the host has it.
pub const GENERIC_KERNEL: &str = "/guest/generic/boot/vmlinuz";
/// An initramfs whose first program says [`causeway_nested::FIRST_WORD`] and turns the machine off.
pub const FIRST_WORD_INITRAMFS: &str = "/guest/first-word";

/// Where a machine with several NUMA nodes has the stand-in CUDA driver.
pub const STANDIN: &str = "/standin";
/// Where that driver's processes account for memory.
pub const STANDIN_STATE: &str = "/standin/state";

/// A root file system with CUDA clients, where the host has an image.
pub const CLIENTS_ROOT: &str = "/guest/clients.img";

/// Users of the machine: passt is nobody.
const USERS: &str = "root:x:0:0::/:/bin/sh\nnobody:x:65534:65534::/:/bin/false\n";
/// Where a machine has a Debian for guests, once it is mounted; its image is in a file beside it.
pub const DEBIAN_ROOT: &str = "/guest/debian";
/// Names that image.
const DEBIAN_VARIABLE: &str = "CAUSEWAY_NESTED_DEBIAN";
/// A program that makes and unpacks images for containers, in the machine with the Debian.
pub const UMOCI: &str = "umoci";
/// How long a run may take.
pub const LIMIT_S: u64 = 480;
/// Names the image with CUDA clients.
const CLIENTS_VARIABLE: &str = "CAUSEWAY_NESTED_CLIENTS";
/// Names the file that is the generic kernel.
const GENERIC_VARIABLE: &str = "CAUSEWAY_NESTED_GENERIC_KERNEL";

/// Lends a machine as [`causeway_nested::shared`] does.
#[track_caller]
fn shared(
    test: &str,
    shape: &Shape,
    contents: impl FnOnce() -> Result<Contents, ContentsError>,
) -> Option<Lease> {
    tell_failures_at_once();
    causeway_nested::shared(test, shape, contents)
}

/// From now on, a test that fails says why at once, too. The test harness says it when all tests
/// have ended, and so never if its process is ended before.
fn tell_failures_at_once() {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| {
        let usual = std::panic::take_hook();
        std::panic::set_hook(Box::new(move |panic| {
            let thread = std::thread::current();
            let test = thread.name().unwrap_or("a thread without a name");
            // `eprintln` would be kept back. If nobody reads this, nobody wants to know.
            let _ = writeln!(std::io::stderr(), "{test} fails: {panic}");
            usual(panic);
        }));
    });
}

/// The machine, or nothing where the host lacks what it needs.
#[track_caller]
pub fn machine(test: &str) -> Option<Lease> {
    shared(test, &shape(), contents)
}

/// Another one, with an IOMMU and devices to hand out. The scenarios of either are next to each
/// other in the order of their names, since there is one machine at a time by default.
#[track_caller]
pub fn machine_with_devices(test: &str) -> Option<Lease> {
    let shape = Shape {
        // With two, a machine that has an IOMMU stops for good now and then, on a host that does
        // nothing else (docs/nested.md, "What was seen, and how far it is explained").
        cpus: 1,
        has_iommu: true,
        ..Shape::default()
    };
    shared(test, &shape, contents)
}

/// Another one, with several NUMA nodes, and the stand-in CUDA driver in the folder [`STANDIN`]:
/// its devices have the addresses of PCI ports near these nodes.
#[track_caller]
pub fn machine_with_nodes(test: &str) -> Option<Lease> {
    let shape = Shape {
        has_nodes: true,
        ..shape()
    };
    shared(test, &shape, || {
        let driver = causeway_standin_cuda::directory().join("libcuda.so.1");
        let place = format!("{STANDIN}/libcuda.so.1");
        // Workers can write to the folder only if it is there when they start.
        let state = format!("{STANDIN_STATE}/here");
        Ok(contents()?.file(&place, &driver).bytes(&state, Vec::new()))
    })
}

/// Another one, with the root file system of CUDA clients, which is large; if the host has none,
/// what is skipped and why is printed.
#[track_caller]
pub fn machine_with_clients(test: &str) -> Option<Lease> {
    let Some(image) = std::env::var_os(CLIENTS_VARIABLE) else {
        eprintln!(
            "skipped: no CUDA clients ({test}): {CLIENTS_VARIABLE} must name an image; \
             tests/clients/root makes one"
        );
        return None;
    };
    let memory_mib = shape().memory_mib + 2048;
    let shape = Shape {
        memory_mib,
        // With two, guests of two virtual CPUs die or stand still (docs/nested.md).
        cpus: 1,
        ..shape()
    };
    shared(test, &shape, || {
        Ok(contents()?.file(CLIENTS_ROOT, Path::new(&image)))
    })
}

/// Another one, with a Debian in an image; if the host has none, what is skipped and why is
/// printed.
#[track_caller]
pub fn machine_with_debian(test: &str) -> Option<Lease> {
    let image = std::env::var_os(DEBIAN_VARIABLE);
    let served = std::env::var_os(crate::shares::VARIABLE);
    let (Some(image), Some(_)) = (image, served) else {
        let why = format!(
            "{DEBIAN_VARIABLE} must name an image (tests/nested/debian-root makes one), and {} \
             must name a virtiofsd",
            crate::shares::VARIABLE
        );
        assert!(!causeway_nested::is_required(), "no Debian: {why}");
        eprintln!("skipped: no Debian ({test}): {why}");
        return None;
    };
    let shape = Shape {
        // With two, guests of two virtual CPUs die or stand still (docs/nested.md).
        cpus: 1,
        ..shape()
    };
    shared(test, &shape, || {
        let mut contents = contents()?.module("loop");
        for name in ["mount", "ls", "ln"] {
            contents = contents.program(name, &Path::new("/bin").join(name))?;
        }
        contents = contents.program("cksum", Path::new("/usr/bin/cksum"))?;
        if let Some([program]) = host_programs([UMOCI]) {
            contents = contents.program(UMOCI, &program)?;
        }
        Ok(contents.file(&format!("{DEBIAN_ROOT}.img"), Path::new(&image)))
    })
}

/// Large enough for a guest of 3 GiB. What is not used costs the host nothing.
pub fn shape() -> Shape {
    Shape {
        memory_mib: 6144,
        ..Shape::default()
    }
}

/// Whether there is a generic kernel in the machine; if not, what is skipped and why is printed.
pub fn has_generic_kernel(test: &str) -> bool {
    let found = generic_kernel().is_some();
    if !found {
        eprintln!(
            "skipped: no generic kernel ({test}): {GENERIC_VARIABLE} must name one; \
             tests/nested/generic-kernel fetches Debian's"
        );
    }
    found
}

/// Returns where this host has these programs, if it has them all.
pub fn host_programs<const N: usize>(names: [&str; N]) -> Option<[PathBuf; N]> {
    let programs = names.map(|name| Path::new("/usr/bin").join(name));
    programs
        .iter()
        .all(|program| program.exists())
        .then_some(programs)
}

/// Returns whether machines have this program; if not, what is skipped and why is printed.
#[track_caller]
pub fn has_program(name: &str, package: &str, test: &str) -> bool {
    let found = host_programs([name]).is_some();
    if !found {
        let why = format!("no {name}: apt install {package}");
        assert!(!causeway_nested::is_required(), "{why}");
        eprintln!("skipped: {test}: {why}");
    }
    found
}

fn generic_kernel() -> Option<PathBuf> {
    std::env::var_os(GENERIC_VARIABLE).map(PathBuf::from)
}

pub fn contents() -> Result<Contents, ContentsError> {
    let cloud = Requirements::find().map(|requirements| requirements.kernel);
    let cloud = cloud.expect("they were there a moment ago");
    let mut contents = Contents::default()
        .program("causeway", Path::new(env!("CARGO_BIN_EXE_causeway")))?
        .program("sh", Path::new("/bin/sh"))?
        .program("setpriv", Path::new("/usr/bin/setpriv"))?
        .program("ip", Path::new("/sbin/ip"))?
        .kernel("/guest/cloud", &cloud)?
        .module("vfio_iommu_type1")
        .module("vfio_pci")
        .module("vhost_vsock")
        .module("vhost_net")
        .bytes(FIRST_WORD_INITRAMFS, first_word_initramfs()?);
    if let Some(kernel) = generic_kernel() {
        contents = contents.kernel("/guest/generic", &kernel)?;
    }
    let tree = std::env::var_os(crate::network::VARIABLE).map(PathBuf::from);
    if let Some(program) = std::env::var_os(crate::shares::VARIABLE).map(PathBuf::from) {
        contents = match &tree {
            // It needs the libraries of the tree that it lies in.
            Some(tree) if tree != Path::new("/") && program.starts_with(tree) => {
                contents.program_of(tree, "virtiofsd", &program)?
            }
            _ => contents.program("virtiofsd", &program)?,
        };
        for name in ["cp", "mkdir", "rm", "sleep"] {
            contents = contents.program(name, &Path::new("/bin").join(name))?;
        }
    }
    if let Some(programs) = crate::disks::programs() {
        for program in programs {
            let name = program.file_name().expect("it has a name");
            contents = contents.program(&name.to_string_lossy(), &program)?;
        }
    }
    if let Some(tree) = &tree {
        contents = contents
            .program_of(tree, "passt", &tree.join("usr/bin/passt"))?
            .bytes("/etc/passwd", USERS.as_bytes().to_vec());
    }
    Ok(contents)
}

/// Where the machine has the registers of guests that shut down.
pub const SHUTDOWNS: &str = "/sys/kernel/tracing/trace";

/// Puts a program into the machine, and gives its place there.
pub fn install(machine: &Lease, name: &str) -> String {
    let place = format!("/tmp/{name}");
    let content = image(name).unwrap_or_else(|| panic!("there is no program {name}"));
    machine.write(&place, 0o755, content);
    place
}

/// `causeway run` with a report. Its time is for a host that has much else to do: only what hangs
/// takes it all.
pub fn run_command(words: &[&str]) -> Command {
    run_command_within(LIMIT_S, words)
}

fn run_command_within(limit_s: u64, words: &[&str]) -> Command {
    let timeout = limit_s.to_string();
    let mut all = vec!["run", "--json", REPORT, "--timeout", &timeout];
    all.extend(words);
    Command::new(CAUSEWAY, &all).limit(Duration::from_secs(limit_s + 20))
}

/// A script of the shell's.
pub fn shell(script: &str) -> Command {
    Command::new("/bin/sh", &["-c", script])
}

/// Runs the command, which must refuse the words with an exit code, and say these parts of why.
#[track_caller]
pub fn refused(machine: &Machine, words: &[&str], code: i32, parts: &[&str]) -> Outcome {
    let words: Vec<_> = ["run"].iter().chain(words).copied().collect();
    let outcome = machine.run(&Command::new(CAUSEWAY, &words));
    outcome.assert_code(code);
    for part in parts {
        let said = outcome.stderr.contains(part);
        assert!(said, "`{part}` is not in {}", outcome.text());
    }
    outcome
}

/// Asserts that no access of a data phase left the guest to user space, by either counter. (KVM
/// itself emulates instructions for interrupt controllers and timers.)
#[track_caller]
pub fn assert_data_stays_inside(report: &Report) {
    let mut operations = 0;
    for phase in report.phases().filter(|phase| phase.is_data()) {
        let kvm = (phase.kvm("mmio_exits"), phase.kvm("io_exits"));
        let own = (phase.vmm("mmio:"), phase.vmm("io:"));
        assert_eq!((kvm, own), ((0, 0), (0, 0)), "{phase:?}");
        operations += phase.operations();
    }
    assert!(operations > 0, "nothing was done on the data path");
}

/// Runs guests to their end, and reads the report. A triple fault of a guest may be the emulator's
/// (docs/nested.md, "What was seen, and how far it is explained"): it is printed with the guest's
/// registers, and the guests run once more.
#[track_caller]
pub fn run(machine: &Lease, words: &[&str]) -> (Outcome, Report) {
    run_within(LIMIT_S, machine, words)
}

/// Does what [`run`] does, with a time limit in seconds.
#[track_caller]
pub fn run_within(limit_s: u64, machine: &Lease, words: &[&str]) -> (Outcome, Report) {
    let command = run_command_within(limit_s, words);
    let mut outcome = machine.run(&command);
    if outcome.stderr.contains("triple fault") {
        let trace = machine.read(SHUTDOWNS).unwrap_or_default();
        let trace = String::from_utf8_lossy(&trace);
        eprintln!("once more after {}\n{trace}", outcome.text());
        outcome = machine.run(&command);
    }
    let text = machine.read(REPORT);
    let text = text.unwrap_or_else(|error| panic!("{error}: {}", outcome.text()));
    let report = Report::parse(&String::from_utf8_lossy(&text));
    (outcome, report)
}
