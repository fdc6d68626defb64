//! `scx_amp board`: the virtual AMP board.
//!
//! Exit status of `board run` and `board shell`: that of the guest's script when it ran to its end
//! (128+n when signal n ended it). When the board itself fails: 2 bad input (machine, paths,
//! package or kernel that does not exist or cannot load), 130 interrupted, 124 the guest hung, 125
//! anything else. Without a guest (`fetch`, `list`) anything else is 1.

use amp_board::archive::mirror::Mirror;
use amp_board::{
    artifacts, fetch, kernel, packages, peers, qemu, Arch, BoardError, Cache, Care, Event, Guest,
    GuestFile, Host, KernelChoice, Origin, Run,
};
use anyhow::{Context, Result};
use clap::{Args, Subcommand};
use indicatif::{ProgressBar, ProgressStyle};
use std::io::{IsTerminal, Write};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::Arc;
use std::time::Duration;

/// The virtual AMP board: an asymmetric arm64 machine in QEMU with a stock Debian kernel.
#[derive(Args, Debug)]
pub struct BoardArgs {
    #[command(subcommand)]
    command: BoardCommand,
}

#[derive(Subcommand, Debug)]
enum BoardCommand {
    /// Run a script (or a command with -c) in the guest; its exit code becomes ours.
    Run(RunArgs),
    /// Boot the guest with a shell on this terminal; leave it with `exit`.
    Shell(GuestArgs),
    /// Show machines, and what the cache holds: kernels with whether they load sched_ext, QEMU,
    /// packages, binaries.
    List,
    /// Fetch everything the board needs up front: QEMU, the newest kernels, busybox and the
    /// packages given.
    Fetch(FetchArgs),
}

#[derive(Args, Debug)]
struct GuestArgs {
    /// Machine: a shipped name or a machine file.
    #[arg(long, default_value = "juno")]
    machine: String,
    /// A stock guest without the model instead of a machine.
    #[arg(long, value_name = "ARCH", value_parser = ["x86_64"], conflicts_with = "machine")]
    plain: Option<String>,
    /// CPUs of a plain guest.
    #[arg(long, default_value_t = 4, value_parser = clap::value_parser!(u32).range(1..=64), requires = "plain")]
    cpus: u32,
    /// Kernel: `newest`, or the beginning of a version such as 7.0, both of the cloud flavour; or
    /// `generic`, or 7.0-generic.
    #[arg(long, default_value = "newest")]
    kernel: KernelChoice,
    /// Host file or folder to put into the guest.
    #[arg(long = "file", value_name = "HOST:GUEST", value_parser = guest_file)]
    files: Vec<GuestFile>,
    /// Debian package to put into the guest, with what it needs.
    #[arg(long = "package", value_name = "PACKAGE")]
    packages: Vec<String>,
    /// Let the kernel set the clocks of the core types, as on a board with frequency scaling; takes
    /// the generic flavour of the newest kernel.
    #[arg(long, conflicts_with = "plain")]
    dvfs: bool,
    /// Argument for the model plugin.
    #[arg(long = "plugin-arg", value_name = "KEY=VALUE", value_parser = key_value, conflicts_with = "plain")]
    plugin_args: Vec<String>,
}

#[derive(Args, Debug)]
struct RunArgs {
    #[command(flatten)]
    guest: GuestArgs,
    /// Guest file or folder to bring back.
    #[arg(long, value_name = "GUEST_PATH", value_parser = guest_path)]
    collect: Vec<String>,
    /// Folder for collected files (under their guest paths) and `kernel.log`.
    #[arg(long, value_name = "DIR", default_value = "board-out")]
    out: PathBuf,
    /// Longest time in host seconds.
    #[arg(long, value_name = "S", default_value_t = 1800)]
    timeout: u64,
    /// Longest time without console output, in host seconds.
    #[arg(long, value_name = "S", default_value_t = 600)]
    silence: u64,
    /// Show what kernel and firmware print, too.
    #[arg(long, short)]
    verbose: bool,
    /// Command line for the guest's shell instead of a script.
    #[arg(short = 'c', value_name = "CMD", conflicts_with = "script", num_args = 1..)]
    command: Vec<String>,
    /// Script to run.
    #[arg(required_unless_present = "command")]
    script: Option<PathBuf>,
}

