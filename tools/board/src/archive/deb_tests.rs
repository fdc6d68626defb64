use super::*;
use proptest::prelude::*;
use std::os::unix::fs::MetadataExt;

const POOL: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/testdata/archive/pool");

fn never() -> AtomicBool {
    AtomicBool::new(false)
}

fn pool(name: &str) -> PathBuf {
    Path::new(POOL).join(name)
}

/// A package around a `tar` archive.
fn package(ending: &str, tar: &[u8]) -> Vec<u8> {
    let mut deb = b"!<arch>\n".to_vec();
    for (name, data) in [
        ("debian-binary", &b"2.0\n"[..]),
        ("control.tar.xz", b"odd"),
        (&format!("data.tar{ending}"), tar),
    ] {
        deb.extend(
            format!(
                "{name:<16}{:<12}{:<6}{:<6}{:<8}{:<10}`\n",
                0,
                0,
                0,
                100644,
                data.len()
            )
            .bytes(),
        );
        deb.extend(data);
        deb.extend(vec![b'\n'; data.len() % 2]);
    }
    deb
}

/// An entry of a `tar` archive whose path is written as it stands.
fn entry(kind: EntryType, path: &str, link: &str, data: &[u8]) -> Vec<u8> {
    let mut h = tar::Header::new_ustar();
    h.as_old_mut().name[..path.len()].copy_from_slice(path.as_bytes());
    h.as_old_mut().linkname[..link.len()].copy_from_slice(link.as_bytes());
    h.set_entry_type(kind);
    h.set_mode(0o755);
    h.set_size(data.len() as u64);
    h.set_cksum();
    let mut all = h.as_bytes().to_vec();
    all.extend(data);
    all.resize(all.len().next_multiple_of(512), 0);
    all
}

fn unpacked(deb: &[u8]) -> (tempfile::TempDir, Result<(), BoardError>) {
    let t = tempfile::tempdir().unwrap();
    let file = t.path().join("x.deb");
    fs::write(&file, deb).unwrap();
    let done = unpack(&file, &t.path().join("root"), &never());
    (t, done)
}

#[test]
fn files_modes_and_links_are_as_they_were_packed() {
    let t = tempfile::tempdir().unwrap();
    for name in [
        "hello_2.0-1_arm64.deb",
        "libhello1_2.0-1_arm64.deb",
        "hello-data_2.0-1_all.deb",
    ] {
        unpack(&pool(name), t.path(), &never()).unwrap();
    }
    let at = |p: &str| t.path().join(p);
    let mode = |p: &str| fs::metadata(at(p)).unwrap().mode() & 0o7777;
    assert_eq!(fs::read_to_string(at("usr/bin/hello")).unwrap(), "hello\n");
    assert_eq!(mode("usr/bin/hello"), 0o4755);
    let inode = |p: &str| fs::metadata(at(p)).unwrap().ino();
    assert_eq!(inode("usr/bin/hello"), inode("usr/bin/hallo"));
    assert_eq!(
        fs::read_link(at("usr/bin/bonjour")).unwrap(),
        Path::new("hello")
    );
    assert_eq!(
        fs::read_link(at("usr/bin/away")).unwrap(),
        Path::new("/etc/motd")
    );
    assert_eq!(
        fs::read_to_string(at("usr/lib/libhello.so.1")).unwrap(),
        "library\n"
    );
    assert_eq!(
        fs::read_to_string(at("usr/share/hello/locked/text")).unwrap(),
        "data\n"
    );
    assert_eq!(mode("usr/share/hello/locked"), 0o555);
}

#[test]
fn one_file_is_taken_out() {
    let deb = pool("hello-data_2.0-1_all.deb");
    let wanted = ["no/such", "usr/share/hello/locked/text"].map(String::from);
    assert_eq!(
        extract(&deb, &wanted, &never()).unwrap().unwrap(),
        b"data\n"
    );
    assert_eq!(extract(&deb, &wanted[..1], &never()).unwrap(), None);
}

