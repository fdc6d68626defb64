use super::*;

fn kernel() -> Kernel {
    Kernel {
        release: "7".into(),
        package: "p".into(),
        version: "1".into(),
        suite: "sid".into(),
        refused: None,
    }
}

fn outcome() -> Outcome {
    Outcome {
        exit_code: 0,
        console: String::new(),
        files: BTreeMap::new(),
        missing: vec![],
        kernel_log: String::new(),
        kernel: kernel(),
        qemu: serde_json::from_str(r#"{"version":"10.0.2","folder":"q","packages":[]}"#).unwrap(),
        host_seconds: 0.0,
    }
}

fn write_mailbox(path: &Path, state: u32, code: i32, payload: &[u8]) {
    let mut m = vec![0; mailbox::PAYLOAD_AT];
    m[..40].copy_from_slice(&Header::of(state, code, payload).to_bytes());
    m.extend(payload);
    fs::write(path, m).unwrap();
}

#[test]
fn results_come_out_of_the_mailbox() {
    let t = tempfile::tempdir().unwrap();
    let path = t.path().join("m");
    let mut tar = tar::Builder::new(Vec::new());
    for (name, data) in [
        ("tmp/x", "data"),
        (mailbox::MISSING, "/nope\n"),
        (mailbox::KERNEL_LOG, "boot\n"),
    ] {
        let mut h = tar::Header::new_gnu();
        h.set_size(data.len() as u64);
        h.set_mode(0o644);
        tar.append_data(&mut h, name, data.as_bytes()).unwrap();
    }
    write_mailbox(&path, mailbox::DONE, 7, &tar.into_inner().unwrap());
    let mut o = outcome();
    read_results(&path, vec![], &mut o).unwrap();
    assert_eq!(o.exit_code, 7);
    assert_eq!(o.files.get("/tmp/x").map(Vec::as_slice), Some(&b"data"[..]));
    assert_eq!(
        (o.missing, o.kernel_log.as_str()),
        (vec!["/nope".to_string()], "boot\n")
    );
    assert_eq!(o.files.len(), 1);
}

#[test]
fn an_agent_that_failed_or_never_reported_is_an_error() {
    let t = tempfile::tempdir().unwrap();
    let path = t.path().join("m");
    write_mailbox(&path, mailbox::FAILED, 0, b"no room");
    let e = read_results(&path, vec![], &mut outcome()).unwrap_err();
    assert!(
        matches!(&e, BoardError::Agent { message, .. } if message == "no room"),
        "{e}"
    );
    write_mailbox(&path, mailbox::EMPTY, 0, b"");
    let e = read_results(&path, vec!["last".into()], &mut outcome()).unwrap_err();
    assert!(
        matches!(&e, BoardError::NoResult { console } if console == &["last"]),
        "{e}"
    );
}

#[test]
fn commas_in_paths_do_not_end_qemus_options() {
    assert_eq!(escaped(b"/a,b/c"), b"/a,,b/c");
    let mut c = Command::new("x");
    shared_memory(&mut c, "page", Path::new("/c,d/page"), 64);
    let args: Vec<_> = c
        .get_args()
        .map(|a| a.to_string_lossy().into_owned())
        .collect();
    assert_eq!(
        args[1],
        "memory-backend-file,id=page,size=64,share=on,mem-path=/c,,d/page"
    );
    let mut c = Command::new("x");
    disk(&mut c, Path::new("/c,d/disk"));
    let drive = c.get_args().nth(1).unwrap_or_default().to_string_lossy();
    assert!(drive.ends_with(",file=/c,,d/disk"), "{drive}");
}

#[test]
fn an_unknown_machine_is_refused_before_anything_else() {
    assert!(matches!(
        Guest::amp("no-such-machine"),
        Err(BoardError::Machine(_))
    ));
}
