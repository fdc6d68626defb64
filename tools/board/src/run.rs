//! One run on the board: what is to run, and what came back.

use crate::arch::Arch;
use crate::archive::Host;
use crate::artifacts;
use crate::cache::{Cache, Staging};
use crate::child;
use crate::devicetree;
use crate::error::BoardError;
use crate::event::{progress, Event, Sink};
use crate::initramfs::{Builder, GuestFile};
use crate::job::{self, Job};
use crate::kernel::{self, Kernel, KernelChoice};
use crate::mailbox::{self, Header};
use crate::packages::{self, PackageSet};
use crate::qemu::{self, Qemu};
use crate::seal::Care;
pub use crate::session::Limits;
use crate::session::{follow, interact};
use amp_machine::{page, MachineFile};
use std::collections::BTreeMap;
use std::ffi::OsString;
use std::fs::{self, File};
use std::io::Read;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::atomic::AtomicBool;
use std::time::Instant;

/// The machine that is to run the script.
#[derive(Clone, Debug)]
pub enum Guest {
    /// The virtual AMP board. Made by [`Guest::amp`].
    Amp {
        /// The machine.
        machine: MachineFile,
        /// What the plugin loads it from: a shipped name or an absolute path.
        source: String,
    },
    /// A stock x86_64 machine without the model, for functional tests.
    PlainX86 {
        /// Number of CPUs.
        cpus: u32,
        /// Sockets that they are spread over, each with a last-level cache of its own.
        sockets: u32,
        /// Hardware threads per core.
        threads: u32,
        /// Memory in MiB.
        memory_mib: u32,
    },
}

impl Guest {
    /// The board as a shipped machine or a machine file says.
    ///
    /// # Errors
    /// When it cannot be read or does not suit the board.
    pub fn amp(name_or_path: &str) -> Result<Guest, BoardError> {
        let machine = MachineFile::load(name_or_path)?;
        devicetree::check(&machine)?;
        // QEMU's plugin loads it again: a relative path must not depend on its folder.
        let source = match Path::new(name_or_path).canonicalize() {
            Ok(path) if path.is_file() => path.display().to_string(),
            _ => name_or_path.to_string(),
        };
        Ok(Guest::Amp { machine, source })
    }

    /// Its architecture.
    pub fn arch(&self) -> Arch {
        match self {
            Guest::Amp { .. } => Arch::Arm64,
            Guest::PlainX86 { .. } => Arch::Amd64,
        }
    }
}

/// What is to run.
#[derive(Clone, Debug)]
pub struct Run {
    /// The machine.
    pub guest: Guest,
    /// The kernel.
    pub kernel: KernelChoice,
    /// Shell script for the guest.
    pub script: String,
    /// Files for the guest.
    pub files: Vec<GuestFile>,
    /// Debian packages for the guest, with their dependencies.
    pub packages: Vec<String>,
    /// Our own programs for the guest, put into `/usr/local/bin`: `scx_amp`, `amp-workload`.
    pub binaries: Vec<String>,
    /// Guest paths to hand back.
    pub collect: Vec<String>,
    /// Size in MiB of an empty disk, the guest's `/dev/nvme0n1`. It lives as long as the run. With
    /// a disk the guest may restart itself, which otherwise ends the run.
    pub disk_mib: Option<u32>,
    /// How long it may take.
    pub limits: Limits,
    /// Whether the guest sets the clocks, between the machine's operating points. Needs a kernel of
    /// the generic flavour, the newest of which is taken for [`KernelChoice::Newest`].
    pub dvfs: bool,
    /// More `key=value` arguments for the plugin.
    pub plugin_args: Vec<String>,
    /// A plugin in place of the built one, with all its arguments (`{machine}` and `{page}` stand
    /// for the paths): for tests of plugins in the making.
    #[doc(hidden)]
    pub other_plugin: Option<(PathBuf, String)>,
}

