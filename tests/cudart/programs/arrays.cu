// Copies to, from and between arrays in all ways, also in streams and graphs.

#include "texels.h"

constexpr int WIDTH = 32, HEIGHT = 10, ROW = WIDTH * sizeof(int);

// Copies a rectangle of `from` to another place of `to`, as copies must do it.
void move(std::vector<int> &to, int to_x, int to_y, const std::vector<int> &from, int from_x,
          int from_y, int width, int height) {
    for (int y = 0; y < height; y++)
        for (int x = 0; x < width; x++)
            to[(to_y + y) * WIDTH + to_x + x] = from[(from_y + y) * WIDTH + from_x + x];
}

void rectangles() {
    std::vector<int> numbers = counted<int>(WIDTH * HEIGHT, 1), wanted(WIDTH * HEIGHT, 0);
    cudaExtent extent = make_cudaExtent(WIDTH, HEIGHT, 0);
    Array<int> first(extent, wanted), second(extent, wanted);
    CHECK(cudaMemcpy2DToArray(first.handle, 5 * sizeof(int), 2, numbers.data() + 3, ROW,
                              7 * sizeof(int), 4, cudaMemcpyHostToDevice));
    move(wanted, 5, 2, numbers, 3, 0, 7, 4);
    verify_equal(first.read(), wanted, "host to array");
    CHECK(cudaMemcpy2DArrayToArray(second.handle, sizeof(int), 5, first.handle, 4 * sizeof(int), 1,
                                   9 * sizeof(int), 5, cudaMemcpyDeviceToDevice));
    std::vector<int> of_second(WIDTH * HEIGHT, 0);
    move(of_second, 1, 5, wanted, 4, 1, 9, 5);
    verify_equal(second.read(), of_second, "array to array");
    Buffer<int> memory(numbers);
    CHECK(cudaMemcpy2DFromArray(memory.data + WIDTH + 2, ROW, second.handle, sizeof(int), 5,
                                8 * sizeof(int), 3, cudaMemcpyDeviceToDevice));
    move(numbers, 2, 1, of_second, 1, 5, 8, 3);
    verify_equal(memory.read(), numbers, "array to device");
    CHECK(cudaMemcpy2DToArray(first.handle, 0, 0, memory.data, ROW, ROW, HEIGHT,
                              cudaMemcpyDeviceToDevice));
    std::vector<int> found(WIDTH * HEIGHT);
    CHECK(cudaMemcpy2DFromArray(found.data(), ROW, first.handle, 0, 0, ROW, HEIGHT,
                                cudaMemcpyDefault));
    verify_equal(found, numbers, "device to array to host");

    // In a stream, from memory and to memory that the device can reach.
    cudaStream_t stream;
    int *host;
    CHECK(cudaStreamCreate(&stream));
    CHECK(cudaMallocHost(&host, 2 * ROW * HEIGHT));
    for (int i = 0; i < WIDTH * HEIGHT; i++)
        host[i] = 3 * i;
    int *back = host + WIDTH * HEIGHT;
    CHECK(cudaMemcpy2DToArrayAsync(first.handle, 0, 0, host, ROW, ROW, HEIGHT,
                                   cudaMemcpyHostToDevice, stream));
    CHECK(cudaMemcpy2DFromArrayAsync(back, ROW, first.handle, 0, 1, ROW, HEIGHT - 1,
                                     cudaMemcpyDeviceToHost, stream));
    CHECK(cudaStreamSynchronize(stream));
    for (int i = 0; i < WIDTH * (HEIGHT - 1); i++)
        verify(back[i] == 3 * (i + WIDTH), "copies in a stream", i);
    CHECK(cudaFreeHost(host));
    CHECK(cudaStreamDestroy(stream));
}

