use super::*;
use amp_metrics::memory::{Executable, Key};
use std::os::unix::fs::PermissionsExt;

fn folder() -> tempfile::TempDir {
    let dir = tempfile::tempdir().unwrap();
    std::fs::set_permissions(dir.path(), std::fs::Permissions::from_mode(0o700)).unwrap();
    dir
}

fn learn(r: &Remembering, path: &str, factor: f64) {
    let mut comm = [0; 16];
    comm[..4].copy_from_slice(b"prog");
    let key = Key {
        on: "big=1024 little=446".into(),
        executable: Executable {
            path: path.to_owned(),
            size: 1,
            mtime_ns: 1,
        },
        name: amp_metrics::ProgramName::any(comm),
    };
    let mut m = r.shared.lock();
    let id = m.enter(&key, wall_clock()).unwrap();
    m.learn(id, (0, 0), (factor, 0.1), wall_clock());
}

fn begin(path: &Path) -> Remembering {
    Remembering::begin(Some(path)).unwrap().unwrap()
}

fn mode(path: &Path) -> u32 {
    path.metadata().unwrap().permissions().mode() & 0o7777
}

#[test]
fn what_one_run_has_learned_the_next_one_knows() {
    let dir = folder();
    let path = dir.path().join("memory.json");
    let first = begin(&path);
    assert!(first.list().is_empty() && !path.exists());
    learn(&first, "/bin/a", 2.0);
    learn(&first, "/opt/b/game", 3.0);
    drop(first);
    assert_eq!(mode(&path), 0o600);
    let second = begin(&path);
    assert_eq!(second.list().len(), 2);
    let what = second.what();
    assert!(what.ends_with("memory.json: 2 programs"), "{what}");
    assert_eq!(second.failed(), None);
    let shown = table(&second.list());
    assert!(
        shown.contains("/opt/b/game") && shown.contains("sf big 3.00 ± 0.32"),
        "{shown}"
    );
    let json = serde_json::to_string(&second.list()).unwrap();
    let read: Vec<ProgramLine> = serde_json::from_str(&json).unwrap();
    assert_eq!(read, second.list());
    for (pattern, says) in [
        ("game?", "0 programs forgotten"),
        ("/opt/*", "0 programs forgotten"),
        ("/opt/**", "1 program forgotten"),
        ("prog", "1 program forgotten"),
    ] {
        let pattern = Pattern::parse(pattern).unwrap();
        assert_eq!(second.forget(Some(&pattern)), says);
    }
    drop(second);
    assert!(begin(&path).list().is_empty());
    for bad in ["", "["] {
        assert!(Pattern::parse(bad).unwrap_err().is::<amp_host::BadInput>());
    }
}

#[test]
fn forgetting_all_is_written_at_once() {
    let dir = folder();
    let path = dir.path().join("m");
    let first = begin(&path);
    learn(&first, "/bin/a", 2.0);
    drop(first);
    let second = begin(&path);
    assert_eq!(second.forget(None), "1 program forgotten");
    for _ in 0..6000 {
        let text = std::fs::read_to_string(&path).unwrap();
        if !text.contains("/bin/a") {
            return;
        }
        std::thread::sleep(Duration::from_millis(10));
    }
    panic!("still there");
}

#[test]
fn a_file_that_cannot_be_used_is_kept_aside_and_memory_begins_anew() {
    let dir = folder();
    let good = dir.path().join("good");
    let first = begin(&good);
    learn(&first, "/bin/a", 2.0);
    drop(first);
    let text = std::fs::read_to_string(&good).unwrap();
    let path = dir.path().join("memory.json");
    let aside = dir.path().join("memory.json.refused");
    let write = |text: &str| std::fs::write(&path, text).unwrap();
    let newer = format!("version {}", memory::VERSION + 1);
    let cases: [(&str, &dyn Fn()); 7] = [
        ("not a memory", &|| write("[")),
        ("not a memory", &|| write(&text[..text.len() / 2])),
        (&newer, &|| {
            let version = |v: u32| format!("memory\":{v}");
            write(&text.replace(&version(memory::VERSION), &version(memory::VERSION + 1)))
        }),
        ("longer than 8 MiB", &|| {
            let f = std::fs::File::create(&path).unwrap();
            f.set_len((8 << 20) + 1).unwrap();
        }),
        ("others may change it", &|| {
            write(&text);
            std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o666)).unwrap();
        }),
        ("not a regular file", &|| {
            rustix::fs::mkfifoat(rustix::fs::CWD, &path, 0o600.into()).unwrap();
        }),
        ("a symbolic link", &|| {
            std::os::unix::fs::symlink(&good, &path).unwrap();
        }),
    ];
    for (wants, make) in cases {
        make();
        let why = match file::read(&path) {
            Err(why) => why,
            Ok(text) => memory::read(&text.unwrap(), wall_clock())
                .unwrap_err()
                .to_string(),
        };
        assert!(why.contains(wants), "{wants}: {why}");
        let anew = begin(&path);
        assert!(anew.list().is_empty() && anew.failed().is_none(), "{wants}");
        assert!(std::fs::symlink_metadata(&aside).is_ok(), "{wants}");
        learn(&anew, "/bin/new", 2.0);
        drop(anew);
        assert_eq!(begin(&path).list().len(), 1, "{wants}");
        std::fs::remove_file(&path).unwrap();
        std::fs::remove_file(&aside).unwrap();
    }
    assert_eq!(std::fs::read_to_string(&good).unwrap(), text);
    // what cannot be put aside stays, and memory is kept in this run alone
    std::fs::create_dir(&path).unwrap();
    std::fs::write(&aside, "").unwrap();
    let without = begin(&path);
    learn(&without, "/bin/new", 2.0);
    assert!(without.failed().unwrap().contains("cannot be put aside"));
    drop(without);
    assert!(path.is_dir());
}

#[test]
fn the_folder_is_ours_alone() {
    let dir = folder();
    let inside = dir.path().join("lib/scx_amp/memory.json");
    file::make_folder(&inside).unwrap();
    assert_eq!(mode(inside.parent().unwrap()), 0o700);
    let bad = |path: &Path| {
        let e = Remembering::begin(Some(path)).err().unwrap();
        assert!(e.is::<amp_host::BadInput>(), "{e:#}");
        e.to_string()
    };
    std::fs::set_permissions(
        inside.parent().unwrap(),
        std::fs::Permissions::from_mode(0o777),
    )
    .unwrap();
    assert!(bad(&inside).contains("others may change its folder"));
    assert!(bad(&dir.path().join("no/memory.json")).contains("No such file"));
    assert!(bad(Path::new("/")).contains("want the path of a file"));
    // the usual folder is not the user's to mend before there is a scheduler
    let r = Remembering::with(inside, Some("why".to_owned()));
    assert_eq!(r.failed().as_deref(), Some("why"));
}

#[test]
fn a_full_disk_keeps_what_was_there() {
    let dir = folder();
    let path = dir.path().join("memory.json");
    let first = begin(&path);
    learn(&first, "/bin/a", 2.0);
    drop(first);
    let before = std::fs::read_to_string(&path).unwrap();
    // a folder in the way of the new file: it cannot be made
    std::fs::create_dir(dir.path().join("memory.json.new")).unwrap();
    let second = begin(&path);
    learn(&second, "/bin/b", 2.0);
    drop(second);
    assert_eq!(std::fs::read_to_string(&path).unwrap(), before);
}

#[test]
fn none_remembers_nothing() {
    assert!(Remembering::begin(Some(Path::new(NONE))).unwrap().is_none());
    assert_eq!(path(None).unwrap(), Path::new(PATH));
}
