//! Graphs (CUDA Runtime API, "Graph Management") but for nodes with kernels and memory, which are
//! in [`crate::node`].

use crate::shapes::own;
use crate::table::calls;

calls! {
    fn cudaGraphCreate(graph: usize, flags: u32) = cuGraphCreate(graph, flags);
    fn cudaGraphDestroy(graph: usize) = cuGraphDestroy(graph);
    fn cudaGraphClone(clone: usize, graph: usize) = cuGraphClone(clone, graph);
    fn cudaGraphInstantiate(executable: usize, graph: usize, flags: u64)
        = cuGraphInstantiateWithFlags(executable, graph, flags);
    fn cudaGraphInstantiateWithFlags(executable: usize, graph: usize, flags: u64)
        = cuGraphInstantiateWithFlags(executable, graph, flags);
    fn cudaGraphExecDestroy(executable: usize) = cuGraphExecDestroy(executable);
    fn cudaGraphExecUpdate(executable: usize, graph: usize, result: usize)
        = cuGraphExecUpdate_v2(executable, graph, result);
    fn cudaGraphExecGetFlags(executable: usize, flags: usize)
        = cuGraphExecGetFlags(executable, flags);
    fn cudaGraphLaunch(executable: usize, stream: usize)
        / cudaGraphLaunch_ptsz(executable, own(stream)) = cuGraphLaunch(executable, stream);
    fn cudaGraphUpload(executable: usize, stream: usize)
        / cudaGraphUpload_ptsz(executable, own(stream)) = cuGraphUpload(executable, stream);
    fn cudaGraphGetNodes(graph: usize, nodes: usize, count: usize)
        = cuGraphGetNodes(graph, nodes, count);
    fn cudaGraphGetRootNodes(graph: usize, nodes: usize, count: usize)
        = cuGraphGetRootNodes(graph, nodes, count);
    fn cudaGraphGetEdges(graph: usize, from: usize, to: usize, edges: usize, count: usize)
        = cuGraphGetEdges_v2(graph, from, to, edges, count);
    fn cudaGraphAddDependencies(graph: usize, from: usize, to: usize, edges: usize, count: usize)
        = cuGraphAddDependencies_v2(graph, from, to, edges, count);
    fn cudaGraphRemoveDependencies(graph: usize, from: usize, to: usize, edges: usize, count: usize)
        = cuGraphRemoveDependencies_v2(graph, from, to, edges, count);
    fn cudaGraphNodeGetType(node: usize, kind: usize) = cuGraphNodeGetType(node, kind);
    fn cudaGraphNodeGetDependencies(node: usize, nodes: usize, edges: usize, count: usize)
        = cuGraphNodeGetDependencies_v2(node, nodes, edges, count);
    fn cudaGraphNodeGetDependentNodes(node: usize, nodes: usize, edges: usize, count: usize)
        = cuGraphNodeGetDependentNodes_v2(node, nodes, edges, count);
    fn cudaGraphNodeSetEnabled(executable: usize, node: usize, is_enabled: u32)
        = cuGraphNodeSetEnabled(executable, node, is_enabled);
    fn cudaGraphNodeGetEnabled(executable: usize, node: usize, is_enabled: usize)
        = cuGraphNodeGetEnabled(executable, node, is_enabled);
    fn cudaGraphNodeFindInClone(found: usize, node: usize, clone: usize)
        = cuGraphNodeFindInClone(found, node, clone);
    fn cudaGraphDestroyNode(node: usize) = cuGraphDestroyNode(node);
    fn cudaGraphAddEmptyNode(node: usize, graph: usize, after: usize, count: usize)
        = cuGraphAddEmptyNode(node, graph, after, count);
    fn cudaGraphAddChildGraphNode(node: usize, graph: usize, after: usize, count: usize,
                                  child: usize)
        = cuGraphAddChildGraphNode(node, graph, after, count, child);
    fn cudaGraphAddEventRecordNode(node: usize, graph: usize, after: usize, count: usize,
                                   event: usize)
        = cuGraphAddEventRecordNode(node, graph, after, count, event);
    fn cudaGraphAddEventWaitNode(node: usize, graph: usize, after: usize, count: usize,
                                 event: usize)
        = cuGraphAddEventWaitNode(node, graph, after, count, event);
    fn cudaGraphAddHostNode(node: usize, graph: usize, after: usize, count: usize,
                            parameters: usize)
        = cuGraphAddHostNode(node, graph, after, count, parameters);
    fn cudaGraphHostNodeGetParams(node: usize, parameters: usize)
        = cuGraphHostNodeGetParams(node, parameters);
    fn cudaGraphHostNodeSetParams(node: usize, parameters: usize)
        = cuGraphHostNodeSetParams(node, parameters);
    fn cudaGraphInstantiateWithParams(executable: usize, graph: usize, parameters: usize)
        = cuGraphInstantiateWithParams(executable, graph, parameters);
    fn cudaGraphInstantiateWithParams_ptsz(executable: usize, graph: usize, parameters: usize)
        = cuGraphInstantiateWithParams_ptsz(executable, graph, parameters);
    fn cudaGraphAddMemFreeNode(node: usize, graph: usize, after: usize, count: usize,
                               address: usize)
        = cuGraphAddMemFreeNode(node, graph, after, count, address);
    fn cudaGraphMemFreeNodeGetParams(node: usize, address: usize)
        = cuGraphMemFreeNodeGetParams(node, address);
    fn cudaGraphChildGraphNodeGetGraph(node: usize, graph: usize)
        = cuGraphChildGraphNodeGetGraph(node, graph);
    fn cudaGraphEventRecordNodeGetEvent(node: usize, event: usize)
        = cuGraphEventRecordNodeGetEvent(node, event);
    fn cudaGraphEventRecordNodeSetEvent(node: usize, event: usize)
        = cuGraphEventRecordNodeSetEvent(node, event);
    fn cudaGraphEventWaitNodeGetEvent(node: usize, event: usize)
        = cuGraphEventWaitNodeGetEvent(node, event);
    fn cudaGraphEventWaitNodeSetEvent(node: usize, event: usize)
        = cuGraphEventWaitNodeSetEvent(node, event);
    fn cudaGraphExecEventRecordNodeSetEvent(executable: usize, node: usize, event: usize)
        = cuGraphExecEventRecordNodeSetEvent(executable, node, event);
    fn cudaGraphExecEventWaitNodeSetEvent(executable: usize, node: usize, event: usize)
        = cuGraphExecEventWaitNodeSetEvent(executable, node, event);
    fn cudaGraphExecChildGraphNodeSetParams(executable: usize, node: usize, child: usize)
        = cuGraphExecChildGraphNodeSetParams(executable, node, child);
    fn cudaGraphExecHostNodeSetParams(executable: usize, node: usize, parameters: usize)
        = cuGraphExecHostNodeSetParams(executable, node, parameters);
    fn cudaGraphKernelNodeGetAttribute(node: usize, attribute: u32, value: usize)
        = cuGraphKernelNodeGetAttribute(node, attribute, value);
    fn cudaGraphKernelNodeSetAttribute(node: usize, attribute: u32, value: usize)
        = cuGraphKernelNodeSetAttribute(node, attribute, value);
    fn cudaGraphKernelNodeCopyAttributes(to: usize, from: usize)
        = cuGraphKernelNodeCopyAttributes(to, from);
    fn cudaGraphDebugDotPrint(graph: usize, path: usize, flags: u32)
        = cuGraphDebugDotPrint(graph, path, flags);
    fn cudaDeviceGraphMemTrim(device: i32) = cuDeviceGraphMemTrim(device);
    fn cudaDeviceGetGraphMemAttribute(device: i32, attribute: u32, value: usize)
        = cuDeviceGetGraphMemAttribute(device, attribute, value);
    fn cudaDeviceSetGraphMemAttribute(device: i32, attribute: u32, value: usize)
        = cuDeviceSetGraphMemAttribute(device, attribute, value);
    fn cudaUserObjectCreate(object: usize, pointer: usize, destroy: usize, count: u32, flags: u32)
        = cuUserObjectCreate(object, pointer, destroy, count, flags);
    fn cudaUserObjectRetain(object: usize, count: u32) = cuUserObjectRetain(object, count);
    fn cudaUserObjectRelease(object: usize, count: u32) = cuUserObjectRelease(object, count);
    fn cudaGraphRetainUserObject(graph: usize, object: usize, count: u32, flags: u32)
        = cuGraphRetainUserObject(graph, object, count, flags);
    fn cudaGraphReleaseUserObject(graph: usize, object: usize, count: u32)
        = cuGraphReleaseUserObject(graph, object, count);
}
