//! Finds the shipped profiles, and tells the program which commit it was built from.
use std::process::Command;

fn main() -> std::io::Result<()> {
    amp_shipped::toml_files("profiles")?;
    println!("cargo:rerun-if-changed=../../.git/HEAD");
    println!("cargo:rerun-if-changed=../../.git/logs/HEAD");
    let git = Command::new("git")
        .args(["rev-parse", "--short=12", "HEAD"])
        .output();
    let commit = git
        .ok()
        .filter(|o| o.status.success())
        .and_then(|o| String::from_utf8(o.stdout).ok());
    println!(
        "cargo:rustc-env=SCX_AMP_COMMIT={}",
        commit.as_deref().unwrap_or("").trim()
    );
    Ok(())
}
