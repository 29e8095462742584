// What describes arrays and textures comes back, and what is wrong is refused with the errors of
// NVIDIA's runtime.

#include "texels.h"

constexpr int WIDTH = 32, HEIGHT = 10, ROW = WIDTH * sizeof(int);

// Nothing is written behind what comes back.
void descriptions() {
    Array<short2> array(make_cudaExtent(32, 16, 4), cudaArrayLayered);
    cudaChannelFormatDesc format;
    cudaExtent extent;
    unsigned flags;
    CHECK(cudaArrayGetInfo(&format, &extent, &flags, array.handle));
    verify(format == cudaCreateChannelDesc<short2>(), "format", format.f);
    verify(extent.width == 32 && extent.height == 16 && extent.depth == 4, "extent", extent.width);
    verify(flags == cudaArrayLayered, "flags", flags);
    CHECK(cudaArrayGetInfo(nullptr, nullptr, nullptr, array.handle));
    CHECK(cudaGetChannelDesc(&format, array.handle));
    verify(format == cudaCreateChannelDesc<short2>(), "format", format.f);
    size_t elements;
    CHECK(cudaDeviceGetTexture1DLinearMaxWidth(&elements, &format, 0));
    verify(elements >= 1 << 27, "elements of a row", elements);

    struct {
        cudaResourceDesc it;
        unsigned char behind[64];
    } resource;
    auto read_back = [&](cudaTextureObject_t object) {
        memset((void *)&resource, 0x5a, sizeof resource);
        CHECK(cudaGetTextureObjectResourceDesc(&resource.it, object));
        for (unsigned char byte : resource.behind)
            verify(byte == 0x5a, "behind the resource", byte);
    };
    Sampling fractions;
    fractions.has_fractions = true;
    Texture texture(array.resource(), fractions);
    read_back(texture.object);
    verify(resource.it.resType == cudaResourceTypeArray, "resource", resource.it.resType);
    verify(resource.it.res.array.array == array.handle, "array", 0);
    cudaTextureDesc sampling;
    CHECK(cudaGetTextureObjectTextureDesc(&sampling, texture.object));
    verify(sampling.readMode == cudaReadModeNormalizedFloat, "read mode", sampling.readMode);

    Buffer<float2> row(100);
    cudaResourceDesc linear = {};
    linear.resType = cudaResourceTypeLinear;
    linear.res.linear.devPtr = row.data;
    linear.res.linear.desc = cudaCreateChannelDesc<float2>();
    linear.res.linear.sizeInBytes = 100 * sizeof(float2);
    Sampling modes;
    modes.mode = cudaAddressModeMirror;
    modes.is_linear = modes.is_normalized = true;
    Texture of_row(linear, modes);
    read_back(of_row.object);
    verify(resource.it.resType == cudaResourceTypeLinear, "resource", resource.it.resType);
    verify(resource.it.res.linear.devPtr == row.data, "memory", 0);
    verify(resource.it.res.linear.desc == linear.res.linear.desc, "format of memory", 0);
    verify(resource.it.res.linear.sizeInBytes == 800, "size", resource.it.res.linear.sizeInBytes);
    CHECK(cudaGetTextureObjectTextureDesc(&sampling, of_row.object));
    verify(sampling.readMode == cudaReadModeElementType, "read mode", sampling.readMode);
    verify(sampling.addressMode[0] == cudaAddressModeMirror, "mode", sampling.addressMode[0]);
    verify(sampling.filterMode == cudaFilterModeLinear, "filter", sampling.filterMode);
    verify(sampling.normalizedCoords == 1 && sampling.sRGB == 0, "normalized", 0);
}

