//! The form in which functions of the API are defined.

/// Defines functions, a row for each:
///
/// `fn NAME(PARAMETERS) / OTHER_NAME(ARGUMENTS) = DRIVER_FUNCTION(ARGUMENTS);`
///
/// Behind `=` stands the driver's function that does the same, or behind `=>` an expression that
/// gives an [`Answer`](causeway_cuda_abi::error::Answer). The call returns its number, which the
/// thread remembers if it is an error.
///
/// A function with a second name behind `/` is there for programs whose default stream is one for
/// each thread, too: it is the first with these arguments.
macro_rules! calls {
    ($(fn $name:ident $parameters:tt $(/ $per_thread:ident $passed:tt)?
       $(= $function:ident $given:tt)? $(=> $operation:expr)?;)*) => {
        $(
            #[unsafe(no_mangle)]
            extern "C" fn $name $parameters -> u32 {
                $crate::context::answer(move || {
                    $($crate::driver::driver!($function $given))?
                    $($operation)?
                })
            }

            $(#[unsafe(no_mangle)]
            extern "C" fn $per_thread $parameters -> u32 {
                $name $passed
            })?
        )*
    };
}

pub(crate) use calls;
