use super::*;

fn signatures() -> Signatures {
    Signatures::shipped().unwrap()
}

fn interval(bytes: Option<f64>) -> Interval {
    Interval {
        seconds: 0.1,
        on: vec![ThreadCounts {
            seconds: 0.1,
            instructions: 1e6,
            bytes,
            ..ThreadCounts::default()
        }],
        running: 1,
    }
}

const TOP: Option<Attainable> = Some(Attainable {
    rate: 1e9,
    u: Some(1e7),
});

#[test]
fn a_rate_near_the_top_for_long_is_saturation() {
    let s = signatures();
    let rates =
        |r: &[f64]| -> Vec<Interval> { r.iter().map(|r| interval(Some(r * 1e9 * 0.1))).collect() };
    let f = bandwidth(&s, &rates(&[0.1, 0.95, 0.97, 0.2]), TOP);
    assert_eq!(f.verdict, Verdict::Present);
    assert!((f.figures[0].value - 0.96).abs() < 1e-9 && f.figures[0].u.unwrap() > 0.0);
    let f = bandwidth(&s, &rates(&[0.1, 0.5, 0.6, 0.5, 0.95]), TOP);
    assert_eq!(f.verdict, Verdict::Absent, "a fifth of the time only");
}

#[test]
fn what_cannot_be_told_is_said() {
    let s = signatures();
    assert_eq!(bandwidth(&s, &[], TOP).verdict, Verdict::Unknown);
    let f = bandwidth(&s, &[interval(None)], TOP);
    assert!(f.verdict == Verdict::Unknown && f.because.contains("no event"));
    let f = bandwidth(&s, &[interval(Some(1.0))], None);
    assert!(f.verdict == Verdict::Unknown && f.because.contains("--attainable"));
    let f = sharing(&s, &[interval(None)], &["big".into()]);
    assert_eq!(f.verdict, Verdict::Unknown);
}

fn thread(cpu_s: f64, c: ThreadCounts) -> Thread {
    Thread {
        tid: 1,
        cpu_s,
        coverage: 0.99,
        on: vec![c],
    }
}

fn work(instructions: f64, useful: Option<f64>, refills: Option<f64>) -> ThreadCounts {
    ThreadCounts {
        instructions,
        useful,
        refills,
        ..ThreadCounts::default()
    }
}

#[test]
fn spinning_does_not_hide_imbalance_where_work_is_counted() {
    let s = signatures();
    // the second thread waits by spinning: as many instructions, a third of the work
    let threads = [
        thread(1.0, work(1e6, Some(3e5), Some(3e4))),
        thread(1.0, work(1e6, Some(1e5), Some(1e4))),
    ];
    let f = imbalance(&s, &threads);
    assert_eq!(f.verdict, Verdict::Present);
    assert!((f.figures[0].value - 0.5).abs() < 1e-9, "{f:?}");
    assert!(f.figures[0].what.contains("useful"));
    // without floating point, by data
    let by_data: Vec<Thread> = threads
        .iter()
        .map(|t| thread(1.0, work(1e6, Some(3.0), t.on[0].refills)))
        .collect();
    let f = imbalance(&s, &by_data);
    assert!(f.verdict == Verdict::Present && f.figures[0].what.contains("L1D"));
}

#[test]
fn idlers_are_no_workers() {
    let s = signatures();
    let worker = || thread(1.0, work(1e6, Some(3e5), None));
    let idler = thread(0.01, work(1e3, Some(0.0), None));
    let f = imbalance(&s, &[worker(), worker(), idler.clone()]);
    assert_eq!(f.verdict, Verdict::Absent, "{f:?}");
    let f = imbalance(&s, &[worker(), idler]);
    assert!(f.verdict == Verdict::Absent && f.because.contains("one thread"));
}

#[test]
fn the_worst_core_type_decides_on_sharing() {
    let s = signatures();
    let on = |shared, instructions| ThreadCounts {
        instructions,
        shared,
        ..ThreadCounts::default()
    };
    let all: Vec<Interval> = (0..4)
        .map(|i| Interval {
            seconds: 0.1,
            on: vec![on(Some(1.0), 1e6), on(Some(2e4 + f64::from(i)), 1e6)],
            running: 2,
        })
        .collect();
    let names = ["big".to_owned(), "little".to_owned()];
    let f = sharing(&s, &all, &names);
    assert_eq!(f.verdict, Verdict::Present);
    assert!(f.figures[0].what.contains("little") && f.figures.len() == 2);
    assert!(f.figures[0].u.unwrap() > 0.0);
    let f = sharing(&s, &all, &names[..1]);
    assert_eq!(f.verdict, Verdict::Absent);
}

#[test]
fn lines_that_bounce_are_no_work() {
    let s = signatures();
    let worker = |shared| {
        let c = ThreadCounts {
            shared: Some(shared),
            ..work(1e6, None, Some(shared + 10.0))
        };
        thread(1.0, c)
    };
    let f = imbalance(&s, &[worker(9e4), worker(3e4)]);
    assert_eq!(f.verdict, Verdict::Absent, "{f:?}");
    assert!(f.figures[0].what.contains("instructions"));
}

#[test]
fn a_visit_to_a_core_type_decides_nothing() {
    let on = |instructions, shared| ThreadCounts {
        instructions,
        shared: Some(shared),
        ..ThreadCounts::default()
    };
    let all = [Interval {
        seconds: 0.1,
        on: vec![on(1e4, 100.0), on(1e6, 1.0)],
        running: 2,
    }];
    let names = ["big".to_owned(), "little".to_owned()];
    let f = sharing(&signatures(), &all, &names);
    assert!(
        f.verdict == Verdict::Absent && f.figures.len() == 1,
        "{f:?}"
    );
}
