use super::super::mirror::{self, Mirror};
use super::super::{Archive, Installed, KEYRINGS};
use super::*;
use crate::packages;
use crate::{Arch, Care};
use std::net::{TcpListener, TcpStream};
use std::process::Command;
use std::sync::Arc;
use std::time::Instant;

const ARCHIVE: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/testdata/archive");

/// What the mirror answers to a request for a file: `None` is what the archive has.
type Answer = fn(path: &str, to: &TcpStream) -> Option<()>;

/// The tiny archive on a mirror of this machine, and a machine with its key and no apt.
struct Tiny {
    dir: tempfile::TempDir,
    cache: Cache,
    uri: String,
    requests: Arc<std::sync::Mutex<Vec<String>>>,
}

fn never() -> AtomicBool {
    AtomicBool::new(false)
}

/// Whether the programs are here that the client calls.
fn possible() -> bool {
    let there = |p: &&str| Command::new(p).arg("--version").output().is_ok();
    let missing: Vec<&str> = ["curl", "gpgv"].into_iter().filter(|p| !there(p)).collect();
    if !missing.is_empty() {
        amp_skips::skip(&format!("{} not installed", missing.join(" and ")));
    }
    missing.is_empty()
}

fn reply(mut to: &TcpStream, status: &str, length: usize, body: &[u8]) {
    // The client may hang up whenever it has seen enough.
    let _ = write!(
        to,
        "HTTP/1.1 {status}\r\nContent-Length: {length}\r\nConnection: close\r\n\r\n"
    );
    let _ = to.write_all(body);
}

fn archived(path: &str) -> Option<Vec<u8>> {
    // the suite by its codename
    let path = path.replace("/dists/tiny/", "/dists/stable/");
    fs::read(format!("{ARCHIVE}{path}")).ok()
}

impl Tiny {
    fn new(answer: Answer) -> Tiny {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let uri = format!("http://{}", listener.local_addr().unwrap());
        let requests = Arc::new(std::sync::Mutex::new(Vec::new()));
        let seen = requests.clone();
        std::thread::spawn(move || {
            for to in listener.incoming().flatten() {
                let seen = seen.clone();
                std::thread::spawn(move || {
                    let mut head = Vec::new();
                    let mut byte = [0];
                    while !head.ends_with(b"\r\n\r\n") && matches!((&to).read(&mut byte), Ok(1)) {
                        head.push(byte[0]);
                    }
                    let head = String::from_utf8_lossy(&head).into_owned();
                    let path = head.split(' ').nth(1).unwrap_or_default().to_string();
                    seen.lock().unwrap().push(path.clone());
                    if answer(&path, &to).is_none() {
                        match archived(&path) {
                            Some(body) => reply(&to, "200 OK", body.len(), &body),
                            None => reply(&to, "404 Not Found", 0, b""),
                        }
                    }
                });
            }
        });
        let dir = tempfile::tempdir().unwrap();
        let keyring = dir.path().join(KEYRINGS[0]);
        fs::create_dir_all(keyring.parent().unwrap()).unwrap();
        fs::copy(format!("{ARCHIVE}/key.gpg"), keyring).unwrap();
        let cache = Cache::at(&dir.path().join("cache")).unwrap();
        Tiny {
            dir,
            cache,
            uri,
            requests,
        }
    }

    fn host(&self) -> Host {
        Host {
            root: self.dir.path().into(),
            programs: None,
            mirror: Some(Mirror {
                uri: self.uri.clone(),
                suite: None,
            }),
        }
    }

    fn client(&self, suites: &[&str]) -> Plain<'_> {
        let suite = |name: &&str| Suite {
            uri: self.uri.clone(),
            name: name.to_string(),
        };
        let suites = suites.iter().map(suite).collect();
        Plain::new(&self.cache, &self.host(), "t", "arm64", suites).unwrap()
    }

    fn update(&self, suite: &str) -> Result<(), BoardError> {
        self.client(&[suite])
            .update(Duration::ZERO, &never(), &mut |_| ())
    }

    fn hello(&self) -> Result<PathBuf, BoardError> {
        let client = self.client(&["stable"]);
        client.update(Duration::from_secs(60), &never(), &mut |_| ())?;
        let offer = client.offers(&["hello".into()])?.remove(0);
        client.fetch_one(&offer, &never(), &mut |_| ())
    }

    /// Files below the client's folder that are neither lists nor packages.
    fn litter(&self) -> usize {
        fs::read_dir(self.cache.path("plain/t/partial"))
            .unwrap()
            .count()
    }
}

