use super::*;

fn leaves(text: &str) -> Vec<Leaf> {
    let MetricExpression(e) = text.parse().unwrap();
    e.leaves().to_vec()
}

fn event(name: &str) -> Leaf {
    Leaf::Value(name.to_owned())
}

fn metric(name: &str, expression: &str) -> PmuMetric {
    PmuMetric {
        name: name.into(),
        expression: expression.into(),
        ..PmuMetric::default()
    }
}

#[test]
fn names_are_those_of_the_command_line() {
    assert_eq!(
        leaves(r"cpu_core@UOPS_RETIRED.MS\,cmask\=1\,edge\=0x1@ / cpu@topdown\-retiring@k"),
        [
            event("cpu_core/UOPS_RETIRED.MS,cmask=1,edge=0x1/"),
            event("cpu/topdown-retiring/k")
        ]
    );
    assert_eq!(
        leaves(r"msr@tsc\,cpu=cpu_atom@ * 64 * UNC_M_CAS_COUNT.RD / 1e9 / duration_time"),
        [
            event("msr/tsc,cpu=cpu_atom/"),
            event("UNC_M_CAS_COUNT.RD"),
            event("duration_time")
        ]
    );
    assert_eq!(
        leaves("INST_RETIRED.ANY:k if #SMT_on else 4*1gb_pages"),
        [
            event("INST_RETIRED.ANY:k"),
            Leaf::Literal("smt_on".into()),
            event("1gb_pages")
        ]
    );
}

#[test]
fn functions_of_names() {
    assert_eq!(
        leaves("(a if strcmp_cpuid_str( 0x410fd493 ) | has_event(b) else source_count(c\\-d)) + min(a, 2)"),
        [
            event("a"),
            Leaf::IsProcessor("0x410fd493".into()),
            Leaf::HasEvent("b".into()),
            Leaf::Sources("c-d".into()),
        ]
    );
    for bad in [
        "has_event()",
        "has_event(a",
        "nothing(a)",
        "#",
        "#(",
        "@@ @",
    ] {
        let read = bad.parse::<MetricExpression>();
        assert!(read.is_err() || bad == "@@ @", "{bad}: {read:?}");
    }
}

#[test]
fn metrics_of_metrics_are_over_events_alone() {
    let m = Metrics::new([
        metric("tma_a", "slots_a / TMA_ALL"),
        metric("tma_all", "(u / 2 if #smt_on else u)"),
        metric("tma_b", "1 - tma_a"),
        metric("tma_a", "never / read"),
        // an event of the same name
        metric("cycles", "cycles"),
    ]);
    let known = |l: &Leaf| (*l == Leaf::Literal("smt_on".into())).then_some(0.0);
    let b = m.formula(m.get("TMA_B").unwrap(), &known).unwrap();
    assert_eq!(b.leaves(), [event("slots_a"), event("u")]);
    assert_eq!(b.evaluate(&[1.0, 4.0]).unwrap().0, 0.75);
    let cycles = m.formula(m.get("cycles").unwrap(), &known).unwrap();
    assert_eq!(cycles.leaves(), [event("cycles")]);
}

#[test]
fn circles_and_bad_formulas_are_refused() {
    let m = Metrics::new([
        metric("a", "b + 1"),
        metric("b", "a * 2"),
        metric("c", "1 +"),
        metric("d", "c"),
    ]);
    let e = |name: &str| m.formula(m.get(name).unwrap(), &|_| None).unwrap_err();
    assert_eq!(e("a"), MetricError::Circle { metric: "a".into() });
    assert!(e("d").to_string().contains("`c`"), "{}", e("d"));
}

/// What metrics are made of comes from files: many of many is no reason to go on for ever.
#[test]
fn metrics_in_metrics_are_bounded() {
    let twice = |i: usize| {
        [
            metric(&format!("a{i}"), &format!("a{0} + b{0}", i + 1)),
            metric(&format!("b{i}"), &format!("a{0} - b{0}", i + 1)),
        ]
    };
    let wide = Metrics::new((0..40).flat_map(twice));
    let e = wide.formula(wide.get("a0").unwrap(), &|_| None).unwrap();
    assert_eq!(e.leaves(), [event("a40"), event("b40")]);
    assert_eq!(e.evaluate(&[3.0, 1.0]).unwrap().0, 3.0 * 2f64.powi(20));
    let deep = Metrics::new((0..1000).map(|i| metric(&format!("m{i}"), &format!("m{}", i + 1))));
    let e = deep.formula(deep.get("m0").unwrap(), &|_| None);
    assert!(matches!(e, Err(MetricError::TooDeep { .. })), "{e:?}");
}

#[test]
fn a_threshold_may_name_its_own_metric() {
    let mut of = metric("tma_a", "x / y");
    of.threshold = Some("tma_a > 0.2 & tma_b < 1".into());
    let m = Metrics::new([of.clone(), metric("tma_b", "z")]);
    let t = m.threshold(&of, &|_| None).unwrap().unwrap();
    assert_eq!(t.leaves(), [event("x"), event("y"), event("z")]);
    assert_eq!(t.evaluate(&[1.0, 2.0, 0.0]).unwrap().0, 1.0);
    assert_eq!(t.evaluate(&[1.0, 2.0, 1.0]).unwrap().0, 0.0);
    assert!(m
        .threshold(m.get("tma_b").unwrap(), &|_| None)
        .unwrap()
        .is_none());
}

#[test]
fn factors_and_units() {
    let unit = |scale: &str| {
        let mut m = metric("m", "1");
        m.scale = (!scale.is_empty()).then(|| scale.to_owned());
        let (factor, unit) = m.unit();
        (factor, unit.map(str::to_owned))
    };
    let is = |u: &str| Some(u.to_owned());
    assert_eq!(unit("100%"), (100.0, is("%")));
    assert_eq!(unit("1per_instr"), (1.0, is("per_instr")));
    assert_eq!(unit("1events"), (1.0, is("events")));
    assert_eq!(unit("6.103515625e-5MiB"), (6.103515625e-5, is("MiB")));
    assert_eq!(unit("1percent of slots"), (1.0, is("percent of slots")));
    assert_eq!(unit(""), (1.0, None));
    assert_eq!(unit("e9"), (1.0, is("e9")));
}
