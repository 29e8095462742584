//! Loading of images: PTX and inputs of the linker become a cubin first, so that the memory which a
//! module takes is known before the driver loads it.

use causeway_mediator::backend::{ModuleError, Reservation};
use parking_lot::Mutex;

use crate::driver::{JitFailure, LinkInput, LinkOptions, LoadedModule, code, link};
use crate::image::{Cubin, Image, Inputs, raised_version, refused};
use crate::space::state::SpaceState;

/// What begins the message to a session that has too little memory left.
const MODULE_TAKES: &str = "the module takes";

/// Returns the module, and the memory that it takes, which is reserved before the driver takes it.
pub(super) fn load(
    state: &SpaceState,
    image: Image<'_>,
    reservation: &mut Reservation,
) -> Result<(LoadedModule, u64), ModuleError> {
    match image {
        Image::Cubin(cubin) => load_cubin(state, &cubin, reservation),
        Image::Linked(inputs) => load_linked(state, &inputs, reservation),
        Image::Ptx(text) => {
            let raised = raised_version(&text);
            let inputs = [LinkInput::Ptx(raised.as_ref().unwrap_or(&text))];
            let linked = link(&state.maker.context, &inputs, LinkOptions::default());
            let linked = linked.map_err(|f| jit_error(&f, state))?;
            match Cubin::parse(&linked) {
                // What was linked tells only how much memory the text takes.
                Ok(cubin) if raised.is_some() => load_as(state, &text, &cubin, reservation),
                Ok(cubin) => load_cubin(state, &cubin, reservation),
                Err(error) => {
                    log::warn!(
                        "the CUDA driver compiled a guest's PTX module to an image of an unknown \
                         format; the module is loaded, but the GPU memory that it takes is only \
                         estimated: {error}"
                    );
                    load_measured(state, &text, reservation)
                }
            }
        }
    }
}

/// Links inputs. Compiled code among them must not claim more memory than there is even before the
/// driver sees it, and what the driver made of it is checked as if the guest had given it.
fn load_linked(
    state: &SpaceState,
    inputs: &Inputs<'_>,
    reservation: &mut Reservation,
) -> Result<(LoadedModule, u64), ModuleError> {
    let mut given = Vec::with_capacity(inputs.images.len());
    for image in &inputs.images {
        given.push(match image {
            Image::Ptx(text) => LinkInput::Ptx(text),
            Image::Cubin(cubin) => {
                check_bytes(state, cubin)?;
                LinkInput::Cubin(cubin.bytes)
            }
            Image::Linked(_) => return Err(refused("an input of the linker has inputs")),
        });
    }
    let options = LinkOptions {
        registers_max: inputs.registers_max,
        optimization: inputs.optimization,
    };
    let linked = link(&state.maker.context, &given, options);
    let linked = linked.map_err(|f| jit_error(&f, state))?;
    load_cubin(state, &Cubin::parse(&linked)?, reservation)
}

/// Returns the memory that a cubin takes, if the GPU has as much.
fn check_bytes(state: &SpaceState, cubin: &Cubin<'_>) -> Result<u64, ModuleError> {
    let (bytes, limit) = (cubin.loaded_bytes(), state.gpu.memory_bytes);
    if bytes <= limit {
        return Ok(bytes);
    }
    Err(refused(format!(
        "the module takes {bytes} bytes of GPU memory, and guests can have {limit} bytes"
    )))
}

fn load_cubin(
    state: &SpaceState,
    cubin: &Cubin<'_>,
    reservation: &mut Reservation,
) -> Result<(LoadedModule, u64), ModuleError> {
    load_as(state, cubin.bytes, cubin, reservation)
}

/// Loads `image`, which takes as much memory as `cubin`.
fn load_as(
    state: &SpaceState,
    image: &[u8],
    cubin: &Cubin<'_>,
    reservation: &mut Reservation,
) -> Result<(LoadedModule, u64), ModuleError> {
    let bytes = check_bytes(state, cubin)?;
    reservation.memory(bytes, MODULE_TAKES)?;
    let loaded = LoadedModule::load(&state.maker.context, image);
    Ok((loaded.map_err(|f| jit_error(&f, state))?, bytes))
}

/// Loads an image that does not say how much memory it takes, and measures that. Memory that other
/// processes take meanwhile is measured, too. Until then the size of the image stands for it.
fn load_measured(
    state: &SpaceState,
    image: &[u8],
    reservation: &mut Reservation,
) -> Result<(LoadedModule, u64), ModuleError> {
    static ONE_AT_A_TIME: Mutex<()> = Mutex::new(());
    reservation.memory(image.len() as u64, MODULE_TAKES)?;
    let _one = ONE_AT_A_TIME.lock();
    let context = &state.maker.context;
    let before = context.free_bytes()?;
    let loaded = LoadedModule::load(context, image).map_err(|f| jit_error(&f, state))?;
    let bytes = before.saturating_sub(context.free_bytes()?);
    let bytes = bytes.max(image.len() as u64);
    Ok((loaded, bytes))
}

/// Returns the refusal of an image with the log of the driver's compiler, and the line if the log
/// names one.
fn jit_error(failure: &JitFailure, state: &SpaceState) -> ModuleError {
    let architecture = state.gpu.support.architecture();
    let way_out: &str = match failure.error.code {
        code::CUDA_ERROR_NO_BINARY_FOR_GPU => {
            &format!("; this GPU is sm_{architecture}: give PTX or a cubin for it")
        }
        code::CUDA_ERROR_UNSUPPORTED_PTX_VERSION => {
            "; compile for an older version of PTX, or install a newer driver"
        }
        code::CUDA_ERROR_JIT_COMPILER_NOT_FOUND => {
            "; install the driver's PTX compiler (libnvidia-ptxjitcompiler.so.1)"
        }
        _ => "",
    };
    let separator = if failure.log.is_empty() { "" } else { ": " };
    ModuleError {
        line: line(&failure.log),
        reason: format!("{}{way_out}{separator}{}", failure.error, failure.log),
    }
}

/// Returns the number behind the first "line" of the compiler's log; 0 if there is none.
fn line(log: &str) -> u32 {
    let mut words = log.split(|c: char| !c.is_ascii_alphanumeric());
    words
        .find(|word| *word == "line")
        .and_then(|_| words.find(|word| !word.is_empty())?.parse().ok())
        .unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_line_is_found_in_the_compilers_log() {
        for (log, number) in [
            (
                "ptxas application ptx input, line 12; error   : Unknown symbol 'x'",
                12,
            ),
            ("ptxas fatal   : Ptx assembly aborted due to errors", 0),
            ("line", 0),
            ("line x", 0),
            ("", 0),
            ("line 3: unknown opcode", 3),
        ] {
            assert_eq!(line(log), number, "{log}");
        }
    }
}