#[test]
fn nothing_leaves_the_folder() {
    let file = |path| entry(EntryType::Regular, path, "", b"x");
    let link = |path, to| entry(EntryType::Symlink, path, to, b"");
    let ways = [
        file("../out"),
        file("./a/../../out"),
        [link("a", "/tmp"), file("a/amp-board-test-out")].concat(),
        [link("a", ".."), file("a/out")].concat(),
        [
            link("a", ".."),
            entry(EntryType::Directory, "a/out", "", b""),
        ]
        .concat(),
        entry(EntryType::Link, "a", "../x.deb", b""),
        entry(EntryType::Link, "a", "/etc/passwd", b""),
    ];
    for way in ways {
        let (t, done) = unpacked(&package("", &way));
        assert!(
            matches!(
                done,
                Err(BoardError::Fetch {
                    failure: FetchFailure::Damaged,
                    ..
                })
            ),
            "{done:?}"
        );
        assert!(!t.path().join("out").exists() && !Path::new("/tmp/amp-board-test-out").exists());
    }
    // an absolute path is one below the folder
    let (t, done) = unpacked(&package("", &file("/amp-board-test-out")));
    done.unwrap();
    assert!(t.path().join("root/amp-board-test-out").is_file());
    // a folder where a link is stays the link, and its target keeps its mode
    let way = [link("a", "/"), entry(EntryType::Directory, "a", "", b"")].concat();
    unpacked(&package("", &way)).1.unwrap();
    let (_t, done) = unpacked(&package("", &entry(EntryType::Char, "dev", "", b"")));
    assert!(done.unwrap_err().to_string().contains("dev: neither file"));
}

#[test]
fn what_is_damaged_is_named() {
    let whole = fs::read(pool("hello_2.0-1_arm64.deb")).unwrap();
    for cut in [0, 7, 30, 100, whole.len() / 2, whole.len() - 20] {
        let said = unpacked(&whole[..cut]).1.unwrap_err().to_string();
        assert!(said.contains("x.deb") && said.contains("root"), "{said}");
    }
    let said = |deb: &[u8]| unpacked(deb).1.unwrap_err().to_string();
    assert!(said(b"!<arch>!").contains("no Debian package"));
    assert!(said(&package(".lzma", b"x")).contains("compression `lzma`"));
    assert!(said(&package(".xz", b"x")).contains("x.deb"));
}

#[test]
fn an_endless_body_ends() {
    let (cancel, zeros) = (never(), std::io::repeat(0));
    let mut deb = package("", &[]);
    let size = deb.len() - 12;
    deb[size..size + 10].copy_from_slice(b"9999999999");
    let endless = io::Cursor::new(deb).chain(zeros);
    let mut tar = files(endless, &cancel, 1 << 20).unwrap();
    let e = io::copy(&mut tar, &mut io::sink()).unwrap_err();
    assert!(
        e.to_string().contains("more than a package may have"),
        "{e}"
    );
}

#[test]
fn cancel_ends_it() {
    let t = tempfile::tempdir().unwrap();
    let cancel = AtomicBool::new(true);
    let done = unpack(&pool("hello_2.0-1_arm64.deb"), t.path(), &cancel);
    assert!(matches!(done, Err(BoardError::Cancelled)));
}

/// A reader of all of a package's files.
fn read_all(deb: Vec<u8>) -> io::Result<u64> {
    let cancel = never();
    let tar = files(io::Cursor::new(deb), &cancel, 1 << 20)?;
    let mut bytes = 0;
    for entry in tar::Archive::new(tar).entries()? {
        bytes += io::copy(&mut entry?, &mut io::sink())?;
    }
    Ok(bytes)
}

proptest! {
    #[test]
    fn no_bytes_make_it_panic(
        which in 0..3usize,
        changes in proptest::collection::vec((0..4000usize, any::<u8>()), 0..8),
        end in proptest::option::of(0..4000usize),
        noise in proptest::collection::vec(any::<u8>(), 0..300),
    ) {
        let names = ["hello_2.0-1_arm64.deb", "libhello1_2.0-1_arm64.deb", "hello-data_2.0-1_all.deb"];
        let mut deb = fs::read(pool(names[which])).unwrap();
        for (at, byte) in changes {
            let at = at % deb.len();
            deb[at] = byte;
        }
        deb.truncate(end.unwrap_or(deb.len()));
        let _ = read_all(deb);
        for ending in ["", ".gz", ".xz", ".zst"] {
            let _ = read_all(package(ending, &noise));
        }
        let _ = read_all(noise);
    }
}
