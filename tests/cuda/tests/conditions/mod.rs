//! Graphs with conditional nodes, for tests: kernels that set conditions, and nodes by
//! `cuGraphAddNode_v2`.

#![allow(dead_code, reason = "no test uses all of this")]

#[path = "../code/mod.rs"]
pub mod code;

use std::ffi::{CStr, c_void};
use std::ptr::null;
use std::sync::OnceLock;

use cudarc::driver::sys;

/// `CUgraphNodeType`
pub const KERNEL: u32 = 0;
pub const MEMSET: u32 = 2;
pub const CHILD: u32 = 4;
pub const EMPTY: u32 = 5;
pub const CONDITIONAL: u32 = 13;

/// `CUgraphConditionalNodeType`
pub const IF: u32 = 0;
pub const WHILE: u32 = 1;
pub const SWITCH: u32 = 2;

/// `CU_GRAPH_COND_ASSIGN_DEFAULT`
pub const ASSIGN_DEFAULT: u32 = 1;

/// `set` sets a condition. `count` takes 1 from a counter and sets a condition to whether it was
/// more than 1. `is_odd` sets a condition to the lowest bit of a word. `add` adds to a word.
const KERNELS: &str = "
.extern .func cudaGraphSetConditional
(
    .param .b64 cudaGraphSetConditional_param_0,
    .param .b32 cudaGraphSetConditional_param_1
)
;
.visible .entry set(.param .u64 handle, .param .u32 value)
{
    .reg .b64 %d<2>;
    .reg .b32 %r<2>;
    ld.param.u64 %d1, [handle];
    ld.param.u32 %r1, [value];
    { .param .b64 p; .param .b32 q; st.param.b64 [p], %d1; st.param.b32 [q], %r1;
    call.uni cudaGraphSetConditional, (p, q); }
    ret;
}
.visible .entry count(.param .u64 handle, .param .u64 counter)
{
    .reg .pred %p<2>;
    .reg .b64 %d<3>;
    .reg .b32 %r<3>;
    ld.param.u64 %d1, [handle];
    ld.param.u64 %d2, [counter];
    atom.global.add.u32 %r1, [%d2], -1;
    setp.gt.s32 %p1, %r1, 1;
    selp.u32 %r2, 1, 0, %p1;
    { .param .b64 p; .param .b32 q; st.param.b64 [p], %d1; st.param.b32 [q], %r2;
    call.uni cudaGraphSetConditional, (p, q); }
    ret;
}
.visible .entry is_odd(.param .u64 handle, .param .u64 word)
{
    .reg .b64 %d<3>;
    .reg .b32 %r<3>;
    ld.param.u64 %d1, [handle];
    ld.param.u64 %d2, [word];
    ld.global.u32 %r1, [%d2];
    and.b32 %r2, %r1, 1;
    { .param .b64 p; .param .b32 q; st.param.b64 [p], %d1; st.param.b32 [q], %r2;
    call.uni cudaGraphSetConditional, (p, q); }
    ret;
}
.visible .entry add(.param .u64 word, .param .u32 amount)
{
    .reg .b64 %d<2>;
    .reg .b32 %r<4>;
    ld.param.u64 %d1, [word];
    ld.param.u32 %r1, [amount];
    ld.global.u32 %r2, [%d1];
    add.u32 %r3, %r2, %r1;
    st.global.u32 [%d1], %r3;
    ret;
}
.visible .entry wild()
{
    .reg .b64 %d<2>;
    mov.u64 %d1, 0;
    st.global.u64 [%d1], %d1;
    ret;
}
";

/// `CUgraphNodeParams`
#[derive(Clone, Copy)]
#[repr(C)]
pub struct Node {
    pub kind: u32,
    pub reserved: [u32; 3],
    pub content: [u64; 29],
    pub reserved_behind: u64,
}

/// `CUDA_CONDITIONAL_NODE_PARAMS`
#[derive(Clone, Copy)]
#[repr(C)]
pub struct Conditional {
    pub handle: u64,
    pub kind: u32,
    pub size: u32,
    pub bodies: *const usize,
    pub context: usize,
}

unsafe extern "C" {
    pub fn cuGraphConditionalHandleCreate(
        handle: *mut u64,
        graph: usize,
        context: usize,
        default: u32,
        flags: u32,
    ) -> u32;
    fn cuGraphAddNode_v2(
        node: *mut usize,
        graph: usize,
        dependencies: *const usize,
        edges: *const c_void,
        count: usize,
        parameters: *mut Node,
    ) -> u32;
    fn cuGraphCreate(graph: *mut usize, flags: u32) -> u32;
}

/// Loads the kernels, once for the process.
pub fn kernel(name: &CStr) -> usize {
    static MODULE: OnceLock<usize> = OnceLock::new();
    let module = *MODULE.get_or_init(module);
    code::function(module, name)
}

/// Loads the kernels once more.
pub fn module() -> usize {
    code::module(KERNELS)
}