#[derive(Args, Debug)]
struct FetchArgs {
    /// Kernel to fetch beside the newest of both architectures, for both.
    #[arg(long = "kernel", value_name = "VERSION")]
    kernels: Vec<KernelChoice>,
    /// Package to fetch for the arm64 guest.
    #[arg(long = "package", value_name = "PACKAGE")]
    packages: Vec<String>,
    /// Build published scx schedulers for `bench`, and nothing else: all that are known, or those
    /// of a list of NAME or NAME@VERSION.
    #[arg(long, value_name = "LIST", num_args = 0..=1, require_equals = true, default_missing_value = "")]
    peers: Option<String>,
    /// Ask the archive again for what is in the cache, and mend what is damaged there; build peers
    /// again.
    #[arg(long)]
    refresh: bool,
    /// Mirror of Debian's archive to fetch from, now and later, such as
    /// `http://MIRROR/debian`; `none` forgets it. Without one, the mirror of this machine's apt
    /// sources. SCX_AMP_MIRROR names one, too.
    #[arg(long, value_name = "URL", conflicts_with = "peers")]
    mirror: Option<String>,
    /// Debian release to fetch from that mirror, such as `trixie`, in place of its stable one.
    #[arg(long, value_name = "NAME", requires = "mirror")]
    suite: Option<String>,
    /// Read everything in the cache, fetch again what is damaged, and nothing else.
    #[arg(long, conflicts_with_all = ["kernels", "packages", "peers", "refresh", "mirror"])]
    check: bool,
}

fn guest_file(text: &str) -> Result<GuestFile, String> {
    let (host, guest) = text.split_once(':').ok_or("want HOST:GUEST")?;
    if host.is_empty() {
        return Err("want HOST:GUEST, a file or folder before the colon".into());
    }
    Ok(GuestFile::host(host, guest_path(guest)?))
}

fn guest_path(text: &str) -> Result<String, String> {
    let absolute = text.starts_with('/') && text.split('/').all(|part| part != "..");
    match absolute {
        true => Ok(text.into()),
        false => Err(format!(
            "guest path `{text}`: must be absolute and free of `..`"
        )),
    }
}

fn key_value(text: &str) -> Result<String, String> {
    match text.split_once('=') {
        Some((key, _)) if !key.is_empty() => Ok(text.into()),
        _ => Err("want KEY=VALUE".into()),
    }
}

/// Runs `scx_amp board`.
///
/// # Errors
/// Never for what the board reports (that goes to standard error, see the exit status above), only
/// for what the command itself cannot read or write.
pub fn main(args: BoardArgs) -> Result<ExitCode> {
    let cancel = Arc::new(AtomicBool::new(false));
    let flag = cancel.clone();
    // A second handler is refused: then the program has its own and ends by itself.
    let _ = ctrlc::set_handler(move || flag.store(true, Ordering::Relaxed));
    let has_guest = matches!(args.command, BoardCommand::Run(_) | BoardCommand::Shell(_));
    let done = match args.command {
        BoardCommand::Run(a) => run(&a, &cancel),
        BoardCommand::Shell(a) => shell(&a, &cancel),
        BoardCommand::List => list(),
        BoardCommand::Fetch(a) => fetch_all(&a, &cancel),
    };
    match done {
        Err(e) => match e.downcast_ref::<BoardError>() {
            Some(board) => {
                amp_host::tell(&format!("scx_amp board: {board}"));
                Ok(ExitCode::from(status_of(board, has_guest)))
            }
            None => Err(e),
        },
        ok => ok,
    }
}

