//! `--sandbox`: whether worker processes and VMMs confine themselves.

use std::path::PathBuf;

use causeway_cuda::Fabric;
use causeway_sandbox::{Profile, Sandbox, confine_thread};
use causeway_terminal::{Code, Failure};
use causeway_worker::Confinement;
use clap::Args;
use clap::builder::{PossibleValuesParser, TypedValueParser};

use crate::gpu::{Gpu, Isolation, Kind};

/// What reports tell of the host at their end.
const OF_REPORTS: [&str; 1] = ["/proc/loadavg"];

/// Arguments about the confinement of worker processes, which `run`, `serve` and `cuda` have.
#[derive(Clone, Copy, Debug, Args)]
pub struct SandboxArguments {
    /// Whether worker processes, and `run` when it has opened what it needs, confine themselves:
    /// on, with what this host has for that; strict, or end if it lacks something; off, for
    /// comparison and to find mistakes (docs/security.md).
    #[arg(long, value_name = "HOW", default_value = "on", value_parser = parser())]
    pub sandbox: Sandbox,
}

fn parser() -> impl TypedValueParser<Value = Sandbox> {
    let names = Sandbox::ALL.map(Sandbox::name);
    PossibleValuesParser::new(names).try_map(|name| name.parse())
}

/// Refuses `--sandbox strict` where sessions run in the VMM's process, which is not confined.
/// `gpu_text` is the value of `--gpu` from which `gpu` was parsed.
pub(crate) fn check(sandbox: Sandbox, gpu: &Gpu, gpu_text: &str) -> Result<(), Failure> {
    if sandbox != Sandbox::Strict || gpu.isolation == Isolation::Process {
        return Ok(());
    }
    let way_out = match gpu.kind {
        Kind::Software(_) | Kind::Cuda(_) => "add isolation=process to --gpu",
        Kind::Vfio(_) => "use another back end, or --sandbox on",
    };
    Err(Failure::usage(format!(
        "invalid value strict for --sandbox: with --gpu {gpu_text}, sessions have no worker \
         processes that could be confined; {way_out}"
    )))
}

/// Returns how a worker process with back end `kind` confines itself.
pub(crate) fn confinement(sandbox: Sandbox, kind: Kind) -> Confinement {
    Confinement {
        sandbox,
        profile: match kind {
            Kind::Software(_) => Profile {
                makes_code: makes_code(kind),
                ..Profile::computation()
            },
            Kind::Cuda(options) if options.fabric != Fabric::default() => {
                Profile::driver().with_fabric()
            }
            Kind::Cuda(_) | Kind::Vfio(_) => Profile::driver(),
        },
    }
}

/// What a VMM needs that most do not.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Needs {
    /// Whether VMs have PCI devices of the host.
    pub devices: bool,
    /// Whether a back end in its process maps code that it has made.
    pub code: bool,
}

/// What a run removes at its end.
#[derive(Debug, Default)]
pub(crate) struct Own {
    /// Folders of its sockets.
    pub sockets: Vec<PathBuf>,
    /// The folder of its workers' control groups.
    pub groups: Option<PathBuf>,
}

/// Confines this thread, and those that it starts from now on, if `--sandbox` wants that: the whole
/// process of `run`, if its other threads are confined, too. It has opened what it needs by then.
/// Nothing is confined if these threads call CUDA's driver themselves. `own` is
/// what is removed at the end.
///
/// # Errors
/// A failure with [`Code::Crashed`] if the host lacks what `--sandbox strict` demands.
pub(crate) fn confine_vmm(
    sandbox: Sandbox,
    gpu: &Gpu,
    needs: Needs,
    own: Own,
) -> Result<(), Failure> {
    let calls_driver = matches!(gpu.kind, Kind::Cuda(_)) && gpu.isolation == Isolation::None;
    if sandbox == Sandbox::Off || calls_driver {
        return Ok(());
    }
    let mut profile = Profile {
        sockets: own.sockets,
        divided: own.groups.into_iter().collect(),
        folder: causeway_memory::large_page_folder(),
        makes_code: needs.code,
        ..Profile::computation()
    };
    profile.read.extend(OF_REPORTS.map(PathBuf::from));
    if needs.devices || matches!(gpu.kind, Kind::Vfio(_)) {
        profile.read.push(PathBuf::from("/sys"));
        let devices = ["/dev/vfio", "/dev/iommu"];
        profile.devices.extend(devices.map(PathBuf::from));
        // To watch files of devices that only root may read.
        profile.keeps_capabilities = true;
    }
    confine(sandbox, &profile, "the VMM")
}

