// Surfaces of arrays of all shapes, also outside of their edges.

#include "texels.h"

// A surface, destroyed with its owner.
class Surface {
  public:
    explicit Surface(const cudaResourceDesc &resource) {
        CHECK(cudaCreateSurfaceObject(&object, &resource));
    }
    ~Surface() { CHECK(cudaDestroySurfaceObject(object)); }
    Surface(const Surface &) = delete;
    Surface &operator=(const Surface &) = delete;

    cudaSurfaceObject_t object = 0;
};

// The kernels have a thread for each element of a plane or volume.
struct Thread {
    int x, y, z;
    __device__ Thread() {
        x = blockIdx.x * blockDim.x + threadIdx.x;
        y = blockIdx.y * blockDim.y + threadIdx.y;
        z = blockIdx.z;
    }
    __device__ bool is_in(int width, int height) const { return x < width && y < height; }
};

dim3 grid(int width, int height, int depth = 1) {
    return dim3(blocks_for(width, 16), blocks_for(height, 8), depth);
}
const dim3 BLOCK(16, 8);

// Adds to what is there.
__global__ void add_plane(cudaSurfaceObject_t surface, int width, int height, float more) {
    Thread at;
    if (!at.is_in(width, height))
        return;
    float there = surf2Dread<float>(surface, at.x * (int)sizeof(float), at.y);
    surf2Dwrite(there + more, surface, at.x * (int)sizeof(float), at.y);
}

__global__ void mix_bytes(cudaSurfaceObject_t surface, int width, int height) {
    Thread at;
    if (!at.is_in(width, height))
        return;
    uchar4 there = surf2Dread<uchar4>(surface, at.x * (int)sizeof(uchar4), at.y);
    there = make_uchar4(there.w, there.z, there.y + 1, there.x);
    surf2Dwrite(there, surface, at.x * (int)sizeof(uchar4), at.y);
}

__global__ void add_volume(cudaSurfaceObject_t surface, int width, int height) {
    Thread at;
    if (!at.is_in(width, height))
        return;
    int2 there = surf3Dread<int2>(surface, at.x * (int)sizeof(int2), at.y, at.z);
    there = make_int2(there.y, there.x + at.z);
    surf3Dwrite(there, surface, at.x * (int)sizeof(int2), at.y, at.z);
}

__global__ void add_layers(cudaSurfaceObject_t surface, int width, int height) {
    Thread at;
    if (!at.is_in(width, height))
        return;
    float there = surf2DLayeredread<float>(surface, at.x * (int)sizeof(float), at.y, at.z);
    surf2DLayeredwrite(there + at.z, surface, at.x * (int)sizeof(float), at.y, at.z);
}

__global__ void add_lines(cudaSurfaceObject_t surface, int width, int layers) {
    Thread at;
    if (!at.is_in(width, layers))
        return;
    float there = surf1DLayeredread<float>(surface, at.x * (int)sizeof(float), at.y);
    surf1DLayeredwrite(there + at.y, surface, at.x * (int)sizeof(float), at.y);
}

__global__ void double_line(cudaSurfaceObject_t surface, int width) {
    Thread at;
    if (!at.is_in(width, 1))
        return;
    short there = surf1Dread<short>(surface, at.x * (int)sizeof(short));
    surf1Dwrite((short)(2 * there), surface, at.x * (int)sizeof(short));
}

// Reads one element more on each side, and writes there, which must change nothing.
__global__ void read_outside(cudaSurfaceObject_t surface, int width, int height, float *zeros,
                             float *clamped) {
    Thread at;
    if (!at.is_in(width + 2, height + 2))
        return;
    int x = (at.x - 1) * (int)sizeof(float), y = at.y - 1, i = at.y * (width + 2) + at.x;
    bool is_outside = at.x == 0 || at.x > width || at.y == 0 || at.y > height;
    if (is_outside)
        surf2Dwrite(1000.0f, surface, x, y, cudaBoundaryModeZero);
    zeros[i] = surf2Dread<float>(surface, x, y, cudaBoundaryModeZero);
    clamped[i] = surf2Dread<float>(surface, x, y, cudaBoundaryModeClamp);
}

__global__ void read_texture(cudaTextureObject_t texture, int width, int height, float *found) {
    Thread at;
    if (at.is_in(width, height))
        found[at.y * width + at.x] = tex2D<float>(texture, at.x + 0.5f, at.y + 0.5f);
}

