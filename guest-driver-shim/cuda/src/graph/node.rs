//! What nodes of graphs do.

use std::sync::Arc;

use causeway_protocol::packet::{LaunchOptions, LaunchShape};
use causeway_shim_linux::shim::SubmitError;

use crate::boundary::In;
use crate::driver::Driver;
use crate::error::Answer;
use crate::event::Event;
use crate::graph::memory_nodes::Allocated;
use crate::graph::{Condition, Graph, copy, fill};
use crate::host_function::{self, HostCall, HostWork};
use crate::kernel::{self, Kernel};
use crate::ring::Writing;
use crate::structures::{BatchOperation, Copy3d, FillNode, HostNode, KernelNode};
use crate::work::Work;

/// What a node does, with its own copies of all parameters.
#[derive(Clone)]
pub(crate) enum Kind {
    Kernel(Arc<KernelCall>),
    Copy {
        /// As a caller sees it; none for a captured copy of several pieces.
        given: Option<Box<Copy3d>>,
        work: Work,
    },
    Fill {
        given: Option<FillNode>,
        work: Work,
    },
    Host(HostCall),
    /// The nodes of a graph that belongs to this node.
    Child(Arc<Graph>),
    Empty,
    Wait(Arc<Event>),
    Record(Arc<Event>),
    Allocate(Arc<Allocated>),
    /// Frees the memory of a node.
    Free {
        address: u64,
    },
    Batch {
        operations: Vec<BatchOperation>,
        work: Work,
    },
    /// Executes graphs that belong to this node, as a condition says.
    Conditional(Arc<Conditional>),
}

/// A launch as a node has it.
pub(crate) struct KernelCall {
    pub(crate) kernel: Arc<Kernel>,
    pub(crate) shape: LaunchShape,
    options: LaunchOptions,
    parameters: Box<[u8]>,
    /// Addresses of the parameters in the block. Callers who ask are shown this memory.
    pub(crate) addresses: Box<[usize]>,
}

/// How a value decides (`CUgraphConditionalNodeType`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Rule {
    /// The first graph unless the value is 0; then the second, if there is one.
    If,
    /// The graph again and again, until the value is 0.
    While,
    /// The graph with the value as its number, if there is one.
    Switch,
}

/// What a conditional node has.
pub(crate) struct Conditional {
    pub(crate) condition: Arc<Condition>,
    pub(crate) rule: Rule,
    pub(crate) bodies: Vec<Arc<Graph>>,
    /// Handles of the graphs. The caller who has made the node is shown this memory.
    pub(super) handles: Box<[usize]>,
}

impl KernelCall {
    fn new(
        kernel: Arc<Kernel>,
        (shape, options): (LaunchShape, LaunchOptions),
        parameters: Box<[u8]>,
    ) -> Self {
        let start = parameters.as_ptr() as usize;
        let layout = kernel.layout.iter();
        let addresses = layout.map(|parameter| start + usize::from(parameter.offset));
        Self {
            addresses: addresses.collect(),
            kernel,
            shape,
            options,
            parameters,
        }
    }
}

impl Kind {
    /// Returns the number of the kind (`CUgraphNodeType`).
    pub(crate) const fn number(&self) -> u32 {
        match self {
            Self::Kernel(_) => 0,
            Self::Copy { .. } => 1,
            Self::Fill { .. } => 2,
            Self::Host(_) => 3,
            Self::Child(_) => 4,
            Self::Empty => 5,
            Self::Wait(_) => 6,
            Self::Record(_) => 7,
            Self::Allocate(_) => 10,
            Self::Free { .. } => 11,
            Self::Batch { .. } => 12,
            Self::Conditional(_) => 13,
        }
    }