// Bytes that go on in the next row.
void flat() {
    std::vector<int> wanted(WIDTH * HEIGHT, 0), numbers = counted<int>(WIDTH * HEIGHT, 1);
    Array<int> first(make_cudaExtent(WIDTH, HEIGHT, 0), wanted);
    Array<int> narrow(make_cudaExtent(24, HEIGHT, 0), std::vector<int>(24 * HEIGHT, 0));
    cudaStream_t stream;
    CHECK(cudaStreamCreate(&stream));
    auto put = [&](int x, int y, int from, int count) {
        std::copy_n(numbers.begin() + from, count, wanted.begin() + y * WIDTH + x);
    };
    CHECK(cudaMemcpyToArray(first.handle, 20 * sizeof(int), 1, numbers.data(), 100 * sizeof(int),
                            cudaMemcpyHostToDevice));
    put(20, 1, 0, 100);
    verify_equal(first.read(), wanted, "flat copy");
    CHECK(cudaMemcpyToArrayAsync(first.handle, 0, 0, numbers.data() + 50, 70 * sizeof(int),
                                 cudaMemcpyHostToDevice, stream));
    CHECK(cudaStreamSynchronize(stream));
    put(0, 0, 50, 70);
    std::vector<int> found(120);
    CHECK(cudaMemcpyFromArray(found.data(), first.handle, 8 * sizeof(int), 0, 120 * sizeof(int),
                              cudaMemcpyDeviceToHost));
    std::vector<int> part(wanted.begin() + 8, wanted.begin() + 128);
    verify_equal(found, part, "flat copy back");
    CHECK(cudaMemcpyArrayToArray(narrow.handle, 3 * sizeof(int), 2, first.handle, 8 * sizeof(int),
                                 0, 120 * sizeof(int), cudaMemcpyDeviceToDevice));
    CHECK(cudaMemcpyFromArrayAsync(found.data(), narrow.handle, 3 * sizeof(int), 2,
                                   120 * sizeof(int), cudaMemcpyDeviceToHost, stream));
    CHECK(cudaStreamSynchronize(stream));
    verify_equal(found, part, "flat copy between arrays of other widths");
    CHECK(cudaStreamDestroy(stream));
}

// Volumes. Where an array is on one side, places in memory count its elements, too.
void volumes() {
    constexpr int DEPTH = 4, PLANE = WIDTH * HEIGHT;
    cudaExtent extent = make_cudaExtent(WIDTH, HEIGHT, DEPTH);
    std::vector<int> numbers = counted<int>(PLANE * DEPTH, 1), wanted(PLANE * DEPTH, 0);
    Array<int> first(extent, wanted), second(extent, wanted);
    cudaMemcpy3DParms copy = {};
    copy.srcPtr = make_cudaPitchedPtr(numbers.data(), ROW, ROW, HEIGHT);
    copy.srcPos = make_cudaPos(3, 1, 1);
    copy.dstArray = first.handle;
    copy.dstPos = make_cudaPos(6, 2, 0);
    copy.extent = make_cudaExtent(10, 5, 3);
    copy.kind = cudaMemcpyHostToDevice;
    CHECK(cudaMemcpy3D(&copy));
    for (int z = 0; z < 3; z++) {
        auto begin = numbers.begin() + (z + 1) * PLANE;
        std::vector<int> plane(begin, begin + PLANE);
        std::vector<int> into(PLANE, 0);
        move(into, 6, 2, plane, 3, 1, 10, 5);
        std::copy(into.begin(), into.end(), wanted.begin() + z * PLANE);
    }
    verify_equal(first.read(), wanted, "part of a volume");

    copy = {};
    copy.srcArray = first.handle;
    copy.srcPos = make_cudaPos(0, 0, 1);
    copy.dstArray = second.handle;
    copy.extent = make_cudaExtent(WIDTH, HEIGHT, 3);
    copy.kind = cudaMemcpyDeviceToDevice;
    CHECK(cudaMemcpy3DAsync(&copy, 0));
    cudaPitchedPtr memory;
    CHECK(cudaMalloc3D(&memory, make_cudaExtent(ROW, HEIGHT, DEPTH)));
    copy = {};
    copy.srcArray = second.handle;
    copy.dstPtr = memory;
    copy.extent = make_cudaExtent(WIDTH, HEIGHT, 3);
    copy.kind = cudaMemcpyDeviceToDevice;
    CHECK(cudaMemcpy3D(&copy));
    std::vector<int> found(PLANE * 3);
    copy = {};
    copy.srcPtr = memory;
    copy.dstPtr = make_cudaPitchedPtr(found.data(), ROW, ROW, HEIGHT);
    copy.extent = make_cudaExtent(ROW, HEIGHT, 3);
    copy.kind = cudaMemcpyDeviceToHost;
    CHECK(cudaMemcpy3D(&copy));
    wanted.erase(wanted.begin(), wanted.begin() + PLANE);
    verify_equal(found, wanted, "volume by an array and pitched memory");

    cudaMemcpy3DPeerParms peers = {};
    peers.srcArray = first.handle;
    peers.dstPtr = make_cudaPitchedPtr(memory.ptr, memory.pitch, ROW, HEIGHT);
    peers.extent = make_cudaExtent(WIDTH, HEIGHT, 1);
    CHECK(cudaMemcpy3DPeer(&peers));
    CHECK(cudaMemcpy2D(found.data(), ROW, memory.ptr, memory.pitch, ROW, HEIGHT,
                       cudaMemcpyDeviceToHost));
    found.resize(PLANE);
    std::vector<int> plane = first.read();
    plane.resize(PLANE);
    verify_equal(found, plane, "copy between devices");
    CHECK(cudaFree(memory.ptr));
}