fn status_of(e: &BoardError, has_guest: bool) -> u8 {
    match e {
        BoardError::Cancelled => 130,
        BoardError::GuestHung { .. } => 124,
        BoardError::Machine(_)
        | BoardError::MachineUnfit { .. }
        | BoardError::GuestPath { .. }
        | BoardError::HostFile { .. }
        | BoardError::NoKernel { .. }
        | BoardError::Peers { .. }
        | BoardError::KernelCannotLoad { .. }
        | BoardError::NoFrequencyScaling { .. }
        | BoardError::NoMirror
        | BoardError::Mirror { .. }
        | BoardError::NoSuchPackage { .. } => 2,
        _ if has_guest => 125,
        _ => 1,
    }
}

fn request(a: &GuestArgs, script: String, cache: &Cache) -> Result<Run> {
    let guest = match &a.plain {
        Some(_) => Guest::PlainX86 {
            cpus: a.cpus,
            sockets: 1,
            threads: 1,
            memory_mib: 2048,
        },
        None => Guest::amp(&a.machine)?,
    };
    let arch = guest.arch();
    let mut run = Run::new(guest, script);
    run.kernel = a.kernel.clone();
    run.packages = a.packages.clone();
    run.dvfs = a.dvfs;
    run.plugin_args = a.plugin_args.clone();
    // On the command line our programs are a convenience, not a demand: a script may not need them.
    run.binaries
        .retain(|b| artifacts::guest_binary(cache, arch, b).is_ok());
    run.files.extend(a.files.iter().cloned());
    Ok(run)
}

fn run(a: &RunArgs, cancel: &AtomicBool) -> Result<ExitCode> {
    let script = match &a.script {
        Some(path) => match amp_machine::read_text(path) {
            Ok((text, _)) => text,
            Err(source) => {
                let path = path.clone();
                return Err(BoardError::HostFile { path, source }.into());
            }
        },
        None => format!("{}\n", a.command.join(" ")),
    };
    let cache = Cache::open()?;
    let mut run = request(&a.guest, script, &cache)?;
    run.collect = a.collect.clone();
    run.limits.total = Some(Duration::from_secs(a.timeout));
    run.limits.silence = Some(Duration::from_secs(a.silence));
    let mut view = View::new(a.verbose);
    let outcome = run.execute(&cache, cancel, &mut |e| view.show(e));
    view.clear();
    let outcome = outcome?;
    if !outcome.files.is_empty() {
        for (path, data) in &outcome.files {
            save(&a.out, path, data)?;
        }
        save(&a.out, "kernel.log", outcome.kernel_log.as_bytes())?;
        let n = outcome.files.len();
        amp_host::tell(&format!("{n} files in {}", a.out.display()));
    }
    for path in &outcome.missing {
        amp_host::tell(&format!("scx_amp board: nothing to collect at {path}"));
    }
    Ok(ExitCode::from(
        u8::try_from(outcome.exit_code).unwrap_or(255),
    ))
}

fn save(dir: &Path, guest: &str, data: &[u8]) -> Result<()> {
    // The guest chose the names: nothing may land outside of the folder.
    let safe: PathBuf = guest
        .split('/')
        .filter(|p| !["", ".", ".."].contains(p))
        .collect();
    let path = dir.join(safe);
    let write = || {
        if let Some(parent) = path.parent() {
            std::fs::create_dir_all(parent)?;
        }
        std::fs::write(&path, data)
    };
    write().with_context(|| format!("cannot write {}", path.display()))
}

fn shell(a: &GuestArgs, cancel: &AtomicBool) -> Result<ExitCode> {
    let cache = Cache::open()?;
    let run = request(a, String::new(), &cache)?;
    let mut view = View::new(false);
    let shell = run.shell(&cache, cancel, &mut |e| view.show(e));
    // From here on the guest has the terminal.
    view.clear();
    let code = shell?.interact(cancel)?;
    Ok(ExitCode::from(u8::try_from(code).unwrap_or(255)))
}

