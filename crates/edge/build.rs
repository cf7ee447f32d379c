//! Lists the files that `make web` made, so that they become part of the binary. Without them the
//! binary builds all the same, and the pages say what is missing.

use std::collections::hash_map::DefaultHasher;
use std::fmt::Write as _;
use std::hash::{Hash as _, Hasher as _};
use std::path::{Path, PathBuf};

fn main() {
    // Read at run time: clones that share a target folder share the compiled script.
    let package = std::env::var_os("CARGO_MANIFEST_DIR").expect("cargo sets it");
    let root = Path::new(&package).join("../../web/dist");
    // A path that is not there would count as changed each time.
    let watched = if root.exists() { root.clone() } else { root.join("..") };
    println!("cargo:rerun-if-changed={}", watched.display());
    let mut files = Vec::new();
    collect(&root, &mut files);
    files.sort();
    let mut table = String::from("&[\n");
    for path in files {
        let content = std::fs::read(&path).expect("a file that was just listed");
        let mut hasher = DefaultHasher::new();
        content.hash(&mut hasher);
        let name = path.strip_prefix(&root).expect("below the root").to_str().expect("plain names");
        let path = path.canonicalize().expect("it exists");
        writeln!(
            table,
            "({name:?}, \"\\\"{:016x}\\\"\", include_bytes!({path:?})),",
            hasher.finish()
        )
        .expect("a string takes everything");
    }
    table.push(']');
    let out = std::env::var_os("OUT_DIR").expect("cargo sets it");
    std::fs::write(Path::new(&out).join("pages.rs"), table).expect("cargo's folder can be written");
}

fn collect(directory: &Path, files: &mut Vec<PathBuf>) {
    for entry in std::fs::read_dir(directory).into_iter().flatten().flatten() {
        let path = entry.path();
        if path.is_dir() {
            collect(&path, files);
        } else {
            files.push(path);
        }
    }
}
