use super::*;
use crate::providers::testing::{key, readings, snapshot};

const SF: MetricId = MetricId::SpeedupFactor(CoreTypeId(0));

/// A program in the shell's language, which is read line by line.
fn provider(script: &str) -> Exec {
    let text =
        format!("kind = \"exec\"\ncommand = [\"/bin/sh\", \"-c\", {script:?}]\nsilence_ms = 300\n");
    let mut p = Exec::new("p.toml", toml::from_str(&text).unwrap(), None).unwrap();
    p.event_sets(&Pmus::generic(&[vec![0], vec![1]], 4))
        .unwrap();
    p
}

fn interval(p: &mut Exec, ms: u64) {
    p.observe(&snapshot(
        ms,
        &[1, 2],
        vec![readings(1, 0, 0, 100, &[2000, 1000])],
    ));
    p.wait(Duration::from_secs(30));
}

/// Answers the hello with nothing and each sample with `answer`, in which N is its number.
fn answering(answer: &str) -> String {
    format!("read -r hello; n=0; while read -r line; do n=$((n+1)); echo '{answer}' | sed \"s/N/$n/\"; done")
}

const HONEST: &str = r#"{"seq":N,"estimates":[{"slot":1,"generation":1,"metric":"sf","core_type":0,"value":2.5,"u":0.1}]}"#;

#[test]
fn a_program_that_answers() {
    let mut p = provider(&answering(HONEST));
    interval(&mut p, 0);
    let e = p.estimate(key(1), SF).unwrap();
    assert_eq!((e.value, e.uncertainty), (2.5, Some(0.1)));
    assert_eq!(p.estimate(key(2), SF), None);
    assert_eq!(p.health(), Health::Working);
    interval(&mut p, 6000);
    assert!(p.estimate(key(1), SF).is_some());
}