void planes() {
    constexpr int WIDTH = 53, HEIGHT = 19;
    std::vector<float> values = counted<float>(WIDTH * HEIGHT);
    cudaExtent extent = make_cudaExtent(WIDTH, HEIGHT, 0);
    Array<float> array(extent, values, cudaArraySurfaceLoadStore);
    Surface surface(array.resource());
    add_plane<<<grid(WIDTH, HEIGHT), BLOCK>>>(surface.object, WIDTH, HEIGHT, 0.5f);
    CHECK_LAUNCH();
    verify_equal(array.read(), counted<float>(WIDTH * HEIGHT, 0.5f), "plane");
    Texture texture(array.resource(), Sampling());
    Buffer<float> found(WIDTH * HEIGHT);
    read_texture<<<grid(WIDTH, HEIGHT), BLOCK>>>(texture.object, WIDTH, HEIGHT, found.data);
    CHECK_LAUNCH();
    verify_equal(found.read(), counted<float>(WIDTH * HEIGHT, 0.5f), "texture of a surface");

    constexpr int WIDER = WIDTH + 2, HIGHER = HEIGHT + 2;
    Buffer<float> zeros(WIDER * HIGHER), clamped(WIDER * HIGHER);
    read_outside<<<grid(WIDER, HIGHER), BLOCK>>>(surface.object, WIDTH, HEIGHT, zeros.data,
                                                 clamped.data);
    CHECK_LAUNCH();
    std::vector<float> with_zeros, with_edges;
    for (int y = -1; y <= HEIGHT; y++)
        for (int x = -1; x <= WIDTH; x++) {
            int i = inside(x, WIDTH, cudaAddressModeClamp);
            int j = inside(y, HEIGHT, cudaAddressModeClamp);
            float edge = j * WIDTH + i + 0.5f;
            with_edges.push_back(edge);
            with_zeros.push_back(i == x && j == y ? edge : 0);
        }
    verify_equal(zeros.read(), with_zeros, "zeros outside");
    verify_equal(clamped.read(), with_edges, "edges outside");
    verify_equal(array.read(), counted<float>(WIDTH * HEIGHT, 0.5f), "plane after writes outside");

    cudaResourceDesc known;
    CHECK(cudaGetSurfaceObjectResourceDesc(&known, surface.object));
    verify(known.resType == cudaResourceTypeArray && known.res.array.array == array.handle,
           "array of a surface", known.resType);
}

void other_shapes() {
    constexpr int WIDTH = 20, HEIGHT = 9, DEPTH = 6;
    std::vector<uchar4> colors(WIDTH * HEIGHT);
    for (int i = 0; i < WIDTH * HEIGHT; i++)
        colors[i] = make_uchar4(i, i + 1, i + 2, i + 3);
    Array<uchar4> bytes(make_cudaExtent(WIDTH, HEIGHT, 0), colors, cudaArraySurfaceLoadStore);
    mix_bytes<<<grid(WIDTH, HEIGHT), BLOCK>>>(Surface(bytes.resource()).object, WIDTH, HEIGHT);
    CHECK_LAUNCH();
    CHECK(cudaDeviceSynchronize());
    std::vector<uchar4> mixed = bytes.read();
    for (int i = 0; i < WIDTH * HEIGHT; i++) {
        unsigned char x = i + 3, y = i + 2, z = i + 2, w = i;
        verify(mixed[i].x == x && mixed[i].y == y && mixed[i].z == z && mixed[i].w == w, "bytes",
               i);
    }

    std::vector<int2> pairs(WIDTH * HEIGHT * DEPTH);
    for (int i = 0; i < (int)pairs.size(); i++)
        pairs[i] = make_int2(i, -i);
    Array<int2> volume(make_cudaExtent(WIDTH, HEIGHT, DEPTH), pairs, cudaArraySurfaceLoadStore);
    Surface of_volume(volume.resource());
    add_volume<<<grid(WIDTH, HEIGHT, DEPTH), BLOCK>>>(of_volume.object, WIDTH, HEIGHT);
    CHECK_LAUNCH();
    pairs = volume.read();
    for (int i = 0; i < (int)pairs.size(); i++)
        verify(pairs[i].x == -i && pairs[i].y == i + i / (WIDTH * HEIGHT), "volume", i);

    std::vector<float> values = counted<float>(WIDTH * HEIGHT * DEPTH);
    Array<float> layers(make_cudaExtent(WIDTH, HEIGHT, DEPTH), values,
                        cudaArrayLayered | cudaArraySurfaceLoadStore);
    Surface of_layers(layers.resource());
    add_layers<<<grid(WIDTH, HEIGHT, DEPTH), BLOCK>>>(of_layers.object, WIDTH, HEIGHT);
    CHECK_LAUNCH();
    std::vector<float> wanted = values;
    for (int i = 0; i < (int)wanted.size(); i++)
        wanted[i] += i / (WIDTH * HEIGHT);
    verify_equal(layers.read(), wanted, "layers");

    values.resize(WIDTH * DEPTH);
    Array<float> lines(make_cudaExtent(WIDTH, 0, DEPTH), values,
                       cudaArrayLayered | cudaArraySurfaceLoadStore);
    Surface of_lines(lines.resource());
    add_lines<<<grid(WIDTH, DEPTH), BLOCK>>>(of_lines.object, WIDTH, DEPTH);
    CHECK_LAUNCH();
    for (int i = 0; i < WIDTH * DEPTH; i++)
        values[i] += i / WIDTH;
    verify_equal(lines.read(), values, "layers of lines");

    std::vector<short> shorts = counted<short>(WIDTH);
    Array<short> line(make_cudaExtent(WIDTH, 0, 0), shorts, cudaArraySurfaceLoadStore);
    Surface of_line(line.resource());
    double_line<<<grid(WIDTH, 1), BLOCK>>>(of_line.object, WIDTH);
    CHECK_LAUNCH();
    for (short &one : shorts)
        one *= 2;
    verify_equal(line.read(), shorts, "line");
}

int main() {
    planes();
    other_shapes();
    printf("surfaces: right\n");
}
