use super::*;
use proptest::prelude::*;

const HEADER: &str = r#"{"format":"amp-windows","version":1,"platform":"p","date":"2026-11-20","core_types":[{"name":"big","events_per_set":2,"sets":[["a","b"],["c"]]},{"name":"little","events_per_set":2,"sets":[[]]}]}"#;

fn read(lines: &[&str]) -> Result<Dataset, DataError> {
    Dataset::read(Path::new("w.jsonl"), lines.join("\n").as_bytes())
}

#[test]
fn what_is_written_is_read_again() {
    let data = read(&[
        HEADER,
        r#"["x","big",0,0,0,100,50,40,0.5,[1,2]]"#,
        "",
        r#"["x","little",7,0,0,100,90,80,null,[]]"#,
        r#"["x","big",1,1,0,101,51,41,0.5,[3]]"#,
        r#"["x","big",0,0,1,100,50,40,0.25,[1,2]]"#,
    ])
    .unwrap();
    let x = &data.programs["x"];
    assert_eq!(
        (x[0].len(), x[0][0].windows.len(), x[1][0].number),
        (2, 2, 7)
    );
    assert_eq!((x[0][1].set, x[0][0].instructions()), (1, 200.0));
    let mut text = Vec::new();
    data.write(&mut text).unwrap();
    assert_eq!(Dataset::read(Path::new("w"), &text[..]).unwrap(), data);
}

#[test]
fn refusals_name_file_line_and_column() {
    let row = r#"["x","big",0,0,0,100,50,40,0.5,[1,2]]"#;
    for (second, line, wants) in [
        (
            r#"["x","huge",0,0,0,100,50,40,0.5,[1,2]]"#,
            3,
            ["(`core_type`)", "`little`"],
        ),
        (
            r#"["x","big",0,2,1,100,50,40,0.5,[1,2]]"#,
            3,
            ["(`set`)", "there are 2"],
        ),
        (
            r#"["x","big",0,1,1,100,50,40,0.5,[1]]"#,
            3,
            ["(`set`)", "event set 0 before"],
        ),
        (
            r#"["x","big",0,0,2,100,50,40,0.5,[1,2]]"#,
            3,
            ["(`window`)", "1 is the next"],
        ),
        (row, 3, ["(`window`)", "1 is the next"]),
        (
            r#"["x","big",0,0,1,0,50,40,0.5,[1,2]]"#,
            3,
            ["column 6 (`instructions`)", "above 0"],
        ),
        (
            r#"["x","big",0,0,1,9,0,40,0.5,[1,2]]"#,
            3,
            ["(`cycles`)", "above 0"],
        ),
        (
            r#"["x","big",0,0,1,9,1,0,0.5,[1,2]]"#,
            3,
            ["(`time`)", "above 0"],
        ),
        (
            r#"["x","big",0,0,1,9,1,1,-0.5,[1,2]]"#,
            3,
            ["(`energy`)", "at least 0"],
        ),
        (
            r#"["x","big",0,0,1,9,1,1,0.5,[1]]"#,
            3,
            ["(`counts`)", "2 events"],
        ),
        (
            r#"["","big",0,0,1,9,1,1,0.5,[1]]"#,
            3,
            ["(`program`)", "empty"],
        ),
        (
            r#"["x","big",0,0,1,-9,1,1,0.5,[1,2]]"#,
            3,
            ["character", "-9"],
        ),
        (r#"["x","big",0,0,1,9,1"#, 3, ["character 20", "cut off"]),
        (r#"{"x":1}"#, 3, ["character 0", "map"]),
    ] {
        let e = read(&[HEADER, row, second]).unwrap_err().to_string();
        let at = format!("w.jsonl: line {line}: ");
        assert!(
            e.starts_with(&at) && wants.iter().all(|w| e.contains(w)),
            "{second}: {e}"
        );
    }
}

#[test]
fn headers_that_are_refused() {
    for (from, to, want) in [
        ("amp-windows", "windows", "`format`"),
        (r#""version":1"#, r#""version":2"#, "`version`"),
        ("little", "big", "twice"),
        (r#""b"]"#, r#""b","d"]"#, "at most 2"),
        (r#"["c"]"#, r#"["a"]"#, "`a` is there twice"),
        (r#"["c"]"#, r#"["c d"]"#, "not a name"),
        (r#""sets":[[]]"#, r#""sets":[]"#, "`[[]]`"),
        (
            r#""events_per_set":2"#,
            r#""events_per_set":0"#,
            "within 1 to",
        ),
        ("platform", "platfrom", "platfrom"),
    ] {
        let e = read(&[&HEADER.replacen(from, to, 1)])
            .unwrap_err()
            .to_string();
        assert!(
            e.starts_with("w.jsonl: line 1: ") && e.contains(want),
            "{to}: {e}"
        );
    }
    assert!(read(&[]).unwrap_err().to_string().contains("empty"));
    let e = Dataset::read(Path::new("w"), &b"{\"\xff"[..])
        .unwrap_err()
        .to_string();
    assert!(e.contains("character 3: not UTF-8"), "{e}");
}

#[test]
fn files_of_one_platform_are_put_together() {
    let row = r#"["x","big",0,0,0,100,50,40,0.5,[1,2]]"#;
    let mut a = read(&[HEADER, row]).unwrap();
    let later = HEADER.replace("2026-11-20", "2026-12-01");
    let b = read(&[&later, &row.replace("\"x\"", "\"y\"")]).unwrap();
    let e = a
        .clone()
        .merge(Path::new("b"), a.clone())
        .unwrap_err()
        .to_string();
    assert!(e.starts_with("b: ") && e.contains("`x`"), "{e}");
    a.merge(Path::new("b"), b).unwrap();
    assert_eq!(
        (a.programs.len(), a.header.date.as_deref()),
        (2, Some("2026-12-01"))
    );
    let other = read(&[&HEADER.replace(r#""platform":"p""#, r#""platform":"q""#)]).unwrap();
    assert!(a
        .merge(Path::new("q"), other)
        .unwrap_err()
        .to_string()
        .contains("`q`"));
}

proptest! {
    /// Whatever bytes come: an answer that names the file, never a panic.
    #[test]
    fn garbage_is_refused(bytes in proptest::collection::vec(any::<u8>(), 0..200), headed in any::<bool>()) {
        let mut text = if headed { format!("{HEADER}\n").into_bytes() } else { Vec::new() };
        text.extend(&bytes);
        if let Err(e) = Dataset::read(Path::new("w.jsonl"), &text[..]) {
            prop_assert!(e.to_string().starts_with("w.jsonl: line "), "{e}");
        }
    }

    /// A file that is cut off anywhere: its whole lines, or a refusal.
    #[test]
    fn a_file_cut_off_anywhere(cut in 0usize..600) {
        let rows: Vec<String> =
            (0..8).map(|i| format!(r#"["x","big",0,0,{i},100,50,40,0.5,[1,2]]"#)).collect();
        let text = format!("{HEADER}\n{}\n", rows.join("\n"));
        let cut = cut.min(text.len());
        match Dataset::read(Path::new("w"), &text.as_bytes()[..cut]) {
            Ok(data) => {
                let lines = text[..cut].trim_end().lines().count() - 1;
                let windows = data.programs.get("x").map_or(0, |x| x[0][0].windows.len());
                prop_assert_eq!(windows, lines);
            }
            Err(e) => prop_assert!(e.to_string().starts_with("w: line "), "{}", e),
        }
    }
}
