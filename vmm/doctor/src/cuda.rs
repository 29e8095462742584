//! Findings about CUDA: the driver, its GPUs, and the consequence of each GPU attribute for
//! Causeway.

use causeway_cuda::{
    Attribute, CudaError, GpuSurvey, LoadError, Survey, SurveyError, Trials, survey,
};

use causeway_vmm::numa;

use crate::check::Check;
use crate::cuda_pairs;

const NAME: &str = "CUDA";
const MEANS_NO: &str = "--gpu cuda is not available; --gpu software is";

/// Consequences of one attribute: with it, without it, and the way to get it.
struct Row {
    name: &'static str,
    attribute: Attribute,
    yes: &'static str,
    no: &'static str,
    how: &'static str,
}

const NEWER_GPU: &str = "use a GPU of the Volta generation or later with a current driver";

const ROWS: &[Row] = &[
    Row {
        name: "CUDA virtual memory",
        attribute: Attribute::VirtualMemory,
        yes: "allocations can be mapped where guests want them",
        no: "--gpu cuda cannot use this GPU",
        how: NEWER_GPU,
    },
    Row {
        name: "CUDA file descriptors",
        attribute: Attribute::PosixDescriptor,
        yes: "device memory can be shared with other VMs, and shown to guests through Vulkan",
        no: "--gpu cuda cannot use this GPU",
        how: NEWER_GPU,
    },
    Row {
        name: "CUDA unified addresses",
        attribute: Attribute::UnifiedAddressing,
        yes: "the GPU can copy between all kinds of memory",
        no: "--gpu cuda cannot use this GPU",
        how: NEWER_GPU,
    },
    Row {
        name: "CUDA stream stores",
        attribute: Attribute::StreamStores64,
        yes: "the GPU stores fences without a kernel launch",
        no: "the GPU stores fences by a small kernel, which takes longer",
        how: NEWER_GPU,
    },
    Row {
        name: "CUDA host memory",
        attribute: Attribute::HostRegister,
        yes: "the GPU can access host memory and guest RAM without copies",
        no: "the GPU cannot access host memory or guest RAM",
        how: NEWER_GPU,
    },
    Row {
        name: "CUDA read-only host memory",
        attribute: Attribute::HostRegisterReadOnly,
        yes: "host memory can be mapped read-only for the GPU",
        no: "guests cannot map host memory read-only for the GPU",
        how: "use memory of the GPU where a mapping must be read-only",
    },
    Row {
        name: "CUDA same addresses",
        attribute: Attribute::SameAddresses,
        yes: "host memory has the same address for CPU and GPU",
        no: "host memory has another address for the GPU than for the CPU; Causeway handles this",
        how: "nothing needs to be done",
    },
    Row {
        name: "CUDA peer devices",
        attribute: Attribute::Rdma,
        yes: "other PCI devices could access memory of the GPU; Causeway does not use this",
        no: "other PCI devices cannot access memory of the GPU; Causeway does not need this",
        how: "nothing needs to be done",
    },
    Row {
        name: "CUDA multicast",
        attribute: Attribute::Multicast,
        yes: "memory that several GPUs write at once would be possible; Causeway does not use this",
        no: "no memory that several GPUs write at once; Causeway does not need this",
        how: "nothing needs to be done",
    },
    Row {
        name: "CUDA NUMA host memory",
        attribute: Attribute::HostNumaVirtualMemory,
        yes: "the driver could allocate host memory; Causeway registers its own",
        no: "the driver cannot allocate host memory; Causeway registers its own",
        how: "nothing needs to be done",
    },
];

/// Checks the CUDA driver, its GPUs and their attributes, makes trial allocations, and returns the
/// findings.
pub fn findings() -> Vec<Check> {
    let survey = match survey() {
        Ok(survey) => survey,
        Err(error) => return vec![absent(&error)],
    };
    let mut findings = vec![present(&survey), pageable(&survey)];
    findings.extend(ROWS.iter().map(|row| attribute(&survey, row)));
    findings.push(node(&survey));
    findings.extend(cuda_pairs::findings(&survey));
    findings.extend([fabric(&survey), compressible(&survey), export(&survey)]);
    findings
}

fn absent(error: &SurveyError) -> Check {
    let how = match error {
        SurveyError::Load(LoadError::Missing) => {
            "install the NVIDIA driver with its CUDA library (libcuda.so.1)"
        }
        SurveyError::Load(LoadError::NoGpu) => "check that `lspci -d 10de:` lists the GPU",
        SurveyError::Load(LoadError::Symbol { .. } | LoadError::Old { .. }) => {
            "install a driver for CUDA 12.4 or later"
        }
        SurveyError::Load(LoadError::Init { .. }) | SurveyError::Driver(_) => {
            "load the kernel module (modprobe nvidia); nvidia-smi shows details"
        }
    };
    let found = match error {
        SurveyError::Load(LoadError::Missing) => String::from("libcuda.so.1 is not installed"),
        SurveyError::Load(LoadError::Init { source }) => source.to_string(),
        error => error.to_string(),
    };
    Check::no(NAME, found, MEANS_NO, how)
}