/// What came back.
#[derive(Clone, Debug)]
pub struct Outcome {
    /// Exit code of the script; 128+n when signal n ended it.
    pub exit_code: i32,
    /// What the script printed.
    pub console: String,
    /// Collected files by guest path (`/tmp/x`).
    pub files: BTreeMap<String, Vec<u8>>,
    /// Guest paths that were to be collected and did not exist.
    pub missing: Vec<String>,
    /// The guest's kernel log.
    pub kernel_log: String,
    /// The kernel it ran on.
    pub kernel: Kernel,
    /// The QEMU it ran in.
    pub qemu: Qemu,
    /// From the start of QEMU to its end, host seconds.
    pub host_seconds: f64,
}

/// What a guest is given at boot beside kernel, machine and programs, as a number that changes with it:
/// times that were measured before are not those of now. 2: random bytes, no tests of ciphers. 3: no DAMON.
pub const BOOT: u32 = 3;

/// A guest that is ready to boot with a shell on this terminal.
#[derive(Debug)]
pub struct Shell {
    command: Command,
    staging: Staging,
}

impl Shell {
    /// Boots it; returns the shell's exit code after power-off.
    ///
    /// # Errors
    /// When QEMU cannot be started or dies, the guest leaves no result, or `cancel` became true.
    pub fn interact(mut self, cancel: &AtomicBool) -> Result<i32, BoardError> {
        interact(&mut self.command, cancel)?;
        let (header, _) = read_mailbox(&self.staging.path().join("mailbox"), &[])?;
        Ok(header.exit_code)
    }
}

/// Everything a run needs from outside.
struct Parts {
    qemu: Qemu,
    kernel: Kernel,
    agent: PathBuf,
    plugin: Option<PathBuf>,
    base: PackageSet,
    packages: Option<PackageSet>,
}

impl Run {
    /// A run of a script with the newest kernel, our programs, and nothing else.
    pub fn new(guest: Guest, script: impl Into<String>) -> Run {
        Run {
            guest,
            kernel: KernelChoice::Newest,
            script: script.into(),
            files: Vec::new(),
            packages: Vec::new(),
            binaries: vec!["scx_amp".into(), "amp-workload".into()],
            collect: Vec::new(),
            disk_mib: None,
            limits: Limits::default(),
            dvfs: false,
            plugin_args: Vec::new(),
            other_plugin: None,
        }
    }

    /// Fetches what is missing, boots the guest, runs the script, brings the results back.
    ///
    /// # Errors
    /// Anything but the script's own failure, which is `Ok` with its exit code.
    pub fn execute(
        &self,
        cache: &Cache,
        cancel: &AtomicBool,
        sink: &mut Sink<'_>,
    ) -> Result<Outcome, BoardError> {
        let (parts, staging) = self.prepare(cache, false, cancel, sink)?;
        let mut command = self.command(cache, &parts, &staging, cancel)?;
        command.args([
            "-chardev",
            "stdio,id=con,signal=off",
            "-serial",
            "chardev:con",
        ]);
        progress(sink, format!("booting {}", parts.kernel.release), None);
        let start = Instant::now();
        let console = follow(
            &mut command,
            parts.plugin.as_deref(),
            &self.limits,
            cancel,
            sink,
        )?;
        let host_seconds = start.elapsed().as_secs_f64();
        let tail = console.tail();
        let mut outcome = Outcome {
            exit_code: 0,
            console: console.into_script_output(),
            files: BTreeMap::new(),
            missing: Vec::new(),
            kernel_log: String::new(),
            kernel: parts.kernel,
            qemu: parts.qemu,
            host_seconds,
        };
        read_results(&staging.path().join("mailbox"), tail, &mut outcome)?;
        Ok(outcome)
    }

    /// Fetches and builds what a guest with a shell on this terminal needs.
    ///
    /// # Errors
    /// As [`Run::execute`].
    pub fn shell(
        &self,
        cache: &Cache,
        cancel: &AtomicBool,
        sink: &mut Sink<'_>,
    ) -> Result<Shell, BoardError> {
        let (parts, staging) = self.prepare(cache, true, cancel, sink)?;
        let mut command = self.command(cache, &parts, &staging, cancel)?;
        command.args([
            "-chardev",
            "stdio,id=con,signal=off",
            "-serial",
            "chardev:con",
        ]);
        Ok(Shell { command, staging })
    }

