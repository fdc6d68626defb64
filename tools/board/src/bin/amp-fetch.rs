//! `amp-fetch`: unpacks Debian packages of any architecture into a folder, without root and without
//! touching the machine's own apt. For the set-up scripts, so that the private client exists once.

use amp_board::archive::{mirror, Archive, Host, Installed};
use amp_board::sources::Suite;
use amp_board::{BoardError, Cache, Event};
use anyhow::{bail, Result};
use clap::Parser;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::Arc;
use std::time::Duration;

/// Fetches Debian packages (without what they depend on) and unpacks them into a folder.
#[derive(Parser)]
struct Cli {
    /// Architecture.
    #[arg(long, value_parser = ["arm64", "amd64"])]
    arch: String,
    /// Suite, in place of the machine's own release; several may be given.
    #[arg(long)]
    suite: Vec<String>,
    /// Folder to unpack into; it must not exist, and is there in full or not at all.
    #[arg(long)]
    into: PathBuf,
    /// Package, or PACKAGE=VERSION where VERSION may end early (`rust-src=1.95.0+`).
    #[arg(required = true)]
    packages: Vec<String>,
}

fn main() -> Result<()> {
    let cli = Cli::parse();
    let cancel = Arc::new(AtomicBool::new(false));
    let flag = cancel.clone();
    ctrlc::set_handler(move || flag.store(true, Ordering::Relaxed))?;
    if cli.into.exists() {
        bail!("{} exists already", cli.into.display());
    }
    let cache = Cache::open()?;
    let mut last = String::new();
    let mut tell = |e| {
        if let Event::Progress { what, .. } = e {
            if what != last {
                eprintln!("{what}");
                last = what;
            }
        }
    };
    let _lock = cache.lock(&cancel, &mut tell)?;
    let host = Host::default();
    let sources = mirror::sources(&cache, &host, &cancel, &mut tell)?;
    let suites: Vec<Suite> = match cli.suite.is_empty() {
        true => vec![sources.on_mirror(&sources.codename)],
        false => cli.suite.iter().map(|s| sources.on_mirror(s)).collect(),
    };
    let arch = if cli.arch == "arm64" {
        "arm64"
    } else {
        "amd64"
    };
    let name = format!("setup-{arch}-{}", cli.suite.join("+"));
    let apt = Archive::new(&cache, &host, &name, arch, suites, Installed::Nothing)?;
    apt.update(Duration::from_secs(24 * 3600), &cancel, &mut tell)?;
    let staging = cache.staging()?;
    let root = staging.path().join("root");
    for wanted in &cli.packages {
        let (package, version) = wanted.split_once('=').unwrap_or((wanted, ""));
        let offers = apt.offers(&[package.to_string()], &cancel)?;
        let Some(offer) = offers.iter().find(|o| o.version.starts_with(version)) else {
            return Err(BoardError::NoSuchPackage {
                package: wanted.clone(),
                arch,
                suites: cli.suite.join(", "),
            }
            .into());
        };
        let deb = apt.fetch_one(offer, &cancel, &mut tell)?;
        apt.unpack(&deb, &root, &cancel)?;
        apt.forget_archives(&[deb]);
    }
    match std::fs::rename(&root, &cli.into) {
        Ok(()) => Ok(()),
        // another run fetched the same meanwhile
        Err(e) if e.kind() == std::io::ErrorKind::DirectoryNotEmpty => Ok(()),
        Err(e) => bail!(
            "cannot move {} to {}: {e} (both must be on one file system)",
            root.display(),
            cli.into.display()
        ),
    }
}
