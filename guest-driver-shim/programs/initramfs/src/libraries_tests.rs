use super::*;
use std::fs;

/// An ELF file that is read as a library which needs nothing.
const PLAIN: &[u8] = crate::INIT;

fn names(list: &[&str]) -> Vec<OsString> {
    list.iter().map(OsString::from).collect()
}

fn links(needed: &[&str], of_all: &str, of_own: &str) -> Links {
    Links {
        interpreter: Some("/lib64/ld-linux-x86-64.so.2".into()),
        needed: names(needed),
        paths_of_all: of_all.into(),
        paths_of_own: of_own.into(),
    }
}

/// Collects with a host that has these files only. Returns the paths that were found.
fn found(links: &Links, search: &Search, host: &[(&str, &[u8])]) -> Result<Vec<String>, String> {
    let read = |path: &Path| {
        let file = host.iter().find(|(name, _)| Path::new(name) == path);
        let (_, content) = file.ok_or(io::ErrorKind::NotFound)?;
        Ok(HostFile {
            content: content.to_vec(),
            executable: false,
        })
    };
    match collect(
        (Path::new("/home/app/bin/app"), links),
        &[],
        &["libcuda.so.1"],
        search,
        read,
    ) {
        Ok(found) => Ok(found
            .keys()
            .map(|path| path.display().to_string())
            .collect()),
        Err(CollectError::Missing { name, .. }) => Err(name.display().to_string()),
        Err(CollectError::Runtime { cuda, .. }) => Err(format!("CUDA {cuda}")),
        Err(CollectError::Damaged { path, .. }) => Err(path.display().to_string()),
    }
}

#[test]
fn libraries_are_looked_for_in_the_order_of_the_dynamic_linker() {
    let everywhere: [(&str, &[u8]); 4] = [
        ("/home/app/lib/liba.so.1", PLAIN),
        ("/all/liba.so.1", PLAIN),
        ("/variable/liba.so.1", PLAIN),
        ("/usr/lib64/liba.so.1", PLAIN),
    ];
    let search = Search {
        environment: "/variable::relative".into(),
        ..Search::default()
    };
    let needed = ["liba.so.1"];
    let first = |of_all, of_own, host| found(&links(&needed, of_all, of_own), &search, host);
    let one = |path: &str| Ok(vec![path.to_owned()]);
    assert_eq!(first("/all", "", &everywhere), one("/all/liba.so.1"));
    let own = "$ORIGIN/../lib:/own";
    assert_eq!(first("/all", own, &everywhere), one("/variable/liba.so.1"));
    let without = [("/own/liba.so.1", PLAIN), everywhere[1], everywhere[3]];
    assert_eq!(first("/all", own, &without), one("/own/liba.so.1"));
    assert_eq!(first("", "", &without), one("/usr/lib64/liba.so.1"));
    let other = [("/own/liba.so.1", &b"INPUT(liba.a)"[..]), everywhere[3]];
    assert_eq!(first("", "/own", &other), one("/usr/lib64/liba.so.1"));
    assert_eq!(first("", "", &[]), Err("liba.so.1".to_owned()));
}

#[test]
fn the_runtime_of_another_cuda_is_refused_even_where_it_is() {
    let host = [("/lib64/libcudart.so.11.0", PLAIN)];
    let found = found(
        &links(&["libcudart.so.11.0"], "", ""),
        &Search::default(),
        &host,
    );
    assert_eq!(found, Err("CUDA 11".to_owned()));
}

#[test]
fn what_the_guest_has_already_is_not_looked_for() {
    let needed = ["libcuda.so.1", "ld-linux-x86-64.so.2", "/opt/x/libb.so"];
    let host = [("/opt/x/libb.so", PLAIN), ("/lib64/libcuda.so.1", PLAIN)];
    let found = found(&links(&needed, "", ""), &Search::default(), &host);
    assert_eq!(found, Ok(vec!["/opt/x/libb.so".to_owned()]));
}

/// By the dynamic linker's own word.
#[test]
fn the_libraries_of_this_test_are_those_that_it_has_loaded() {
    let path = std::env::current_exe().unwrap();
    let own = crate::check_program(&fs::read(&path).unwrap()).unwrap();
    let read = |path: &Path| crate::read::read_file(path, u64::MAX - 1);
    let search = Search::of_this_host();
    let found = collect((&path, &own), &[], &[], &search, read)
        .map_err(|_| ())
        .unwrap();
    let real = |path: &Path| fs::canonicalize(path).unwrap();
    let found: HashSet<PathBuf> = found.keys().map(|path| real(path)).collect();
    assert!(found.len() >= 2, "{found:?}");
    let maps = fs::read_to_string("/proc/self/maps").unwrap();
    let loaded = maps
        .lines()
        .filter_map(|line| line.split_whitespace().nth(5));
    let loaded: HashSet<PathBuf> = loaded
        .filter(|path| path.contains(".so"))
        .map(Into::into)
        .collect();
    for library in &found {
        assert!(
            loaded.contains(library),
            "{library:?} is not one of {loaded:?}"
        );
    }
}