    fn prepare(
        &self,
        cache: &Cache,
        interactive: bool,
        cancel: &AtomicBool,
        sink: &mut Sink<'_>,
    ) -> Result<(Parts, Staging), BoardError> {
        let arch = self.guest.arch();
        // What was not built fails before anything is fetched.
        let agent = artifacts::guest_binary(cache, arch, artifacts::AGENT)?;
        let plugin = match (&self.guest, &self.other_plugin) {
            (Guest::PlainX86 { .. }, _) => None,
            (Guest::Amp { .. }, Some((path, _))) => Some(path.clone()),
            (Guest::Amp { .. }, None) => Some(artifacts::plugin(cache)?),
        };
        let mut files = self.files.clone();
        for name in &self.binaries {
            let path = artifacts::guest_binary(cache, arch, name)?;
            files.push(GuestFile::host(path, format!("/usr/local/bin/{name}")));
        }
        let host = Host::default();
        let qemu = qemu::obtain(cache, &host, Care::Usual, cancel, sink)?;
        let choice = match (&self.kernel, self.dvfs) {
            (KernelChoice::Newest, true) => KernelChoice::NewestGeneric,
            (choice, _) => choice.clone(),
        };
        let kernel = kernel::obtain(cache, &host, arch, &choice, Care::Usual, cancel, sink)?;
        if self.dvfs {
            let driver =
                kernel::driver::obtain(cache, &host, arch, &kernel, Care::Usual, cancel, sink)?;
            let name = driver.file_name().unwrap_or_default().to_string_lossy();
            let guest = format!("{}/{name}", job::MODULES);
            files.push(GuestFile::host(&driver, guest));
        }
        let config =
            kernel::config::obtain(cache, &host, arch, &kernel, Care::Usual, cancel, sink)?;
        if let Some(config) = config {
            let guest = format!("/boot/config-{}", kernel.release);
            files.push(GuestFile::host(config, guest));
        }
        let base = packages::obtain_base(cache, &host, arch, Care::Usual, cancel, sink)?;
        let packages = match self.packages.is_empty() {
            true => None,
            false => Some(packages::obtain(
                cache,
                &host,
                arch,
                &self.packages,
                Care::Usual,
                cancel,
                sink,
            )?),
        };
        sink(Event::Note(format!(
            "kernel {} ({}), QEMU {}",
            kernel.release, kernel.suite, qemu.version
        )));
        let parts = Parts {
            qemu,
            kernel,
            agent,
            plugin,
            base,
            packages,
        };
        let staging = cache.staging()?;
        progress(sink, "building the initramfs", None);
        self.initramfs(
            cache,
            &parts,
            &files,
            interactive,
            &staging.path().join("initrd"),
        )?;
        Ok((parts, staging))
    }

    fn initramfs(
        &self,
        cache: &Cache,
        parts: &Parts,
        files: &[GuestFile],
        interactive: bool,
        to: &Path,
    ) -> Result<(), BoardError> {
        let mut b = Builder::create(to)?;
        b.append(&parts.base.archive(cache))?;
        if let Some(set) = &parts.packages {
            b.append(&set.archive(cache))?;
        }
        b.files(&[GuestFile::host(&parts.agent, job::AGENT)])?;
        b.files(files)?;
        b.job(
            &Job {
                interactive,
                collect: self.collect.clone(),
            },
            &self.script,
        )?;
        b.finish()
    }

