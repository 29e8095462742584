//! `--sandbox`: whether worker processes confine themselves.

use causeway_sandbox::{Profile, Sandbox};
use causeway_terminal::Failure;
use causeway_worker::Confinement;
use clap::Args;
use clap::builder::{PossibleValuesParser, TypedValueParser};

use crate::gpu::{Gpu, Isolation, Kind};

/// Arguments about the confinement of worker processes, which `run`, `serve` and `cuda` have.
#[derive(Clone, Copy, Debug, Args)]
pub struct SandboxArguments {
    /// Whether worker processes confine themselves: on, with what this host has for that; strict,
    /// or end if it lacks something; off, for comparison and to find mistakes (docs/security.md).
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
            Kind::Software(_) => Profile::computation(),
            Kind::Cuda(_) | Kind::Vfio(_) => Profile::driver(),
        },
    }
}

#[cfg(test)]
mod tests {
    use super::*;

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