void failed_arrays() {
    cudaArray_t array = nullptr;
    auto allocate = [&](cudaChannelFormatDesc format, cudaExtent extent, unsigned flags) {
        return cudaMalloc3DArray(&array, &format, extent, flags);
    };
    cudaExtent plane = make_cudaExtent(16, 16, 0);
    cudaChannelFormatDesc floats = cudaCreateChannelDesc<float>();
    FAILS(allocate(cudaCreateChannelDesc(8, 8, 8, 0, cudaChannelFormatKindUnsigned), plane, 0),
          cudaErrorInvalidChannelDescriptor);
    FAILS(allocate(cudaCreateChannelDesc(8, 16, 0, 0, cudaChannelFormatKindSigned), plane, 0),
          cudaErrorInvalidChannelDescriptor);
    FAILS(allocate(cudaCreateChannelDesc(8, 0, 0, 0, cudaChannelFormatKindFloat), plane, 0),
          cudaErrorInvalidChannelDescriptor);
    FAILS(allocate(floats, make_cudaExtent(0, 0, 0), 0), cudaErrorInvalidValue);
    FAILS(allocate(floats, make_cudaExtent(16, 0, 3), 0), cudaErrorInvalidValue);
    FAILS(allocate(floats, make_cudaExtent(1 << 30, 1, 0), 0), cudaErrorInvalidValue);
    FAILS(allocate(floats, plane, cudaArrayLayered), cudaErrorInvalidValue);
    FAILS(allocate(floats, make_cudaExtent(16, 16, 5), cudaArrayCubemap), cudaErrorInvalidValue);
    FAILS(allocate(floats, make_cudaExtent(16, 8, 6), cudaArrayCubemap), cudaErrorInvalidValue);
    FAILS(cudaMallocArray(&array, &floats, 16, 0, cudaArrayTextureGather), cudaErrorInvalidValue);
    FAILS(cudaMallocArray(&array, nullptr, 16, 16), cudaErrorInvalidValue);
    FAILS(cudaMallocArray(nullptr, &floats, 16, 16), cudaErrorInvalidValue);
    CHECK(cudaFreeArray(nullptr));
    size_t elements;
    FAILS(cudaDeviceGetTexture1DLinearMaxWidth(&elements, &floats, 99), cudaErrorInvalidDevice);
}

// Kinds of channels that say all of an element go to the driver, which need not have them.
void kinds_of_elements() {
    const cudaChannelFormatDesc known[] = {
        {8, 0, 0, 0, cudaChannelFormatKindUnsignedNormalized8X1},
        {16, 16, 16, 16, cudaChannelFormatKindSignedNormalized16X4},
        {8, 8, 8, 8, cudaChannelFormatKindUnsignedBlockCompressed1},
        {16, 16, 16, 0, cudaChannelFormatKindSignedBlockCompressed6H},
        {8, 8, 8, 8, cudaChannelFormatKindUnsignedBlockCompressed7SRGB},
    };
    for (cudaChannelFormatDesc format : known) {
        cudaArray_t array;
        cudaError_t error = cudaMallocArray(&array, &format, WIDTH, WIDTH);
        if (error == cudaSuccess) {
            cudaChannelFormatDesc found;
            CHECK(cudaGetChannelDesc(&found, array));
            verify(found == format, "format", found.f);
            CHECK(cudaFreeArray(array));
        } else {
            FAILS(error, cudaErrorNotSupported);
        }
        format.w = 3;
        FAILS(cudaMallocArray(&array, &format, WIDTH, WIDTH), cudaErrorInvalidChannelDescriptor);
    }
}