/// Returns words of the device, all of them `value`.
pub fn words(count: usize, value: u32) -> u64 {
    let mut address = 0;
    assert_eq!(code::cuMemAlloc_v2(&raw mut address, 4 * count), 0);
    (0..count as u64).for_each(|index| put(address + 4 * index, value));
    address
}

pub fn put(address: u64, value: u32) {
    let from = (&raw const value).cast();
    assert_eq!(code::cuMemcpyHtoD_v2(address, from, 4), 0);
}

pub fn get(address: u64) -> u32 {
    let mut value = 0_u32;
    let into = (&raw mut value).cast();
    assert_eq!(code::cuMemcpyDtoH_v2(into, address, 4), 0);
    value
}

pub fn graph() -> usize {
    let mut graph = 0;
    // SAFETY: the pointer is valid for the call.
    assert_eq!(unsafe { cuGraphCreate(&raw mut graph, 0) }, 0);
    graph
}

/// Returns a condition; with a default value, if one is given.
pub fn condition(graph: usize, default: Option<u32>) -> u64 {
    let mut handle = 0;
    let (value, flags) = default.map_or((0, 0), |value| (value, ASSIGN_DEFAULT));
    // SAFETY: the pointer is valid for the call.
    let made = unsafe { cuGraphConditionalHandleCreate(&raw mut handle, graph, 0, value, flags) };
    assert_eq!(made, 0);
    handle
}

impl Node {
    /// Returns parameters of a kind, all of them 0.
    pub const fn new(kind: u32) -> Self {
        Self {
            kind,
            reserved: [0; 3],
            content: [0; 29],
            reserved_behind: 0,
        }
    }

    pub fn with<T: Copy>(kind: u32, given: T) -> Self {
        let mut node = Self::new(kind);
        assert!(size_of::<T>() <= size_of_val(&node.content));
        // SAFETY: there is room, and words are aligned for all types of `cuda.h`.
        unsafe { node.content.as_mut_ptr().cast::<T>().write(given) };
        node
    }

    pub const fn conditional(&self) -> Conditional {
        // SAFETY: any bytes are such a structure.
        unsafe { self.content.as_ptr().cast::<Conditional>().read() }
    }

    /// Adds a node behind others. Returns its handle, or the error.
    pub fn add(&mut self, graph: usize, dependencies: &[usize]) -> Result<usize, u32> {
        let mut node = 0;
        let (before, count) = (dependencies.as_ptr(), dependencies.len());
        // SAFETY: pointers are valid for the call.
        let added = unsafe { cuGraphAddNode_v2(&raw mut node, graph, before, null(), count, self) };
        if added == 0 { Ok(node) } else { Err(added) }
    }
}

/// Calls `call` with the parameters of a launch of one thread.
pub fn with_kernel<T>(function: usize, values: &[u64], call: impl FnOnce(&mut Node) -> T) -> T {
    let mut pointers: Vec<*const u64> = values.iter().map(|value| &raw const *value).collect();
    let given = sys::CUDA_KERNEL_NODE_PARAMS {
        func: function as *mut _,
        gridDimX: 1,
        gridDimY: 1,
        gridDimZ: 1,
        blockDimX: 1,
        blockDimY: 1,
        blockDimZ: 1,
        sharedMemBytes: 0,
        kernelParams: pointers.as_mut_ptr().cast(),
        extra: std::ptr::null_mut(),
        kern: std::ptr::null_mut(),
        ctx: std::ptr::null_mut(),
    };
    call(&mut Node::with(KERNEL, given))
}

/// Adds a launch of one thread behind other nodes.
pub fn launch(graph: usize, dependencies: &[usize], name: &CStr, values: &[u64]) -> usize {
    with_kernel(kernel(name), values, |node| {
        node.add(graph, dependencies).unwrap()
    })
}

pub const fn conditional(handle: u64, kind: u32, size: u32) -> Conditional {
    Conditional {
        handle,
        kind,
        size,
        bodies: null(),
        context: 0,
    }
}

/// Adds a conditional node behind other nodes. Returns it and its graphs.
pub fn branch(
    graph: usize,
    dependencies: &[usize],
    (handle, kind, size): (u64, u32, u32),
) -> (usize, Vec<usize>) {
    let mut given = Node::with(CONDITIONAL, conditional(handle, kind, size));
    let node = given.add(graph, dependencies).unwrap();
    let bodies = given.conditional().bodies;
    assert!(!bodies.is_null());
    // SAFETY: the list belongs to the node, and has as many graphs as were asked for.
    let bodies = unsafe { std::slice::from_raw_parts(bodies, size as usize) };
    (node, bodies.to_vec())
}

pub fn instantiate(graph: usize) -> Result<usize, u32> {
    let mut executable = 0;
    let made = code::cuGraphInstantiateWithFlags(&raw mut executable, graph, 0);
    if made == 0 { Ok(executable) } else { Err(made) }
}

/// Launches an executable graph, and waits for it.
pub fn run(executable: usize) {
    assert_eq!(code::cuGraphLaunch(executable, 0), 0);
    assert_eq!(code::cuCtxSynchronize(), 0);
}