impl Needs {
    /// Returns what a run with these GPUs, and with PCI devices if it `has_devices`, needs.
    pub(crate) fn of<'a>(gpus: impl IntoIterator<Item = &'a Gpu>, has_devices: bool) -> Self {
        let makes_code = |gpu: &Gpu| gpu.isolation == Isolation::None && makes_code(gpu.kind);
        Self {
            devices: has_devices,
            code: gpus.into_iter().any(makes_code),
        }
    }
}

/// Returns whether a back end maps code that it has made.
fn makes_code(kind: Kind) -> bool {
    matches!(kind, Kind::Software(options) if options.makes_code())
}

/// Confines this thread, and those that it starts from now on.
fn confine(sandbox: Sandbox, profile: &Profile, what: &str) -> Result<(), Failure> {
    let missing = confine_thread(profile);
    let names: Vec<_> = missing.iter().map(|it| it.mechanism.name()).collect();
    if sandbox == Sandbox::Strict
        && let Some(first) = missing.into_iter().next()
    {
        let what = format!("cannot confine {what} as --sandbox strict demands");
        return Err(Failure::new(Code::Crashed, what, first));
    }
    if !names.is_empty() {
        log::warn!(
            "{what} is confined without {}, which this host lacks: `causeway doctor` says why, \
             and what would help",
            names.join(", ")
        );
    }
    Ok(())
}

/// Returns the function by which a thread of the VMM confines itself that calls a driver for the
/// others.
pub(crate) fn confine_driver_thread(
    sandbox: Sandbox,
) -> impl FnOnce() -> Result<(), Failure> + Send + 'static {
    move || match sandbox {
        Sandbox::Off => Ok(()),
        Sandbox::On | Sandbox::Strict => confine(
            sandbox,
            &Profile::driver(),
            "what calls the driver for the VMM",
        ),
    }
}

#[cfg(test)]
#[path = "../../../mediator/worker/src/tests/attempts.rs"]
mod attempts;

#[cfg(test)]
mod tests {
    use super::*;
    use libc::{EACCES, ENOSYS, EPERM};
    use std::io::ErrorKind;

    /// What the filter does not refuse, beside what drivers do: a VMM ends worker processes,
    /// answers monitors, and removes its sockets.
    const NEEDED: [&str; 5] = ["accept4", "listen", "pidfd_send_signal", "rmdir", "unlink"];

    #[test]
    fn a_thread_of_a_vmm_is_refused_what_a_worker_is() {
        let confined = std::thread::spawn(|| {
            confine_vmm(
                Sandbox::Strict,
                &"cuda".parse().unwrap(),
                Needs::default(),
                Own::default(),
            )
            .unwrap();
            attempts::report()
        });
        let report = confined.join().unwrap();
        let report = String::from_utf8(report).unwrap();
        let (of_drivers, mut refused) = (attempts::attempts().1, 0);
        for line in report.lines() {
            let (error, name) = line.split_once(' ').unwrap();
            match error.parse().unwrap() {
                EPERM | EACCES | ENOSYS => refused += 1,
                error => assert!(
                    of_drivers.iter().any(|(it, _)| *it == name) || NEEDED.contains(&name),
                    "{name}: {error}"
                ),
            }
        }
        assert!(refused >= 100, "{refused}: {report}");
        // The thread that started it is not confined.
        std::fs::File::open("/").unwrap();
    }

