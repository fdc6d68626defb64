use super::*;
use rustix::process::Pid;
use std::path::Path;

fn launch(command: &[&str]) -> Launch {
    let command: Vec<String> = command.iter().map(|s| (*s).into()).collect();
    Launch::new(&command).unwrap().called("app `p`")
}

fn apart(command: &[&str]) -> Launch {
    launch(command).apart().unwrap()
}

fn run_to_end(p: &mut Process) -> Result<(), LaunchError> {
    while !p.ended()? {
        wait_any(std::iter::once(&*p), Duration::from_secs(10))?;
    }
    Ok(())
}

#[test]
fn a_program_runs_to_its_end() {
    let mut p = apart(&["true"]).on_cpus(&[0]).start().unwrap();
    run_to_end(&mut p).unwrap();
}

#[test]
fn failure_is_told_with_the_programs_own_words() {
    let mut p = apart(&["ls", "/nonexistent-dir"]).start().unwrap();
    let e = run_to_end(&mut p).unwrap_err().to_string();
    assert!(
        e.contains("app `p` ended with status") && e.contains("nonexistent-dir"),
        "{e}"
    );
    assert!(p.last_words(5).len() <= 5);
}

#[test]
fn programs_have_huge_pages_although_we_have_none() {
    crate::memory::no_huge_pages();
    let p = launch(&["grep", "THP_enabled", "/proc/self/status"]);
    let mut p = p.apart_with_output().unwrap().start().unwrap();
    run_to_end(&mut p).unwrap();
    assert_eq!(p.last_words(100), "THP_enabled:\t1");
    // not while another test starts a program
    let none = || {
        std::thread::sleep(Duration::from_millis(1));
        let ours = std::fs::read_to_string("/proc/self/status").unwrap();
        ours.contains("THP_enabled:\t0")
    };
    assert!((0..1000).any(|_| none()));
}

#[test]
fn output_is_kept_with_errors() {
    let script = "echo out; echo err >&2; trap 'echo asked; exit 3' INT; kill -INT $$";
    let p = launch(&["sh", "-c", script]).apart_with_output().unwrap();
    let mut p = p.start().unwrap();
    assert!(run_to_end(&mut p).is_err());
    assert_eq!(p.last_words(100), "out\nerr\nasked");
    let p = launch(&["sleep", "1000"]).apart_with_output().unwrap();
    let mut p = p.start().unwrap();
    p.interrupt();
    assert_eq!(p.status().unwrap(), 128 + 2);
}

#[test]
fn a_program_apart_can_be_interrupted_although_we_ignore_that() {
    // SAFETY: the call takes two numbers; all other tests start programs that do not inherit this.
    let before = unsafe { libc::signal(libc::SIGINT, libc::SIG_IGN) };
    let p = launch(&["sleep", "1000"]).apart().unwrap();
    let mut p = p.start().unwrap();
    p.interrupt();
    // SAFETY: the same.
    unsafe { libc::signal(libc::SIGINT, before) };
    assert_eq!(p.status().unwrap(), 128 + 2);
}

#[test]
fn a_missing_program_is_named() {
    let e = apart(&["no-such-program"]).start().unwrap_err().to_string();
    assert!(e.contains("no-such-program"), "{e}");
    let e = launch(&["/no/such/program"]).hold().unwrap();
    let e = e.release().unwrap_err();
    assert!(matches!(&e, LaunchError::Program { program, .. } if program == "/no/such/program"));
    assert!(matches!(Launch::new(&[]), Err(LaunchError::Empty)));
}

#[test]
fn dropping_kills_the_whole_group() {
    let p = apart(&["sh", "-c", "sleep 1000 & sleep 1000"]).start();
    let p = p.unwrap();
    let pid = Pid::from_raw(p.pid()).unwrap();
    drop(p);
    // the group is gone as soon as its last member has been reaped, which init does for the
    // orphan
    for _ in 0..500 {
        if rustix::process::test_kill_process_group(pid).is_err() {
            return;
        }
        std::thread::sleep(Duration::from_millis(10));
    }
    panic!("the process group is still there");
}

#[test]
fn a_held_program_waits_for_its_release() {
    let dir = tempfile::tempdir().unwrap();
    let mark = dir.path().join("ran");
    let script = format!("echo > {}; exit 7", mark.display());
    let held = launch(&["sh", "-c", &script]).hold().unwrap();
    assert!(Path::new(&format!("/proc/{}", held.pid())).exists());
    assert!(!mark.exists());
    let mut p = held.release().unwrap();
    while !wait_any(std::iter::once(&p), Duration::from_secs(10)).unwrap() {}
    assert!(mark.exists());
    assert_eq!(p.status().unwrap(), 7);
}

#[test]
fn a_held_program_that_is_dropped_never_runs() {
    let dir = tempfile::tempdir().unwrap();
    let mark = dir.path().join("ran");
    let held = launch(&["touch", &mark.display().to_string()]).hold();
    let held = held.unwrap();
    let process = format!("/proc/{}", held.pid());
    drop(held);
    for _ in 0..500 {
        if !Path::new(&process).exists() {
            break;
        }
        std::thread::sleep(Duration::from_millis(10));
    }
    assert!(!Path::new(&process).exists() && !mark.exists());
}

