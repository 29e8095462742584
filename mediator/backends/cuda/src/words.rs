//! The back end's own small kernels, each of which stores one word.

use std::sync::Arc;

use crate::driver::{Context, CudaError, JitFailure, KernelHandle, Launch, LoadedModule, Stream};

/// Stores the time, and stores a value behind a fence for the whole system.
const PTX: &str = "\
.version 7.0
.target sm_70
.address_size 64

.visible .entry causeway_timestamp(.param .u64 address)
{
    .reg .u64 %time, %to;
    ld.param.u64 %to, [address];
    mov.u64 %time, %globaltimer;
    st.volatile.global.u64 [%to], %time;
    ret;
}

.visible .entry causeway_release(.param .u64 address, .param .u64 value)
{
    .reg .u64 %value, %to;
    ld.param.u64 %to, [address];
    ld.param.u64 %value, [value];
    membar.sys;
    st.volatile.global.u64 [%to], %value;
    ret;
}

.visible .entry causeway_release_half(.param .u64 address, .param .u32 value)
{
    .reg .u64 %to;
    .reg .u32 %value;
    ld.param.u64 %to, [address];
    ld.param.u32 %value, [value];
    membar.sys;
    st.volatile.global.u32 [%to], %value;
    ret;
}
";

/// The back end's own kernels, loaded in one context.
pub(crate) struct Words {
    timestamp: KernelHandle,
    release: KernelHandle,
    release_half: KernelHandle,
    _module: LoadedModule,
}

impl Words {
    /// Compiles the kernels and loads them in `context`. A driver may wait for all kernels before it
    /// loads one, so this is called before there are any.
    pub(crate) fn load(context: &Arc<Context>) -> Result<Self, CudaError> {
        let module = LoadedModule::load(context, PTX.as_bytes()).map_err(|failure| {
            let JitFailure { error, log: text } = failure;
            log::debug!("cannot load the back end's own kernels: {text}");
            error
        })?;
        let function = |name| module.function(name);
        Ok(Self {
            timestamp: function("causeway_timestamp")?,
            release: function("causeway_release")?,
            release_half: function("causeway_release_half")?,
            _module: module,
        })
    }

    /// Makes the GPU store its time, in nanoseconds, at the mapped GPU address `address`.
    pub(crate) fn timestamp(&self, stream: &Stream, address: u64) -> Result<(), CudaError> {
        launch(stream, self.timestamp, &address.to_ne_bytes())
    }

    /// Makes the GPU store `value` at the mapped GPU address `address`, after everything that
    /// earlier work of `stream` stored.
    pub(crate) fn release(
        &self,
        stream: &Stream,
        address: u64,
        value: u64,
    ) -> Result<(), CudaError> {
        let mut parameters = [0; 16];
        parameters[..8].copy_from_slice(&address.to_ne_bytes());
        parameters[8..].copy_from_slice(&value.to_ne_bytes());
        launch(stream, self.release, &parameters)
    }

    /// Makes the GPU store the 32-bit `value` as [`Self::release`] stores 64 bits.
    pub(crate) fn release_half(
        &self,
        stream: &Stream,
        address: u64,
        value: u32,
    ) -> Result<(), CudaError> {
        let mut parameters = [0; 12];
        parameters[..8].copy_from_slice(&address.to_ne_bytes());
        parameters[8..].copy_from_slice(&value.to_ne_bytes());
        launch(stream, self.release_half, &parameters)
    }
}

fn launch(stream: &Stream, function: KernelHandle, parameters: &[u8]) -> Result<(), CudaError> {
    stream.launch(function, &Launch::one_thread(parameters))
}
