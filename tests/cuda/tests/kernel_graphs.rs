//! Kernels as nodes of graphs: parameters belong to the node, and the code stays loaded.

#![allow(unsafe_code, reason = "the driver API is a C library")]

mod code;

use std::ffi::c_void;
use std::ptr::null;

use causeway_cuda_tests::library;
use code::{KERNELS, cuMemAlloc_v2, cuMemcpyDtoH_v2, cuMemcpyHtoD_v2, cuModuleUnload};
use cudarc::driver::sys::CUDA_KERNEL_NODE_PARAMS;

const COUNT: usize = 8;

unsafe extern "C" {
    fn cuGraphCreate(graph: *mut usize, flags: u32) -> u32;
    fn cuGraphAddKernelNode_v2(
        node: *mut usize,
        graph: usize,
        dependencies: *const usize,
        count: usize,
        given: *const CUDA_KERNEL_NODE_PARAMS,
    ) -> u32;
    fn cuGraphKernelNodeGetParams_v2(node: usize, given: *mut CUDA_KERNEL_NODE_PARAMS) -> u32;
    fn cuGraphExecKernelNodeSetParams_v2(
        executable: usize,
        node: usize,
        given: *const CUDA_KERNEL_NODE_PARAMS,
    ) -> u32;
    fn cuGraphInstantiateWithFlags(executable: *mut usize, graph: usize, flags: u64) -> u32;
    fn cuGraphLaunch(executable: usize, stream: usize) -> u32;
}

fn upload(value: f32) -> u64 {
    let (values, mut address) = ([value; COUNT], 0);
    assert_eq!(cuMemAlloc_v2(&raw mut address, 4 * COUNT), 0);
    assert_eq!(
        cuMemcpyHtoD_v2(address, values.as_ptr().cast(), 4 * COUNT),
        0
    );
    address
}

fn download(address: u64) -> [f32; COUNT] {
    let mut values = [0.0; COUNT];
    let copied = cuMemcpyDtoH_v2(values.as_mut_ptr().cast(), address, 4 * COUNT);
    assert_eq!(copied, 0);
    values
}

#[test]
fn a_kernel_node_keeps_its_parameters_and_its_code() {
    library();
    let module = code::module(KERNELS);
    let function = code::function(module, c"add");
    let (mut a, mut b, mut sum, mut count) = (upload(1.0), upload(2.0), upload(0.0), COUNT as u32);
    let (mut graph, mut node, mut executable) = (0, 0, 0);
    let mut list: [*mut c_void; 4] = [
        (&raw mut a).cast(),
        (&raw mut b).cast(),
        (&raw mut sum).cast(),
        (&raw mut count).cast(),
    ];
    let mut given = CUDA_KERNEL_NODE_PARAMS {
        func: function as *mut _,
        gridDimX: 1,
        gridDimY: 1,
        gridDimZ: 1,
        blockDimX: COUNT as u32,
        blockDimY: 1,
        blockDimZ: 1,
        sharedMemBytes: 0,
        kernelParams: list.as_mut_ptr(),
        extra: std::ptr::null_mut(),
        kern: std::ptr::null_mut(),
        ctx: std::ptr::null_mut(),
    };
    // SAFETY: pointers are valid for the calls.
    unsafe {
        assert_eq!(cuGraphCreate(&raw mut graph, 0), 0);
        let add = |given: &CUDA_KERNEL_NODE_PARAMS, node: &mut usize| {
            cuGraphAddKernelNode_v2(node, graph, null(), 0, given)
        };
        assert_eq!(add(&given, &mut node), 0);
        let mut wrong = given;
        wrong.blockDimX = 4096;
        assert_eq!(add(&wrong, &mut 0), 1);
        assert_eq!(
            cuGraphInstantiateWithFlags(&raw mut executable, graph, 0),
            0
        );
        let (sum, first) = (sum, a);
        // What the caller does with its variables is nothing to the node.
        (&raw mut a).write_volatile(b);
        assert_eq!(cuGraphLaunch(executable, 0), 0);
        assert_eq!(download(sum), [3.0; COUNT]);
        let mut found = given;
        assert_eq!(cuGraphKernelNodeGetParams_v2(node, &raw mut found), 0);
        assert_eq!(found.func as usize, function);
        assert_eq!((*found.kernelParams).cast::<u64>().read_unaligned(), first);
        given.kernelParams = list.as_mut_ptr();
        assert_eq!(
            cuGraphExecKernelNodeSetParams_v2(executable, node, &raw const given),
            0
        );
        assert_eq!(cuModuleUnload(module), 0);
        assert_eq!(cuGraphLaunch(executable, 0), 0, "the node keeps the code");
        assert_eq!(download(sum), [4.0; COUNT]);
        assert_ne!(add(&given, &mut 0), 0, "the function is gone");
    }
}