#[test]
fn a_signal_is_told_as_shells_do() {
    let held = launch(&["sleep", "1000"]).hold().unwrap();
    let mut p = held.release().unwrap();
    p.end();
    assert_eq!(p.status().unwrap(), 128 + 15);
}

#[test]
fn a_program_gets_what_was_asked_for() {
    let script = "pwd; env | cut -d= -f1; ulimit -t; cat /proc/self/personality; \
         grep Cpus_allowed_list /proc/self/status";
    let dir = tempfile::tempdir().unwrap();
    let dir = dir.path().canonicalize().unwrap();
    let out = dir.join("out");
    let held = launch(&["sh", "-c", &format!("({script}) > {}", out.display())])
        .in_dir(&dir)
        .clean_environment()
        .cpu_time_limit(Duration::from_secs(77))
        .fixed_addresses()
        .on_cpus(&[0])
        .hold()
        .unwrap();
    assert_eq!(held.release().unwrap().status().unwrap(), 0);
    let said = std::fs::read_to_string(&out).unwrap();
    let lines: Vec<&str> = said.lines().collect();
    assert_eq!(lines.first(), Some(&dir.to_str().unwrap()), "{said}");
    let names = ["PATH", "HOME", "LC_ALL", "77"];
    assert!(names.iter().all(|n| lines.contains(n)), "{said}");
    assert!(!lines.contains(&"CARGO_MANIFEST_DIR"), "{said}");
    assert!(said.contains("Cpus_allowed_list:\t0\n"), "{said}");
    // a container may forbid it
    let fixed = lines.contains(&"00040000");
    let allowed = launch(&["setarch", "-R", "true"]).hold().unwrap();
    let allowed = allowed
        .release()
        .is_ok_and(|mut p| p.status().is_ok_and(|s| s == 0));
    assert!(fixed || !allowed, "{said}");
}

#[test]
fn a_start_copies_none_of_our_memory() {
    const PAGES: usize = 1024;
    let mut ours = vec![1u8; PAGES * 4096];
    // held, the child has its copy, if it makes one
    let held = launch(&["true"]).hold().unwrap();
    let faults = || {
        // SAFETY: `usage` is plain data, for which zeros are valid; the call only writes it.
        unsafe {
            let mut usage: libc::rusage = std::mem::zeroed();
            libc::getrusage(libc::RUSAGE_THREAD, &mut usage);
            usage.ru_minflt
        }
    };
    let before = faults();
    ours.iter_mut().step_by(4096).for_each(|b| *b += 1);
    let after = faults();
    assert!(after - before < PAGES as i64 / 8, "{before} {after}");
    assert_eq!(std::hint::black_box(ours)[4096], 2);
    assert_eq!(held.release().unwrap().status().unwrap(), 0);
}

#[test]
fn a_program_has_signals_as_from_a_shell() {
    let script = "grep -E '^Sig(Blk|Ign)' /proc/self/status";
    let p = launch(&["sh", "-c", script]).apart_with_output().unwrap();
    let mut p = p.env("A", "b").start().unwrap();
    run_to_end(&mut p).unwrap();
    let said = p.last_words(200);
    let mask = |name: &str| {
        let line = said.lines().find_map(|l| l.strip_prefix(name));
        u64::from_str_radix(line.unwrap_or_default().trim(), 16).unwrap()
    };
    assert_eq!(mask("SigBlk:"), 0, "{said}");
    let pipe = 1u64 << (libc::SIGPIPE - 1);
    assert_eq!(mask("SigIgn:") & pipe, 0, "{said}");
}

#[test]
fn a_program_of_another_user_has_none_of_our_groups() {
    if !rustix::process::geteuid().is_root() {
        println!("skipped: only root can start programs of other users");
        return;
    }
    let user = Some((65534, 65533));
    let p = launch(&["id"]).as_user(user).in_dir(Path::new("/"));
    let mut p = p.apart_with_output().unwrap().start().unwrap();
    run_to_end(&mut p).unwrap();
    let said = p.last_words(200);
    assert!(
        said.contains("uid=65534") && said.contains("gid=65533"),
        "{said}"
    );
    let groups = said.split("groups=").nth(1).unwrap_or_default();
    assert!(
        groups.starts_with("65533") && !groups.contains(','),
        "{said}"
    );
}

#[test]
fn many_threads_start_programs_at_a_time() {
    let start = |n: usize| {
        let p = apart(&["sh", "-c", &format!("exit {n}")]);
        p.start().unwrap().status().unwrap()
    };
    std::thread::scope(|s| {
        let all: Vec<_> = (0..4)
            .map(|t| s.spawn(move || (0..20).map(|n| start(t * 20 + n)).collect::<Vec<_>>()))
            .collect();
        for (t, one) in all.into_iter().enumerate() {
            let expected: Vec<u8> = (0..20).map(|n| (t * 20 + n) as u8).collect();
            assert_eq!(one.join().unwrap(), expected);
        }
    });
}