/// A refusal of this class, whose message has these words.
fn refused(done: Result<impl std::fmt::Debug, BoardError>, class: FetchFailure, words: &[&str]) {
    let e = done.unwrap_err();
    assert!(
        matches!(&e, BoardError::Fetch { failure, .. } if *failure == class),
        "{e}"
    );
    for w in words {
        assert!(e.to_string().contains(w), "no `{w}` in {e}");
    }
}

#[test]
fn packages_come_with_what_they_need() {
    if !possible() {
        return;
    }
    let tiny = Tiny::new(|_, _| None);
    let mut told = Vec::new();
    let mut sink = |e| told.push(e);
    let sources = mirror::sources(&tiny.cache, &tiny.host(), &never(), &mut sink).unwrap();
    assert_eq!(sources.codename, "tiny");
    let client = tiny.client(&["tiny", "missing"]);
    client.update(Duration::ZERO, &never(), &mut sink).unwrap();
    assert_eq!(
        client.names("^(lib)?hello[0-9]?$").unwrap(),
        ["hello", "libhello1"]
    );
    assert!(client.names("(").is_err());
    let wanted = ["hello".to_string()];
    let set = client.resolve(&wanted, None).unwrap();
    let names: Vec<&str> = set.iter().map(|d| d.package.as_str()).collect();
    assert_eq!(names, ["libhello1", "hello-data", "hello"]);
    assert_eq!(set[1].file, "hello-data_1%3a2.0-1_all.deb");
    let files = client
        .fetch_set(&wanted, &set, &never(), &mut sink)
        .unwrap();
    for f in &files {
        deb::unpack(f, &tiny.dir.path().join("root"), &never()).unwrap();
    }
    assert!(tiny.dir.path().join("root/usr/bin/hello").is_file());
    assert_eq!(tiny.litter(), 0);
    let last = told.into_iter().rev().find_map(|e| match e {
        crate::Event::Progress { percent, .. } => percent,
        _ => None,
    });
    assert_eq!(last, Some(100));

    // what is there is not fetched again, neither packages nor lists that have not changed
    let before = tiny.requests.lock().unwrap().len();
    client
        .fetch_set(&wanted, &set, &never(), &mut |_| ())
        .unwrap();
    client
        .update(Duration::from_secs(3600), &never(), &mut |_| ())
        .unwrap();
    assert_eq!(
        tiny.requests.lock().unwrap()[before..],
        ["/dists/missing/InRelease"]
    );
    client
        .update(Duration::ZERO, &never(), &mut |_| ())
        .unwrap();
    let all = tiny.requests.lock().unwrap();
    assert_eq!(
        all.iter().filter(|r| r.contains("by-hash")).count(),
        1,
        "{all:?}"
    );
}

