//! What the user chose: suites, programs, ways to run them, and the compiler.

use std::path::Path;
use std::time::Duration;

use causeway_bench_suites::{Compiler, Host, NAMES, Program, Scale, Suite, Way, Workshop};
use causeway_terminal::{Code, Failure, shown_path};

use crate::arguments::SuiteArguments;

pub fn refused(error: impl std::error::Error + 'static) -> Failure {
    Failure::usage(with_causes(&error))
}

/// Returns an error as text, with its causes.
pub fn with_causes(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut cause = error.source();
    while let Some(error) = cause {
        let more = error.to_string();
        if !text.contains(&more) {
            text = format!("{text}: {more}");
        }
        cause = error.source();
    }
    text
}

/// Returns the ways of `--by`, or those that the other arguments allow.
pub fn ways(arguments: &SuiteArguments, is_software: bool) -> Result<Vec<Way>, Failure> {
    let has_guest = arguments.kernel.is_some();
    if arguments.by.is_empty() {
        let mut ways = vec![Way::Process];
        if !is_software {
            ways.insert(0, Way::Native);
        }
        if has_guest {
            ways.push(Way::Guest);
        }
        return Ok(ways);
    }
    let mut chosen = Vec::new();
    for name in &arguments.by {
        let way = Way::named(name).ok_or_else(|| {
            let names = Way::ALL.map(Way::name).join(", ");
            Failure::usage(format!("invalid value {name} for --by: choose of {names}"))
        })?;
        chosen.push(way);
    }
    if chosen.contains(&Way::Guest) && !has_guest {
        return Err(Failure::usage(
            "--by guest needs a Linux kernel: name it with --kernel",
        ));
    }
    if chosen.contains(&Way::Native) && is_software && chosen.len() > 1 {
        return Err(Failure::usage(
            "--by native needs a GPU, with which the software back end cannot be compared: choose \
             --gpu cuda, or native alone",
        ));
    }
    let ordered = Way::ALL.into_iter().filter(|way| chosen.contains(way));
    Ok(ordered.collect())
}

/// Returns the suites, with the programs that the user wants.
pub fn suites(
    arguments: &SuiteArguments,
    workshop: &Workshop,
    scale: Scale,
) -> Result<Vec<Suite>, Failure> {
    let named = |name: &str| Suite::named(name, scale).map_err(refused);
    let mut suites = Vec::new();
    if arguments.suite.is_empty() {
        for name in NAMES {
            let suite = named(name)?;
            if workshop.has(&suite) {
                suites.push(suite);
            }
        }
        if suites.is_empty() {
            let names = NAMES.join(", ");
            return Err(Failure::usage(format!(
                "the folder of --source has none of the suites {names}: choose one with --suite to \
                 see how to get it"
            )));
        }
    }
    for name in &arguments.suite {
        let suite = named(name)?;
        workshop.check(&suite).map_err(refused)?;
        if suites.iter().any(|other| other.name == suite.name) {
            return Err(Failure::usage(format!(
                "invalid value {name} for --suite: there are two suites {}: name one of them, or \
                 call the file otherwise",
                suite.name
            )));
        }
        suites.push(suite);
    }
    for name in &arguments.program {
        let mut all = suites.iter().flat_map(|suite| &suite.programs);
        if !all.any(|program| is_called(program, name)) {
            let all = suites.iter().flat_map(|suite| &suite.programs);
            let names: Vec<&str> = all.map(|program| &*program.name).collect();
            return Err(Failure::usage(format!(
                "no program is called {name}: choose of {}",
                names.join(", ")
            )));
        }
    }
    for suite in &mut suites {
        suite.programs.retain(|program| {
            let mut wanted = arguments.program.iter();
            arguments.program.is_empty() || wanted.any(|name| is_called(program, name))
        });
    }
    Ok(suites)
}

fn is_called(program: &Program, name: &str) -> bool {
    program.name == name || program.label() == name
}

/// Returns the compiler, for which Causeway's libraries are written: programs are linked with them,
/// and run with whichever the loader finds.
pub fn compiler(arguments: &SuiteArguments, workshop: &Workshop) -> Result<Compiler, Failure> {
    let libraries = workshop.work().join("libraries");
    std::fs::create_dir_all(&libraries).map_err(|e| {
        let message = format!("cannot create the folder {}", shown_path(&libraries));
        Failure::new(Code::Report, message, e)
    })?;
    causeway_cuda_command::write_libraries(&libraries)?;
    let whole = |option, path: &Path| {
        std::path::absolute(path).map_err(|e| Failure::usage_from(option, &shown_path(path), e))
    };
    let mut libraries = vec![libraries];
    let nvcc = match arguments.nvcc.components().count() {
        // Searched for in PATH.
        1 => arguments.nvcc.clone(),
        _ => whole("--nvcc", &arguments.nvcc)?,
    };
    // That of PyPI's packages does not look into their folder of libraries itself.
    let beside = nvcc
        .parent()
        .and_then(Path::parent)
        .map(|toolkit| toolkit.join("lib"));
    libraries.extend(beside.filter(|folder| folder.is_dir()));
    let includes = arguments
        .include
        .iter()
        .map(|path| whole("--include", path));
    Ok(Compiler {
        nvcc,
        code: arguments.code.clone(),
        includes: includes.collect::<Result<_, _>>()?,
        libraries,
    })
}

/// Returns what programs run on.
///
/// # Errors
/// A usage failure if the kernel is not there.
pub fn host(arguments: &SuiteArguments, gpu: String) -> Result<Host, Failure> {
    let mut guest = Vec::new();
    if let Some(kernel) = &arguments.kernel {
        // Programs run in other folders.
        let whole = kernel
            .canonicalize()
            .map_err(|e| Failure::usage_from("--kernel", &shown_path(kernel), e))?;
        guest.push("--kernel".into());
        guest.push(whole.into_os_string());
        for (option, value) in [
            ("--memory", arguments.memory.to_string()),
            ("--vcpus", arguments.vcpus.to_string()),
        ] {
            guest.push(option.into());
            guest.push(value.into());
        }
    }
    Ok(Host {
        causeway: "/proc/self/exe".into(),
        gpu,
        guest,
        limit: Duration::from_secs(arguments.limit.into()),
    })
}