fn present(survey: &Survey) -> Check {
    let (major, minor) = (survey.version / 1000, survey.version % 1000 / 10);
    let gpu = |(index, gpu): (usize, &GpuSurvey)| {
        format!(
            "GPU {index}: {}, sm_{}, {} GiB, {} SMs",
            gpu.name,
            gpu.support.architecture(),
            gpu.memory_bytes >> 30,
            gpu.support.count(Attribute::Multiprocessors)
        )
    };
    let gpus: Vec<String> = survey.gpus.iter().enumerate().map(gpu).collect();
    Check::yes(
        NAME,
        format!("driver for CUDA {major}.{minor}; {}", gpus.join("; ")),
        "GPUs that --gpu cuda shares among guests",
    )
}

/// Returns the result of `of` for each GPU, in order.
fn each(survey: &Survey, of: impl Fn(&GpuSurvey) -> String) -> String {
    let all: Vec<String> = survey.gpus.iter().map(of).collect();
    all.join(", ")
}

/// Returns an attribute with its value for each GPU.
fn value(survey: &Survey, attribute: Attribute) -> String {
    let values = each(survey, |gpu| match gpu.support.value(attribute) {
        Ok(value) => value.to_string(),
        Err(error) => format!("the driver does not know this attribute ({})", error.code),
    });
    format!("{} is {values}", attribute.name())
}

fn attribute(survey: &Survey, row: &Row) -> Check {
    let found = value(survey, row.attribute);
    let all = |gpu: &GpuSurvey| gpu.support.has(row.attribute);
    if survey.gpus.iter().all(all) {
        Check::yes(row.name, found, row.yes)
    } else {
        Check::no(row.name, found, row.no, row.how)
    }
}

/// Returns the finding about NUMA nodes. Every value is good.
fn node(survey: &Survey) -> Check {
    let gpu = |(index, gpu): (usize, &GpuSurvey)| {
        let address = &gpu.pci_address;
        format!(
            "GPU {index} ({address}): {}",
            shown_node(numa::of_device(address))
        )
    };
    let gpus: Vec<String> = survey.gpus.iter().enumerate().map(gpu).collect();
    let by_driver = value(survey, Attribute::HostNuma);
    Check::yes(
        "CUDA NUMA node",
        format!("{}; {by_driver}", gpus.join(", ")),
        "the host's NUMA node that is nearest to each GPU, by sysfs and by the driver (-1: none)",
    )
}

/// Returns a NUMA node in words.
pub(crate) fn shown_node(node: Option<u32>) -> String {
    node.map_or_else(
        || String::from("an unknown node"),
        |node| format!("node {node}"),
    )
}

/// Returns the finding about pageable memory access, the one attribute whose presence is a
/// drawback.
fn pageable(survey: &Survey) -> Check {
    let name = "CUDA pageable memory";
    let found = value(survey, Attribute::Pageable);
    let any = |gpu: &GpuSurvey| gpu.support.has(Attribute::Pageable);
    if survey.gpus.iter().any(any) {
        return Check::partly(
            name,
            found,
            "kernels of a guest can read and write all memory of the worker process that runs \
             them; only that process confines the guest",
            "load the kernel module nvidia_uvm with uvm_disable_hmm=1",
        );
    }
    Check::yes(
        name,
        found,
        "kernels can access only memory that is mapped for the GPU",
    )
}

/// Returns the finding about a trial allocation. Both the attribute, if there is one, and the trial
/// must succeed: the driver may grant a property that it lacks, and refuse one that it has.
fn trial(
    survey: &Survey,
    (name, attribute): (&'static str, Option<Attribute>),
    of: impl Fn(&Trials) -> &Result<(), CudaError>,
    yes: &str,
    no: (&str, &str),
) -> Check {
    let tried = each(survey, |gpu| match of(&gpu.trials) {
        Ok(()) => String::from("works"),
        Err(error) => error.to_string(),
    });
    let found = match attribute {
        Some(attribute) => format!("{}; allocating 2 MiB: {tried}", value(survey, attribute)),
        None => tried,
    };
    let has = |gpu: &GpuSurvey| attribute.is_none_or(|attribute| gpu.support.has(attribute));
    let all = |gpu: &GpuSurvey| has(gpu) && of(&gpu.trials).is_ok();
    if survey.gpus.iter().all(all) {
        Check::yes(name, found, yes)
    } else {
        Check::no(name, found, no.0, no.1)
    }
}

fn fabric(survey: &Survey) -> Check {
    trial(
        survey,
        ("CUDA fabric handle", Some(Attribute::Fabric)),
        |trials| &trials.fabric,
        "guests may share memory with other machines, with --gpu cuda,fabric=both",
        (
            "memory cannot be shared with other machines; nothing else needs it",
            causeway_cuda::FABRIC_WAY_OUT,
        ),
    )
}

fn compressible(survey: &Survey) -> Check {
    trial(
        survey,
        ("CUDA compressible memory", Some(Attribute::Compression)),
        |trials| &trials.compressible,
        "guests may ask for compressible memory",
        (
            "compressible memory is refused; other memory is not",
            "use a data-centre GPU of the Ampere generation or later",
        ),
    )
}

fn export(survey: &Survey) -> Check {
    trial(
        survey,
        ("CUDA export", None),
        |trials| &trials.export,
        "device memory can be handed to other processes",
        (
            "device memory cannot be shared or mapped for guests",
            "run outside of a container that forbids system calls (ioctl) of the driver",
        ),
    )
}