/// The client is chosen by what the machine has, and who fetches does not know which it is.
#[test]
fn a_guest_gets_packages_on_a_machine_without_apt() {
    if !possible() {
        return;
    }
    let tiny = Tiny::new(|_, _| None);
    let bin = tiny.dir.path().join("bin");
    fs::create_dir(&bin).unwrap();
    let path = std::env::var_os("PATH").unwrap();
    for program in ["curl", "gpgv"] {
        let mut places = std::env::split_paths(&path).map(|d| d.join(program));
        let place = places.find(|p| p.is_file()).unwrap();
        std::os::unix::fs::symlink(place, bin.join(program)).unwrap();
    }
    let mut host = tiny.host();
    host.programs = Some(bin.clone());
    let wanted = ["hello".to_string()];
    let (care, never) = (Care::Usual, never());
    let obtain = |host: &Host| {
        let (cache, arch) = (&tiny.cache, Arch::Arm64);
        packages::obtain(cache, host, arch, &wanted, care, &never, &mut |_| ())
    };
    let set = obtain(&host).unwrap();
    let contents = ["libhello1 1:2.0-1", "hello-data 1:2.0-1", "hello 1:2.0-1"];
    assert_eq!(set.contents, contents);
    let archive = fs::read(set.archive(&tiny.cache)).unwrap();
    let name = b"usr/lib/libhello.so.1\0";
    assert!(archive.windows(name.len()).any(|w| w == name));
    // the mirror was named once
    host.mirror = None;
    assert_eq!(obtain(&host).unwrap(), set);

    let kind = |host: &Host| {
        let nothing = Installed::Nothing;
        Archive::new(&tiny.cache, host, "k", "arm64", vec![], nothing).unwrap()
    };
    assert!(matches!(kind(&host), Archive::Plain(_)));
    for program in ["apt-get", "dpkg-deb"] {
        fs::write(bin.join(program), "").unwrap();
    }
    assert!(matches!(kind(&host), Archive::Apt(_)));
}

#[test]
fn what_is_not_there_is_named() {
    if !possible() {
        return;
    }
    let tiny = Tiny::new(|_, _| None);
    refused(
        tiny.update("none"),
        FetchFailure::NotThere,
        &["index of none", "/dists/none/InRelease"],
    );
    let client = tiny.client(&["gzip"]);
    client
        .update(Duration::ZERO, &never(), &mut |_| ())
        .unwrap();
    let e = client
        .resolve(&["hello".into(), "nosuch".into()], None)
        .unwrap_err();
    let is = matches!(&e, BoardError::NoSuchPackage { package, .. } if package == "nosuch");
    assert!(is && e.to_string().contains("arm64 in gzip"), "{e}");
}

#[test]
fn lists_of_earlier_serve_when_the_mirror_is_away() {
    if !possible() {
        return;
    }
    let tiny = Tiny::new(|_, _| None);
    tiny.update("stable").unwrap();
    let mut away = tiny.client(&["stable"]);
    away.host.programs = Some(tiny.dir.path().into());
    let e = away
        .update(Duration::ZERO, &never(), &mut |_| ())
        .unwrap_err();
    assert!(e.to_string().contains("install the package curl"), "{e}");
    away.suites[0].uri = "http://127.0.0.1:1".into();
    away.host.programs = None;
    let away_new = away.update(Duration::ZERO, &never(), &mut |_| ());
    refused(
        away_new,
        FetchFailure::NoNetwork,
        &["http://127.0.0.1:1/dists/stable", "http_proxy"],
    );
    assert_eq!(
        tiny.client(&["stable"])
            .offers(&["hello".into()])
            .unwrap()
            .len(),
        1
    );
}

#[test]
fn what_is_not_signed_by_debian_is_refused() {
    if !possible() {
        return;
    }
    let unsigned = Tiny::new(|path, to| {
        path.ends_with("InRelease")
            .then(|| reply(to, "200 OK", 24, b"Suite: stable\nSHA256:\n x"))
    });
    refused(
        unsigned.update("stable"),
        FetchFailure::NotAuthentic,
        &["not signed", "InRelease"],
    );
    let changed = Tiny::new(|path, to| {
        let text =
            String::from_utf8(archived(path).filter(|_| path.ends_with("InRelease"))?).ok()?;
        let text = text.replace("Origin: tests", "Origin: other");
        reply(to, "200 OK", text.len(), text.as_bytes());
        Some(())
    });
    refused(
        changed.update("stable"),
        FetchFailure::NotAuthentic,
        &["a signature is wrong"],
    );
    // another archive's key
    let tiny = Tiny::new(|_, _| None);
    fs::write(tiny.dir.path().join(KEYRINGS[0]), "").unwrap();
    refused(
        tiny.update("stable"),
        FetchFailure::NotAuthentic,
        &["debian-archive-keyring"],
    );
    fs::remove_file(tiny.dir.path().join(KEYRINGS[0])).unwrap();
    let new = Plain::new(&tiny.cache, &tiny.host(), "t", "arm64", vec![]);
    assert!(new
        .unwrap_err()
        .to_string()
        .contains("debian-archive-keyring"));
}

