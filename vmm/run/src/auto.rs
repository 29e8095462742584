//! `--gpu cuda:auto`: each VM gets one GPU of the host, where there is room.

use causeway_cuda::Room;
use causeway_mediator::Compute;
use causeway_terminal as terminal;
use causeway_terminal::Failure;

use crate::gpu::{Gpu, GpuError, Isolation, Kind};
use crate::gpus::unavailable;
use crate::placement::{FreeGpu, place};
use crate::rooms::RoomsError;

/// What stands for one GPU of the CUDA driver for each VM.
const AUTO: &str = "cuda:auto";

/// The GPUs of a run whose VMs have one each.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Placed {
    /// All GPUs of the host, in the syntax of `--gpu`.
    pub gpus: Vec<String>,
    /// The number of each VM's GPU, in the order of the VMs.
    pub of_vms: Vec<u32>,
}

/// Places `vms` VMs on GPUs, and prints where they are, if `asked`, the values of `--gpu`, is
/// `cuda:auto` with its keys. `rooms` tells what each GPU of the host has free, if each VM wants
/// that number of multiprocessors for itself.
///
/// # Errors
/// A usage failure if a key is invalid, if there is another `--gpu`, or if the VMs do not fit; a
/// GPU failure if the host has no usable driver.
pub(crate) fn place_vms(
    asked: &[String],
    vms: u32,
    rooms: impl FnOnce(Option<u32>) -> Result<Vec<Room>, RoomsError>,
) -> Result<Option<Placed>, Failure> {
    let Some((text, keys)) = asked.iter().find_map(|text| Some((text, keys(text)?))) else {
        return Ok(None);
    };
    if let Some(other) = asked.iter().find(|other| *other != text) {
        return Err(Failure::usage(format!(
            "--gpu {text} and --gpu {other} cannot be given together: cuda:auto gives each VM one \
             of all GPUs of the host; name the GPUs, such as --gpu cuda:0 --gpu cuda:1, if each VM \
             is to have several"
        )));
    }
    if asked.len() > 1 {
        return Err(Failure::usage(format!(
            "--gpu {text} is given {} times: give it once, for all VMs",
            asked.len()
        )));
    }
    let gpu = parse(text, keys)?;
    let sms = match gpu.kind {
        Kind::Cuda(options) => options.sms,
        Kind::Software(_) | Kind::Vfio(_) => None,
    };
    let rooms = rooms(sms).map_err(|error| unavailable(text, error))?;
    let free: Vec<FreeGpu> = rooms.iter().map(free).collect();
    let weights: Vec<u32> = (0..vms).map(|vm| weight(gpu.compute(vm))).collect();
    let Some(of_vms) = place(gpu.memory_bytes, &weights, &free) else {
        return Err(no_room(text, &gpu, vms, &rooms));
    };
    for line in lines(text, &of_vms, &rooms) {
        terminal::say(&line);
    }
    Ok(Some(Placed {
        gpus: (0..rooms.len())
            .map(|gpu| format!("cuda:{gpu}{keys}"))
            .collect(),
        of_vms: of_vms.into_iter().map(|gpu| gpu as u32).collect(),
    }))
}

/// Returns the keys with which `text`, a value of `--gpu`, asks for a GPU for each VM, the comma
/// before them included; `None` if it does not ask for that.
fn keys(text: &str) -> Option<&str> {
    let keys = text.strip_prefix(AUTO)?;
    (keys.is_empty() || keys.starts_with(',')).then_some(keys)
}

fn parse(text: &str, keys: &str) -> Result<Gpu, Failure> {
    let gpu: Gpu = format!("cuda{keys}")
        .parse()
        .map_err(|e: GpuError| Failure::usage(e.to_string()))?;
    match gpu.isolation {
        Isolation::Process => Ok(gpu),
        Isolation::None => Err(Failure::usage(format!(
            "invalid value none for isolation of --gpu {text}: VMs on several GPUs have a worker \
             process each; leave isolation out"
        ))),
    }
}

fn free(room: &Room) -> FreeGpu {
    FreeGpu {
        memory_bytes: room.free_bytes,
        groups: room.groups,
    }
}

/// Returns what a VM counts where weights are compared: a VM without a weight is like one with the
/// least.
fn weight(compute: Compute) -> u32 {
    compute.weight.unwrap_or(*Compute::WEIGHTS.start())
}