    fn command(
        &self,
        cache: &Cache,
        parts: &Parts,
        staging: &Staging,
        cancel: &AtomicBool,
    ) -> Result<Command, BoardError> {
        let arch = self.guest.arch();
        let dir = staging.path();
        let mut c = parts.qemu.command(cache, arch);
        c.args(["-name", "amp-board,debug-threads=on", "-nodefaults"]);
        c.args(["-display", "none", "-monitor", "none", "-nic", "none"]);
        c.args(["-accel", "tcg,thread=multi,tb-size=256"]);
        c.arg("-kernel").arg(parts.kernel.image(cache, arch));
        c.arg("-initrd").arg(dir.join("initrd"));
        let mut kernel = String::from("quiet loglevel=1 panic=-1 nokaslr");
        match self.disk_mib {
            // Without a disk, a guest that restarts itself (as it does after a panic) has ended.
            None => _ = c.arg("-no-reboot"),
            Some(mib) => {
                let file = dir.join("disk");
                create_sized(&file, u64::from(mib) << 20)?;
                disk(&mut c, &file);
                // Virtual time may leap while the host is at a request.
                kernel += " nvme_core.io_timeout=4294967";
            }
        }
        match &self.guest {
            Guest::Amp { machine, source } => {
                // Two virtual seconds of a CPU: the kernel's tests of its ciphers, and the names of
                // constants in the formats of trace events.
                kernel += " cryptomgr.notests initcall_blacklist=trace_eval_init";
                // DAMON of 7.3 marks pages as not accessed, now and then. On these cores BPF cannot read such a page.
                kernel += " damon_stat.enabled=N";
                let (board, _) = machine.board_models()?;
                let hardware = ["-cpu", "cortex-a57", "-smp", &machine.nr_cpus().to_string()]
                    .map(String::from)
                    .into_iter()
                    .chain(["-m".into(), board.memory_mib.to_string()])
                    .collect::<Vec<_>>();
                let tree = self.device_tree(cache, parts, dir, machine, &hardware, cancel)?;
                c.args(["-M", "virt,gic-version=3"])
                    .args(&hardware)
                    .arg("-dtb")
                    .arg(tree);
                c.args(["-append", &format!("console=ttyAMA0 {kernel}")]);
                let file = dir.join("page");
                create_sized(&file, page::PAGE_BYTES as u64)?;
                shared_memory(&mut c, "page", &file, page::PAGE_BYTES as u64);
                if let Some(plugin) = &parts.plugin {
                    c.arg("-plugin")
                        .arg(self.plugin_option(plugin, source, &file));
                }
            }
            Guest::PlainX86 {
                cpus,
                sockets,
                threads,
                memory_mib,
            } => {
                c.args(["-M", "q35", "-cpu", "max"]);
                let cores = cpus / (sockets * threads).max(1);
                let smp = format!("{cpus},sockets={sockets},cores={cores},threads={threads}");
                c.args(["-smp", &smp, "-m", &memory_mib.to_string()]);
                // Reading the emulated TSC is cheap and the vCPUs agree on it; the watchdog would
                // fall back on slow ones.
                c.args([
                    "-append",
                    &format!("console=ttyS0 {kernel} tsc=reliable no_timer_check"),
                ]);
            }
        }
        let file = dir.join("mailbox");
        create_sized(&file, mailbox::SIZE as u64)?;
        let head = Header::empty().to_bytes();
        // Not fs::write: it would truncate.
        fs::OpenOptions::new()
            .write(true)
            .open(&file)
            .and_then(|f| std::os::unix::fs::FileExt::write_all_at(&f, &head, 0))
            .map_err(BoardError::cache("write", &file))?;
        shared_memory(&mut c, "mailbox", &file, mailbox::SIZE as u64);
        Ok(c)
    }

    fn plugin_option(&self, plugin: &Path, source: &str, page: &Path) -> OsString {
        let mut option = escaped(plugin.as_os_str().as_bytes());
        let mut add = |text: &[u8]| {
            option.push(b',');
            option.extend(text);
        };
        let page = escaped(page.as_os_str().as_bytes());
        match &self.other_plugin {
            Some((_, args)) => {
                let page = String::from_utf8_lossy(&page).into_owned();
                add(args
                    .replace("{machine}", source)
                    .replace("{page}", &page)
                    .as_bytes());
            }
            None => {
                add(&[b"machine=".to_vec(), escaped(source.as_bytes())].concat());
                add(&[b"page=".to_vec(), page].concat());
                add(b"quick-boot=on");
                if self.dvfs {
                    add(b"dvfs=on");
                }
                for a in &self.plugin_args {
                    add(&escaped(a.as_bytes()));
                }
            }
        }
        OsString::from_vec(option)
    }

