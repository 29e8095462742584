//! Gathering of launches: where many wait, the driver gets them as one graph, which costs less than
//! one call for each.
//!
//! Each queue makes a graph of [`LAUNCHES`] kernels once. Before a launch of the graph, the nodes
//! whose kernel, shape or parameters differ from last time are changed. Gathering adds no delay:
//! launches that wait in the ring are gathered while the GPU is busy with earlier work, and are
//! given to the driver when the ring holds no more.

use causeway_mediator::backend::{LaunchOptions, LaunchShape};

use crate::driver::{CudaError, KernelHandle, Launch, LaunchChain, Stream};
use crate::module::CudaKernel;

/// Number of launches in a graph.
pub(crate) const LAUNCHES: usize = 32;

/// A launch that waits. Its parameters are a range of a buffer for all waiting launches.
#[derive(Clone, Copy)]
struct Waiting {
    /// The kernel, and its number, which is never used again, unlike the driver's handles.
    kernel: (KernelHandle, u64),
    shape: LaunchShape,
    parameters: (usize, usize),
}

/// Keeps launches that wait, and hands them to the driver as one graph.
#[derive(Default)]
pub(crate) struct Gatherer {
    waiting: Vec<Waiting>,
    parameters: Vec<u8>,
    chain: Option<Chain>,
    /// Whether launches may be gathered. Turned off by the configuration, or after the driver has
    /// failed to make or launch a graph: then they go to the driver one by one.
    on: bool,
}

/// The graph, and the launches that its nodes are now.
struct Chain {
    graph: LaunchChain,
    nodes: Vec<(Waiting, Vec<u8>)>,
}

impl Gatherer {
    /// Returns a gatherer without launches. With `on` false, it never gathers.
    pub(crate) fn new(on: bool) -> Self {
        Self {
            on,
            ..Self::default()
        }
    }

    /// Returns whether launches may be gathered.
    pub(crate) fn is_on(&self) -> bool {
        self.on
    }

    /// Returns whether no launch waits.
    pub(crate) fn is_empty(&self) -> bool {
        self.waiting.is_empty()
    }

    /// Returns whether as many launches wait as a graph has.
    pub(crate) fn is_full(&self) -> bool {
        self.waiting.len() == LAUNCHES
    }

    /// Adds a plain launch of `function` that was checked. The caller holds the kernel until the
    /// GPU has executed it.
    pub(crate) fn push(&mut self, function: &CudaKernel, shape: LaunchShape, parameters: &[u8]) {
        let begin = self.parameters.len();
        self.parameters.extend_from_slice(parameters);
        self.waiting.push(Waiting {
            kernel: (function.handle, function.number),
            shape,
            parameters: (begin, self.parameters.len()),
        });
    }

    /// Hands all waiting launches to the driver, in order.
    pub(crate) fn launch(&mut self, stream: &Stream) -> Result<(), CudaError> {
        let outcome = match self.launch_as_graph(stream) {
            Ok(true) => Ok(()),
            Ok(false) => self.launch_one_by_one(stream),
            Err(error) if error.is_sticky() => Err(error),
            Err(error) => {
                // Each by itself tells which of them is wrong, if one is.
                log::debug!("launches go to the driver one by one from now on: {error}");
                self.on = false;
                self.chain = None;
                self.launch_one_by_one(stream)
            }
        };
        self.waiting.clear();
        self.parameters.clear();
        outcome
    }

    fn launch_one_by_one(&self, stream: &Stream) -> Result<(), CudaError> {
        let mut all = self.waiting.iter();
        all.try_for_each(|waiting| {
            stream.launch(waiting.kernel.0, &as_launch(waiting, &self.parameters))
        })
    }

    /// Launches all as one graph; returns false if there are fewer than a graph has.
    fn launch_as_graph(&mut self, stream: &Stream) -> Result<bool, CudaError> {
        if !self.is_full() || !self.on {
            return Ok(false);
        }
        let chain = match &mut self.chain {
            Some(chain) => chain,
            none => none.insert(Chain::new(stream, &self.waiting[0], &self.parameters)?),
        };
        for (index, waiting) in self.waiting.iter().enumerate() {
            chain.set(index, waiting, &self.parameters)?;
        }
        chain.graph.launch(stream)?;
        Ok(true)
    }
}

impl Chain {
    fn new(stream: &Stream, waiting: &Waiting, parameters: &[u8]) -> Result<Self, CudaError> {
        let launch = as_launch(waiting, parameters);
        let graph = LaunchChain::new(stream.context(), LAUNCHES, waiting.kernel.0, &launch)?;
        let node = (*waiting, launch.parameters.to_vec());
        Ok(Self {
            graph,
            nodes: vec![node; LAUNCHES],
        })
    }

    /// Makes node number `index` the launch `waiting`, unless it is that already.
    fn set(&mut self, index: usize, waiting: &Waiting, parameters: &[u8]) -> Result<(), CudaError> {
        let launch = as_launch(waiting, parameters);
        let (node, bytes) = &mut self.nodes[index];
        // Comparing nothing with nothing is dear: with AVX-512, `memcmp` loads under an empty mask
        // from wherever the empty slices point, and a processor that finds no page there takes a
        // hundred nanoseconds to suppress the fault.
        let same_parameters = launch.parameters.is_empty() || bytes == launch.parameters;
        let same =
            node.kernel.1 == waiting.kernel.1 && node.shape == waiting.shape && same_parameters;
        if same {
            return Ok(());
        }
        self.graph.set(index, waiting.kernel.0, &launch)?;
        *node = *waiting;
        bytes.clear();
        bytes.extend_from_slice(launch.parameters);
        Ok(())
    }
}

fn as_launch<'a>(waiting: &Waiting, parameters: &'a [u8]) -> Launch<'a> {
    let (begin, end) = waiting.parameters;
    Launch {
        shape: waiting.shape,
        options: LaunchOptions::PLAIN,
        parameters: &parameters[begin..end],
        layout: &[],
    }
}
