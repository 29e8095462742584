//! Gives the library the name by which programs look for NVIDIA's driver, and generates what is
//! exported beside the functions that this crate implements: `exports.rs` in `OUT_DIR`, which
//! `src/exports.rs` includes.
//!
//! `exports.txt` lists all functions, one in a line: its name, the version of CUDA that introduced
//! it (none for a function that `cuGetProcAddress` does not find), and, for a function whose name
//! ends in `_ptsz`, which of its arguments is the stream, from 0. The facts are those of NVIDIA's
//! driver 580 (names) and of `cudaTypedefs.h` (versions and arguments).

use std::collections::BTreeSet;
use std::fmt::Write as _;
use std::fs;
use std::path::{Path, PathBuf};

/// What an implementation looks like in this crate's sources. Its name follows.
const IMPLEMENTATION: &str = "extern \"C\" fn ";

/// What a macro looks like that defines functions.
const BY_MACRO: &str = "extern \"C\" fn $";

/// Functions whose first version takes the same arguments as the second. (Others have device
/// addresses and sizes of 32 bits, as before CUDA 3.2.)
const SAME_AS_SECOND: [&str; 9] = [
    "cuCtxCreate",
    "cuCtxDestroy",
    "cuCtxPopCurrent",
    "cuCtxPushCurrent",
    "cuDevicePrimaryCtxRelease",
    "cuDevicePrimaryCtxReset",
    "cuDevicePrimaryCtxSetFlags",
    "cuEventDestroy",
    "cuStreamDestroy",
];

/// Functions that `cuda.h` calls by the name of another one from a version of CUDA on: that name,
/// the version, and the function.
const RENAMED: [(&str, u32, &str); 1] =
    [("cuGraphInstantiate", 11040, "cuGraphInstantiateWithFlags")];

/// Registers of the first six arguments (System V ABI for x86-64, figure 3.4).
const REGISTERS: [&str; 6] = ["rdi", "rsi", "rdx", "rcx", "r8", "r9"];

/// A line of `exports.txt`.
struct Export<'a> {
    name: &'a str,
    version: Option<u32>,
    stream: Option<usize>,
}

fn main() {
    for argument in [
        "-Wl,-soname,libcuda.so.1",
        // Its own calls stay inside, also where a program has loaded another driver before.
        "-Wl,-Bsymbolic-functions",
        // Its threads and its device stay when a program lets go of the library.
        "-Wl,-z,nodelete",
    ] {
        println!("cargo::rustc-cdylib-link-arg={argument}");
    }
    println!("cargo::rerun-if-changed=build.rs");
    println!("cargo::rerun-if-changed=exports.txt");
    println!("cargo::rerun-if-changed=src");
    let list = fs::read_to_string("exports.txt").expect("cannot read exports.txt");
    let exports: Vec<Export<'_>> = list.lines().map(Export::parse).collect();
    let mut implemented = BTreeSet::new();
    find_implementations(Path::new("src"), &mut implemented);
    let out = PathBuf::from(std::env::var_os("OUT_DIR").expect("cargo has not set OUT_DIR"));
    implemented.extend(SAME_AS_SECOND.map(str::to_owned));
    let source = [
        first_versions(),
        missing(&exports, &implemented),
        per_thread(&exports, &implemented),
        symbols(&exports),
    ];
    fs::write(out.join("exports.rs"), source.concat()).expect("cannot write exports.rs");
}

impl<'a> Export<'a> {
    fn parse(line: &'a str) -> Self {
        let mut words = line.split(' ');
        let name = words.next().unwrap_or_default();
        let mut number = || {
            words.next().map(|word| {
                word.parse::<u32>()
                    .unwrap_or_else(|_| panic!("no number: {line}"))
            })
        };
        Self {
            name,
            version: number(),
            stream: number().map(|argument| argument as usize),
        }
    }

    /// Returns the name by which `cuGetProcAddress` finds the function, and whether this is the
    /// version for per-thread default streams.
    fn base(&self) -> (&'a str, bool) {
        let plain = self.plain();
        let base = plain.unwrap_or(self.name);
        let version = base.rsplit_once("_v");
        let base = match version {
            Some((base, digits)) if digits.parse::<u32>().is_ok() => base,
            _ => base,
        };
        (base, plain.is_some())
    }

