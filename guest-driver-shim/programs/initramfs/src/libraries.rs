//! The libraries that a dynamic program needs, as files of this host.
//!
//! They are found as the dynamic linker finds them (ld.so(8)), but by reading files only: nothing
//! of the program, and no dynamic linker, runs on the host.

use std::collections::{BTreeMap, HashSet, VecDeque};
use std::ffi::{OsStr, OsString};
use std::io;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Path, PathBuf};

use causeway_embedded_libraries::foreign_runtime;

use crate::executable::is_for_guests;
use crate::links::Links;
use crate::loader_cache::LoaderCache;
use crate::read::HostFile;

/// Folders in which dynamic linkers look last, of glibc (as Debian, then as others build it) and
/// of musl.
const FOLDERS: [&str; 7] = [
    "/lib/x86_64-linux-gnu",
    "/usr/lib/x86_64-linux-gnu",
    "/lib64",
    "/usr/lib64",
    "/lib",
    "/usr/lib",
    "/usr/local/lib",
];
/// Variable with the folders in which the dynamic linker looks first.
const LIBRARY_PATH: &str = "LD_LIBRARY_PATH";

/// Where libraries are looked for.
#[derive(Debug, Default)]
pub(crate) struct Search {
    /// Folders of the environment, with colons between.
    environment: OsString,
    cache: LoaderCache,
}

impl Search {
    /// Returns the search that the dynamic linker of this host does for this process.
    pub(crate) fn of_this_host() -> Self {
        Self {
            environment: std::env::var_os(LIBRARY_PATH).unwrap_or_default(),
            cache: LoaderCache::of_this_host(),
        }
    }

    /// Returns the paths at which a library that `object` needs may be, the first first.
    fn candidates(&self, name: &OsStr, object: &Object) -> Vec<PathBuf> {
        if name.as_bytes().contains(&b'/') {
            return vec![name.into()];
        }
        // DT_RPATH counts only without DT_RUNPATH.
        let of_all = match object.links.paths_of_own.is_empty() {
            true => object.inherited.as_slice(),
            false => &[],
        };
        let in_folder = |folder: &PathBuf| folder.join(name);
        let environment = folders(&self.environment, &object.folder);
        let own = folders(&object.links.paths_of_own, &object.folder);
        let before = of_all.iter().chain(&environment).chain(&own).map(in_folder);
        let cached = self.cache.path_of(name).map(Path::to_owned);
        let last = FOLDERS.iter().map(|folder| Path::new(folder).join(name));
        before.chain(cached).chain(last).collect()
    }
}

/// A file that needs libraries.
#[derive(Debug)]
struct Object {
    path: PathBuf,
    /// Folder of the file, which its own lists of folders can name (`$ORIGIN`).
    folder: PathBuf,
    links: Links,
    /// Folders of `DT_RPATH`, its own and of those that need it.
    inherited: Vec<PathBuf>,
}

impl Object {
    fn new(path: &Path, links: Links, needed_by: &[PathBuf]) -> Self {
        let folder = path.parent().unwrap_or(Path::new("/")).to_owned();
        let mut inherited = folders(&links.paths_of_all, &folder);
        inherited.extend_from_slice(needed_by);
        Self {
            path: path.to_owned(),
            folder,
            links,
            inherited,
        }
    }
}

/// Returns the folders of a list with colons between. `origin` is the folder of the file that has
/// the list. Entries that are not absolute paths are left out: they mean the working directory.
fn folders(list: &OsStr, origin: &Path) -> Vec<PathBuf> {
    let entries = list.as_bytes().split(|byte| *byte == b':');
    let folder = |entry: &[u8]| -> PathBuf {
        let mut names = ["$ORIGIN", "${ORIGIN}"].iter();
        match names.find_map(|name| entry.strip_prefix(name.as_bytes())) {
            Some(rest) => {
                let path = [origin.as_os_str().as_bytes(), rest].concat();
                OsString::from_vec(path).into()
            }
            None => OsStr::from_bytes(entry).into(),
        }
    };
    let all = entries.map(folder);
    all.filter(|folder| folder.is_absolute()).collect()
}

/// Why the libraries of a program cannot be collected.
#[derive(Debug)]
pub(crate) enum CollectError {
    /// A library does not exist on this host.
    Missing { name: OsString, needed_by: PathBuf },
    /// A library is the runtime library of a CUDA whose programs guests cannot run.
    Runtime {
        name: OsString,
        needed_by: PathBuf,
        cuda: u32,
    },
    /// A library is not an ELF file whose needs can be read.
    Damaged {
        path: PathBuf,
        source: object::read::Error,
    },
}

/// Libraries by the paths at which they were found.
pub(crate) type Libraries = BTreeMap<PathBuf, HostFile>;

/// Collects the libraries that a program and `more` libraries, which it may load, need, and those
/// that these need. Libraries called `given` are there already. `read` reads a file of the host.
///
/// # Errors
/// [`CollectError`] names the library.
pub(crate) fn collect(
    program: (&Path, &Links),
    more: &[Links],
    given: &[&str],
    search: &Search,
    mut read: impl FnMut(&Path) -> io::Result<HostFile>,
) -> Result<Libraries, CollectError> {
    let mut known: HashSet<OsString> = given.iter().map(OsString::from).collect();
    // It is the dynamic linker itself, which libraries may name as a library.
    let linker = program
        .1
        .interpreter
        .as_ref()
        .and_then(|path| path.file_name());
    known.extend(linker.map(OsStr::to_owned));
    let program = Object::new(program.0, program.1.clone(), &[]);
    let more = more
        .iter()
        .map(|links| Object::new(&program.path, links.clone(), &[]));
    let mut queue: VecDeque<Object> = more.collect();
    queue.push_front(program);
    let mut found = Libraries::new();
    while let Some(object) = queue.pop_front() {
        for name in &object.links.needed {
            if !known.insert(name.clone()) {
                continue;
            }
            if let Some(cuda) = foreign_runtime(name) {
                return Err(CollectError::Runtime {
                    name: name.clone(),
                    needed_by: object.path,
                    cuda,
                });
            }
            let candidates = search.candidates(name, &object).into_iter();
            let mut fitting = candidates.filter_map(|path| {
                let file = read(&path).ok()?;
                is_for_guests(&file.content).then_some((path, file))
            });
            let (path, file) = fitting.next().ok_or_else(|| CollectError::Missing {
                name: name.clone(),
                needed_by: object.path.clone(),
            })?;
            let links = Links::of_library(&file.content).map_err(|source| {
                let path = path.clone();
                CollectError::Damaged { path, source }
            })?;
            queue.push_back(Object::new(&path, links, &object.inherited));
            found.insert(path, file);
        }
    }
    Ok(found)
}

#[cfg(test)]
#[path = "libraries_tests.rs"]
mod tests;