fn no_room(text: &str, gpu: &Gpu, vms: u32, rooms: &[Room]) -> Failure {
    let of_one = |(number, room): (usize, &Room)| {
        let groups = match room.groups {
            None => String::new(),
            Some(groups) => format!(" and {groups} such groups of multiprocessors"),
        };
        format!(
            "cuda:{number} has {} MiB free{groups}, room for {}",
            room.free_bytes >> 20,
            free(room).capacity(gpu.memory_bytes)
        )
    };
    let found: Vec<String> = rooms.iter().enumerate().map(of_one).collect();
    Failure::usage(format!(
        "--vms {vms} with --gpu {text} does not fit: each VM may use {} MiB of one GPU, and {}: \
         choose fewer VMs, or a smaller memory= or sms= for --gpu",
        gpu.memory_bytes >> 20,
        found.join("; ")
    ))
}

/// Returns a line for each GPU that has VMs.
fn lines(text: &str, of_vms: &[usize], rooms: &[Room]) -> Vec<String> {
    let line = |(number, room): (usize, &Room)| {
        let here = (0..of_vms.len()).filter(|vm| of_vms[*vm] == number);
        let names: Vec<String> = here.map(|vm| format!("vm{vm}")).collect();
        let line = format!(
            "causeway: --gpu {text} places {} on cuda:{number} ({}, {} MiB free)",
            names.join(", "),
            room.name,
            room.free_bytes >> 20
        );
        (!names.is_empty()).then_some(line)
    };
    rooms.iter().enumerate().filter_map(line).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn placed(asked: &[&str], vms: u32, free_mib: &[u64]) -> Result<Option<Placed>, String> {
        let asked: Vec<String> = asked.iter().map(|text| (*text).to_owned()).collect();
        let room = |sms: Option<u32>| {
            move |mib: &u64| Room {
                name: String::from("Test"),
                free_bytes: mib << 20,
                groups: sms.map(|sms| 100 / sms),
            }
        };
        let rooms = |sms| Ok(free_mib.iter().map(room(sms)).collect());
        place_vms(&asked, vms, rooms).map_err(|failure| failure.to_string())
    }

    #[test]
    fn vms_get_one_gpu_each_and_the_run_has_all() {
        let found = placed(&["cuda:auto,memory=8G,weight=2"], 3, &[70_000, 80_000]);
        let found = found.unwrap().unwrap();
        assert_eq!(found.of_vms, [1, 0, 1]);
        let gpus = ["cuda:0,memory=8G,weight=2", "cuda:1,memory=8G,weight=2"];
        assert_eq!(found.gpus, gpus);
        for other in [&["cuda:0"][..], &["cuda:all", "cuda:1"], &["cuda:autos"]] {
            let asked: Vec<String> = other.iter().map(|text| (*text).to_owned()).collect();
            let nobody = |_| panic!("nobody asks for GPUs");
            assert_eq!(place_vms(&asked, 1, nobody).unwrap(), None, "{other:?}");
        }
    }

    #[test]
    fn weights_are_shared_out_on_equal_gpus() {
        let found = placed(&["cuda:auto,weight=5:1"], 4, &[80_000, 80_000]);
        assert_eq!(found.unwrap().unwrap().of_vms, [0, 1, 1, 0]);
    }

    #[test]
    fn vms_that_do_not_fit_are_refused_with_what_is_free_where() {
        let message = placed(&["cuda:auto,memory=4G"], 4, &[4096, 9216]).unwrap_err();
        for words in [
            "--vms 4 with --gpu cuda:auto,memory=4G does not fit",
            "4096 MiB of one GPU",
            "cuda:0 has 4096 MiB free, room for 1; cuda:1 has 9216 MiB free, room for 2",
        ] {
            assert!(message.contains(words), "{message}");
        }
        let message = placed(&["cuda:auto,memory=1G,sms=50"], 5, &[80_000, 80_000]).unwrap_err();
        let words = "cuda:1 has 80000 MiB free and 2 such groups of multiprocessors, room for 2";
        assert!(message.contains(words), "{message}");
    }

    #[test]
    fn what_does_not_go_with_auto_is_refused_with_its_value() {
        for (asked, words) in [
            (
                &["cuda:auto", "cuda:1,memory=1G"][..],
                "--gpu cuda:auto and --gpu cuda:1,memory=1G cannot",
            ),
            (
                &["software", "cuda:auto"],
                "--gpu cuda:auto and --gpu software",
            ),
            (&["cuda:auto", "cuda:auto"], "is given 2 times"),
            (&["cuda:auto,isolation=none"], "invalid value none"),
            (&["cuda:auto,memory=0"], "memory"),
            (&["cuda:auto,color=red"], "color"),
        ] {
            let message = placed(asked, 1, &[80_000]).unwrap_err();
            assert!(message.contains(words), "{asked:?}: {message}");
        }
    }
}
