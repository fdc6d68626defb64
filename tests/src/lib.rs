//! What the end-to-end tests share: guests, what they print, and our own command.
//!
//! One board more runs at a time than this machine has cores: a board keeps less than one of them
//! busy. A guest whose clock is this machine's counts as two.
#![forbid(unsafe_code)]

pub mod spun;

use amp_board::{
    artifacts, Arch, BoardError, Cache, Content, Event, Guest, GuestFile, KernelChoice, Origin,
    Outcome, Run,
};
use amp_machine::MachineFile;
use amp_workloads::catalogue::Needs;
use serde_json::Value;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Condvar, Mutex, PoisonError};

/// Shell functions that every script has.
const FUNCTIONS: &str = r#"
# waits until a scheduler that is enabled answers: it listens a moment later
answers() { i=0; until scx_amp ctl status >/dev/null 2>&1 || [ $i -ge 300 ]; do i=$((i+1)); sleep 0.1; done; }
"#;

/// Permits that are taken now.
static GUESTS: Mutex<usize> = Mutex::new(0);
static GUEST_GONE: Condvar = Condvar::new();

/// Leave to run guests, given back when dropped.
struct Permit(usize);

/// What a guest keeps busy.
#[derive(Clone, Copy)]
enum Load {
    /// A board, which has a clock of its own.
    Board,
    /// A guest with this machine's clock.
    Clock,
    /// All that there is.
    Everything,
}

impl Permit {
    /// Waits for leave to run a guest.
    fn take(load: Load) -> Permit {
        let cores = std::thread::available_parallelism().map_or(2, usize::from);
        let all = cores + 1;
        let taken = match load {
            Load::Board => 1,
            Load::Clock => 2,
            Load::Everything => all,
        };
        let guests = GUESTS.lock().unwrap_or_else(PoisonError::into_inner);
        let mut guests = GUEST_GONE
            .wait_while(guests, |g| *g + taken > all)
            .unwrap_or_else(PoisonError::into_inner);
        *guests += taken;
        Permit(taken)
    }
}

impl Drop for Permit {
    fn drop(&mut self) {
        *GUESTS.lock().unwrap_or_else(PoisonError::into_inner) -= self.0;
        GUEST_GONE.notify_all();
    }
}

/// A guest to be.
pub struct Lab {
    run: Run,
    /// The machine's file, if it is none of the shipped ones: there as long as the guest.
    machine: Option<tempfile::TempDir>,
    alone: bool,
    show: fn(&str),
}

/// Shows a line of the guest with the test's output.
fn beside_the_test(line: &str) {
    println!("guest: {line}");
}

/// The kernel of tests that name none: the newest, or what `SCX_AMP_KERNEL` says. With an older
/// one, a test tells whether it fails because of a new kernel.
fn usual_kernel() -> KernelChoice {
    match std::env::var("SCX_AMP_KERNEL") {
        Ok(wanted) => wanted.parse().expect("SCX_AMP_KERNEL"),
        Err(_) => KernelChoice::Newest,
    }
}

impl Lab {
    /// The board as machine `name`, a shipped one or a file.
    ///
    /// # Panics
    /// When there is no such machine.
    pub fn board(name: &str) -> Lab {
        let mut run = Run::new(Guest::amp(name).expect("a machine"), "");
        run.kernel = usual_kernel();
        Lab {
            run,
            machine: None,
            alone: false,
            show: beside_the_test,
        }
    }

    /// The board with one big and one little core of juno, see [`Lab::part_of_juno`].
    ///
    /// # Panics
    /// When juno's file cannot be read, or this one not be written.
    pub fn pair() -> Lab {
        Lab::part_of_juno(["0", "1"])
    }

    /// The board with `cpus` as juno's big and little cores: juno's models are for them, and every busy CPU costs this
    /// machine time.
    ///
    /// # Panics
    /// When juno's file cannot be read, or this one not be written.
    pub fn part_of_juno(cpus: [&str; 2]) -> Lab {
        Lab::changed_juno(cpus, &[])
    }

