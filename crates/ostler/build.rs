//! Tells the program for which platform it is built.

fn main() {
    let target = std::env::var("TARGET").unwrap_or_default();
    println!("cargo:rustc-env=OSTLER_TARGET={target}");
    println!("cargo:rerun-if-changed=build.rs");
}
