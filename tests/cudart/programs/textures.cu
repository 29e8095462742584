// Textures of arrays and of memory, read in all ways.

#include "texels.h"

constexpr int COUNT = 500;

// One way of reading a texture at a place.
#define READ(name, call)                                                                           \
    struct name {                                                                                  \
        template <typename T> static __device__ T read(cudaTextureObject_t it, float4 at) {        \
            return call;                                                                           \
        }                                                                                          \
    }

READ(Line, tex1D<T>(it, at.x));
READ(Plane, (tex2D<T>(it, at.x, at.y)));
READ(Volume, (tex3D<T>(it, at.x, at.y, at.z)));
READ(Elements, tex1Dfetch<T>(it, (int)at.x));
READ(LayersOfLines, (tex1DLayered<T>(it, at.x, (int)at.z)));
READ(LayersOfPlanes, (tex2DLayered<T>(it, at.x, at.y, (int)at.z)));
READ(Cube, (texCubemap<T>(it, at.x, at.y, at.z)));
READ(LayersOfCubes, (texCubemapLayered<T>(it, at.x, at.y, at.z, (int)at.w)));
READ(GatherFirst, (tex2Dgather<T>(it, at.x, at.y, 0)));
READ(GatherThird, (tex2Dgather<T>(it, at.x, at.y, 2)));

template <typename Way, typename T>
__global__ void sample(cudaTextureObject_t texture, const float4 *at, Color *found, int count) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < count)
        found[i] = color(Way::template read<T>(texture, at[i]));
}

template <typename Way, typename T>
std::vector<Color> sampled(const Texture &texture, const std::vector<float4> &places) {
    Buffer<float4> at(places);
    Buffer<Color> found(places.size());
    int count = (int)places.size();
    sample<Way, T><<<blocks_for(count, 128), 128>>>(texture.object, at.data, found.data, count);
    CHECK_LAUNCH();
    CHECK(cudaDeviceSynchronize());
    return found.read();
}

Random numbers;

// A number from -size / 2 to size * 3 / 2, which lies not near the edge of an element.
float place(int size) {
    int whole = (int)(numbers.next() % (2 * size)) - size / 2;
    return whole + 0.1f + 0.8f * numbers.fraction();
}

std::vector<float4> places(int width, int height, int depth) {
    std::vector<float4> all(COUNT);
    for (float4 &one : all)
        one = make_float4(place(width), place(height), depth > 1 ? place(depth) : 0, 0);
    return all;
}

// Places in layers: `z` is one that there is.
std::vector<float4> places_in_layers(int width, int height, int layers) {
    std::vector<float4> all = places(width, height, 1);
    for (float4 &one : all)
        one.z = (float)(numbers.next() % layers);
    return all;
}

// Reads at all places, and compares.
template <typename Way, typename T>
void compare(const cudaResourceDesc &resource, const Image &image, int dimensions,
             const std::vector<float4> &at, Sampling sampling, float range, const char *what) {
    sampling.dimensions = dimensions;
    std::vector<float4> given = at;
    std::vector<Color> wanted;
    for (float4 &one : given) {
        wanted.push_back(expected(image, dimensions, one, sampling));
        if (sampling.is_normalized) {
            one.x /= image.width;
            one.y /= image.height;
            if (dimensions == 3)
                one.z /= image.depth;
        }
    }
    // A filter has fractions of 8 bits in each dimension.
    float tolerance = (sampling.is_linear ? dimensions / 256.0f : 1e-5f) * range;
    std::string name = std::string(what) + ", mode " + std::to_string(sampling.mode) +
                       (sampling.is_linear ? ", linear" : "") +
                       (sampling.is_normalized ? ", normalized" : "");
    verify_colors(sampled<Way, T>(Texture(resource, sampling), given), wanted, tolerance, name);
}

// The same in all modes.
template <typename Way, typename T>
void compare_modes(const cudaResourceDesc &resource, const Image &image, int dimensions,
                   const std::vector<float4> &at, Sampling sampling, bool can_filter, float range,
                   const char *what) {
    for (bool is_linear : {false, can_filter})
        for (bool is_normalized : {false, true})
            for (int mode = cudaAddressModeWrap; mode <= cudaAddressModeBorder; mode++) {
                sampling.mode = (cudaTextureAddressMode)mode;
                bool repeats = mode == cudaAddressModeWrap || mode == cudaAddressModeMirror;
                if (repeats && !is_normalized)
                    continue;
                sampling.is_linear = is_linear;
                sampling.is_normalized = is_normalized;
                compare<Way, T>(resource, image, dimensions, at, sampling, range, what);
            }
}