fn fetch_all(a: &FetchArgs, cancel: &AtomicBool) -> Result<ExitCode> {
    let cache = Cache::open()?;
    let mut view = View::new(false);
    if let Some(list) = &a.peers {
        let done = build_peers(&cache, list, a.refresh, cancel, &mut view);
        view.clear();
        return done;
    }
    if a.check {
        let done = fetch::check(&cache, &Host::default(), cancel, &mut |e| view.show(e));
        view.clear();
        let done = done?;
        for line in &done.whole {
            amp_host::print(&format!("{line}: whole\n"))?;
        }
        for line in &done.damaged {
            amp_host::tell(&format!("scx_amp board: {line}"));
        }
        return Ok(ExitCode::from(u8::from(!done.damaged.is_empty())));
    }
    let wanted = fetch::Wanted {
        kernels: a.kernels.clone(),
        packages: a.packages.clone(),
        care: match a.refresh {
            true => Care::Refresh,
            false => Care::Usual,
        },
    };
    let mut host = Host::default();
    if let Some(uri) = &a.mirror {
        host.mirror = Some(Mirror {
            uri: uri.clone(),
            suite: a.suite.clone(),
        });
    }
    let done = fetch::everything(&cache, &host, &wanted, cancel, &mut |e| view.show(e));
    view.clear();
    for line in done? {
        amp_host::print(&format!("{line}\n"))?;
    }
    Ok(ExitCode::SUCCESS)
}

/// Builds the peers of `list`; one that does not build does not keep the others from it.
fn build_peers(
    cache: &Cache,
    list: &str,
    again: bool,
    cancel: &AtomicBool,
    view: &mut View,
) -> Result<ExitCode> {
    let mut status = ExitCode::SUCCESS;
    for peer in peers::parse(list)? {
        let name = format!("{} {}", peer.crate_name(), peer.version);
        match peers::build(cache, &peer, again, cancel, &mut |e| view.show(e)) {
            Ok(true) => view.say(&format!("peer {name}: built")),
            Ok(false) => view.say(&format!("peer {name}: there already")),
            Err(e @ BoardError::PeerBuild { .. }) => {
                view.complain(&format!("scx_amp board: {e}"));
                status = ExitCode::from(1);
            }
            Err(e) => return Err(e.into()),
        }
    }
    Ok(status)
}

fn list() -> Result<ExitCode> {
    let text = inventory(&Cache::open()?)?;
    // A reader that has seen enough (`| head`) is no failure.
    let _ = std::io::stdout().lock().write_all(text.as_bytes());
    Ok(ExitCode::SUCCESS)
}

