//! Copies between arrays and all memory: what they move and what is refused.

use crate::*;

#[test]
fn boxes_go_between_an_array_and_all_memory() {
    causeway_cuda_tests::library();
    let size = [96, 20, 7];
    let array = array([24, 20, 7], 1, 4, 0);
    let all = pattern(size.iter().product(), 0);
    write(array, size, &all);
    assert_eq!(read(array, size), all);

    let (origin, part) = ([8, 3, 2], [48, 11, 4]);
    let wanted = boxed(&all, size, origin, part);
    let from = End::Array(array, origin);
    // Memory of the process, with gaps.
    let mut host = vec![0xee; 64 * 13 * 4];
    ok!(cuMemcpy3D_v2(&copy(
        End::Host(host.as_mut_ptr(), 64, 13),
        from,
        part
    )));
    assert_eq!(boxed(&host, [64, 13, 4], [0; 3], part), wanted);
    assert_eq!(host[48..64], [0xee; 16], "gaps stay");
    // Device memory, and slices whose distance is no number of rows.
    let device = holding(&vec![0xee; 64 * 13 * 4]);
    ok!(cuMemcpy3D_v2(&copy(
        End::Device(device, 64, 13),
        from,
        part
    )));
    let found = content(device, 64 * 13 * 4);
    assert_eq!(boxed(&found, [64, 13, 4], [0; 3], part), wanted);
    // Page-locked memory.
    let mut locked = std::ptr::null_mut();
    ok!(cuMemAllocHost_v2(&raw mut locked, 64 * 13 * 4));
    ok!(cuMemcpy3D_v2(&copy(End::Host(locked, 64, 13), from, part)));
    // SAFETY: allocated above.
    let found = unsafe { std::slice::from_raw_parts(locked, 64 * 13 * 4) };
    assert_eq!(boxed(found, [64, 13, 4], [0; 3], part), wanted);

    // And back into another place.
    let mut expected = all.clone();
    let to = [20, 5, 1];
    for (at, row) in wanted.chunks(48).enumerate() {
        let (slice, line) = (at / 11, at % 11);
        let start = ((to[2] + slice) * 20 + to[1] + line) * 96 + to[0];
        expected[start..start + 48].copy_from_slice(row);
    }
    for source in [
        End::Host(host.as_mut_ptr(), 64, 13),
        End::Device(device, 64, 13),
        End::Host(locked, 64, 13),
        End::Array(array, origin),
    ] {
        let other = self::array([24, 20, 7], 1, 4, 0);
        write(other, size, &all);
        ok!(cuMemcpy3D_v2(&copy(End::Array(other, to), source, part)));
        assert_eq!(read(other, size), expected);
        ok!(cuArrayDestroy(other));
    }
    ok!(cuMemFreeHost(locked));
    ok!(cuMemFree_v2(device));
    ok!(cuArrayDestroy(array));
}

#[test]
fn large_arrays_go_in_pieces() {
    causeway_cuda_tests::library();
    // More than the pieces of staging memory, and rows that are longer than one.
    for (elements, format, channels, size) in [
        ([1 << 17, 9, 0], 0x20, 4, [2 << 20, 9, 1]),
        ([300, 3000, 5], 1, 1, [300, 3000, 5]),
        ([4, 60_000, 0], 1, 4, [16, 60_000, 1]),
    ] {
        let [first, second] = [(); 2].map(|()| array(elements, format, channels, 0));
        let all = pattern(size.iter().product(), 3);
        write(first, size, &all);
        ok!(cuMemcpy3D_v2(&copy(
            End::Array(second, [0; 3]),
            End::Array(first, [0; 3]),
            size
        )));
        assert!(read(second, size) == all);
        ok!(cuArrayDestroy(first));
        ok!(cuArrayDestroy(second));
    }
}