std::vector<float> floats(size_t count) {
    std::vector<float> all(count);
    for (float &one : all)
        one = numbers.fraction();
    return all;
}

std::vector<uchar4> bytes(size_t count) {
    std::vector<uchar4> all(count);
    for (uchar4 &one : all) {
        unsigned it = numbers.next();
        one = make_uchar4(it & 255, it >> 8 & 255, it >> 16 & 255, it >> 21 & 255);
    }
    return all;
}

void planes() {
    constexpr int WIDTH = 37, HEIGHT = 21;
    cudaExtent extent = make_cudaExtent(WIDTH, HEIGHT, 0);
    std::vector<float4> at = places(WIDTH, HEIGHT, 1);
    Sampling as_they_are, fractions;
    fractions.has_fractions = true;
    as_they_are.border = color(0.25f);

    std::vector<float> values = floats(WIDTH * HEIGHT);
    Array<float> array(extent, values);
    Image image(WIDTH, HEIGHT, 1, values);
    compare_modes<Plane, float>(array.resource(), image, 2, at, as_they_are, true, 1, "floats");

    std::vector<uchar4> colors = bytes(WIDTH * HEIGHT);
    Array<uchar4> of_bytes(extent, colors);
    Image as_integers(WIDTH, HEIGHT, 1, colors), as_fractions(WIDTH, HEIGHT, 1, colors, 1 / 255.0f);
    compare<Plane, uchar4>(of_bytes.resource(), as_integers, 2, at, Sampling(), 1, "bytes");
    // A border has the bits of the elements.
    fractions.border = color(1, 0.2f, 0.4f, 0.6f);
    compare_modes<Plane, float4>(of_bytes.resource(), as_fractions, 2, at, fractions, true, 1,
                                 "bytes as fractions");

    std::vector<short2> shorts(WIDTH * HEIGHT);
    for (short2 &one : shorts)
        one = make_short2(numbers.next() & 0x7fff, -(int)(numbers.next() & 0x7fff));
    Array<short2> of_shorts(extent, shorts);
    compare<Plane, short2>(of_shorts.resource(), Image(WIDTH, HEIGHT, 1, shorts), 2, at,
                           Sampling(), 1, "shorts");
    fractions.border = {};
    compare_modes<Plane, float2>(of_shorts.resource(),
                                 Image(WIDTH, HEIGHT, 1, shorts, 1 / 32767.0f), 2, at, fractions,
                                 true, 2, "shorts as fractions");

    // Halves from 0.5 to 1.
    std::vector<unsigned short> halves(WIDTH * HEIGHT);
    for (size_t i = 0; i < halves.size(); i++) {
        unsigned fraction = numbers.next() & 1023;
        halves[i] = (unsigned short)(0x3800 | fraction);
        values[i] = 0.5f + fraction / 2048.0f;
    }
    Array<unsigned short> of_halves(extent, halves, 0,
                                    cudaCreateChannelDesc(16, 0, 0, 0, cudaChannelFormatKindFloat));
    compare_modes<Plane, float>(of_halves.resource(), Image(WIDTH, HEIGHT, 1, values), 2, at,
                                Sampling(), true, 1, "halves");
}

// Three channels are not linear light.
void srgb() {
    constexpr int WIDTH = 64;
    std::vector<uchar4> colors = bytes(WIDTH);
    Array<uchar4> array(make_cudaExtent(WIDTH, 1, 0), colors);
    Image image(WIDTH, 1, 1, colors, 1 / 255.0f);
    for (Color &one : image.colors)
        for (int c = 0; c < 3; c++) {
            float &it = one.channel[c];
            it = it <= 0.04045f ? it / 12.92f : std::pow((it + 0.055f) / 1.055f, 2.4f);
        }
    cudaTextureDesc description = Sampling().description();
    description.readMode = cudaReadModeNormalizedFloat;
    description.sRGB = 1;
    std::vector<float4> at;
    for (int x = 0; x < WIDTH; x++)
        at.push_back(make_float4(x + 0.5f, 0.5f, 0, 0));
    verify_colors(sampled<Plane, float4>(Texture(array.resource(), description), at), image.colors,
                  1 / 256.0f, "sRGB");
}

