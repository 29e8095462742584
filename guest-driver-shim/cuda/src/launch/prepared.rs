//! Launches of CUDA's first versions: a function keeps the shape of its blocks and its parameters
//! until the next launch (CUDA driver API, "Execution Control [DEPRECATED]"). PyCUDA uses them.

use causeway_protocol::packet::PARAMETER_BYTES_MAX;

use super::cuLaunchKernel;
use crate::boundary::In;
use crate::driver::call_in_context;
use crate::error::{Answer, Code};
use crate::kernel::{self, PreparedLaunch};
use crate::parameters::{BUFFER_POINTER, BUFFER_SIZE, END};

/// Changes the settings of a function.
fn prepare(function: usize, change: impl FnOnce(&mut PreparedLaunch) -> Answer) -> u32 {
    call_in_context(|driver, _| {
        let kernel = kernel::find(driver, function)?;
        change(&mut kernel.prepared.lock())
    })
}

#[unsafe(no_mangle)]
extern "C" fn cuFuncSetBlockShape(function: usize, x: i32, y: i32, z: i32) -> u32 {
    let sides = [x, y, z].map(|side| u32::try_from(side).unwrap_or(0));
    prepare(function, |settings| {
        if sides.contains(&0) {
            return Err(Code::INVALID_VALUE);
        }
        settings.block = sides;
        Ok(())
    })
}

#[unsafe(no_mangle)]
extern "C" fn cuFuncSetSharedSize(function: usize, bytes: u32) -> u32 {
    prepare(function, |settings| {
        settings.shared_bytes = bytes;
        Ok(())
    })
}

/// Sets how many bytes of parameters a launch has.
#[unsafe(no_mangle)]
extern "C" fn cuParamSetSize(function: usize, bytes: u32) -> u32 {
    prepare(function, |settings| resize(settings, bytes as usize))
}

fn resize(settings: &mut PreparedLaunch, bytes: usize) -> Answer {
    if bytes > PARAMETER_BYTES_MAX {
        return Err(Code::INVALID_VALUE);
    }
    settings.parameters.resize(bytes, 0);
    Ok(())
}

#[unsafe(no_mangle)]
extern "C" fn cuParamSeti(function: usize, offset: i32, value: u32) -> u32 {
    set(
        function,
        offset,
        |place| place.copy_from_slice(&value.to_ne_bytes()),
        4,
    )
}

#[unsafe(no_mangle)]
extern "C" fn cuParamSetf(function: usize, offset: i32, value: f32) -> u32 {
    set(
        function,
        offset,
        |place| place.copy_from_slice(&value.to_ne_bytes()),
        4,
    )
}

#[unsafe(no_mangle)]
extern "C" fn cuParamSetv(function: usize, offset: i32, value: In<u8>, bytes: u32) -> u32 {
    if value.is_null() {
        return prepare(function, |_| Err(Code::INVALID_VALUE));
    }
    // It is not null: the copy cannot fail.
    set(
        function,
        offset,
        |place| {
            let copied = value.copy_to(place);
            debug_assert!(copied.is_ok());
        },
        bytes as usize,
    )
}

/// Lets `write` write the `bytes` bytes of the parameters at `offset`. There may be more of them
/// than `cuParamSetSize` has told so far.
fn set(function: usize, offset: i32, write: impl FnOnce(&mut [u8]), bytes: usize) -> u32 {
    prepare(function, |settings| {
        let start = usize::try_from(offset).map_err(|_| Code::INVALID_VALUE)?;
        let end = start.checked_add(bytes).ok_or(Code::INVALID_VALUE)?;
        if end > settings.parameters.len() {
            resize(settings, end)?;
        }
        write(&mut settings.parameters[start..end]);
        Ok(())
    })
}

#[unsafe(no_mangle)]
extern "C" fn cuLaunch(function: usize) -> u32 {
    cuLaunchGridAsync(function, 1, 1, 0)
}

#[unsafe(no_mangle)]
extern "C" fn cuLaunchGrid(function: usize, width: i32, height: i32) -> u32 {
    cuLaunchGridAsync(function, width, height, 0)
}

/// Launches as `cuLaunchKernel` does, which checks the rest.
#[unsafe(no_mangle)]
extern "C" fn cuLaunchGridAsync(function: usize, width: i32, height: i32, stream: usize) -> u32 {
    let mut kept = PreparedLaunch::default();
    let found = call_in_context(|driver, _| {
        kept = kernel::find(driver, function)?.prepared.lock().clone();
        Ok(())
    });
    if found != 0 {
        return found;
    }
    let [x, y, z] = kept.block;
    let [width, height] = [width, height].map(|side| u32::try_from(side).unwrap_or(0));
    let bytes = kept.parameters.len();
    let (pointer, size) = (
        kept.parameters.as_ptr() as usize,
        (&raw const bytes) as usize,
    );
    let extra = [BUFFER_POINTER, pointer, BUFFER_SIZE, size, END];
    let extra = match bytes {
        0 => In::at(0),
        _ => In::at(extra.as_ptr() as usize),
    };
    let none = In::at(0);
    cuLaunchKernel(
        function,
        width,
        height,
        1,
        x,
        y,
        z,
        kept.shared_bytes,
        stream,
        none,
        extra,
    )
}