    #[test]
    fn a_vmm_opens_devices_to_write_only_if_it_passes_some_through() {
        let opens = |has_devices, path: &'static str| {
            let confined = std::thread::spawn(move || {
                let gpu = "software".parse().unwrap();
                let needs = Needs::of(&[], has_devices);
                confine_vmm(Sandbox::Strict, &gpu, needs, Own::default()).unwrap();
                let opened = std::fs::File::options().read(true).write(true).open(path);
                opened.map_err(|e| e.kind())
            });
            confined.join().unwrap()
        };
        let refused = |outcome: Result<_, _>| outcome.unwrap_err() == ErrorKind::PermissionDenied;
        // Of the devices of the profile, the one that every machine has.
        assert!(opens(true, "/dev/null").is_ok());
        assert!(refused(opens(true, "/dev/zero")));
        assert!(refused(opens(false, "/dev/null")));
    }

    #[test]
    fn a_vmm_removes_its_sockets_and_groups_and_no_other_file() {
        let folder = std::env::temp_dir().join(format!("causeway-files-{}", std::process::id()));
        let (sockets, others) = (folder.join("sockets"), folder.join("others/more"));
        for folder in [&sockets, &others] {
            std::fs::create_dir_all(folder).unwrap();
            std::fs::write(folder.join("file"), "").unwrap();
        }
        let all = std::env::temp_dir().join(format!("causeway-divided-{}", std::process::id()));
        let [groups, undivided] = ["groups", "others"].map(|name| all.join(name));
        for group in [&groups, &undivided] {
            std::fs::create_dir_all(group.join("empty")).unwrap();
        }
        let own = Own {
            sockets: vec![sockets.clone()],
            groups: Some(groups.clone()),
        };
        let confined = std::thread::spawn(move || {
            let gpu = "software".parse().unwrap();
            confine_vmm(Sandbox::Strict, &gpu, Needs::default(), own).unwrap();
            std::fs::remove_file(sockets.join("file")).unwrap();
            std::fs::remove_dir(&sockets).unwrap();
            std::fs::remove_dir(groups.join("empty")).unwrap();
            let kind = |refused: std::io::Result<()>| refused.unwrap_err().kind();
            let refused = kind(std::fs::remove_file(others.join("file")));
            assert_eq!(refused, ErrorKind::PermissionDenied);
            let refused = kind(std::fs::remove_dir(undivided.join("empty")));
            assert_eq!(refused, ErrorKind::PermissionDenied);
            let refused = kind(std::fs::write(others.join("file"), "text"));
            assert_eq!(refused, ErrorKind::PermissionDenied);
        });
        let outcome = confined.join();
        std::fs::remove_dir_all(&folder).unwrap();
        std::fs::remove_dir_all(&all).unwrap();
        outcome.unwrap();
    }

    #[test]
    fn only_the_process_that_compiles_kernels_maps_code() {
        let gpus = |texts: &[&str]| -> Vec<Gpu> {
            let gpus = texts.iter().map(|text| text.parse().unwrap());
            gpus.collect()
        };
        let compiled = |isolation| format!("software,engine=compiled,isolation={isolation}");
        let [here, there] = ["none", "process"].map(compiled);
        // Without AVX2 nothing is compiled.
        let is_possible = is_x86_feature_detected!("avx2");
        for (texts, code) in [
            (["software", here.as_str()], is_possible),
            (["software", there.as_str()], false),
            (["cuda", "software,isolation=none"], false),
        ] {
            assert_eq!(Needs::of(&gpus(&texts), false).code, code, "{texts:?}");
        }
        for (text, makes_code) in [(there.as_str(), is_possible), ("software", false)] {
            let gpu: Gpu = text.parse().unwrap();
            let profile = confinement(Sandbox::On, gpu.kind).profile;
            assert_eq!(profile.makes_code, makes_code, "{text}");
        }
    }

    #[test]
    fn workers_reach_the_channels_of_a_fabric_only_if_guests_are_to_use_it() {
        let channels = PathBuf::from("/dev/nvidia-caps-imex-channels");
        let reaches = |text: &str| {
            let gpu: Gpu = text.parse().unwrap();
            let profile = confinement(Sandbox::On, gpu.kind).profile;
            profile.devices.contains(&channels)
        };
        assert!(!reaches("cuda") && !reaches("cuda,fabric=no") && !reaches("software"));
        assert!(reaches("cuda,fabric=export") && reaches("cuda,fabric=import"));
    }

    #[test]
    fn strict_is_refused_where_nothing_is_confined() {
        let check = |sandbox, text: &str| check(sandbox, &text.parse().unwrap(), text);
        for text in ["software,isolation=process", "cuda"] {
            check(Sandbox::Strict, text).unwrap();
        }
        for text in ["software", "cuda,isolation=none", "vfio:0000:00:03.0"] {
            check(Sandbox::On, text).unwrap();
            let refused = check(Sandbox::Strict, text).unwrap_err().to_string();
            assert!(refused.contains("strict"), "{refused}");
        }
    }
}