#[test]
fn bytes_of_one_row_are_copied_by_their_offset() {
    causeway_cuda_tests::library();
    let [array, other] = [(); 2].map(|()| self::array([512, 0, 0], 2, 1, 0));
    let all = pattern(1024, 9);
    ok!(cuMemcpyHtoA_v2(array, 0, all.as_ptr(), 1024));
    let mut found = vec![0; 100];
    ok!(cuMemcpyAtoH_v2(found.as_mut_ptr(), array, 200, 100));
    assert_eq!(found, all[200..300]);
    let device = holding(&pattern(64, 77));
    ok!(cuMemcpyDtoA_v2(array, 500, device, 64));
    ok!(cuMemcpyAtoD_v2(device, array, 498, 60));
    assert_eq!(
        content(device, 60),
        [&all[498..500], &pattern(58, 77)].concat()
    );
    ok!(cuMemcpyAtoA_v2(other, 10, array, 500, 64));
    ok!(cuMemcpyAtoH_v2(found.as_mut_ptr(), other, 10, 64));
    assert_eq!(found[..64], pattern(64, 77));
    let mut stream = 0;
    ok!(cuStreamCreate(&raw mut stream, 1));
    ok!(cuMemcpyHtoAAsync_v2(other, 0, all.as_ptr(), 100, stream));
    ok!(cuMemcpyAtoHAsync_v2(
        found.as_mut_ptr(),
        other,
        0,
        100,
        stream
    ));
    ok!(cuStreamSynchronize(stream));
    assert_eq!(found, all[..100]);
    ok!(cuStreamDestroy_v2(stream));
    refused!(
        INVALID_VALUE,
        cuMemcpyHtoA_v2(array, 1000, all.as_ptr(), 26)
    );
    refused!(INVALID_VALUE, cuMemcpyHtoA_v2(array, 1, all.as_ptr(), 2));
    refused!(
        INVALID_VALUE,
        cuMemcpyHtoA_v2(array, usize::MAX - 1, all.as_ptr(), 2)
    );
    refused!(
        INVALID_VALUE,
        cuMemcpyDtoA_v2(array, 0, all.as_ptr() as u64, 2)
    );
    refused!(INVALID_VALUE, cuMemcpyHtoA_v2(0, 0, all.as_ptr(), 2));
    ok!(cuArrayDestroy(other));
    refused!(INVALID_VALUE, cuMemcpyHtoA_v2(other, 0, all.as_ptr(), 2));
    refused!(INVALID_VALUE, cuMemcpyAtoA_v2(array, 0, other, 0, 2));
    let wide = self::array([512, 0, 0], 3, 1, 0);
    refused!(INVALID_VALUE, cuMemcpyAtoA_v2(array, 0, wide, 0, 8));
    ok!(cuArrayDestroy(wide));
    ok!(cuArrayDestroy(array));
    ok!(cuMemFree_v2(device));
}

#[test]
fn wrong_boxes_are_refused() {
    causeway_cuda_tests::library();
    let array = self::array([24, 20, 7], 1, 4, 0);
    let mut host = vec![0; 96 * 20 * 7];
    let to = End::Host(host.as_mut_ptr(), 96, 20);
    for (origin, size) in [
        ([8, 0, 0], [92, 1, 1]),
        ([0, 1, 0], [4, 20, 1]),
        ([0, 0, 7], [4, 1, 1]),
        ([2, 0, 0], [4, 1, 1]),
        ([0, 0, 0], [6, 1, 1]),
        ([usize::MAX - 3, 0, 0], [4, 1, 1]),
    ] {
        refused!(
            INVALID_VALUE,
            cuMemcpy3D_v2(&copy(to, End::Array(array, origin), size))
        );
    }
    let mut level = copy(to, End::Array(array, [0; 3]), [4, 1, 1]);
    level.srcLOD = 1;
    refused!(INVALID_VALUE, cuMemcpy3D_v2(&raw const level));
    let overlapping = End::Host(host.as_mut_ptr(), 8, 20);
    let wrong = copy(overlapping, End::Array(array, [0; 3]), [16, 2, 1]);
    refused!(INVALID_VALUE, cuMemcpy3D_v2(&raw const wrong));
    let mut flat: sys::CUDA_MEMCPY2D = {
        let mut flat = std::mem::MaybeUninit::<sys::CUDA_MEMCPY2D>::zeroed();
        // SAFETY: as for copies in three dimensions.
        unsafe {
            let at = flat.as_mut_ptr();
            (&raw mut (*at).srcMemoryType).write(sys::CUmemorytype::CU_MEMORYTYPE_ARRAY);
            (&raw mut (*at).dstMemoryType).write(sys::CUmemorytype::CU_MEMORYTYPE_HOST);
            flat.assume_init()
        }
    };
    (flat.srcArray, flat.dstHost) = (array as sys::CUarray, host.as_mut_ptr().cast());
    (flat.WidthInBytes, flat.Height, flat.dstPitch) = (96, 20, 96);
    ok!(cuMemcpy2D_v2(&raw const flat));
    flat.Height = 21;
    refused!(INVALID_VALUE, cuMemcpy2D_v2(&raw const flat));
    ok!(cuArrayDestroy(array));
}

#[test]
fn an_array_can_be_destroyed_while_copies_are_under_way() {
    causeway_cuda_tests::library();
    let mut stream = 0;
    ok!(cuStreamCreate(&raw mut stream, 1));
    let size = [4096, 256, 1];
    let device = holding(&pattern(4096 * 256, 1));
    let back = holding(&vec![0; 4096 * 256]);
    for _ in 0..20 {
        let array = self::array([1024, 256, 0], 0x20, 1, 0);
        let (from, to) = (End::Device(device, 4096, 256), End::Device(back, 4096, 256));
        let whole = End::Array(array, [0; 3]);
        for _ in 0..8 {
            ok!(cuMemcpy3DAsync_v2(&copy(whole, from, size), stream));
        }
        ok!(cuMemcpy3DAsync_v2(&copy(to, whole, size), stream));
        ok!(cuArrayDestroy(array));
    }
    ok!(cuStreamSynchronize(stream));
    assert!(content(back, 4096 * 256) == pattern(4096 * 256, 1));
    ok!(cuStreamDestroy_v2(stream));
    ok!(cuMemFree_v2(device));
    ok!(cuMemFree_v2(back));
}
