//! The linker (CUDA driver API, "Module Management": `cuLink…`): PTX in, a cubin of the stand-in
//! out.

use std::sync::{Arc, Mutex};

use crate::boundary::{In, Out, Text};
use crate::driver::{Driver, call_in_context, lock};
use crate::error::{Answer, Code};
use crate::image::{cubin, inspect};
use crate::module::{BETWEEN_TEXTS, Logs, check_text, explain, load_text, text_of, version_of};

/// The earliest version of PTX that the driver's linker takes.
const LINKED_VERSION_MIN: (u32, u32) = (3, 1);

/// What has been given to a linker so far.
pub(crate) struct Linker {
    device: usize,
    texts: Vec<String>,
    logs: Logs,
    /// The result stays where it is until the linker is destroyed.
    image: Option<Box<[u8]>>,
}

fn find(driver: &Driver, linker: usize) -> Answer<Arc<Mutex<Linker>>> {
    driver
        .state()
        .linkers
        .get(linker)
        .ok_or(Code::INVALID_HANDLE)
}

#[unsafe(no_mangle)]
extern "C" fn cuLinkCreate_v2(
    count: u32,
    options: In<u32>,
    values: Out<usize>,
    linker: Out<usize>,
) -> u32 {
    call_in_context(|driver, context| {
        if linker.is_null() {
            return Err(Code::INVALID_VALUE);
        }
        let made = Linker {
            device: context.device,
            texts: Vec::new(),
            logs: Logs::of(count, options, values)?,
            image: None,
        };
        linker.set(driver.state().linkers.insert(Arc::new(Mutex::new(made))))
    })
}

/// Adds an input of PTX, or of a cubin or fat binary with PTX in it.
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
    call_in_context(|driver, _| {
        let linker = find(driver, linker)?;
        let mut linker = lock(&linker);
        if bytes == 0 || kind > 4 {
            return Err(Code::INVALID_VALUE);
        }
        let mut given = data.list(bytes)?;
        let text = match inspect(&&given[..], driver.capability().cast_unsigned()) {
            Some(image) => text_of(driver, image)?,
            None if kind == 1 => {
                let end = given.iter().position(|byte| *byte == 0);
                given.truncate(end.unwrap_or(bytes));
                String::from_utf8(given).map_err(|_| Code::INVALID_IMAGE)?
            }
            None => return Err(Code::INVALID_IMAGE),
        };
        // What a text lacks may be in another one, so that all are compiled together.
        check_text(driver, &text)?;
        if version_of(&text).is_some_and(|version| version < LINKED_VERSION_MIN) {
            let refusal =
                "ptxas fatal   : 'Compile only(-c)' requires PTX ISA .version 3.1 or later";
            linker.logs.write(refusal)?;
            return Err(Code::INVALID_PTX);
        }
        linker.texts.push(text);
        Ok(())
    })
}

#[unsafe(no_mangle)]
extern "C" fn cuLinkComplete(linker: usize, image: Out<usize>, bytes: Out<usize>) -> u32 {
    call_in_context(|driver, _| {
        let linker = find(driver, linker)?;
        let mut linker = lock(&linker);
        if linker.texts.is_empty() {
            return Err(Code::INVALID_VALUE);
        }
        let text = linker.texts.join(BETWEEN_TEXTS);
        let loaded = match load_text(driver, linker.device, &text)? {
            Ok(loaded) => loaded,
            Err(error) => {
                linker.logs.write(&explain(&error))?;
                return Err(Code::INVALID_PTX);
            }
        };
        let (global, constant) = loaded.variables_bytes();
        let capability = driver.capability().cast_unsigned();
        let made = cubin(&text, capability, global, constant);
        linker.logs.write("")?;
        let made = linker.image.insert(made.into());
        image.set(made.as_ptr() as usize)?;
        bytes.set_if_wanted(made.len());
        Ok(())
    })
}

#[unsafe(no_mangle)]
extern "C" fn cuLinkDestroy(linker: usize) -> u32 {
    call_in_context(|driver, _| {
        let removed = driver.state().linkers.remove(linker);
        removed.map(drop).ok_or(Code::INVALID_HANDLE)
    })
}