#[test]
fn crash_garbage_and_lies_fail_and_are_told() {
    let lie = r#"{"seq":N,"estimates":[{"slot":1,"generation":1,"metric":"sf","core_type":0,"value":-1}]}"#;
    for (script, why) in [
        ("exit 3".to_owned(), "ended"),
        (
            "read -r l; echo hello; cat >/dev/null".to_owned(),
            "`hello`",
        ),
        (answering(r#"{"seq":99}"#), "sample 99"),
        (answering(lie), "no estimate"),
        ("read -r l; printf half".to_owned(), "within a line"),
    ] {
        let mut p = provider(&script);
        interval(&mut p, 0);
        let Health::Failed(text) = p.health() else {
            panic!("{script}: working");
        };
        assert!(
            text.contains(why) && text.contains("started again after 0.5 s"),
            "{script}: {text}"
        );
        assert_eq!(p.estimate(key(1), SF), None);
    }
}

#[test]
fn silence_fails_and_a_restart_comes_after_a_growing_pause() {
    // its output stays open, or it would count as ended
    let mut p = provider("while read -r line; do :; done");
    for ms in [0, 100, 200, 300] {
        p.observe(&snapshot(ms, &[1], vec![]));
        assert_eq!(p.health(), Health::Working);
    }
    p.observe(&snapshot(400, &[1], vec![]));
    assert!(matches!(p.health(), Health::Failed(t) if t.contains("said nothing for 300 ms")));
    p.observe(&snapshot(800, &[1], vec![]));
    assert!(p.running.is_none(), "the pause is not over");
    p.observe(&snapshot(900, &[1], vec![]));
    assert!(p.running.is_some());
    assert!(matches!(p.health(), Health::Failed(_)), "until it answers");
    p.observe(&snapshot(1300, &[1], vec![]));
    assert!(matches!(p.health(), Health::Failed(t) if t.contains("after 1 s")));
}

#[test]
fn a_program_that_is_not_there_is_named() {
    let text = "kind = \"exec\"\ncommand = [\"./no-such\"]\n";
    let mut p = Exec::new(
        "p",
        toml::from_str(text).unwrap(),
        Some(Path::new("/nowhere")),
    )
    .unwrap();
    interval(&mut p, 0);
    assert!(matches!(p.health(), Health::Failed(t) if t.contains("/nowhere/./no-such")));
}

/// Bug 1 of the review: a flood of answers kept the scheduler from everything else.
#[test]
fn a_flood_of_answers_is_cut_off() {
    // an answer that fills its line, so that reading is slower than writing
    let long = "printf '{\"seq\":0,\"estimates\":['; \
         head -c 3000000 /dev/zero | tr '\\0' ' '; echo ']}'";
    for (script, why) in [
        (
            r#"exec yes '{"seq":0}'"#.to_owned(),
            "sample 0; those up to 0",
        ),
        (
            r#"read -r l; read -r l; exec yes '{"seq":1}'"#.to_owned(),
            "sample 1; those up to 1",
        ),
        (
            format!("while true; do {long}; done"),
            "sample 0; those up to 0",
        ),
        ("exec tr '\\0' x </dev/zero".to_owned(), "too long"),
    ] {
        let mut p = provider(&script);
        p.silence = Nanos::from_millis(1_000_000);
        let begin = std::time::Instant::now();
        while p.failed.is_none() && begin.elapsed() < Duration::from_secs(60) {
            interval(&mut p, 0);
        }
        let Health::Failed(text) = p.health() else {
            panic!("{script}: working");
        };
        assert!(text.contains(why), "{script}: {text}");
        assert!(p.running.is_none());
    }
}

#[test]
fn the_pause_is_short_again_after_several_answers_only() {
    let mut p = provider(&answering(HONEST));
    p.pause = PAUSE.1;
    for n in 1..=SOUND {
        assert_eq!(p.pause, PAUSE.1);
        interval(&mut p, u64::from(n));
    }
    assert_eq!(p.pause, PAUSE.0);
}

/// What a program finds about itself in /proc, under the names that a shell gave to the parts.
struct Found(String);

impl Found {
    /// The lines of part `name`.
    fn part(&self, name: &str) -> Vec<&str> {
        let lines = self.0.lines().skip_while(|l| *l != format!("== {name}"));
        lines
            .skip(1)
            .take_while(|l| !l.starts_with("== "))
            .collect()
    }

    /// What follows `key` on its line of part `name`.
    fn value(&self, name: &str, key: &str) -> &str {
        let line = self
            .part(name)
            .into_iter()
            .find_map(|l| l.strip_prefix(key));
        line.unwrap_or_else(|| panic!("no {key} in {}", self.0))
            .trim()
    }
}

/// Runs a program as `user` that says what it finds, with a descriptor open that programs inherit.
fn what_a_program_finds(user: Option<(u32, u32)>) -> Found {
    let dir = tempfile::tempdir().unwrap();
    let told = dir.path().join("found");
    std::fs::write(&told, "").unwrap();
    if let Some((uid, gid)) = user {
        std::os::unix::fs::chown(&told, Some(uid), Some(gid)).unwrap();
        let open = std::os::unix::fs::PermissionsExt::from_mode(0o755);
        std::fs::set_permissions(dir.path(), open).unwrap();
    }
    let inherited = std::fs::File::create(dir.path().join("inherited")).unwrap();
    rustix::io::fcntl_setfd(&inherited, rustix::io::FdFlags::empty()).unwrap();
    let script = format!(
        "{{ echo == environment; tr '\\0' '\\n' </proc/$$/environ; \
         echo == limits; cat /proc/$$/limits; echo == status; cat /proc/$$/status; \
         echo == files; ls -l /proc/$$/fd; echo == end; }} >{}; cat >/dev/null",
        told.display()
    );
    let mut p = provider(&script).run_as(user);
    p.observe(&snapshot(0, &[1], vec![]));
    let found = || Found(std::fs::read_to_string(&told).unwrap());
    assert!(soon(|| found().0.ends_with("== end\n")), "{}", found().0);
    found()
}

#[test]
fn a_program_is_confined() {
    // who is not root runs it as itself only
    let root = rustix::process::geteuid().is_root();
    let users = [None, Some((65534, 65534))];
    for user in users.into_iter().take(if root { 2 } else { 1 }) {
        let f = what_a_program_finds(user);
        let mut environment = f.part("environment");
        environment.sort_unstable();
        let path = format!("PATH={}", confined::PATH);
        assert_eq!(environment, ["LANG=C", "LC_ALL=C", &path], "{}", f.0);
        let limit = |name| -> Vec<&str> {
            let values = f.value("limits", name).split_whitespace();
            values.take(2).collect()
        };
        assert_eq!(limit("Max core file size"), ["0", "0"]);
        for (name, most) in [
            ("Max open files", 256),
            ("Max address space", 4 << 30),
            ("Max processes", 4096),
        ] {
            for value in limit(name) {
                let value: u64 = value.parse().expect(name);
                assert!(value <= most, "{name}: {value}");
            }
        }
        assert_eq!(f.value("status", "NoNewPrivs:"), "1");
        for set in ["CapInh:", "CapPrm:", "CapEff:", "CapAmb:"] {
            assert_eq!(f.value("status", set), "0000000000000000", "{set}");
        }
        let uid = user.map_or(rustix::process::geteuid().as_raw(), |(uid, _)| uid);
        let uids = f.value("status", "Uid:").split_whitespace();
        assert!(uids.map(str::parse).all(|u| u == Ok(uid)), "{}", f.0);
        let files = f.part("files");
        assert!(files.iter().any(|l| l.contains(" 0 -> pipe:")), "{}", f.0);
        assert!(!files.iter().any(|l| l.contains("inherited")), "{}", f.0);
    }
}

/// Whether `what` is so within a minute.
fn soon(mut what: impl FnMut() -> bool) -> bool {
    let begin = std::time::Instant::now();
    while begin.elapsed() < Duration::from_secs(60) {
        if what() {
            return true;
        }
        std::thread::sleep(Duration::from_millis(5));
    }
    false
}

fn is_there(pid: i32) -> bool {
    // one that has ended, and that nobody has reaped yet, is gone
    std::fs::read_to_string(format!("/proc/{pid}/stat"))
        .is_ok_and(|s| !s.rsplit(") ").next().unwrap_or("").starts_with('Z'))
}

/// Not a test: what the next one kills.
#[test]
#[ignore = "it is run by another test"]
fn a_scheduler_that_is_killed() {
    let told = std::env::var("PROGRAM_TELLS").unwrap();
    let mut p = provider(&format!("echo $$ >{told}; exec cat >/dev/null"));
    p.observe(&snapshot(0, &[1], vec![]));
    std::thread::sleep(Duration::from_secs(600));
}

#[test]
fn a_program_does_not_outlive_a_scheduler_that_is_killed() {
    let dir = tempfile::tempdir().unwrap();
    let told = dir.path().join("pid");
    let mut scheduler = std::process::Command::new(std::env::current_exe().unwrap())
        .args(["--ignored", "--exact"])
        .arg("providers::exec::tests::a_scheduler_that_is_killed")
        .env("PROGRAM_TELLS", &told)
        .stdout(std::process::Stdio::null())
        .spawn()
        .unwrap();
    let pid = || -> Option<i32> { std::fs::read_to_string(&told).ok()?.trim().parse().ok() };
    let began = soon(|| pid().is_some());
    scheduler.kill().unwrap();
    scheduler.wait().unwrap();
    assert!(began);
    assert!(soon(|| !is_there(pid().unwrap())));
}

fn open_files() -> Vec<PathBuf> {
    let all = std::fs::read_dir("/proc/self/fd").unwrap().flatten();
    all.filter_map(|e| std::fs::read_link(e.path()).ok())
        .collect()
}

/// Bug 13 of the review: what the program had started stayed, with it two threads and two
/// pipes.
#[test]
fn nothing_is_left_behind() {
    // one that stays in the group, and one that leaves it and keeps the pipes
    let dir = tempfile::tempdir().unwrap();
    let told = dir.path().join("pids");
    let script = format!(
        "sleep 100 & echo $! >{0}; setsid sh -c 'echo $$ >>{0}; exec sleep 101' 2>/dev/null & \
         echo $$ >>{0}; while read -r line; do :; done",
        told.display()
    );
    let mut p = provider(&script);
    p.observe(&snapshot(0, &[1], vec![]));
    let pids = || -> Vec<i32> {
        let text = std::fs::read_to_string(&told).unwrap_or_default();
        let pids: Vec<i32> = text.lines().filter_map(|l| l.parse().ok()).collect();
        pids
    };
    assert!(soon(|| pids().len() == 3));
    let leader = p.running.as_ref().unwrap().id().unwrap();
    let pipes: Vec<PathBuf> = [0, 1]
        .map(|n| std::fs::read_link(format!("/proc/{leader}/fd/{n}")).unwrap())
        .into();
    assert!(pipes
        .iter()
        .all(|p| p.to_string_lossy().starts_with("pipe:")));
    drop(p);
    assert!(soon(|| !Path::new(&format!("/proc/{leader}")).exists()));
    let left = |pids: Vec<i32>| -> Vec<i32> { pids.into_iter().filter(|p| is_there(*p)).collect() };
    assert!(soon(|| left(pids()).len() == 1), "{:?}", left(pids()));
    // whose end of the pipes we do not wait for
    assert!(soon(|| pipes
        .iter()
        .all(|pipe| !open_files().contains(pipe))));
    for pid in left(pids()) {
        let _ = rustix::process::kill_process(
            rustix::process::Pid::from_raw(pid).unwrap(),
            rustix::process::Signal::KILL,
        );
    }
}