    /// Returns the function that does the same with the legacy default stream.
    fn plain(&self) -> Option<&'a str> {
        let suffixes = ["_ptsz", "_ptds"].iter();
        suffixes
            .filter_map(|suffix| self.name.strip_suffix(suffix))
            .next()
    }

    /// Returns the instruction that makes stream 0 the calling thread's default stream, or `None`
    /// if it is not known where the stream is.
    fn place_of_stream(&self) -> Option<String> {
        self.stream.map(|argument| match REGISTERS.get(argument) {
            Some(register) => (*register).to_owned(),
            // Above the return address.
            None => format!("qword ptr [rsp + {}]", 8 * (argument - REGISTERS.len() + 1)),
        })
    }
}

/// Adds the names of the functions that the sources in `folder` implement.
fn find_implementations(folder: &Path, names: &mut BTreeSet<String>) {
    let entries = fs::read_dir(folder).expect("cannot read the sources");
    for entry in entries {
        let path = entry.expect("cannot read the sources").path();
        if path.is_dir() {
            find_implementations(&path, names);
        } else {
            let source = fs::read_to_string(&path).expect("cannot read a source");
            for rest in source.split(IMPLEMENTATION).skip(1) {
                let end = rest.find(|c: char| !c.is_alphanumeric() && c != '_');
                names.insert(rest[..end.unwrap_or(rest.len())].to_owned());
            }
            // A macro that defines functions gets their names in the same file.
            if source.contains(BY_MACRO) && !path.ends_with("exports.rs") {
                let code = source
                    .lines()
                    .filter(|line| !line.trim_start().starts_with("//"));
                let words =
                    code.flat_map(|line| line.split(|c: char| !c.is_alphanumeric() && c != '_'));
                let functions = words.filter(|word| word.starts_with("cu"));
                names.extend(functions.map(str::to_owned));
            }
        }
    }
}

/// Returns whether `export` can jump to the function for the legacy default stream.
fn is_alias(export: &Export<'_>, implemented: &BTreeSet<String>) -> bool {
    let plain = export
        .plain()
        .is_some_and(|plain| implemented.contains(plain));
    plain && (export.stream.is_some() || export.name.ends_with("_ptds"))
}

/// Returns the source text of functions without an implementation.
fn missing(exports: &[Export<'_>], implemented: &BTreeSet<String>) -> String {
    let mut text = String::from("missing! {\n");
    for export in exports {
        if !implemented.contains(export.name) && !is_alias(export, implemented) {
            let _ = writeln!(text, "    {}", export.name);
        }
    }
    text + "}\n"
}

/// Returns the source text of functions for per-thread default streams whose other version is
/// implemented.
fn per_thread(exports: &[Export<'_>], implemented: &BTreeSet<String>) -> String {
    let mut text = String::new();
    for export in exports {
        let (Some(plain), true) = (export.plain(), is_alias(export, implemented)) else {
            continue;
        };
        if implemented.contains(export.name) {
            continue;
        }
        let _ = match export.place_of_stream() {
            Some(place) => writeln!(text, "per_thread!({} {plain:?} {place:?});", export.name),
            None => writeln!(text, "same!({} {plain:?});", export.name),
        };
    }
    text
}

/// Returns the first versions that are the second ones under another name.
fn first_versions() -> String {
    let lines = SAME_AS_SECOND.map(|name| format!("same!({name} \"{name}_v2\");\n"));
    lines.concat()
}

/// Returns the source text of the table that `cuGetProcAddress` searches.
fn symbols(exports: &[Export<'_>]) -> String {
    let mut found: Vec<_> = exports
        .iter()
        .filter_map(|export| Some((export.base(), export.version?, export.name)))
        .chain(RENAMED.map(|(base, version, name)| ((base, false), version, name)))
        .collect();
    found.sort_unstable();
    let mut text = String::from("symbols! {\n");
    for ((base, per_thread), version, name) in found {
        let _ = writeln!(text, "    {base:?} {version} {per_thread} {name}");
    }
    text + "}\n"
}