void lines_and_volumes() {
    constexpr int WIDTH = 19, HEIGHT = 13, DEPTH = 7;
    std::vector<float> line = floats(WIDTH), volume = floats(WIDTH * HEIGHT * DEPTH);
    Array<float> of_line(make_cudaExtent(WIDTH, 0, 0), line);
    compare_modes<Line, float>(of_line.resource(), Image(WIDTH, 1, 1, line), 1,
                               places(WIDTH, 1, 1), Sampling(), true, 1, "line");
    Array<float> of_volume(make_cudaExtent(WIDTH, HEIGHT, DEPTH), volume);
    compare_modes<Volume, float>(of_volume.resource(), Image(WIDTH, HEIGHT, DEPTH, volume), 3,
                                 places(WIDTH, HEIGHT, DEPTH), Sampling(), true, 1, "volume");
}

void layers() {
    constexpr int WIDTH = 23, HEIGHT = 11, LAYERS = 5;
    std::vector<float> lines = floats(WIDTH * LAYERS), planes = floats(WIDTH * HEIGHT * LAYERS);
    Array<float> of_lines(make_cudaExtent(WIDTH, 0, LAYERS), lines, cudaArrayLayered);
    compare_modes<LayersOfLines, float>(of_lines.resource(), Image(WIDTH, 1, LAYERS, lines), 1,
                                        places_in_layers(WIDTH, 1, LAYERS), Sampling(), true, 1,
                                        "layers of lines");
    Array<float> of_planes(make_cudaExtent(WIDTH, HEIGHT, LAYERS), planes, cudaArrayLayered);
    compare_modes<LayersOfPlanes, float>(
        of_planes.resource(), Image(WIDTH, HEIGHT, LAYERS, planes), 2,
        places_in_layers(WIDTH, HEIGHT, LAYERS), Sampling(), true, 1, "layers of planes");
}

// The direction of a place on a face, whose coordinates go from -1 to 1 ("Cubemap Textures").
float4 direction(int face, float s, float t) {
    const float axes[6][3] = {{1, -t, -s}, {-1, -t, s}, {s, 1, t}, {s, -1, -t}, {s, -t, 1},
                              {-s, -t, -1}};
    float length = 0.5f + numbers.fraction();
    return make_float4(axes[face][0] * length, axes[face][1] * length, axes[face][2] * length, 0);
}

void cubes() {
    constexpr int SIZE = 16, CUBES = 3;
    std::vector<float> faces = floats(SIZE * SIZE * 6 * CUBES);
    std::vector<float> first(faces.begin(), faces.begin() + SIZE * SIZE * 6);
    Array<float> cube(make_cudaExtent(SIZE, SIZE, 6), first, cudaArrayCubemap);
    Array<float> cubes(make_cudaExtent(SIZE, SIZE, 6 * CUBES), faces,
                       cudaArrayCubemap | cudaArrayLayered);
    Image image(SIZE, SIZE, 6 * CUBES, faces);
    for (bool is_linear : {false, true}) {
        Sampling sampling;
        sampling.is_linear = is_linear;
        sampling.is_normalized = true;
        std::vector<float4> at(COUNT), in_layers(COUNT);
        std::vector<Color> wanted, wanted_in_layers;
        for (int i = 0; i < COUNT; i++) {
            int face = numbers.next() % 6, layer = numbers.next() % CUBES;
            // Not near an edge, over which filters may reach.
            float x = 1 + numbers.next() % (SIZE - 2) + 0.1f + 0.8f * numbers.fraction();
            float y = 1 + numbers.next() % (SIZE - 2) + 0.1f + 0.8f * numbers.fraction();
            at[i] = in_layers[i] = direction(face, 2 * x / SIZE - 1, 2 * y / SIZE - 1);
            in_layers[i].w = (float)layer;
            auto element = [&](int z) {
                return expected(image, 2, make_float4(x, y, (float)z, 0), sampling);
            };
            wanted.push_back(element(face));
            wanted_in_layers.push_back(element(6 * layer + face));
        }
        float tolerance = is_linear ? 2 / 256.0f : 1e-5f;
        verify_colors(sampled<Cube, float>(Texture(cube.resource(), sampling), at), wanted,
                      tolerance, "cube");
        verify_colors(sampled<LayersOfCubes, float>(Texture(cubes.resource(), sampling), in_layers),
                      wanted_in_layers, tolerance, "layers of cubes");
    }
}

