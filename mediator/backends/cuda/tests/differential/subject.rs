//! One launch of one kernel, with its inputs.

use causeway_kernels::Rule;
use causeway_mediator::backend::LaunchShape;

/// A kernel that is compared.
pub struct Kernel {
    /// Name, unique among all.
    pub name: String,
    /// Its launch with the inputs of a seed.
    pub make: Box<dyn Fn(u64) -> Subject>,
}

/// Packs parameters, given the addresses of the buffers.
pub type Parameters = Box<dyn Fn(&[u64]) -> Vec<u8>>;

/// A launch.
pub struct Subject {
    pub ptx: &'static str,
    pub kernel: String,
    /// Grid and block.
    pub shape: ([u32; 3], [u32; 3]),
    /// Grid and block for a device that cannot have so many threads in a block.
    pub usual: ([u32; 3], [u32; 3]),
    pub shared_bytes: u32,
    /// What buffers hold before.
    pub buffers: Vec<Vec<u8>>,
    /// How they are compared afterwards.
    pub rules: Vec<Rule>,
    pub parameters: Parameters,
    /// What they hold afterwards, where somebody else knows.
    pub expected: Option<Vec<Vec<u8>>>,
}

impl Subject {
    /// The shape for a kernel whose blocks may have so many threads.
    pub fn launch_shape(&self, block_threads_max: u32) -> LaunchShape {
        let fits = self.shape.1.iter().product::<u32>() <= block_threads_max;
        let (grid, block) = if fits { self.shape } else { self.usual };
        LaunchShape {
            grid,
            block,
            shared_bytes: self.shared_bytes,
        }
    }

    /// The largest deviation in all buffers, as a share of what is allowed.
    ///
    /// # Errors
    /// What deviates by more.
    pub fn deviation(
        &self,
        wanter: &str,
        want: &[Vec<u8>],
        getter: &str,
        got: &[Vec<u8>],
    ) -> Result<f32, String> {
        let mut largest = 0.0_f32;
        for (index, rule) in self.rules.iter().enumerate() {
            let deviation = rule.deviation(&want[index], &got[index]);
            let deviation = deviation.map_err(|(word, want, got)| {
                format!(
                    "word {word} of buffer {index} is {} on {getter}, but {} on {wanter}",
                    written(*rule, got),
                    written(*rule, want)
                )
            })?;
            largest = largest.max(deviation);
        }
        Ok(largest)
    }
}

/// Whether nothing may deviate.
pub fn are_exact(rules: &[Rule]) -> bool {
    rules.iter().all(|rule| matches!(rule, Rule::Exact(_)))
}

fn written(rule: Rule, bits: u64) -> String {
    match rule {
        Rule::Exact(_) => format!("{bits:#x}"),
        Rule::Near { .. } => format!("{:e} ({bits:#x})", f32::from_bits(bits as u32)),
    }
}
