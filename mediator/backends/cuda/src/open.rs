//! Opens the GPU. Every input is checked, and every refusal says which values are possible.

use std::sync::Arc;

use causeway_mediator::backend::Attributes;
use causeway_protocol::registers::features;

use crate::addresses::Addresses;
use crate::config::{Config, Fabric, OpenError, Sms};
use crate::driver::{
    Context, CudaError, Device, Driver, GreenContext, Groups, Physical, PhysicalOptions,
    StreamMaker,
};
use crate::gpu::Gpu;
use crate::guest_ram::GuestRams;
use crate::host_registration::has_same_addresses;
use crate::idle::Idle;
use crate::others::Others;
use crate::output::Output;
use crate::pool::Pool;
use crate::repeats::Repeats;
use crate::support::{Attribute, Support};
use crate::words::Words;

/// Where the addresses of sessions begin if the driver wants to: those of a program on several GPUs
/// have to be the same on each, so that one can reach memory of another at its own address. It is
/// far from programs and their libraries, whose addresses no GPU mapping may have (CUDA C++
/// Programming Guide, "Unified Virtual Address Space").
const USUAL_BASE: u64 = 1 << 44;

/// GPU addresses to reserve for mappings of guests, in bytes; fewer if the driver has fewer.
const ADDRESSES_BYTES: u64 = 512 << 30;
/// Freed memory may be kept for reuse up to one `POOL_SHARE`th of the memory that guests can have,
/// or up to `POOL_BYTES_MIN` if that is more.
const POOL_SHARE: u64 = 8;
const POOL_BYTES_MIN: u64 = 256 << 20;
/// Most freed host memory that is kept for reuse.
const HOST_POOL_BYTES: u64 = 64 << 20;
/// Longest name of the device, in bytes.
const NAME_BYTES_MAX: usize = 64;

/// A GPU with its name and attributes, before it is configured.
struct Candidate {
    device: Device,
    name: String,
    support: Support,
}