    /// Returns the node that work of a captured stream becomes; none for work that does nothing.
    pub(crate) fn of_work(work: Work) -> Option<Self> {
        Some(match work {
            Work::Nothing => return None,
            Work::Launch {
                kernel,
                shape,
                options,
                parameters,
            } => {
                let call = KernelCall::new(kernel, (shape, options), parameters);
                Self::Kernel(Arc::new(call))
            }
            Work::Copy {
                destination,
                source,
                bytes,
            } => Self::Copy {
                given: Some(Box::new(copy::given(destination, source, bytes))),
                work,
            },
            Work::Fill {
                destination,
                bytes,
                pattern,
                width,
            } => Self::Fill {
                given: Some(fill::given((destination, bytes), (pattern, width))),
                work,
            },
            Work::CopyRect(shape) => Self::Copy {
                given: Some(Box::new(copy::rows(&shape))),
                work,
            },
            Work::CopyArray { .. } => Self::Copy { given: None, work },
            Work::FillRect(shape) => Self::Fill {
                given: Some(fill::rows(&shape)),
                work,
            },
            Work::Host(call) => Self::Host(call),
            Work::Sequence(mut parts) if parts.len() == 1 => return Self::of_work(parts.remove(0)),
            Work::Sequence(ref parts) => match parts.first() {
                None => return None,
                Some(Work::Copy { .. } | Work::CopyRect(_) | Work::CopyArray { .. }) => {
                    Self::Copy { given: None, work }
                }
                Some(Work::Fill { .. } | Work::FillRect(_)) => Self::Fill { given: None, work },
                Some(_) => Self::batch(work),
            },
            Work::Store { .. } | Work::Await { .. } => Self::batch(work),
        })
    }

    const fn batch(work: Work) -> Self {
        Self::Batch {
            operations: Vec::new(),
            work,
        }
    }

    /// Returns a launch node.
    pub(crate) fn of_kernel(driver: &Driver, given: KernelNode) -> Answer<Self> {
        // The kernel counts only where there is no function.
        let function = match given.function {
            0 => given.kernel,
            function => function,
        };
        let shape = LaunchShape {
            shared_bytes: given.shared_bytes,
            grid: given.grid,
            block: given.block,
        };
        let kernel = kernel::find(driver, function)?;
        kernel.check_shape(shape)?;
        let parameters = kernel.gather(In::at(given.parameters), In::at(given.extra))?;
        let call = KernelCall::new(kernel, (shape, LaunchOptions::PLAIN), parameters);
        Ok(Self::Kernel(Arc::new(call)))
    }

    /// Returns a node that calls a function of the program.
    pub(crate) fn of_host(driver: &'static Driver, given: HostNode) -> Answer<Self> {
        let function = host_function::of_address(given.function)?;
        let work = HostWork::Function {
            function,
            argument: given.argument,
        };
        HostCall::new(driver, work).map(Self::Host)
    }

    /// Returns the graphs that belong to the node.
    pub(crate) fn graphs(&self) -> &[Arc<Graph>] {
        match self {
            Self::Child(child) => std::slice::from_ref(child),
            Self::Conditional(conditional) => &conditional.bodies,
            _ => &[],
        }
    }

    /// Returns the same with graphs of its own.
    pub(crate) fn duplicate(&self) -> Self {
        match self {
            Self::Child(child) => Self::Child(child.duplicate(true)),
            Self::Conditional(conditional) => Self::Conditional(conditional.duplicate()),
            other => other.clone(),
        }
    }

    /// Writes the packets of a node, unless it has graphs.
    pub(crate) fn write(&self, writing: &mut Writing) -> Result<(), SubmitError> {
        match self {
            Self::Kernel(call) => {
                let handle = call.kernel.handle();
                writing
                    .commands
                    .launch_with(handle, call.shape, call.options, &call.parameters)
            }
            Self::Copy { work, .. } | Self::Fill { work, .. } | Self::Batch { work, .. } => {
                work.write(writing)
            }
            Self::Host(call) => call.write(writing),
            Self::Record(event) => match event.time_address() {
                Some(address) => writing.commands.timestamp(address),
                None => Ok(()),
            },
            // What an event waits for, the launch of the graph waits for. Memory is there all the
            // time.
            Self::Wait(_)
            | Self::Empty
            | Self::Child(_)
            | Self::Conditional(_)
            | Self::Allocate(_)
            | Self::Free { .. } => Ok(()),
        }
    }
}