    /// The same with each of these texts in juno's file, once there, replaced by the other.
    ///
    /// # Panics
    /// When juno's file cannot be read or does not have the text, or this one not be written.
    pub fn changed_juno(cpus: [&str; 2], changes: &[(String, String)]) -> Lab {
        let juno = repository().join("tools/machine/machines/juno.toml");
        let text = std::fs::read_to_string(&juno).expect("juno's machine file");
        let mut part = text.clone();
        let machine = MachineFile::parse(&juno, &text).expect("juno's machine file");
        for (cpus, core_type) in cpus.iter().zip(&machine.core_types) {
            part = part.replacen(
                &format!("cpus = \"{}\"", core_type.cpus),
                &format!("cpus = \"{cpus}\""),
                1,
            );
        }
        for (from, to) in changes {
            assert_eq!(part.matches(from).count(), 1, "`{from}` in juno's file");
            part = part.replacen(from, to, 1);
        }
        let dir = tempfile::tempdir().expect("a folder for a machine file");
        let path = dir.path().join("part-of-juno.toml");
        std::fs::write(&path, part).expect("a machine file");
        let mut lab = Lab::board(path.to_str().expect("a path in UTF-8"));
        lab.machine = Some(dir);
        lab
    }

    /// A stock x86_64 guest with four CPUs; `SCX_AMP_KERNEL` takes the place of the newest kernel.
    pub fn x86(kernel: KernelChoice) -> Lab {
        let mut run = Run::new(
            Guest::PlainX86 {
                cpus: 4,
                sockets: 1,
                threads: 1,
                memory_mib: 2048,
            },
            "",
        );
        run.kernel = match kernel {
            KernelChoice::Newest => usual_kernel(),
            other => other,
        };
        Lab {
            run,
            machine: None,
            alone: false,
            show: beside_the_test,
        }
    }

    /// The same with `sockets` times `cores` CPUs of one thread each; every socket has a last-level
    /// cache of its own.
    pub fn x86_sockets(kernel: KernelChoice, sockets: u32, cores: u32) -> Lab {
        Lab::x86_with(kernel, sockets, cores, 1)
    }

    /// The same with `threads` CPUs per core.
    pub fn x86_with(kernel: KernelChoice, sockets: u32, cores: u32, threads: u32) -> Lab {
        let mut lab = Lab::x86(kernel);
        lab.run.guest = Guest::PlainX86 {
            cpus: sockets * cores * threads,
            sockets,
            threads,
            memory_mib: 2048,
        };
        lab
    }

    /// Runs while no other guest does.
    #[must_use]
    pub fn alone(mut self) -> Lab {
        self.alone = true;
        self
    }

    /// Puts `text` at `path` in the guest.
    #[must_use]
    pub fn file(mut self, path: &str, text: &str) -> Lab {
        self.run.files.push(GuestFile::bytes(text.as_bytes(), path));
        self
    }

    /// Puts `text` at `path` in the guest, as a program.
    #[must_use]
    pub fn program_text(mut self, path: &str, text: &str) -> Lab {
        let content = Content::Bytes(text.into(), 0o755);
        let guest = path.into();
        self.run.files.push(GuestFile { guest, content });
        self
    }

    /// Puts the file `from` of this machine at `path` in the guest.
    #[must_use]
    pub fn host_file(mut self, path: &str, from: &Path) -> Lab {
        self.run.files.push(GuestFile::host(from, path));
        self
    }

    /// Leaves out our programs, which every guest has in `/usr/local/bin`.
    #[must_use]
    pub fn without_programs(mut self) -> Lab {
        self.run.binaries.clear();
        self
    }

    /// Gives the guest an empty disk, `/dev/nvme0n1`, and lets it restart itself.
    #[must_use]
    pub fn disk(mut self, mib: u32) -> Lab {
        self.run.disk_mib = Some(mib);
        self
    }

    /// Installs what programs of the catalogue need.
    #[must_use]
    pub fn needs(mut self, needs: &Needs) -> Lab {
        let packages = needs.packages.iter().chain(&needs.data_packages);
        self.run.packages.extend(packages.cloned());
        self
    }

    /// Installs a Debian package.
    #[must_use]
    pub fn package(mut self, name: &str) -> Lab {
        self.run.packages.push(name.into());
        self
    }

    /// For a measurement: it may take as long as it does, and what the guest prints is shown as
    /// progress, not among results.
    #[must_use]
    pub fn measurement(mut self) -> Lab {
        self.run.limits.total = None;
        self.show = |line| {
            let short: String = line.chars().take(78).collect();
            eprintln!("{short}");
        };
        self
    }

