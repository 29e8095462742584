// What the programs with arrays share: elements as colours, arrays with their content, and what a
// texture must read by the rules of the "CUDA C++ Programming Guide" ("Texture Fetching").

#pragma once

#include <algorithm>
#include <cstring>
#include <string>

#include "program.h"

// An element, or what was read: four channels, 0 for those that there are not.
struct Color {
    float channel[4];
};

__host__ __device__ inline Color color(float x, float y = 0, float z = 0, float w = 0) {
    return {{x, y, z, w}};
}
__host__ __device__ inline Color color(int it) { return color((float)it); }
__host__ __device__ inline Color color(float2 it) { return color(it.x, it.y); }
__host__ __device__ inline Color color(float4 it) { return color(it.x, it.y, it.z, it.w); }
__host__ __device__ inline Color color(short2 it) { return color((float)it.x, (float)it.y); }
__host__ __device__ inline Color color(int4 it) {
    return color((float)it.x, (float)it.y, (float)it.z, (float)it.w);
}
__host__ __device__ inline Color color(uchar4 it) {
    return color((float)it.x, (float)it.y, (float)it.z, (float)it.w);
}

inline void verify_colors(const std::vector<Color> &found, const std::vector<Color> &wanted,
                          float tolerance, const std::string &what) {
    verify(found.size() == wanted.size(), what.c_str(), found.size());
    for (size_t i = 0; i < found.size(); i++)
        for (int c = 0; c < 4; c++) {
            float is = found[i].channel[c], should = wanted[i].channel[c];
            bool is_right = std::fabs(is - should) <= tolerance;
            if (!is_right)
                fprintf(stderr, "channel %d: %g, not %g\n", c, is, should);
            verify(is_right, what.c_str(), i);
        }
}

// `count` numbers from `first` on.
template <typename T> std::vector<T> counted(size_t count, T first = 0) {
    std::vector<T> all(count);
    for (size_t i = 0; i < count; i++)
        all[i] = (T)(first + i);
    return all;
}

template <typename T>
void verify_equal(const std::vector<T> &found, const std::vector<T> &wanted, const char *what) {
    verify(found.size() == wanted.size(), what, found.size());
    for (size_t i = 0; i < found.size(); i++) {
        if (found[i] != wanted[i])
            fprintf(stderr, "%g, not %g\n", (double)found[i], (double)wanted[i]);
        verify(found[i] == wanted[i], what, i);
    }
}

// Elements in planes of rows.
struct Image {
    int width, height, depth;
    std::vector<Color> colors;

    template <typename T>
    Image(int width, int height, int depth, const std::vector<T> &elements, float scale = 1)
        : width(width), height(height), depth(depth) {
        for (const T &element : elements) {
            colors.push_back(color(element));
            for (float &channel : colors.back().channel)
                channel *= scale;
        }
    }
    const Color &at(int x, int y, int z) const { return colors[(z * height + y) * width + x]; }
};

// How a texture reads.
struct Sampling {
    cudaTextureAddressMode mode = cudaAddressModeClamp;
    bool is_linear = false, is_normalized = false, has_fractions = false;
    Color border = {};
    // Dimensions that have the mode: a device may filter with a border in others, too.
    int dimensions = 3;

    cudaTextureDesc description() const {
        cudaTextureDesc it = {};
        for (int d = 0; d < 3; d++)
            it.addressMode[d] = d < dimensions ? mode : cudaAddressModeClamp;
        it.filterMode = is_linear ? cudaFilterModeLinear : cudaFilterModePoint;
        it.readMode = has_fractions ? cudaReadModeNormalizedFloat : cudaReadModeElementType;
        it.normalizedCoords = is_normalized;
        memcpy(it.borderColor, border.channel, sizeof it.borderColor);
        return it;
    }
};

// The element that stands for one outside, or -1 for the border.
inline int inside(int at, int size, cudaTextureAddressMode mode) {
    int turn = ((at % (2 * size)) + 2 * size) % (2 * size);
    switch (mode) {
    case cudaAddressModeWrap:
        return turn % size;
    case cudaAddressModeMirror:
        return turn < size ? turn : 2 * size - 1 - turn;
    case cudaAddressModeClamp:
        return std::min(std::max(at, 0), size - 1);
    default:
        return at >= 0 && at < size ? at : -1;
    }
}

