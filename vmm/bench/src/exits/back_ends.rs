//! Chooses the back ends to measure.

use super::omission::Omission;
use causeway_run::back_end;
use causeway_run::gpus::choose_gpu;
use causeway_terminal::{Code, Failure};

/// The back ends to measure, one after the other.
pub struct BackEnds {
    /// Their values of `--gpu`: that of the user, or those of all available back ends.
    pub chosen: Vec<String>,
    /// The back end that this host lacks, with the reason; `None` if the user chose a back end.
    pub absent: Option<Omission>,
}

impl BackEnds {
    /// Returns the back end that the user `asked` for, or all back ends of this host. The VFIO back
    /// end is not among all of them, because it runs no kernels.
    ///
    /// # Errors
    /// A usage failure if `asked` is not a value of `--gpu`.
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

/// Starts this program again if a back end's driver needs other environment variables.
///
/// # Errors
/// A GPU failure if the program cannot be started again.
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
