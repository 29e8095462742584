//! The back ends that are measured.

use super::omission::Omission;
use causeway_run::back_end;
use causeway_run::configuration::choose_gpu;
use causeway_terminal::{Code, Failure};

/// What is measured, as `--gpu` has it, one after the other.
pub struct BackEnds {
    /// Those that there are, or the one that was asked for.
    pub chosen: Vec<String>,
    /// The one that there is not, and why, if nothing was asked for.
    pub absent: Option<Omission>,
}

impl BackEnds {
    /// All that the machine has, unless one was asked for. The VFIO back end runs no kernels, and is not among
    /// them.
    pub fn find(asked: Option<&str>) -> Result<Self, Failure> {
        let software = || String::from("software");
        let (chosen, why) = match asked {
            Some(gpu) => (vec![choose_gpu(gpu)?.1], None),
            None => match causeway_cuda::identities() {
                Ok(gpus) if gpus.is_empty() => (vec![software()], Some("no GPU found".into())),
                Ok(_) => (vec![software(), String::from("cuda")], None),
                Err(error) => (vec![software()], Some(error.to_string())),
            },
        };
        Ok(Self {
            chosen,
            absent: why.map(|why: String| Omission::back_end("cuda", &why)),
        })
    }
}

/// Starts again where a GPU's driver wants another environment.
pub fn settle_environment(chosen: &[String]) -> Result<(), Failure> {
    for gpu in chosen {
        let (gpu, _) = choose_gpu(gpu)?;
        back_end::settle_environment(&gpu).map_err(|e| {
            let message = "cannot restart with the environment that the GPU's driver needs";
            Failure::new(Code::Gpu, message, e)
        })?;
    }
    Ok(())
}
