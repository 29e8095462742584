//! The values of `--gpu`: a back end is chosen for `auto`, and several of them are the GPUs that each
//! VM of a run has.

use causeway_protocol::message::GPUS_MAX as RUN_GPUS_MAX;
use causeway_terminal as terminal;
use causeway_terminal::{Code, Failure};
use causeway_vmm::vm::GPUS_MAX;

use crate::gpu::{Gpu, GpuError, Isolation, Kind};

/// What stands for all GPUs of the CUDA driver.
const ALL: &str = "cuda:all";

/// Returns the failure of a command whose back end `gpu_text` (a value of `--gpu`) is not available
/// on this host. `error` says why.
pub fn unavailable(
    gpu_text: &str,
    error: impl std::error::Error + Send + Sync + 'static,
) -> Failure {
    let asked = format!("--gpu {gpu_text} is not available");
    Failure::new(Code::Gpu, asked, error)
}

/// Parses `text`, the value of `--gpu`, and returns it parsed and as text. If the back end is
/// `auto`, this function chooses a back end, puts it into both results, and prints the choice.
///
/// # Errors
/// A usage failure if `text` is not a value of `--gpu`.
pub fn choose_gpu(text: &str) -> Result<(Gpu, String), Failure> {
    let mut found = None;
    let chosen = Gpu::choose(text, || {
        let gpus = causeway_cuda::identities();
        found = Some(match &gpus {
            Ok(gpus) if !gpus.is_empty() => gpus[0].name.clone(),
            Ok(_) => String::from("no GPU found"),
            Err(e) => e.to_string(),
        });
        gpus.is_ok_and(|gpus| !gpus.is_empty())
    });
    let gpu = chosen
        .parse()
        .map_err(|e: GpuError| Failure::usage(e.to_string()))?;
    if let Some(found) = found {
        terminal::say(&format!(
            "causeway: --gpu {text} selects {chosen} on this host ({found})"
        ));
    }
    Ok((gpu, chosen))
}

/// Parses the values of all `--gpu`, which `asked` yields, and returns each GPU with its text.
/// `cuda:all` stands for all GPUs of the host.
///
/// # Errors
/// A usage failure if a value is invalid, or a VM cannot have these GPUs together; a GPU failure
/// if a value stands for all GPUs of a host that has no driver.
pub fn choose<'a>(asked: impl Iterator<Item = &'a String>) -> Result<Vec<(Gpu, String)>, Failure> {
    let chosen = choose_for_run(asked)?;
    match chosen.get(GPUS_MAX as usize) {
        None => Ok(chosen),
        Some((_, text)) => Err(Failure::usage(format!(
            "--gpu {text} is one GPU too many: a VM has {GPUS_MAX} at most"
        ))),
    }
}

/// As [`choose`], for a run whose VMs each have one of the GPUs: there can be more of them.
///
/// # Errors
/// As for [`choose`].
pub(crate) fn choose_for_run<'a>(
    asked: impl Iterator<Item = &'a String>,
) -> Result<Vec<(Gpu, String)>, Failure> {
    let mut gpus: Vec<(Gpu, String)> = Vec::new();
    for text in asked.flat_map(|text| expand(text, || Ok(causeway_cuda::identities()?.len()))) {
        let (gpu, text) = choose_gpu(&text?)?;
        together(&gpus, &gpu, &text)?;
        gpus.push((gpu, text));
    }
    Ok(gpus)
}

/// Returns the values that `text` stands for: itself, or one for each GPU.
fn expand(
    text: &str,
    count: impl FnOnce() -> Result<usize, causeway_cuda::SurveyError>,
) -> Vec<Result<String, Failure>> {
    let keys = text.strip_prefix(ALL);
    let Some(keys) = keys.filter(|keys| keys.is_empty() || keys.starts_with(',')) else {
        return vec![Ok(text.to_owned())];
    };
    match count() {
        Ok(count) => (0..count)
            .map(|number| Ok(format!("cuda:{number}{keys}")))
            .collect(),
        Err(error) => vec![Err(unavailable(text, error))],
    }
}