impl Candidate {
    fn failed(&self, doing: &'static str) -> impl Fn(CudaError) -> OpenError + '_ {
        failed(&self.name, doing)
    }
}

/// Returns a function that makes an [`OpenError`] of the driver's error in the step `doing`.
fn failed(gpu: &str, doing: &'static str) -> impl Fn(CudaError) -> OpenError {
    move |source| OpenError::Driver {
        gpu: gpu.to_owned(),
        doing,
        source,
    }
}

/// Opens the GPU that `config` describes, and returns it with its attributes.
pub(crate) fn open(config: &Config) -> Result<(Arc<Gpu>, Attributes), OpenError> {
    let driver = Driver::get()?;
    let candidate = find(driver, config.device)?;
    let memory_bytes = memory(&candidate, config.memory_bytes)?;
    let home =
        Context::primary(candidate.device).map_err(candidate.failed("creating a context"))?;
    check_fabric(&candidate, &home, config.fabric)?;
    let (green, multiprocessors) = match config.sms {
        None => (None, candidate.support.count(Attribute::Multiprocessors)),
        Some(sms) => {
            let (green, count) = limit(&candidate, &home, sms)?;
            (Some(Arc::new(green)), count)
        }
    };
    let widest = PhysicalOptions::EXPORTABLE.with_fabric(config.fabric != Fabric::default());
    let granularity_bytes = Physical::granularity_bytes(&home, widest)
        .map_err(candidate.failed("asking for the granularity of memory"))?;
    let reserve = |bytes, hint| {
        let reserved = Addresses::reserve(&home, (bytes, hint), granularity_bytes);
        reserved.map_err(candidate.failed("reserving GPU addresses"))
    };
    let greatest_priority = home
        .greatest_priority()
        .map_err(candidate.failed("asking for the priorities of streams"))?;
    let words = Words::load(&home).map_err(candidate.failed("loading its own kernels"))?;
    let maker = StreamMaker {
        context: Arc::clone(&home),
        green: None,
    };
    let gpu = Gpu {
        chunks: Pool::new((memory_bytes / POOL_SHARE).max(POOL_BYTES_MIN.min(memory_bytes))),
        host_chunks: Pool::new(HOST_POOL_BYTES),
        rams: GuestRams::default(),
        repeats: Repeats::new(memory_bytes),
        scrubber: maker
            .stream()
            .map_err(candidate.failed("creating a stream"))?,
        gate: Arc::default(),
        // Pieces of any size come and go there: twice as much as there is memory leaves room
        // between them.
        aliases: reserve((memory_bytes * 2).next_power_of_two().max(8 << 30), 0)?,
        addresses: reserve(ADDRESSES_BYTES, USUAL_BASE)?,
        green,
        words: Arc::new(words),
        idle: Idle::new(&home),
        home,
        device: candidate.device,
        others: Others::new(config.devices_of_run.clone()),
        support: candidate.support.clone(),
        config: config.clone(),
        granularity_bytes,
        output: config.captures_output.then(capture_output).flatten(),
        memory_bytes,
        taken_bytes: Arc::default(),
        multiprocessors,
        greatest_priority,
    };
    let attributes = attributes(&gpu, &candidate.name);
    Ok((Arc::new(gpu), attributes))
}

/// Returns the pipe in the place of standard output. Without one, kernels cannot print.
fn capture_output() -> Option<Arc<Output>> {
    Output::capture()
        .inspect_err(|e| log::warn!("kernels of guests cannot print, because no pipe is left: {e}"))
        .ok()
}

/// Refuses a GPU whose memory gets no fabric handles, if guests are to use some: before there is a
/// guest that would be told, not the operator. An attribute that says yes does not suffice: without
/// an IMEX channel, the driver refuses all the same.
fn check_fabric(
    candidate: &Candidate,
    home: &Arc<Context>,
    wanted: Fabric,
) -> Result<(), OpenError> {
    if wanted == Fabric::default() {
        return Ok(());
    }
    let refused = |reason| OpenError::Fabric {
        gpu: candidate.name.clone(),
        reason,
    };
    let attribute = Attribute::Fabric;
    if !candidate.support.has(attribute) {
        return Err(refused(format!("{} is 0", attribute.name())));
    }
    let options = PhysicalOptions::EXPORTABLE.with_fabric(true);
    let tried = Physical::granularity_bytes(home, options)
        .and_then(|bytes| Physical::create(home, bytes, options));
    tried.map(drop).map_err(|error| refused(error.to_string()))
}

fn find(driver: &'static Driver, index: u32) -> Result<Candidate, OpenError> {
    let number = format!("GPU {index}");
    let unnamed = |doing| failed(&number, doing);
    let count = Device::count(driver).map_err(unnamed("counting GPUs"))?;
    if index >= count {
        let name = |i| Device::get(driver, i).and_then(Device::name);
        return Err(OpenError::Index {
            wanted: index,
            names: (0..count).filter_map(|i| name(i).ok()).collect(),
        });
    }
    let device = Device::get(driver, index).map_err(unnamed("finding it"))?;
    let name = device.name().map_err(unnamed("asking for its name"))?;
    let support = Support::query(device);
    if let Some(attribute) = support.missing() {
        return Err(OpenError::Attribute {
            gpu: name,
            attribute: attribute.name(),
            value: support.value(attribute).unwrap_or(0),
        });
    }
    if support.has(Attribute::Pageable) {
        log::warn!(
            "{name}: kernels of a guest can access all memory of the host process that runs them, \
             because the driver reports 1 for attribute {attribute}; to prevent this, load the \
             kernel module nvidia_uvm with uvm_disable_hmm=1",
            attribute = Attribute::Pageable.name()
        );
    }
    Ok(Candidate {
        device,
        name,
        support,
    })
}

/// Returns the memory to give out, in bytes.
fn memory(candidate: &Candidate, wanted: Option<u64>) -> Result<u64, OpenError> {
    let has = candidate.device.memory_bytes();
    let has = has.map_err(candidate.failed("asking for its memory"))?;
    let wanted = wanted.unwrap_or(has);
    if wanted > has {
        return Err(OpenError::Memory {
            gpu: candidate.name.clone(),
            has_mib: has >> 20,
            wanted_mib: wanted >> 20,
        });
    }
    Ok(wanted)
}

/// Returns a green context with a part of the multiprocessors, and the number of multiprocessors
/// that it has.
fn limit(
    candidate: &Candidate,
    home: &Arc<Context>,
    sms: Sms,
) -> Result<(GreenContext, u32), OpenError> {
    let has = candidate.support.count(Attribute::Multiprocessors);
    if sms.count == 0 || sms.count > has {
        return Err(OpenError::Multiprocessors {
            gpu: candidate.name.clone(),
            has,
            wanted: sms.count,
        });
    }
    let split = Groups::split(candidate.device, sms.count);
    let mut groups = split.map_err(candidate.failed("splitting its multiprocessors"))?;
    match groups.create(home, sms.group) {
        Some(green) => {
            let green = green.map_err(candidate.failed("creating a green context"))?;
            Ok((green, groups.each))
        }
        None => Err(OpenError::Group {
            gpu: candidate.name.clone(),
            total: groups.total,
            wanted: sms.count,
            each: groups.each,
            groups: groups.count(),
            group: sms.group,
        }),
    }
}

fn attributes(gpu: &Gpu, name: &str) -> Attributes {
    let support = &gpu.support;
    let all = support.count(Attribute::Multiprocessors);
    let part = match gpu.multiprocessors {
        some if some == all => format!("{all} SMs"),
        some => format!("{some} of {all} SMs"),
    };
    let mut name = format!("cuda, {name}, {part}");
    name.truncate(name.floor_char_boundary(NAME_BYTES_MAX));
    let shared = support.count(Attribute::SharedOptIn);
    Attributes {
        name,
        memory_bytes: gpu.memory_bytes,
        granularity_bytes: gpu.granularity_bytes,
        va: gpu.addresses.range(),
        compute_units: gpu.multiprocessors,
        warp_threads: support.count(Attribute::Warp),
        block_threads_max: support.count(Attribute::ThreadsPerBlock),
        shared_bytes_max: shared.max(support.count(Attribute::Shared)),
        features: features(gpu),
    }
}

/// Returns what guests may use, as bits of [`features`].
fn features(gpu: &Gpu) -> u64 {
    let always = features::KERNELS | features::SHARING | features::RECORDING;
    let optional = [
        (
            gpu.support.has(Attribute::HostRegister),
            features::GUEST_RAM,
        ),
        (has_same_addresses(&gpu.support), features::HOST_ADDRESSES),
        (
            gpu.support.has(Attribute::Compression),
            features::COMPRESSION,
        ),
        (gpu.config.visible.is_some(), features::DEVICE_VISIBLE),
        (gpu.greatest_priority != 0, features::PRIORITIES),
        (gpu.config.fabric.export, features::FABRIC_EXPORT),
        (gpu.config.fabric.import, features::FABRIC_IMPORT),
        (gpu.home.driver().has_arrays(), features::ARRAYS),
    ];
    let there = optional.into_iter().filter(|(is_there, _)| *is_there);
    there.fold(always, |all, (_, bit)| all | bit)
}