// Nodes that are added, and those of a capture.
void graphs() {
    std::vector<int> numbers = counted<int>(WIDTH * HEIGHT, 1), found(WIDTH * HEIGHT);
    Array<int> array(make_cudaExtent(WIDTH, HEIGHT, 0));
    cudaGraph_t graph;
    cudaGraphNode_t written, read;
    cudaGraphExec_t executable;
    CHECK(cudaGraphCreate(&graph, 0));
    cudaMemcpy3DParms write = {}, back = {}, known;
    write.srcPtr = make_cudaPitchedPtr(numbers.data(), ROW, ROW, HEIGHT);
    write.srcPos = make_cudaPos(0, 1, 0);
    write.dstArray = array.handle;
    write.dstPos = make_cudaPos(4, 1, 0);
    write.extent = make_cudaExtent(20, HEIGHT - 1, 1);
    write.kind = cudaMemcpyHostToDevice;
    back.srcArray = array.handle;
    back.dstPtr = make_cudaPitchedPtr(found.data(), ROW, ROW, HEIGHT);
    back.extent = make_cudaExtent(WIDTH, HEIGHT, 1);
    back.kind = cudaMemcpyDeviceToHost;
    CHECK(cudaGraphAddMemcpyNode(&written, graph, nullptr, 0, &write));
    CHECK(cudaGraphAddMemcpyNode(&read, graph, &written, 1, &back));
    CHECK(cudaGraphMemcpyNodeGetParams(written, &known));
    verify(known.dstArray == array.handle && known.srcArray == nullptr, "array of a node", 0);
    verify(known.dstPos.x == 4 && known.dstPos.y == 1, "place of a node", known.dstPos.x);
    verify(known.extent.width == 20, "extent of a node", known.extent.width);
    verify(known.srcPtr.ptr == numbers.data() && known.srcPos.y == 1, "memory of a node", 0);
    auto run = [&](int x, const char *what) {
        CHECK(cudaGraphInstantiate(&executable, graph, 0));
        CHECK(cudaGraphLaunch(executable, 0));
        CHECK(cudaDeviceSynchronize());
        CHECK(cudaGraphExecDestroy(executable));
        for (int y = 1; y < HEIGHT; y++)
            for (int i = 0; i < 20; i++)
                verify(found[y * WIDTH + x + i] == numbers[y * WIDTH + i], what, i);
    };
    run(4, "nodes with an array");
    write.dstPos.x = 11;
    CHECK(cudaGraphMemcpyNodeSetParams(written, &write));
    run(11, "nodes with an array after a change");
    CHECK(cudaGraphDestroy(graph));

    cudaStream_t stream;
    CHECK(cudaStreamCreate(&stream));
    CHECK(cudaStreamBeginCapture(stream, cudaStreamCaptureModeRelaxed));
    CHECK(cudaMemcpy2DToArrayAsync(array.handle, 0, 0, numbers.data(), ROW, ROW, HEIGHT,
                                   cudaMemcpyHostToDevice, stream));
    CHECK(cudaMemcpy2DFromArrayAsync(found.data(), ROW, array.handle, 0, 0, ROW, HEIGHT,
                                     cudaMemcpyDeviceToHost, stream));
    CHECK(cudaStreamEndCapture(stream, &graph));
    CHECK(cudaGraphInstantiate(&executable, graph, 0));
    CHECK(cudaGraphLaunch(executable, stream));
    CHECK(cudaStreamSynchronize(stream));
    verify_equal(found, numbers, "captured copies");
    CHECK(cudaGraphExecDestroy(executable));
    CHECK(cudaGraphDestroy(graph));
    CHECK(cudaStreamDestroy(stream));
}

int main() {
    rectangles();
    flat();
    volumes();
    graphs();
    printf("arrays: right\n");
}