// The same channel of the four elements that a filter would read.
void gather() {
    constexpr int WIDTH = 27, HEIGHT = 14;
    std::vector<float4> values(WIDTH * HEIGHT);
    for (float4 &one : values)
        one = make_float4(numbers.fraction(), 2, numbers.fraction(), 3);
    Array<float4> array(make_cudaExtent(WIDTH, HEIGHT, 0), values, cudaArrayTextureGather);
    Image image(WIDTH, HEIGHT, 1, values);
    std::vector<float4> at = places(WIDTH, HEIGHT, 1);
    for (float4 &one : at)
        one = make_float4(one.x + 0.5f, one.y + 0.5f, 0, 0);
    Texture texture(array.resource(), Sampling());
    auto wanted = [&](int channel) {
        std::vector<Color> all;
        for (const float4 &one : at) {
            int x = (int)std::floor(one.x - 0.5f), y = (int)std::floor(one.y - 0.5f);
            auto element = [&](int right, int down) {
                int i = inside(x + right, WIDTH, cudaAddressModeClamp);
                int j = inside(y + down, HEIGHT, cudaAddressModeClamp);
                return image.at(i, j, 0).channel[channel];
            };
            all.push_back(color(element(0, 1), element(1, 1), element(1, 0), element(0, 0)));
        }
        return all;
    };
    verify_colors(sampled<GatherFirst, float4>(texture, at), wanted(0), 0, "gather");
    verify_colors(sampled<GatherThird, float4>(texture, at), wanted(2), 0, "gather of blue");
}

void memory() {
    std::vector<int4> integers(300);
    for (int4 &one : integers)
        one = make_int4(numbers.next() & 0xffff, -5, 7, -(int)(numbers.next() & 0xffff));
    Buffer<int4> row(integers);
    cudaResourceDesc linear = {};
    linear.resType = cudaResourceTypeLinear;
    linear.res.linear.devPtr = row.data;
    linear.res.linear.desc = cudaCreateChannelDesc<int4>();
    linear.res.linear.sizeInBytes = integers.size() * sizeof(int4);
    // What lies outside is 0.
    std::vector<float4> at;
    std::vector<Color> wanted;
    for (int i = -2; i < (int)integers.size() + 2; i++) {
        at.push_back(make_float4((float)i, 0, 0, 0));
        bool is_there = i >= 0 && i < (int)integers.size();
        wanted.push_back(is_there ? color(integers[i]) : Color{});
    }
    verify_colors(sampled<Elements, int4>(Texture(linear, Sampling()), at), wanted, 0, "row");

    std::vector<uchar4> colors = bytes(400);
    Buffer<uchar4> of_bytes(colors);
    linear.res.linear.devPtr = of_bytes.data;
    linear.res.linear.desc = cudaCreateChannelDesc<uchar4>();
    linear.res.linear.sizeInBytes = colors.size() * sizeof(uchar4);
    Sampling fractions;
    fractions.has_fractions = true;
    at.clear();
    for (size_t i = 0; i < colors.size(); i++)
        at.push_back(make_float4((float)i, 0, 0, 0));
    verify_colors(sampled<Elements, float4>(Texture(linear, fractions), at),
                  Image(400, 1, 1, colors, 1 / 255.0f).colors, 1e-5f, "row of fractions");

    constexpr int WIDTH = 45, HEIGHT = 17;
    std::vector<float> values = floats(WIDTH * HEIGHT);
    float *rows;
    size_t pitch, row_bytes = WIDTH * sizeof(float);
    CHECK(cudaMallocPitch(&rows, &pitch, row_bytes, HEIGHT));
    CHECK(cudaMemcpy2D(rows, pitch, values.data(), row_bytes, row_bytes, HEIGHT,
                       cudaMemcpyHostToDevice));
    cudaResourceDesc pitched = {};
    pitched.resType = cudaResourceTypePitch2D;
    pitched.res.pitch2D.devPtr = rows;
    pitched.res.pitch2D.desc = cudaCreateChannelDesc<float>();
    pitched.res.pitch2D.width = WIDTH;
    pitched.res.pitch2D.height = HEIGHT;
    pitched.res.pitch2D.pitchInBytes = pitch;
    compare_modes<Plane, float>(pitched, Image(WIDTH, HEIGHT, 1, values), 2,
                                places(WIDTH, HEIGHT, 1), Sampling(), true, 1, "rows");
    CHECK(cudaFree(rows));
}

int main() {
    planes();
    srgb();
    lines_and_volumes();
    layers();
    cubes();
    gather();
    memory();
    printf("textures: right\n");
}