    /// Gives the model's plugin an argument, `key=value`.
    #[must_use]
    pub fn plugin_argument(mut self, argument: &str) -> Lab {
        self.run.plugin_args.push(argument.into());
        self
    }

    /// Lets the guest's kernel set the clocks; it is of the generic flavour then, of the same version.
    #[must_use]
    pub fn dvfs(mut self) -> Lab {
        self.run.kernel = match self.run.kernel {
            KernelChoice::Version(v) => KernelChoice::Generic(v.replace("-cloud-", "-")),
            KernelChoice::Newest => KernelChoice::NewestGeneric,
            generic => generic,
        };
        self.run.dvfs = true;
        self
    }

    /// Brings the file at `path` back from the guest, see [`Reply::file`].
    #[must_use]
    pub fn collect(mut self, path: &str) -> Lab {
        self.run.collect.push(path.into());
        self
    }

    /// Puts our program `name`, which is none of those that every guest has, at `/name` in the
    /// guest.
    ///
    /// # Panics
    /// When it has not been built.
    #[must_use]
    pub fn program(mut self, name: &str) -> Lab {
        let cache = Cache::open().expect("the cache folder");
        let path = artifacts::guest_binary(&cache, self.run.guest.arch(), name);
        let path = path.expect("tools/setup/build.sh builds it");
        self.run
            .files
            .push(GuestFile::host(path, format!("/{name}")));
        self
    }

    /// Runs `script` and returns what came back. Its output is shown with the test's. In the script
    /// `answers` waits until the scheduler answers.
    ///
    /// # Panics
    /// When the guest could not run it to its end.
    pub fn run(mut self, script: &str) -> Reply {
        amp_skips::tell_failures();
        let _permit = Permit::take(match self.run.guest {
            _ if self.alone => Load::Everything,
            Guest::PlainX86 { .. } => Load::Clock,
            _ => Load::Board,
        });
        self.run.script = format!("{FUNCTIONS}{script}");
        let cache = Cache::open().expect("the cache folder");
        let mut boot = 1;
        loop {
            let mut patched = false;
            let outcome = self.run.execute(&cache, &AtomicBool::new(false), &mut |e| {
                let Event::Console { line, from } = e else {
                    return;
                };
                patched |= line.contains(PATCHED);
                if from == Origin::Script {
                    (self.show)(&line);
                }
            });
            match outcome {
                Err(BoardError::GuestPanic { message, .. }) if patched && boot < BOOTS => {
                    amp_skips::booted_again(&format!("{PATCHED}; {message}"));
                    boot += 1;
                }
                Err(e) => panic!("{e}"),
                Ok(outcome) => {
                    amp_skips::guest_ran(outcome.host_seconds);
                    return Reply(outcome);
                }
            }
        }
    }
}

/// How a guest's x86_64 kernel dies when one CPU executes code that another one is patching. The
/// kernel looks at such a breakpoint and goes on if the place is being patched; in a guest of
/// several emulated CPUs it seems to look too late. Seen when schedulers are loaded and unloaded, in
/// `__schedule` and `scx_tick`, on CPUs that idle; that the emulation is at fault is a guess. Any other
/// end of a kernel is a failure.
const PATCHED: &str = "Oops: int3";
/// Boots before a guest that dies so is a failure, too.
const BOOTS: usize = 3;

/// What a guest's script left.
pub struct Reply(pub Outcome);

impl Reply {
    /// The JSON objects among the lines it printed.
    pub fn json(&self) -> Vec<Value> {
        self.0
            .console
            .lines()
            .filter_map(|l| serde_json::from_str(l.trim()).ok())
            .collect()
    }

    /// The text of a file that was collected.
    ///
    /// # Panics
    /// When there is none.
    pub fn file(&self, path: &str) -> String {
        let data = self.0.files.get(path);
        let data = data.unwrap_or_else(|| panic!("no {path} came back"));
        String::from_utf8_lossy(data).into_owned()
    }

    /// What it printed behind `key` and a blank, line by line.
    pub fn lines<'a>(&'a self, key: &'a str) -> impl Iterator<Item = &'a str> {
        self.0
            .console
            .lines()
            .filter_map(move |l| l.trim().strip_prefix(key)?.strip_prefix(' '))
            .map(str::trim)
    }