void failed_copies() {
    std::vector<int> host(WIDTH * HEIGHT);
    Array<int> array(make_cudaExtent(WIDTH, HEIGHT, 0));
    Array<int4> of_four(make_cudaExtent(WIDTH, HEIGHT, 0));
    auto to_array = [&](size_t x, size_t y, size_t pitch, size_t width, size_t height, int kind) {
        return cudaMemcpy2DToArray(array.handle, x, y, host.data(), pitch, width, height,
                                   (cudaMemcpyKind)kind);
    };
    const int IN = cudaMemcpyHostToDevice;
    FAILS(to_array(0, 0, ROW, ROW, 1, cudaMemcpyDeviceToHost), cudaErrorInvalidMemcpyDirection);
    FAILS(to_array(0, 0, ROW, ROW, 1, 9), cudaErrorInvalidMemcpyDirection);
    FAILS(to_array(0, 0, ROW - 4, ROW, 2, IN), cudaErrorInvalidPitchValue);
    FAILS(to_array(0, 0, 2 * ROW, ROW + 4, 1, IN), cudaErrorInvalidValue);
    FAILS(to_array(0, HEIGHT - 1, ROW, ROW, 2, IN), cudaErrorInvalidValue);
    CHECK(to_array(0, 0, ROW, 0, 2, IN));
    FAILS(cudaMemcpy2DToArray(nullptr, 0, 0, host.data(), 4, 4, 1, cudaMemcpyHostToDevice),
          cudaErrorInvalidResourceHandle);
    FAILS(cudaMemcpy2DFromArray(host.data(), ROW, array.handle, 0, 0, ROW, 1,
                                cudaMemcpyHostToDevice),
          cudaErrorInvalidMemcpyDirection);
    FAILS(cudaMemcpyToArray(array.handle, 4, HEIGHT - 1, host.data(), ROW, cudaMemcpyHostToDevice),
          cudaErrorInvalidValue);
    cudaMemcpy3DParms copy = {};
    copy.srcArray = of_four.handle;
    copy.dstArray = array.handle;
    copy.extent = make_cudaExtent(4, 2, 1);
    copy.kind = cudaMemcpyDeviceToDevice;
    FAILS(cudaMemcpy3D(&copy), cudaErrorInvalidValue);
    copy.srcArray = array.handle;
    copy.srcPtr = make_cudaPitchedPtr(host.data(), ROW, ROW, HEIGHT);
    FAILS(cudaMemcpy3D(&copy), cudaErrorInvalidValue);
    copy.srcArray = nullptr;
    copy.kind = cudaMemcpyHostToDevice;
    CHECK(cudaMemcpy3D(&copy));
    copy.extent.width = WIDTH + 1;
    FAILS(cudaMemcpy3D(&copy), cudaErrorInvalidValue);
}

void failed_textures() {
    Array<int> integers(make_cudaExtent(WIDTH, HEIGHT, 0));
    Array<uchar4> bytes(make_cudaExtent(WIDTH, HEIGHT, 0));
    Array<float> floats(make_cudaExtent(WIDTH, HEIGHT, 0));
    Buffer<float> memory(256);
    auto create = [](const cudaResourceDesc &resource, bool is_linear, bool has_fractions) {
        Sampling sampling;
        sampling.is_linear = is_linear;
        sampling.has_fractions = has_fractions;
        cudaTextureDesc description = sampling.description();
        cudaTextureObject_t object;
        cudaError_t error = cudaCreateTextureObject(&object, &resource, &description, nullptr);
        return error != cudaSuccess ? error : cudaDestroyTextureObject(object);
    };
    FAILS(create(integers.resource(), true, false), cudaErrorInvalidFilterSetting);
    FAILS(create(integers.resource(), false, true), cudaErrorInvalidNormSetting);
    FAILS(create(bytes.resource(), true, false), cudaErrorInvalidFilterSetting);
    FAILS(create(floats.resource(), false, true), cudaErrorInvalidNormSetting);
    CHECK(create(bytes.resource(), true, true));
    cudaResourceDesc resource = {};
    FAILS(create(resource, false, false), cudaErrorInvalidResourceHandle);
    resource.resType = (cudaResourceType)9;
    FAILS(create(resource, false, false), cudaErrorInvalidValue);
    resource.resType = cudaResourceTypeLinear;
    resource.res.linear.devPtr = memory.data;
    resource.res.linear.desc = cudaCreateChannelDesc<float>();
    resource.res.linear.sizeInBytes = 512;
    CHECK(create(resource, false, false));
    // There are no filters for one row, and those for integers are refused all the same.
    CHECK(create(resource, true, false));
    resource.res.linear.desc = cudaCreateChannelDesc<int>();
    FAILS(create(resource, true, false), cudaErrorInvalidFilterSetting);
    cudaSurfaceObject_t surface;
    FAILS(cudaCreateSurfaceObject(&surface, &resource), cudaErrorInvalidValue);
    FAILS(cudaCreateSurfaceObject(&surface, nullptr), cudaErrorInvalidValue);
    resource.res.linear.devPtr = memory.data + 1;
    FAILS(create(resource, false, false), cudaErrorInvalidValue);
    resource.res.linear.devPtr = memory.data;
    resource.res.linear.desc.y = 8;
    FAILS(create(resource, false, false), cudaErrorInvalidChannelDescriptor);
}

int main() {
    descriptions();
    failed_arrays();
    kinds_of_elements();
    failed_copies();
    failed_textures();
    printf("descriptions: right\n");
}