    fn device_tree(
        &self,
        cache: &Cache,
        parts: &Parts,
        dir: &Path,
        machine: &MachineFile,
        hardware: &[String],
        cancel: &AtomicBool,
    ) -> Result<PathBuf, BoardError> {
        let raw = dir.join("virt.dtb");
        let mut c = parts.qemu.command(cache, Arch::Arm64);
        let mut option = b"virt,gic-version=3,dtb-randomness=off,dumpdtb=".to_vec();
        option.extend(escaped(raw.as_os_str().as_bytes()));
        c.arg("-M").arg(OsString::from_vec(option)).args(hardware);
        c.args([
            "-nodefaults",
            "-display",
            "none",
            "-monitor",
            "none",
            "-nic",
            "none",
        ]);
        let done = child::run(&mut c, cancel, &mut |_| ())?;
        if !done.status.success() {
            return Err(BoardError::QemuDied {
                status: done.status.to_string(),
                stderr: done.stderr,
                console: Vec::new(),
            });
        }
        let virt = fs::read(&raw).map_err(BoardError::cache("read", &raw))?;
        let mut seed = [0; 64];
        rustix::rand::getrandom(&mut seed, rustix::rand::GetRandomFlags::empty())
            .map_err(|e| BoardError::cache("read", Path::new("/dev/urandom"))(e.into()))?;
        let tree = devicetree::build(&virt, machine, &seed, self.dvfs)?;
        let path = dir.join("machine.dtb");
        fs::write(&path, tree).map_err(BoardError::cache("write", &path))?;
        Ok(path)
    }
}

/// In QEMU's options a comma ends a value unless doubled.
fn escaped(value: &[u8]) -> Vec<u8> {
    let mut out = Vec::with_capacity(value.len());
    for b in value {
        out.push(*b);
        if *b == b',' {
            out.push(b',');
        }
    }
    out
}

fn create_sized(path: &Path, bytes: u64) -> Result<(), BoardError> {
    File::create(path)
        .and_then(|f| f.set_len(bytes))
        .map_err(BoardError::cache("create", path))
}

fn shared_memory(c: &mut Command, id: &str, file: &Path, bytes: u64) {
    let mut option =
        format!("memory-backend-file,id={id},size={bytes},share=on,mem-path=").into_bytes();
    option.extend(escaped(file.as_os_str().as_bytes()));
    c.arg("-object").arg(OsString::from_vec(option));
    c.args(["-device", &format!("ivshmem-plain,memdev={id}")]);
}

fn disk(c: &mut Command, file: &Path) {
    let mut option = b"if=none,id=disk,format=raw,cache=unsafe,file=".to_vec();
    option.extend(escaped(file.as_os_str().as_bytes()));
    c.arg("-drive").arg(OsString::from_vec(option));
    c.args(["-device", "nvme,drive=disk,serial=board"]);
}

fn read_mailbox(path: &Path, console: &[String]) -> Result<(Header, Vec<u8>), BoardError> {
    let data = fs::read(path).map_err(BoardError::cache("read", path))?;
    let agent = |message: String| BoardError::Agent {
        message,
        console: console.to_vec(),
    };
    let header = Header::from_bytes(&data).map_err(agent)?;
    let payload = header.payload(&data).map_err(agent)?;
    match header.state {
        mailbox::DONE => Ok((header, payload.to_vec())),
        mailbox::FAILED => Err(agent(String::from_utf8_lossy(payload).into_owned())),
        _ => Err(BoardError::NoResult {
            console: console.to_vec(),
        }),
    }
}

fn read_results(path: &Path, console: Vec<String>, out: &mut Outcome) -> Result<(), BoardError> {
    let (header, archive) = read_mailbox(path, &console)?;
    let damaged = |e: std::io::Error| BoardError::Agent {
        message: e.to_string(),
        console: console.clone(),
    };
    out.exit_code = header.exit_code;
    for entry in tar::Archive::new(&archive[..]).entries().map_err(damaged)? {
        let mut entry = entry.map_err(damaged)?;
        if !entry.header().entry_type().is_file() {
            continue;
        }
        let name = String::from_utf8_lossy(&entry.path_bytes()).into_owned();
        let mut data = Vec::new();
        entry.read_to_end(&mut data).map_err(damaged)?;
        match name.as_str() {
            mailbox::KERNEL_LOG => out.kernel_log = String::from_utf8_lossy(&data).into_owned(),
            mailbox::MISSING => {
                let text = String::from_utf8_lossy(&data);
                out.missing = text.lines().map(String::from).collect();
            }
            _ => {
                out.files.insert(format!("/{name}"), data);
            }
        }
    }
    Ok(())
}

#[cfg(test)]
#[path = "run_tests.rs"]
mod tests;
