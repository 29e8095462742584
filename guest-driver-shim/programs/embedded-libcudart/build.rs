//! Builds `causeway-libcudart` by a separate run of cargo, and makes of its archive what programs
//! of each CUDA are linked with: a library whose symbols have the version of NVIDIA's, which rustc
//! cannot give, and a static one that is a single object, so that nothing of Rust's library is seen
//! outside.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use causeway_guest_build::{library, repository, variable};
use object::LittleEndian;
use object::elf::{FileHeader64, SHN_UNDEF, SHT_SYMTAB, STB_GLOBAL, STV_HIDDEN, Sym64};
use object::read::elf::{FileHeader, SectionHeader, Sym};

/// The archive's name, as cargo calls it.
const ARCHIVE: &str = "libcauseway_libcudart.a";
/// Versions of CUDA, whose programs need a library each.
const VERSIONS: [u32; 2] = [12, 13];
/// Symbols of the API, as patterns. Behind `cuda` and a version's number stands a function for
/// programs of that version.
const API: [&str; 2] = ["cuda[A-Z]*", "__cuda[A-Z]*"];

fn main() {
    let archive = library(&repository(), "causeway-libcudart", ARCHIVE).join(ARCHIVE);
    let out = PathBuf::from(variable("OUT_DIR"));
    let functions = functions(&archive);
    let all = merge(&archive, &functions, &out);
    for version in VERSIONS {
        let folder = out.join(version.to_string());
        fs::create_dir_all(&folder).expect("cannot create a folder for a version");
        let object = choose(&all, version, &functions, &folder);
        // The second hides the functions in the object.
        let made = [
            ("SHARED", link(&object, version, &folder)),
            ("STATIC", pack(&object, &folder)),
        ];
        for (kind, path) in made {
            let path = path.display();
            println!("cargo::rustc-env=CAUSEWAY_LIBCUDART_{version}_{kind}={path}");
        }
    }
    println!("cargo::rerun-if-changed=build.rs");
}

/// Returns the functions of the API in the archive, those for one version alone included.
fn functions(archive: &Path) -> Vec<String> {
    let mut names = Command::new("nm");
    names.args(["--defined-only", "--extern-only", "--format=just-symbols"]);
    // Of Rust's library there are members that it cannot read: those it names, and goes on.
    let output = names.arg(archive).output().expect("cannot run nm");
    let text = String::from_utf8_lossy(&output.stdout);
    let is_of_the_api = |name: &&str| name.starts_with("cuda") || name.starts_with("__cuda");
    let found: Vec<_> = text
        .lines()
        .filter(is_of_the_api)
        .map(str::to_owned)
        .collect();
    assert!(!found.is_empty(), "nm finds no function in {archive:?}");
    found
}

/// Links the archive to one object.
fn merge(archive: &Path, functions: &[String], out: &Path) -> PathBuf {
    let (roots, object) = (out.join("roots"), out.join("all.o"));
    write_lines(&roots, functions, |name| format!("-Wl,--undefined={name}"));
    let mut linker = Command::new("cc");
    linker
        .args(["-r", "-nostdlib", "-o"])
        .arg(&object)
        // Groups of another library of Rust's in the program must not replace those here. Only
        // GNU's linker has the option for it.
        .args(["-fuse-ld=bfd", "-Wl,--gc-sections,--force-group-allocation"])
        .arg(format!("@{}", roots.display()))
        .arg(archive);
    run(&mut linker);
    object
}

/// Makes the object for one version: its own functions get the names by which its programs know
/// them, and only the API is visible.
fn choose(all: &Path, version: u32, functions: &[String], folder: &Path) -> PathBuf {
    let (names, object) = (folder.join("names"), folder.join("libcudart.o"));
    let mark = format!("cuda{version}_");
    let own = functions.iter().filter(|name| name.contains(&mark));
    let own: Vec<_> = own
        .map(|name| (name, name.replacen(&mark, "cuda", 1)))
        .collect();
    let replaced = own.iter().filter(|(_, name)| functions.contains(name));
    let mut renamed: Vec<_> = replaced
        .map(|(_, name)| format!("{name} replaced_{name}"))
        .collect();
    renamed.extend(own.iter().map(|(own, name)| format!("{own} {name}")));
    write_lines(&names, &renamed, String::clone);
    let mut copier = Command::new("objcopy");
    copier
        .args(["--wildcard", "--strip-unneeded"])
        .arg(format!("--redefine-syms={}", names.display()))
        .args(API.map(|pattern| format!("--keep-global-symbol={pattern}")))
        // The compiler's own code, of Rust's library.
        .args(["--remove-section=.llvmbc", "--remove-section=.llvmcmd"]);
    run(copier.arg(all).arg(&object));
    object
}