#[test]
fn another_suite_and_one_out_of_date_are_refused() {
    if !possible() {
        return;
    }
    let tiny = Tiny::new(|path, to| {
        let other = archived("/dists/gzip/InRelease")?;
        (path == "/dists/stable/InRelease").then(|| reply(to, "200 OK", other.len(), &other))
    });
    refused(
        tiny.update("stable"),
        FetchFailure::NotAuthentic,
        &["index of tiny (gzip), not of stable"],
    );
    refused(
        tiny.update("expired"),
        FetchFailure::OutOfDate,
        &["valid until Sat, 01 Jan 2022", "clock"],
    );
}

#[test]
fn what_the_index_does_not_mean_is_refused() {
    if !possible() {
        return;
    }
    // as large, and other content
    let wrong = Tiny::new(|path, to| {
        let mut body = archived(path).filter(|_| path.contains("/pool/hello_"))?;
        body[100] ^= 1;
        reply(to, "200 OK", body.len(), &body);
        Some(())
    });
    let words = [
        "hello 1:2.0-1",
        "/pool/hello_2.0-1_arm64.deb",
        "SHA-256",
        "plain/t",
    ];
    refused(wrong.hello(), FetchFailure::NotAuthentic, &words);
    let short = Tiny::new(|path, to| {
        let body = archived(path).filter(|_| path.contains("/pool/hello_"))?;
        reply(to, "200 OK", 100, &body[..100]);
        Some(())
    });
    refused(
        short.hello(),
        FetchFailure::NotAuthentic,
        &["100 bytes in place of"],
    );
    let broken = Tiny::new(|path, to| {
        let body = archived(path).filter(|_| path.contains("/pool/hello_"))?;
        reply(to, "200 OK", body.len(), &body[..100]);
        Some(())
    });
    refused(broken.hello(), FetchFailure::NoNetwork, &["/pool/hello_"]);
    let tries = broken
        .requests
        .lock()
        .unwrap()
        .iter()
        .filter(|r| r.contains("hello_"))
        .count();
    assert_eq!(tries, 3);
    let list = Tiny::new(|path, to| {
        let mut body = archived(path).filter(|_| path.contains("by-hash"))?;
        body[30] ^= 1;
        reply(to, "200 OK", body.len(), &body);
        Some(())
    });
    refused(
        list.hello(),
        FetchFailure::NotAuthentic,
        &["index of stable (arm64)", "by-hash"],
    );
    for tiny in [wrong, short, broken, list] {
        assert_eq!(tiny.litter(), 0);
        assert_eq!(
            fs::read_dir(tiny.cache.path("plain/t/archives"))
                .unwrap()
                .count(),
            0
        );
    }
}

/// A body without an end, and one that never begins.
fn endless(path: &str, mut to: &TcpStream) -> Option<()> {
    if path.contains("silent") {
        std::thread::sleep(Duration::from_secs(20));
    }
    path.contains("InRelease").then_some(())?;
    let _ = to.write_all(b"HTTP/1.1 200 OK\r\nConnection: close\r\n\r\n");
    while to.write_all(&[b'x'; 65536]).is_ok() {}
    Some(())
}

#[test]
fn a_body_without_end_is_given_up_and_cancel_ends_a_silent_one() {
    if !possible() {
        return;
    }
    let tiny = Tiny::new(endless);
    refused(
        tiny.update("stable"),
        FetchFailure::Other,
        &["more than 8388608 bytes"],
    );
    let cancel = never();
    let start = Instant::now();
    std::thread::scope(|s| {
        s.spawn(|| {
            std::thread::sleep(Duration::from_millis(300));
            cancel.store(true, Ordering::Relaxed);
        });
        let client = tiny.client(&["silent"]);
        let done = client.update(Duration::ZERO, &cancel, &mut |_| ());
        assert!(matches!(done, Err(BoardError::Cancelled)), "{done:?}");
    });
    assert!(start.elapsed() < Duration::from_secs(10));
}