/// Machines, and content of the cache, a line each.
fn inventory(cache: &Cache) -> Result<String, std::fmt::Error> {
    use std::fmt::Write;
    let mut out = String::new();
    writeln!(out, "cache     {}", cache.root().display())?;
    for name in amp_machine::SHIPPED {
        match amp_machine::MachineFile::load(name) {
            Ok(m) => {
                let types: Vec<String> = m
                    .core_types
                    .iter()
                    .map(|t| format!("{} {}", t.cpus.0.len(), t.name))
                    .collect();
                let where_ = if m.board.is_some() {
                    ""
                } else {
                    " (simulator only)"
                };
                writeln!(out, "machine   {name}: {}{where_}", types.join(" + "))?;
            }
            Err(e) => writeln!(out, "machine   {name}: {e}")?,
        }
    }
    match qemu::cached(cache) {
        Some(q) => writeln!(out, "qemu      {}", q.version)?,
        None => writeln!(out, "qemu      none yet (`scx_amp board fetch`)")?,
    }
    for arch in [Arch::Arm64, Arch::Amd64] {
        for k in kernel::cached(cache, arch) {
            let verdict = match &k.refused {
                None => "loads sched_ext".to_string(),
                Some(why) => format!("REFUSED: {why}"),
            };
            writeln!(
                out,
                "kernel    {} ({arch}, {}): {verdict}",
                k.release, k.suite
            )?;
        }
        for p in packages::cached(cache, arch) {
            writeln!(
                out,
                "packages  {} ({arch}): {}",
                p.requested.join(" "),
                p.contents.join(", ")
            )?;
        }
        for name in [artifacts::AGENT, "scx_amp", "amp-workload"] {
            match artifacts::guest_binary(cache, arch, name) {
                Ok(p) => writeln!(out, "binary    {name} ({arch}): {}", p.display())?,
                Err(_) => writeln!(
                    out,
                    "binary    {name} ({arch}): not built ({})",
                    artifacts::BUILD
                )?,
            }
        }
    }
    let built = peers::built(cache);
    for p in &built {
        let notes = p
            .notes
            .as_deref()
            .map_or(String::new(), |n| format!(": {n}"));
        writeln!(out, "peer      {} {}{notes}", p.crate_name(), p.version)?;
    }
    let missing: Vec<String> = peers::shipped()
        .unwrap_or_default()
        .into_iter()
        .filter(|p| !built.iter().any(|b| b.name == p.name))
        .map(|p| p.name)
        .collect();
    if !missing.is_empty() {
        writeln!(
            out,
            "peers     not built: {} (`scx_amp board fetch --peers`)",
            missing.join(", ")
        )?;
    }
    match artifacts::plugin(cache) {
        Ok(p) => writeln!(out, "plugin    {}", p.display())?,
        Err(_) => writeln!(out, "plugin    not built ({})", artifacts::BUILD)?,
    }
    Ok(out)
}

/// Shows events: a progress line on a terminal, script output on standard output.
struct View {
    bar: Option<ProgressBar>,
    verbose: bool,
}

impl View {
    fn new(verbose: bool) -> View {
        let bar = std::io::stderr().is_terminal().then(|| {
            let bar = ProgressBar::new_spinner();
            if let Ok(style) = ProgressStyle::with_template("{spinner} {msg} [{elapsed}]") {
                bar.set_style(style);
            }
            bar.enable_steady_tick(Duration::from_millis(120));
            bar
        });
        View { bar, verbose }
    }

    fn clear(&mut self) {
        if let Some(bar) = self.bar.take() {
            bar.finish_and_clear();
        }
    }

    /// A line for standard output.
    fn say(&self, line: &str) {
        match &self.bar {
            Some(bar) => bar.suspend(|| self.print(line)),
            None => self.print(line),
        }
    }

    fn print(&self, line: &str) {
        if let Err(e) = amp_host::print(&format!("{line}\n")) {
            amp_host::tell(&format!("{line}: {e:#}"));
        }
    }

    /// A line for standard error.
    fn complain(&self, line: &str) {
        match &self.bar {
            Some(bar) => bar.suspend(|| amp_host::tell(line)),
            None => amp_host::tell(line),
        }
    }

    fn show(&mut self, event: Event) {
        match event {
            Event::Progress { what, percent } => {
                if let Some(bar) = &self.bar {
                    bar.set_message(match percent {
                        Some(p) => format!("{what}: {p} %"),
                        None => what,
                    });
                }
            }
            Event::Note(text) => match &self.bar {
                Some(bar) => bar.println(text),
                None if self.verbose => amp_host::tell(&text),
                None => {}
            },
            Event::Warning(text) => self.complain(&format!("scx_amp board: {text}")),
            Event::Console { line, from } => {
                // From here on the guest has the terminal.
                self.clear();
                if from == Origin::Script {
                    let mut out = std::io::stdout().lock();
                    // A closed pipe must not end the guest half way: its results still count.
                    let _ = writeln!(out, "{line}").and_then(|()| out.flush());
                } else if self.verbose {
                    amp_host::tell(&line);
                }
            }
        }
    }
}
