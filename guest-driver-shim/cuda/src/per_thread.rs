//! Functions for per-thread default streams whose stream is not an argument. The others are
//! generated ([`crate::exports`]).

use crate::boundary::In;
use crate::driver::answer;
use crate::error::Answer;
use crate::structures::LaunchConfiguration;

/// Handle of the calling thread's own default stream.
const PER_THREAD: usize = 2;

/// The functions for the legacy default stream, whose implementations are private to their modules.
#[allow(
    clashing_extern_declarations,
    reason = "`exports` declares all functions without arguments, for their addresses"
)]
mod legacy {
    use super::LaunchConfiguration;

    unsafe extern "C" {
        pub(super) fn cuLaunchKernelEx(
            configuration: *const LaunchConfiguration,
            function: usize,
            parameters: usize,
            extra: usize,
        ) -> u32;
        pub(super) fn cuStreamCopyAttributes(to: usize, from: usize) -> u32;
    }
}

#[unsafe(no_mangle)]
extern "C" fn cuLaunchKernelEx_ptsz(
    configuration: In<LaunchConfiguration>,
    function: usize,
    parameters: usize,
    extra: usize,
) -> u32 {
    let copied: Answer<LaunchConfiguration> = configuration.get();
    let copied = match copied {
        Ok(copied) => copied,
        Err(code) => return answer(|| Err(code)),
    };
    let configuration = LaunchConfiguration {
        stream: of_thread(copied.stream),
        ..copied
    };
    // SAFETY: the structure lives as long as the call, and the rest is passed on.
    unsafe { legacy::cuLaunchKernelEx(&raw const configuration, function, parameters, extra) }
}

#[unsafe(no_mangle)]
extern "C" fn cuStreamCopyAttributes_ptsz(to: usize, from: usize) -> u32 {
    // SAFETY: any handles may be passed.
    unsafe { legacy::cuStreamCopyAttributes(of_thread(to), of_thread(from)) }
}

/// Returns the stream that `stream` means to a program compiled for per-thread default streams.
const fn of_thread(stream: usize) -> usize {
    match stream {
        0 => PER_THREAD,
        stream => stream,
    }
}