/// Refuses a GPU that cannot be in one VM with those `before` it.
fn together(before: &[(Gpu, String)], gpu: &Gpu, text: &str) -> Result<(), Failure> {
    let Some((first, first_text)) = before.first() else {
        return Ok(());
    };
    let same = match (first.kind, gpu.kind) {
        (Kind::Software(_), Kind::Software(_)) | (Kind::Cuda(_), Kind::Cuda(_)) => true,
        (Kind::Software(_) | Kind::Cuda(_) | Kind::Vfio(_), _) => false,
    };
    if !same {
        return Err(Failure::usage(format!(
            "--gpu {first_text} and --gpu {text} cannot be in one VM: all GPUs of a VM are of one \
             back end, software or cuda"
        )));
    }
    if first.isolation != gpu.isolation {
        return Err(Failure::usage(format!(
            "--gpu {first_text} and --gpu {text} differ in their isolation: give isolation={} to \
             both, or to none of them",
            gpu.isolation.name()
        )));
    }
    if matches!(gpu.kind, Kind::Cuda(_)) && gpu.isolation == Isolation::None {
        return Err(Failure::usage(format!(
            "invalid value none for isolation of --gpu {text}: a VM with several GPUs has a worker \
             process for each, so that a fault on one leaves the others; leave isolation out"
        )));
    }
    if before
        .iter()
        .any(|(other, _)| other.device() == gpu.device())
    {
        return Err(Failure::usage(format!(
            "--gpu {text} names a GPU that another --gpu names, too: each GPU can be given once, \
             such as cuda:0 and cuda:1"
        )));
    }
    if before.len() >= RUN_GPUS_MAX as usize {
        return Err(Failure::usage(format!(
            "--gpu {text} is one GPU too many: a run has {RUN_GPUS_MAX} at most"
        )));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn chosen(asked: &[&str]) -> Result<Vec<String>, String> {
        let asked: Vec<String> = asked.iter().map(|text| (*text).to_owned()).collect();
        let gpus = choose(asked.iter()).map_err(|failure| failure.to_string())?;
        Ok(gpus.into_iter().map(|(_, text)| text).collect())
    }

    #[test]
    fn gpus_of_one_back_end_can_be_in_one_vm() {
        let asked = ["software:0,memory=64", "software:1", "software:7,memory=2G"];
        assert_eq!(chosen(&asked).unwrap(), asked);
        let asked = ["cuda", "cuda:1,weight=2"];
        assert_eq!(chosen(&asked).unwrap(), asked);
    }

    #[test]
    fn gpus_that_cannot_be_in_one_vm_are_refused_with_their_names() {
        for (asked, words) in [
            (&["software", "cuda"][..], "--gpu software and --gpu cuda"),
            (&["vfio:0000:01:00.0", "software"], "of one back end"),
            (
                &["software", "software:0"],
                "--gpu software:0 names a GPU that another",
            ),
            (
                &["cuda:1,memory=1G", "cuda:0", "cuda:1"],
                "--gpu cuda:1 names a GPU",
            ),
            (
                &["software", "software:1,isolation=process"],
                "give isolation=process to both",
            ),
            (
                &["cuda,isolation=none", "cuda:1,isolation=none"],
                "invalid value none",
            ),
            (&["software:64"], "64"),
        ] {
            let message = chosen(asked).unwrap_err();
            assert!(message.contains(words), "{asked:?}: {message}");
        }
        let many: Vec<String> = (0..=GPUS_MAX).map(|n| format!("software:{n}")).collect();
        let many: Vec<&str> = many.iter().map(|text| &**text).collect();
        assert!(
            chosen(&many)
                .unwrap_err()
                .contains("software:8 is one GPU too many")
        );
    }

    #[test]
    fn all_stands_for_each_gpu_of_the_host() {
        let texts = |text: &str, count| -> Vec<String> {
            expand(text, || Ok(count))
                .into_iter()
                .map(Result::unwrap)
                .collect()
        };
        assert_eq!(texts("cuda:all", 2), ["cuda:0", "cuda:1"]);
        assert_eq!(texts("cuda:all,memory=8G", 1), ["cuda:0,memory=8G"]);
        assert_eq!(texts("cuda:all", 0), [""; 0]);
        assert_eq!(texts("cuda:allways", 2), ["cuda:allways"]);
    }
}
