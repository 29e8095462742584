//! Textures (CUDA driver API, "Texture Object Management"). What kernels get is a number of the
//! device's, so there is no handle of the library's own. [`crate::surface`] has surfaces.

mod description;

use std::collections::BTreeMap;

use causeway_protocol::message::CreateTexture;
use causeway_shim_linux::shim;
use parking_lot::Mutex;

use crate::array::{self, Array, check_supported};
use crate::boundary::{In, Out};
use crate::context::Context;
use crate::driver::{Driver, call_in_context};
use crate::error::{Answer, Code};
use crate::structures::{ResourceDescription, ResourceView, TextureDescription};

/// A texture or a surface.
pub(crate) struct Texture {
    /// Handle of its context.
    context: usize,
    /// What it is made of, and how it is sampled, as the program gave them.
    resource: ResourceDescription,
    sampling: TextureDescription,
    _object: shim::Texture<'static>,
}

/// Textures or surfaces of a device, by the numbers by which kernels know them.
#[derive(Default)]
pub(crate) struct Textures(Mutex<BTreeMap<u64, Texture>>);

impl Textures {
    /// Ends those of a context, whose work has ended.
    pub(crate) fn end_of_context(&self, context: usize) {
        let mut table = self.0.lock();
        let of_context = |_: &u64, texture: &mut Texture| texture.context == context;
        let ended: Vec<_> = table.extract_if(.., of_context).collect();
        drop(table);
        drop(ended);
    }

    /// Makes one in a context, of `array` if that is some. Returns its number.
    pub(crate) fn create(
        &self,
        (driver, context): (&'static Driver, &Context),
        (resource, sampling): (ResourceDescription, TextureDescription),
        (array, request): (Option<&Array>, &CreateTexture),
    ) -> Answer<u64> {
        let array = array.map(|array| &array.object);
        let made = driver.space.create_texture(array, request);
        let object = made.map_err(|error| {
            log::debug!("cannot create a texture or a surface: {error}");
            array::code_of(driver, error.status())
        })?;
        let number = object.number();
        let texture = Texture {
            context: context.handle,
            resource,
            sampling,
            _object: object,
        };
        let replaced = self.0.lock().insert(number, texture);
        if replaced.is_some() {
            log::error!("the device has given the number {number:#x} to two textures");
        }
        Ok(number)
    }

    /// Ends one, once the work that was submitted and may use it is done.
    pub(crate) fn destroy(&self, driver: &Driver, number: u64) -> Answer {
        let ended = self.0.lock().remove(&number);
        let ended = ended.ok_or(Code::INVALID_VALUE)?;
        // After a fault, no work uses it.
        let drained = driver.rings.drain(driver);
        drop(ended);
        drained
    }

    /// Returns what one is made of, and how it is sampled.
    pub(crate) fn describe(
        &self,
        number: u64,
    ) -> Answer<(ResourceDescription, TextureDescription)> {
        let table = self.0.lock();
        let found = table.get(&number).ok_or(Code::INVALID_VALUE)?;
        Ok((found.resource, found.sampling))
    }
}

#[unsafe(no_mangle)]
extern "C" fn cuTexObjectCreate(
    texture: Out<u64>,
    resource: In<ResourceDescription>,
    sampling: In<TextureDescription>,
    view: In<ResourceView>,
) -> u32 {
    call_in_context(|driver, context| {
        check_supported(driver)?;
        let (resource, sampling) = (resource.get()?, sampling.get()?);
        if texture.is_null() {
            return Err(Code::INVALID_VALUE);
        }
        if !view.is_null() {
            return Err(Code::NOT_SUPPORTED);
        }
        let source = description::source(driver, &resource)?;
        let request = description::sampled(&source, &sampling)?;
        let made = driver.arrays.textures.create(
            (driver, context),
            (resource, sampling),
            (source.array.as_deref(), &request),
        );
        texture.set(made?)
    })
}

#[unsafe(no_mangle)]
extern "C" fn cuTexObjectDestroy(texture: u64) -> u32 {
    call_in_context(|driver, _| {
        check_supported(driver)?;
        driver.arrays.textures.destroy(driver, texture)
    })
}

#[unsafe(no_mangle)]
extern "C" fn cuTexObjectGetResourceDesc(into: Out<ResourceDescription>, texture: u64) -> u32 {
    call_in_context(|driver, _| {
        check_supported(driver)?;
        into.set(driver.arrays.textures.describe(texture)?.0)
    })
}

#[unsafe(no_mangle)]
extern "C" fn cuTexObjectGetTextureDesc(into: Out<TextureDescription>, texture: u64) -> u32 {
    call_in_context(|driver, _| {
        check_supported(driver)?;
        into.set(driver.arrays.textures.describe(texture)?.1)
    })
}

/// No texture has a view of what it is made of.
#[unsafe(no_mangle)]
extern "C" fn cuTexObjectGetResourceViewDesc(_into: Out<ResourceView>, texture: u64) -> u32 {
    call_in_context(|driver, _| {
        check_supported(driver)?;
        driver.arrays.textures.describe(texture)?;
        Err(Code::INVALID_VALUE)
    })
}
