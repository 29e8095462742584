//! Names the library as NVIDIA's is named, so that a process that has loaded it finds it under that
//! name again.

fn main() {
    println!("cargo::rustc-cdylib-link-arg=-Wl,-soname,libcuda.so.1");
    // Threads of streams go on when a program lets go of the library.
    println!("cargo::rustc-cdylib-link-arg=-Wl,-z,nodelete");
    println!("cargo::rerun-if-changed=build.rs");
}
