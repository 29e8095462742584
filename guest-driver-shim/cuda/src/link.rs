//! The linker (CUDA driver API, "Module Management": `cuLink…`).
//!
//! Inputs are kept until the link is complete. The result is PTX or a cubin if there is one input,
//! else an image of all inputs that the device links when it is loaded.

use std::sync::Arc;

use parking_lot::Mutex;

use crate::boundary::{In, Out, Text};
use crate::driver::{Driver, call_in_context};
use crate::error::{Answer, Code};
use crate::image::{self, BYTES_MAX, Image};
use crate::jit::Logs;
use crate::module::{self, read_file, target};

/// Kinds of inputs (`CUjitInputType`).
mod kind {
    pub(super) const PTX: u32 = 1;
    pub(super) const OBJECT: u32 = 3;
    pub(super) const LIBRARY: u32 = 4;
    pub(super) const LAST: u32 = 4;
    /// Intermediate code of compilers, which drivers no longer link.
    pub(super) const NVVM: u32 = 5;
}

/// What has been given to a linker so far.
pub(crate) struct Linker {
    pub(crate) context: usize,
    inputs: Vec<Image>,
    /// The program keeps its buffers until the linker is destroyed.
    logs: Logs,
    /// The result stays where it is until the linker is destroyed.
    result: Option<Box<[u8]>>,
}

fn find(driver: &Driver, linker: usize) -> Answer<Arc<Mutex<Linker>>> {
    let found = driver.modules.linkers.lock().get(linker);
    found.ok_or(Code::INVALID_HANDLE)
}

impl Linker {
    /// Adds an input. Names of inputs and their options are not used.
    fn add(&mut self, driver: &'static Driver, kind: u32, data: &[u8]) -> Answer {
        if self.result.is_some() {
            return Err(Code::INVALID_VALUE);
        }
        if matches!(kind, kind::OBJECT | kind::LIBRARY)
            && let Some(containers) = image::containers(data)
        {
            return self.add_library(driver, kind, &containers);
        }
        let target = target(driver);
        let image = image::of(&data, &target)?;
        if kind == kind::PTX {
            // The driver compiles PTX here, and says what is wrong with it; linking may still fail.
            image.check(&target)?;
        }
        self.inputs.push(image);
        Ok(())
    }

    /// Adds what suits the device in an object file or a library. A library may have nothing: the
    /// software back end has the functions of NVIDIA's device library of its own.
    fn add_library(&mut self, driver: &'static Driver, kind: u32, containers: &[&[u8]]) -> Answer {
        let target = target(driver);
        for container in containers {
            match image::of(container, &target) {
                Ok(image) => self.inputs.push(image),
                Err(Code::NO_BINARY_FOR_GPU) if kind == kind::LIBRARY => {}
                Err(code) => return Err(code),
            }
        }
        Ok(())
    }

    /// Returns the result, after the device has taken it once.
    fn complete(&mut self, driver: &'static Driver) -> Answer<&[u8]> {
        if self.result.is_none() {
            let image = Image::linked(self.inputs.clone(), self.logs.compilation)?;
            module::check(driver, &image, &self.logs)?;
            self.result = Some(image.into_result().into());
        }
        Ok(self.result.as_deref().unwrap_or_default())
    }
}

fn create(count: u32, options: In<u32>, values: Out<usize>, linker: Out<usize>) -> u32 {
    call_in_context(|driver, context| {
        if linker.is_null() {
            return Err(Code::INVALID_VALUE);
        }
        let made = Linker {
            context: context.handle,
            inputs: Vec::new(),
            logs: Logs::of(count, options, values)?,
            result: None,
        };
        let made = Arc::new(Mutex::new(made));
        linker.set(driver.modules.linkers.lock().insert(made))
    })
}

fn check_kind(kind: u32) -> Answer {
    match kind {
        0..=kind::LAST => Ok(()),
        kind::NVVM => Err(Code::NOT_SUPPORTED),
        _ => Err(Code::INVALID_VALUE),
    }
}

fn add_data(linker: usize, kind: u32, data: In<u8>, bytes: usize) -> u32 {
    call_in_context(|driver, _| {
        let linker = find(driver, linker)?;
        check_kind(kind)?;
        if data.is_null() || bytes == 0 || bytes as u64 > BYTES_MAX {
            return Err(Code::INVALID_VALUE);
        }
        let mut copy = vec![0; bytes];
        data.copy_to(&mut copy)?;
        linker.lock().add(driver, kind, &copy)
    })
}

fn add_file(linker: usize, kind: u32, path: Text) -> u32 {
    call_in_context(|driver, _| {
        let linker = find(driver, linker)?;
        check_kind(kind)?;
        let bytes = read_file(path)?;
        linker.lock().add(driver, kind, &bytes)
    })
}

#[unsafe(no_mangle)]
extern "C" fn cuLinkCreate(
    count: u32,
    options: In<u32>,
    values: Out<usize>,
    linker: Out<usize>,
) -> u32 {
    create(count, options, values, linker)
}

#[unsafe(no_mangle)]
extern "C" fn cuLinkCreate_v2(
    count: u32,
    options: In<u32>,
    values: Out<usize>,
    linker: Out<usize>,
) -> u32 {
    create(count, options, values, linker)
}

#[unsafe(no_mangle)]
extern "C" fn cuLinkAddData(
    linker: usize,
    kind: u32,
    data: In<u8>,
    bytes: usize,
    _name: Text,
    _count: u32,
    _options: In<u32>,
    _values: Out<usize>,
) -> u32 {
    add_data(linker, kind, data, bytes)
}

#[unsafe(no_mangle)]
extern "C" fn cuLinkAddData_v2(
    linker: usize,
    kind: u32,
    data: In<u8>,
    bytes: usize,
    _name: Text,
    _count: u32,
    _options: In<u32>,
    _values: Out<usize>,
) -> u32 {
    add_data(linker, kind, data, bytes)
}

#[unsafe(no_mangle)]
extern "C" fn cuLinkAddFile(
    linker: usize,
    kind: u32,
    path: Text,
    _count: u32,
    _options: In<u32>,
    _values: Out<usize>,
) -> u32 {
    add_file(linker, kind, path)
}

#[unsafe(no_mangle)]
extern "C" fn cuLinkAddFile_v2(
    linker: usize,
    kind: u32,
    path: Text,
    _count: u32,
    _options: In<u32>,
    _values: Out<usize>,
) -> u32 {
    add_file(linker, kind, path)
}

#[unsafe(no_mangle)]
extern "C" fn cuLinkComplete(linker: usize, image: Out<usize>, bytes: Out<usize>) -> u32 {
    call_in_context(|driver, _| {
        let linker = find(driver, linker)?;
        if image.is_null() {
            return Err(Code::INVALID_VALUE);
        }
        let mut linker = linker.lock();
        let result = linker.complete(driver)?;
        image.set(result.as_ptr() as usize)?;
        bytes.set_if_wanted(result.len());
        Ok(())
    })
}

#[unsafe(no_mangle)]
extern "C" fn cuLinkDestroy(linker: usize) -> u32 {
    call_in_context(|driver, _| {
        let removed = driver.modules.linkers.lock().remove(linker);
        removed.map(drop).ok_or(Code::INVALID_HANDLE)
    })
}
