//! Compiles `src/bpf/main.bpf.c` and generates its skeleton and the bindings of `src/bpf/intf.h`.

use std::process::{exit, Command, Stdio};

fn main() {
    println!("cargo:rerun-if-changed=build.rs");
    println!("cargo:rerun-if-changed=src/bpf");
    let clang = std::env::var("BPF_CLANG").unwrap_or_else(|_| "clang".into());
    let found = Command::new(&clang)
        .arg("--version")
        .stdout(Stdio::null())
        .status()
        .is_ok_and(|s| s.success());
    if !found {
        fail(&format!(
            "cannot run `{clang}`, which compiles the BPF programs.\n\
             Install clang 19 or newer (Debian: `apt-get install clang-19`) and name it in BPF_CLANG."
        ));
    }
    let built = scx_cargo::BpfBuilder::new().and_then(|mut b| {
        b.enable_intf("src/bpf/intf.h", "bpf_intf.rs")
            .enable_skel("src/bpf/main.bpf.c", "bpf")
            .build()
    });
    if let Err(e) = built {
        fail(&format!(
            "building the BPF programs with `{clang}` failed: {e:#}\n\
             They need clang 19 or newer, libelf and zlib headers \
             (Debian: `apt-get install clang-19 libelf-dev zlib1g-dev pkg-config`)."
        ));
    }
}

fn fail(why: &str) -> ! {
    eprintln!("\namp-bpf: {why}\n");
    exit(1)
}
