//! How waits pass the time.

use std::sync::OnceLock;

/// Names the way of contexts whose flags leave it to the driver.
const VARIABLE: &str = "CAUSEWAY_CUDA_WAITS";
/// Processors of which a program that spins takes too large a part: the device's consumer, and the
/// software back end, need one.
const FEW_PROCESSORS: usize = 2;

/// How waits of a thread pass the time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Waits {
    /// They spin to the end.
    Spin,
    /// They spin for a while, then they sleep.
    SpinThenSleep,
    /// They sleep.
    Sleep,
}

impl Waits {
    /// Returns the way of contexts whose flags leave it to the driver, as
    /// `CAUSEWAY_CUDA_WAITS` says: `spin`, `sleep` or `auto`.
    pub(crate) fn of_process() -> Self {
        static OF_PROCESS: OnceLock<Waits> = OnceLock::new();
        *OF_PROCESS.get_or_init(|| {
            let processors = std::thread::available_parallelism().map_or(1, usize::from);
            let wanted = std::env::var(VARIABLE).ok();
            Self::wanted(wanted.as_deref().unwrap_or("auto"), processors)
        })
    }

    fn wanted(word: &str, processors: usize) -> Self {
        match word {
            "spin" => Self::Spin,
            "sleep" => Self::Sleep,
            "auto" => Self::suitable(processors),
            _ => {
                log::error!(
                    "invalid value {word} for {VARIABLE}: give spin, sleep or auto; the library \
                     takes auto"
                );
                Self::suitable(processors)
            }
        }
    }

    const fn suitable(processors: usize) -> Self {
        match processors > FEW_PROCESSORS {
            true => Self::SpinThenSleep,
            false => Self::Sleep,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn few_processors_are_left_to_others_unless_the_user_says_otherwise() {
        let alone = ["spin", "sleep", "auto", "SPIN", ""].map(|word| Waits::wanted(word, 2));
        let [spin, sleep] = [Waits::Spin, Waits::Sleep];
        assert_eq!(alone, [spin, sleep, sleep, sleep, sleep]);
        let many = ["spin", "sleep", "auto", "always"].map(|word| Waits::wanted(word, 3));
        let both = Waits::SpinThenSleep;
        assert_eq!(many, [spin, sleep, both, both]);
    }
}