    /// What `amp-workload --json` said behind `key` that it took, in nanoseconds, run by run.
    ///
    /// # Panics
    /// When a line is none of its.
    pub fn wall_times(&self, key: &str) -> Vec<f64> {
        let of = |line: &str| {
            let said: Value = serde_json::from_str(line).expect("JSON of amp-workload");
            said["wall_ns"].as_f64().expect("a time")
        };
        self.lines(key).map(of).collect()
    }

    /// The only line behind `key`.
    ///
    /// # Panics
    /// When there is none, or more than one.
    pub fn line<'a>(&'a self, key: &'a str) -> &'a str {
        let all: Vec<&str> = self.lines(key).collect();
        assert_eq!(
            all.len(),
            1,
            "lines that begin with `{key}` in:\n{}",
            self.0.console
        );
        all[0]
    }

    /// The script ended well.
    ///
    /// # Panics
    /// When it did not.
    #[must_use]
    pub fn ok(self) -> Reply {
        assert_eq!(
            self.0.exit_code, 0,
            "the script failed:\n{}",
            self.0.console
        );
        self
    }
}

/// Our own command, as built for this machine.
///
/// # Panics
/// When it has not been built.
pub fn scx_amp() -> PathBuf {
    let cache = Cache::open().expect("the cache folder");
    let path = artifacts::guest_binary(&cache, Arch::host(), "scx_amp");
    path.expect("tools/setup/build.sh builds it")
}

/// Runs our command on this machine, which may run a guest.
///
/// # Panics
/// When it cannot be started.
pub fn command(args: &[&str]) -> Output {
    amp_skips::tell_failures();
    let _permit = Permit::take(Load::Board);
    Command::new(scx_amp())
        .args(args)
        .output()
        .expect("our command")
}

/// The repository's folder.
pub fn repository() -> PathBuf {
    let here = PathBuf::from(env!("CARGO_MANIFEST_DIR"));
    here.parent().map_or(here.clone(), PathBuf::from)
}

/// The folder of the crate `name` that the workspace depends on, where cargo keeps it.
///
/// # Panics
/// When cargo does not know it.
pub fn dependency(name: &str) -> PathBuf {
    let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    // of crates for other systems nothing is here where they were never built
    let here = format!("{}-unknown-linux-gnu", std::env::consts::ARCH);
    let out = Command::new(cargo)
        .args(["metadata", "--format-version", "1", "--locked", "--offline"])
        .args(["--filter-platform", &here])
        .current_dir(repository())
        .output()
        .expect("cargo metadata");
    let metadata: Value = serde_json::from_slice(&out.stdout).expect("JSON of cargo metadata");
    let packages = metadata["packages"].as_array().expect("packages");
    let manifest = packages
        .iter()
        .find(|p| p["name"] == name)
        .and_then(|p| p["manifest_path"].as_str());
    let folder = manifest.and_then(|m| Path::new(m).parent());
    folder.expect("a crate of that name").to_owned()
}

/// Keeps every core of this machine busy until it is dropped.
pub struct HostLoad {
    stop: std::sync::Arc<AtomicBool>,
    threads: Vec<std::thread::JoinHandle<()>>,
}

impl HostLoad {
    /// One busy thread per core.
    pub fn start() -> HostLoad {
        let stop = std::sync::Arc::new(AtomicBool::new(false));
        let cores = std::thread::available_parallelism().map_or(2, usize::from);
        let busy = |_| {
            let stop = stop.clone();
            std::thread::spawn(move || while !stop.load(Ordering::Relaxed) {})
        };
        HostLoad {
            threads: (0..cores).map(busy).collect(),
            stop,
        }
    }
}

impl Drop for HostLoad {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        for t in self.threads.drain(..) {
            // the loop cannot panic
            let _ = t.join();
        }
    }
}

/// Standard deviation over mean.
///
/// # Panics
/// With fewer than two values.
pub fn coefficient_of_variation(values: &[f64]) -> f64 {
    assert!(values.len() > 1, "one value has no deviation");
    let n = values.len() as f64;
    let mean = values.iter().sum::<f64>() / n;
    let variance = values.iter().map(|v| (v - mean).powi(2)).sum::<f64>() / (n - 1.0);
    variance.sqrt() / mean
}