/// Links the shared library.
fn link(object: &Path, version: u32, folder: &Path) -> PathBuf {
    // Also the version of its symbols.
    let name = format!("libcudart.so.{version}");
    let versions = folder.join("versions");
    let script = format!("{name} {{ global: {}; local: *; }};", API.join("; "));
    write_lines(&versions, &[script], String::clone);
    let built = folder.join(&name);
    let mut command = Command::new("cc");
    command
        .args(["-shared", "-o"])
        .arg(&built)
        .arg(format!("-Wl,-soname,{name}"))
        .arg(format!("-Wl,--version-script={}", versions.display()))
        // Its own calls stay inside, and it stays when a program lets go of it.
        .args(["-Wl,-Bsymbolic-functions", "-Wl,-z,nodelete,-z,defs"])
        .args(["-Wl,--gc-sections,--strip-all"])
        .arg(object)
        .args(["-lgcc_s", "-lpthread", "-ldl", "-lc"]);
    run(&mut command);
    built
}

/// Makes the static library, under the name by which nvcc asks for it.
fn pack(object: &Path, folder: &Path) -> PathBuf {
    let built = folder.join("libcudart_static.a");
    let mut content = fs::read(object).expect("cannot read the object");
    hide(&mut content).expect("the object is no ELF file");
    fs::write(object, content).expect("cannot write the object");
    let _ = fs::remove_file(&built);
    run(Command::new("ar").arg("rcsD").arg(&built).arg(object));
    built
}

/// Hides the functions of an object outside of the program or library that it is linked into
/// (`STV_HIDDEN`), as in NVIDIA's archive: a program and a library that it loads may have a runtime
/// each, and the calls of each must get to its own.
fn hide(content: &mut [u8]) -> object::Result<()> {
    type Elf = FileHeader64<LittleEndian>;
    const OTHER: usize = std::mem::offset_of!(Sym64<LittleEndian>, st_other);
    let (endian, data) = (LittleEndian, &*content);
    let sections = Elf::parse(data)?.sections(endian, data)?;
    let is_table =
        |section: &&<Elf as FileHeader>::SectionHeader| section.sh_type(endian) == SHT_SYMTAB;
    let table = sections
        .iter()
        .find(is_table)
        .expect("the object has symbols");
    let begin = table.sh_offset(endian) as usize;
    let symbols = table.data_as_array::<Sym64<LittleEndian>, _>(endian, data)?;
    let is_function =
        |it: &Sym64<LittleEndian>| it.st_bind() == STB_GLOBAL && it.st_shndx(endian) != SHN_UNDEF;
    let functions = symbols.iter().enumerate().filter(|(_, it)| is_function(it));
    let places: Vec<usize> = functions
        .map(|(n, _)| begin + n * size_of::<Sym64<LittleEndian>>() + OTHER)
        .collect();
    assert!(!places.is_empty(), "the object has no function of the API");
    places
        .into_iter()
        .for_each(|place| content[place] = STV_HIDDEN.0);
    Ok(())
}

fn write_lines(path: &Path, items: &[String], line: impl Fn(&String) -> String) {
    let text: String = items.iter().map(|item| line(item) + "\n").collect();
    fs::write(path, text).unwrap_or_else(|e| panic!("cannot write {path:?}: {e}"));
}

fn run(command: &mut Command) {
    let status = command.status();
    let status = status.unwrap_or_else(|e| panic!("cannot run {command:?}: {e}"));
    assert!(status.success(), "{command:?} failed ({status})");
}
