//! Debian packages through apt with a configuration of our own.
//!
//! Lists, state, archives and the status file live in the cache folder, so no root is needed and
//! the machine's own apt is not touched. apt checks the signatures (with Debian's archive keyring
//! and no other) and the hashes.

use super::{deb, deb_name, keyring, DebFile, Host, Installed, Offer};
use crate::cache::Cache;
use crate::child::{self, Finished, Guard};
use crate::error::{BoardError, FetchFailure};
use crate::event::{progress, Sink};
use crate::sources::Suite;
use crate::version;
use std::collections::BTreeSet;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::atomic::AtomicBool;
use std::time::{Duration, SystemTime};

/// A private apt: one architecture, a list of suites, a view of what is installed.
#[derive(Debug)]
pub struct Apt<'a> {
    cache: &'a Cache,
    host: Host,
    dir: PathBuf,
    arch: &'static str,
    suites: Vec<Suite>,
    installed: Installed,
}

impl<'a> Apt<'a> {
    /// Sets up `apt/NAME` in the cache.
    ///
    /// # Errors
    /// When the folder cannot be written, or apt or Debian's keyring is missing.
    pub fn new(
        cache: &'a Cache,
        host: &Host,
        name: &str,
        arch: &'static str,
        suites: Vec<Suite>,
        installed: Installed,
    ) -> Result<Apt<'a>, BoardError> {
        let dir = cache.dir(Path::new("apt").join(name))?;
        for sub in ["parts", "lists/partial", "archives/partial", "state"] {
            let path = dir.join(sub);
            fs::create_dir_all(&path).map_err(BoardError::cache("create", &path))?;
        }
        let apt = Apt {
            cache,
            host: host.clone(),
            dir,
            arch,
            suites,
            installed,
        };
        apt.write_configuration()?;
        Ok(apt)
    }

    fn write(&self, name: &str, text: &str) -> Result<PathBuf, BoardError> {
        let path = self.dir.join(name);
        fs::write(&path, text).map_err(BoardError::cache("write", &path))?;
        Ok(path)
    }

    fn write_sources(&self, name: &str, suites: &[&Suite]) -> Result<PathBuf, BoardError> {
        let (key, arch) = (keyring(&self.host)?, self.arch);
        let line = |s: &&Suite| {
            format!(
                "deb [arch={arch} signed-by={}] {} {} main\n",
                key.display(),
                s.uri,
                s.name
            )
        };
        self.write(name, &suites.iter().map(line).collect::<String>())
    }

    fn write_configuration(&self) -> Result<(), BoardError> {
        let user = rustix::process::geteuid().as_raw();
        let d = self.dir.display();
        // The machine's own configuration is read first and stays in force for what is not named
        // here (its proxy, say). Its hooks are dropped: they would act on the machine's folders.
        let mut text = format!(
            "#clear APT::Update::Post-Invoke;\n#clear APT::Update::Post-Invoke-Success;\n#clear APT::Update::Pre-Invoke;\n\
             #clear APT::Architectures;\n\
             APT::Architecture \"{arch}\";\nAPT::Architectures {{ \"{arch}\"; }};\n\
             Dir::Etc::sourcelist \"{d}/sources\";\nDir::Etc::sourceparts \"{d}/parts\";\n\
             Dir::Etc::preferences \"{d}/preferences\";\nDir::Etc::preferencesparts \"{d}/parts\";\n\
             Dir::Etc::trusted \"/dev/null\";\nDir::Etc::trustedparts \"{d}/parts\";\n\
             Dir::State \"{d}/state\";\nDir::State::lists \"{d}/lists\";\nDir::State::status \"{d}/status\";\n\
             Dir::State::extended_states \"{d}/state/extended_states\";\n\
             Dir::Cache \"{d}\";\nDir::Cache::archives \"{d}/archives\";\n\
             Dir::Cache::pkgcache \"pkgcache.bin\";\nDir::Cache::srcpkgcache \"\";\n\
             Dir::Log \"{d}/state\";\n\
             Acquire::Languages \"none\";\n\
             Acquire::IndexTargets::deb::DEP-11::DefaultEnabled \"false\";\n\
             Acquire::IndexTargets::deb::Contents-deb::DefaultEnabled \"false\";\n\
             Acquire::IndexTargets::deb::CNF::DefaultEnabled \"false\";\n\
             Acquire::Retries \"2\";\nAcquire::http::Timeout \"30\";\nAcquire::https::Timeout \"30\";\n\
             Acquire::AllowInsecureRepositories \"false\";\nAPT::Get::AllowUnauthenticated \"false\";\n\
             APT::Get::List-Cleanup \"false\";\nAPT::Keep-Downloaded-Packages \"true\";\n\
             Binary::apt-get::APT::Keep-Downloaded-Packages \"true\";\n\
             APT::Install-Recommends \"false\";\nAPT::Install-Suggests \"false\";\n",
            arch = self.arch,
        );
        // apt as root hands downloads to the user _apt, who may not enter a private folder.
        if user == 0 {
            text.push_str("APT::Sandbox::User \"root\";\n");
        }
        self.write("apt.conf", &text)?;
        self.write("preferences", "")?;
        self.write_sources("sources", &self.suites.iter().collect::<Vec<_>>())?;
        let status = match self.installed {
            Installed::Nothing => String::new(),
            Installed::HostExcept(prefix) => {
                let path = self.host.root.join("var/lib/dpkg/status");
                let text = fs::read_to_string(&path).map_err(BoardError::cache("read", &path))?;
                let hidden = format!("Package: {prefix}");
                text.split_inclusive("\n\n")
                    .filter(|s| !s.starts_with(&hidden))
                    .collect()
            }
        };
        self.write("status", &status)?;
        Ok(())
    }

    fn command(&self, program: &str) -> Command {
        let mut c = self.host.command(program);
        c.arg("-c").arg(self.dir.join("apt.conf"));
        c
    }

    fn run(
        &self,
        command: &mut Command,
        what: &str,
        cancel: &AtomicBool,
        sink: &mut Sink<'_>,
    ) -> Result<Finished, BoardError> {
        let done = child::run(command, cancel, &mut |line| {
            // dlstatus:FILE:PERCENT:TEXT
            let mut f = line.split(':');
            if f.next() == Some("dlstatus") {
                let percent = f.nth(1).and_then(|p| p.parse::<f64>().ok());
                progress(sink, what, percent.map(|p| p.clamp(0.0, 100.0) as u8));
            }
        });
        match done {
            Err(BoardError::Spawn { program, source })
                if source.kind() == std::io::ErrorKind::NotFound =>
            {
                Err(BoardError::NoTool {
                    what: program,
                    package: "apt",
                })
            }
            other => other,
        }
    }

    fn fetch_error(&self, package: &str, folder: &Path, done: &Finished) -> BoardError {
        let all = format!("{}\n{}", done.stdout, done.stderr);
        let lines: Vec<&str> = done
            .stderr
            .lines()
            .filter(|l| l.starts_with("E:") || l.starts_with("W:"))
            .take(6)
            .collect();
        let failure = FetchFailure::classify(&all);
        if failure == FetchFailure::DiskFull {
            self.drop_partial();
        }
        BoardError::Fetch {
            package: package.into(),
            folder: folder.into(),
            failure,
            detail: lines.join("\n"),
        }
    }

    /// On a full disk a kept half download would only be in the way; otherwise apt resumes it.
    fn drop_partial(&self) {
        for sub in ["archives/partial", "lists/partial", "single"] {
            let dir = self.dir.join(sub);
            // Best effort: what cannot be removed is resumed and verified by apt next time.
            let _ = fs::remove_dir_all(&dir);
            let _ = fs::create_dir_all(&dir);
        }
        // apt builds its index cache under a name of its own and leaves it when the disk is full.
        for entry in fs::read_dir(&self.dir).into_iter().flatten().flatten() {
            if entry
                .file_name()
                .to_string_lossy()
                .starts_with("pkgcache.bin.")
            {
                let _ = fs::remove_file(entry.path());
            }
        }
    }

    fn stamp(&self, suite: &Suite) -> PathBuf {
        self.dir
            .join(format!("state/updated-{}", suite.name.replace('/', "_")))
    }

    fn fresh(&self, suite: &Suite, max_age: Duration) -> bool {
        let Ok(meta) = fs::metadata(self.stamp(suite)) else {
            return false;
        };
        let age = meta
            .modified()
            .ok()
            .and_then(|t| SystemTime::now().duration_since(t).ok());
        age.is_some_and(|a| a <= max_age) && self.has_list(suite)
    }

    /// Whether the list of a suite is there, from the same mirror.
    fn has_list(&self, suite: &Suite) -> bool {
        fs::read_to_string(self.stamp(suite)).is_ok_and(|uri| uri == suite.uri)
    }

    /// Brings the package lists up to date, except those younger than `max_age`.
    ///
    /// A suite that cannot be reached is left out as long as one can.
    ///
    /// # Errors
    /// When none can be reached and none was before.
    pub fn update(
        &self,
        max_age: Duration,
        cancel: &AtomicBool,
        sink: &mut Sink<'_>,
    ) -> Result<(), BoardError> {
        let mut first_error = None;
        for suite in self.suites.iter().filter(|s| !self.fresh(s, max_age)) {
            let what = format!("index of {} ({})", suite.name, self.arch);
            progress(sink, &what, None);
            let list = self.write_sources("sources.one", &[suite])?;
            let mut c = self.command("apt-get");
            c.arg("-o")
                .arg(format!("Dir::Etc::sourcelist={}", list.display()));
            c.args([
                "-o",
                "APT::Status-Fd=1",
                "-o",
                "APT::Update::Error-Mode=any",
                "-q",
                "update",
            ]);
            let done = self.run(&mut c, &what, cancel, sink)?;
            if done.status.success() {
                let stamp = self.stamp(suite);
                fs::write(&stamp, &suite.uri).map_err(BoardError::cache("write", &stamp))?;
            } else {
                let error = self.fetch_error(&what, &self.dir.join("lists"), &done);
                let full = matches!(
                    &error,
                    BoardError::Fetch {
                        failure: FetchFailure::DiskFull,
                        ..
                    }
                );
                if full {
                    return Err(error);
                }
                first_error.get_or_insert(error);
            }
        }
        // A list fetched earlier still serves when the mirror is away.
        let usable: Vec<&Suite> = self.suites.iter().filter(|s| self.has_list(s)).collect();
        self.write_sources("sources", &usable)?;
        match first_error {
            Some(e) if usable.is_empty() => Err(e),
            _ => Ok(()),
        }
    }

    fn suite_names(&self) -> String {
        self.suites
            .iter()
            .map(|s| s.name.as_str())
            .collect::<Vec<_>>()
            .join(", ")
    }

    /// Names of packages that match a POSIX extended regular expression.
    ///
    /// # Errors
    /// When apt-cache cannot be run.
    pub fn names(&self, pattern: &str, cancel: &AtomicBool) -> Result<Vec<String>, BoardError> {
        let mut c = self.command("apt-cache");
        c.args(["--names-only", "search", pattern]);
        let done = self.run(&mut c, "", cancel, &mut |_| ())?;
        let name = |l: &str| l.split(' ').next().map(String::from);
        Ok(done
            .stdout
            .lines()
            .filter_map(name)
            .collect::<BTreeSet<_>>()
            .into_iter()
            .collect())
    }

    /// Versions of the named packages, newest first.
    ///
    /// # Errors
    /// When apt-cache cannot be run.
    pub fn offers(&self, names: &[String], cancel: &AtomicBool) -> Result<Vec<Offer>, BoardError> {
        if names.is_empty() {
            return Ok(Vec::new());
        }
        let mut c = self.command("apt-cache");
        c.arg("madison").args(names);
        let done = self.run(&mut c, "", cancel, &mut |_| ())?;
        let mut offers: Vec<Offer> = done.stdout.lines().filter_map(madison_line).collect();
        offers.sort_by(|a, b| version::compare(&b.version, &a.version));
        offers.dedup_by(|a, b| (&a.package, &a.version) == (&b.package, &b.version));
        Ok(offers)
    }

    /// Fetches exactly one package, without what it depends on, and returns its file.
    ///
    /// # Errors
    /// When it cannot be fetched or verified.
    pub fn fetch_one(
        &self,
        offer: &Offer,
        cancel: &AtomicBool,
        sink: &mut Sink<'_>,
    ) -> Result<PathBuf, BoardError> {
        // apt writes into the current folder and resumes a half file it finds there.
        let single = self.dir.join("single");
        fs::create_dir_all(&single).map_err(BoardError::cache("create", &single))?;
        let what = format!("{} {}", offer.package, offer.version);
        progress(sink, &what, None);
        let mut c = self.command("apt-get");
        c.current_dir(&single)
            .args(["-o", "APT::Status-Fd=1", "-q", "download"]);
        c.arg(format!("{}={}", offer.package, offer.version));
        let done = self.run(&mut c, &what, cancel, sink)?;
        // Packages without machine code have the architecture `all` in their name.
        let names = [self.arch, "all"].map(|a| deb_name(&offer.package, &offer.version, a));
        let file = names.iter().map(|n| single.join(n)).find(|f| f.is_file());
        match file {
            Some(file) if done.status.success() => Ok(file),
            _ => Err(self.fetch_error(&what, &single, &done)),
        }
    }

    /// The set of packages that installing these would add: names with versions, and their files
    /// once fetched.
    ///
    /// # Errors
    /// When a package does not exist or its dependencies cannot be met.
    pub fn resolve(
        &self,
        packages: &[String],
        target_suite: Option<&str>,
        cancel: &AtomicBool,
    ) -> Result<Vec<DebFile>, BoardError> {
        let mut c = self.install(packages, target_suite);
        c.arg("--simulate");
        let done = self.run(&mut c, "", cancel, &mut |_| ())?;
        if !done.status.success() {
            let missing = packages.iter().find(|p| {
                let name = p.split('=').next().unwrap_or(p);
                done.stderr
                    .contains(&format!("Unable to locate package {name}\n"))
                    || done
                        .stderr
                        .contains(&format!("'{name}' has no installation candidate"))
                    || done.stderr.contains(&format!("for '{name}' was not found"))
            });
            return Err(match missing {
                Some(package) => BoardError::NoSuchPackage {
                    package: package.clone(),
                    arch: self.arch,
                    suites: self.suite_names(),
                },
                None => self.fetch_error(&packages.join(" "), &self.dir, &done),
            });
        }
        Ok(done.stdout.lines().filter_map(inst_line).collect())
    }

    /// Fetches the set found by [`Apt::resolve`] and returns its files in that order.
    ///
    /// # Errors
    /// When something cannot be fetched or verified.
    pub fn fetch_set(
        &self,
        packages: &[String],
        target_suite: Option<&str>,
        set: &[DebFile],
        cancel: &AtomicBool,
        sink: &mut Sink<'_>,
    ) -> Result<Vec<PathBuf>, BoardError> {
        let archives = self.dir.join("archives");
        let what = format!("{} ({} packages)", packages.join(" "), set.len());
        progress(sink, &what, None);
        let mut c = self.install(packages, target_suite);
        c.args(["-o", "APT::Status-Fd=1", "--download-only"]);
        let done = self.run(&mut c, &what, cancel, sink)?;
        if !done.status.success() {
            return Err(self.fetch_error(&packages.join(" "), &archives, &done));
        }
        let files: Vec<PathBuf> = set.iter().map(|d| archives.join(&d.file)).collect();
        match files.iter().find(|f| !f.is_file()) {
            Some(_) => Err(self.fetch_error(&packages.join(" "), &archives, &done)),
            None => Ok(files),
        }
    }

    fn install(&self, packages: &[String], target_suite: Option<&str>) -> Command {
        let mut c = self.command("apt-get");
        c.args(["-q", "-y", "--no-install-recommends"]);
        if let Some(suite) = target_suite {
            c.args(["-t", suite]);
        }
        c.arg("install").args(packages);
        c
    }

    /// Unpacks a package's files into a folder.
    ///
    /// # Errors
    /// When dpkg-deb fails, for example on a full disk.
    pub fn unpack(&self, deb: &Path, into: &Path, cancel: &AtomicBool) -> Result<(), BoardError> {
        let mut c = self.host.command("dpkg-deb");
        c.arg("-x").arg(deb).arg(into);
        let done = self.run(&mut c, "", cancel, &mut |_| ())?;
        if done.status.success() {
            return Ok(());
        }
        let name = deb
            .file_name()
            .map(|n| n.to_string_lossy().into_owned())
            .unwrap_or_default();
        Err(BoardError::Fetch {
            package: name,
            folder: into.into(),
            failure: FetchFailure::classify(&done.stderr),
            detail: done.stderr.lines().take(6).collect::<Vec<_>>().join("\n"),
        })
    }

    /// The first file in a package that has one of the `wanted` paths; `None` when it has none.
    ///
    /// # Errors
    /// When dpkg-deb is missing or cannot read the package.
    pub fn extract(&self, deb: &Path, wanted: &[String]) -> Result<Option<Vec<u8>>, BoardError> {
        let program = "dpkg-deb";
        let mut command = self.host.command(program);
        command
            .arg("--fsys-tarfile")
            .arg(deb)
            .stdout(Stdio::piped())
            .stderr(Stdio::null());
        child::die_with_parent(&mut command);
        let spawn = |source| BoardError::Spawn {
            program: program.into(),
            source,
        };
        let mut child = Guard(command.spawn().map_err(spawn)?);
        let out = child.0.stdout.take();
        let out = out.ok_or_else(|| io::Error::other("dpkg-deb gave no output"));
        let found = out.and_then(|tar| deb::first(tar, wanted));
        found.map_err(|e| BoardError::KernelImage {
            path: deb.file_name().unwrap_or_default().into(),
            why: e.to_string(),
        })
    }

    /// The cache this works in.
    pub fn cache(&self) -> &'a Cache {
        self.cache
    }
}

/// `name | version | uri suite/component arch Packages`
fn madison_line(line: &str) -> Option<Offer> {
    let mut f = line.split('|').map(str::trim);
    let (package, version, place) = (f.next()?, f.next()?, f.next()?);
    let (suite, _) = place.split_whitespace().nth(1)?.rsplit_once('/')?;
    place.ends_with("Packages").then(|| Offer {
        package: package.into(),
        version: version.into(),
        suite: suite.into(),
    })
}

/// `Inst name [old] (version origin:suite… [arch])…`
fn inst_line(line: &str) -> Option<DebFile> {
    let rest = line.strip_prefix("Inst ")?;
    let package = rest.split(' ').next()?;
    let (_, inner) = rest.split_once('(')?;
    let (inner, _) = inner.split_once(')')?;
    let version = inner.split(' ').next()?;
    let (_, arch) = inner.rsplit_once('[')?;
    let arch = arch.trim_end_matches(']');
    let package = package.split(':').next()?;
    Some(DebFile {
        package: package.into(),
        version: version.into(),
        file: deb_name(package, version, arch),
    })
}

#[cfg(test)]
#[path = "apt_tests.rs"]
pub(crate) mod tests;