// What a texture of an image must read at a place, which is in elements. Of an image with layers,
// `z` is the layer, and there are fewer dimensions.
inline Color expected(const Image &image, int dimensions, float4 place, const Sampling &sampling) {
    const float places[] = {place.x, place.y, place.z};
    const int sizes[] = {image.width, image.height, image.depth};
    int first[] = {0, 0, (int)place.z}, corners = sampling.is_linear ? 1 << dimensions : 1;
    float fraction[3] = {};
    for (int d = 0; d < dimensions; d++) {
        float shifted = places[d] - (sampling.is_linear ? 0.5f : 0);
        first[d] = (int)std::floor(shifted);
        fraction[d] = sampling.is_linear ? shifted - first[d] : 0;
    }
    Color sum = {};
    for (int corner = 0; corner < corners; corner++) {
        int at[] = {first[0], first[1], first[2]};
        float weight = 1;
        bool is_border = false;
        for (int d = 0; d < dimensions; d++) {
            bool is_next = corner >> d & 1;
            weight *= is_next ? fraction[d] : 1 - fraction[d];
            at[d] = inside(at[d] + is_next, sizes[d], sampling.mode);
            is_border |= at[d] < 0;
        }
        const Color &one = is_border ? sampling.border : image.at(at[0], at[1], at[2]);
        for (int c = 0; c < 4; c++)
            sum.channel[c] += weight * one.channel[c];
    }
    return sum;
}

inline bool operator==(const cudaChannelFormatDesc &one, const cudaChannelFormatDesc &other) {
    return one.x == other.x && one.y == other.y && one.z == other.z && one.w == other.w &&
           one.f == other.f;
}

// An array of the device, freed with its owner.
template <typename T> class Array {
  public:
    explicit Array(cudaExtent extent, unsigned flags = 0,
                   cudaChannelFormatDesc format = cudaCreateChannelDesc<T>())
        : extent(extent) {
        CHECK(cudaMalloc3DArray(&handle, &format, extent, flags));
    }
    Array(cudaExtent extent, const std::vector<T> &from, unsigned flags = 0,
          cudaChannelFormatDesc format = cudaCreateChannelDesc<T>())
        : Array(extent, flags, format) {
        cudaMemcpy3DParms copy = {};
        copy.srcPtr = rows((void *)from.data());
        copy.dstArray = handle;
        copy.extent = whole();
        copy.kind = cudaMemcpyHostToDevice;
        CHECK(cudaMemcpy3D(&copy));
    }
    ~Array() { CHECK(cudaFreeArray(handle)); }
    Array(const Array &) = delete;
    Array &operator=(const Array &) = delete;

    std::vector<T> read() const {
        cudaExtent all = whole();
        std::vector<T> into(all.width * all.height * all.depth);
        cudaMemcpy3DParms copy = {};
        copy.srcArray = handle;
        copy.dstPtr = rows(into.data());
        copy.extent = all;
        copy.kind = cudaMemcpyDeviceToHost;
        CHECK(cudaMemcpy3D(&copy));
        return into;
    }
    cudaResourceDesc resource() const {
        cudaResourceDesc it = {};
        it.resType = cudaResourceTypeArray;
        it.res.array.array = handle;
        return it;
    }

    const cudaExtent extent;
    cudaArray_t handle = nullptr;

  private:
    // What a copy of all of it has: no dimension is 0.
    cudaExtent whole() const {
        return make_cudaExtent(extent.width, std::max<size_t>(extent.height, 1),
                               std::max<size_t>(extent.depth, 1));
    }
    cudaPitchedPtr rows(void *data) const {
        return make_cudaPitchedPtr(data, extent.width * sizeof(T), extent.width, whole().height);
    }
};

// A texture, destroyed with its owner.
class Texture {
  public:
    Texture(const cudaResourceDesc &resource, const cudaTextureDesc &description) {
        CHECK(cudaCreateTextureObject(&object, &resource, &description, nullptr));
    }
    Texture(const cudaResourceDesc &resource, const Sampling &sampling)
        : Texture(resource, sampling.description()) {}
    ~Texture() { CHECK(cudaDestroyTextureObject(object)); }
    Texture(const Texture &) = delete;
    Texture &operator=(const Texture &) = delete;

    cudaTextureObject_t object = 0;
};
