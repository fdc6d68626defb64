use super::*;
use proptest::prelude::*;

/// An expression whose leaves are single letters, which functions do not begin with.
fn parse(text: &str) -> Result<Expression<char>, ExpressionError> {
    let mut leaf = |rest: &str| {
        let mut chars = rest.chars();
        let first = chars.next()?;
        let alone = !chars
            .next()
            .is_some_and(|c| c.is_alphanumeric() || c == '_');
        (first.is_ascii_alphabetic() && alone).then_some((first, 1))
    };
    Expression::parse(text, &mut leaf)
}

/// The value with a = 2, b = 3, c = 0.
fn value(text: &str) -> Option<f64> {
    let e = parse(text).unwrap();
    let of = |l: &char| match l {
        'a' => 2.0,
        'b' => 3.0,
        _ => 0.0,
    };
    let values: Vec<f64> = e.leaves().iter().map(of).collect();
    e.evaluate(&values).map(|(v, _)| v)
}

#[test]
fn operators_bind_as_in_perf() {
    for (text, right) in [
        ("1 + 2 * 3", 7.0),
        ("(1 + 2) * 3", 9.0),
        ("2 - 3 - 4", -5.0),
        ("8 / 4 / 2", 1.0),
        ("-2 * -3", 6.0),
        ("--2", 2.0),
        ("7 % 4 * 2", 6.0),
        ("7.9 % 4", 3.0),
        ("1 < 2 & 3 > 2", 1.0),
        ("1 + 1 < 2", 0.0),
        ("0 | 1 ^ 1", 0.0),
        ("1 | 1 ^ 1", 1.0),
        ("0 ^ 1 & 0", 0.0),
        ("5 & 2", 1.0),
        ("1 if c else 2", 2.0),
        ("1 if a > b else 2 if c else 3", 3.0),
        ("(1 if 3 else 2) + 4", 5.0),
        ("min(a, b) + max(a, b) * 10", 32.0),
        ("max( a if c else b , 1 )", 3.0),
        ("d_ratio(b, a) + d_ratio(b, c)", 1.5),
        ("1e3 * 2.5e-1", 250.0),
    ] {
        assert_eq!(value(text), Some(right), "{text}");
    }
    assert_eq!(value("a / c"), None);
    assert_eq!(value("a % c"), None);
    // what is not chosen may be anything
    assert_eq!(value("a / c if c else a"), Some(2.0));
}

#[test]
fn what_is_no_expression_is_refused() {
    let e = |t: &str| parse(t).unwrap_err().to_string();
    assert!(e("").contains("value must come"));
    assert!(e("a +").contains("value must come"));
    assert!(e("(a").contains("without `)`"));
    assert!(e("a)").contains("without `(`"));
    assert!(e("a b").contains("operator"));
    assert!(e("a if b").contains("without `else`"));
    assert!(e("min(a)").contains("`,`"), "{}", e("min(a)"));
    assert_eq!(
        parse("a * what+1"),
        Err(ExpressionError::NoValue("what".into()))
    );
    for deep in ["(", "-", "min(", "a if a else "] {
        let e = e(&deep.repeat(5000));
        assert!(e.contains("brackets"), "{deep}: {e}");
    }
}

#[test]
fn what_is_known_is_worked_out_and_what_is_needless_left_out() {
    let e = parse("(a * 2 if s else b) + (c & z) * x + (x if t > 1 else x)").unwrap();
    let known = e.with(&mut |l| match l {
        's' => Some(Expression::constant(0.0)),
        'z' => Some(Expression::constant(0.0)),
        _ => None,
    });
    assert_eq!(known.leaves(), ['b', 'x']);
    assert_eq!(known.evaluate(&[3.0, 5.0]).unwrap().0, 8.0);
}

#[test]
fn equal_parts_are_one() {
    let half = parse("a / b").unwrap();
    let mut e = half.clone();
    for _ in 0..40 {
        // each time twice as many, were they not one
        e = parse("x + x * x").unwrap().with(&mut |_| Some(e.clone()));
    }
    assert!(e.nodes.len() < 100, "{}", e.nodes.len());
    assert_eq!(e.leaves(), ['a', 'b']);
    assert_eq!(half.times(4.0).evaluate(&[1.0, 2.0]).unwrap().0, 2.0);
}

proptest! {
    /// Any text is an expression or an error, never the end of the program.
    #[test]
    fn no_text_is_too_odd(s in "([-+*/%()<>|&^=. a-z0-9é:,]|if|else|min|max){0,60}") {
        if let Ok(e) = parse(&s) {
            let values = vec![1.0; e.leaves().len()];
            let _ = e.evaluate(&values);
            prop_assert!(e.evaluate(&values[..values.len().saturating_sub(1)]).is_none() || values.is_empty());
        }
    }

    /// Derivatives are those of small differences.
    #[test]
    fn derivatives(a in 1.0f64..10.0, b in 1.0f64..10.0) {
        for text in [
            "(a - 2 * b) / (b * b + 1)",
            "max(a, b) * -a + d_ratio(a, b)",
            "(a * b if a > b else b / a) + min(a * 2, b)",
        ] {
            let e = parse(text).unwrap();
            let (_, d) = e.evaluate(&[a, b]).unwrap();
            let h = 1e-5;
            let at = |a, b| e.evaluate(&[a, b]).unwrap().0;
            let by_a = (at(a + h, b) - at(a - h, b)) / (2.0 * h);
            let by_b = (at(a, b + h) - at(a, b - h)) / (2.0 * h);
            // not across a bend
            if (a - b).abs() > 0.01 && (2.0 * a - b).abs() > 0.01 {
                prop_assert!((d[0] - by_a).abs() < 1e-4, "{text}");
                prop_assert!((d[1] - by_b).abs() < 1e-4, "{text}");
            }
        }
    }

    /// What is put in place of names changes no value.
    #[test]
    fn replacing_keeps_the_value(a in 0.5f64..9.0, b in 0.5f64..9.0, truth: bool) {
        let e = parse("(x / y if t else y - x) * max(x, 2) + (t | x > y)").unwrap();
        let with = e.with(&mut |l| match l {
            'x' => parse("a * b + 1").ok(),
            't' => Some(Expression::constant(f64::from(u8::from(truth)))),
            _ => None,
        });
        let x = a * b + 1.0;
        let direct = match truth { true => x / b, false => b - x } * x.max(2.0)
            + f64::from(u8::from(truth || x > b));
        let values: Vec<f64> = with.leaves().iter().map(|l| if *l == 'a' { a } else { b }).collect();
        prop_assert!((with.evaluate(&values).unwrap().0 - direct).abs() < 1e-9);
    }
}
