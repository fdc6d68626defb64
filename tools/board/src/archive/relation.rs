//! Relations between packages, as `Depends` and `Provides` have them (deb-control(5)).

use crate::version;

/// How a version is to relate to the one that is named.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Operator {
    /// `<<`
    Earlier,
    /// `<=`
    AtMost,
    /// `=`
    Exactly,
    /// `>=`
    AtLeast,
    /// `>>`
    Later,
}

/// One alternative: a package, and which versions of it do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Relation<'t> {
    /// Package, real or virtual.
    pub name: &'t str,
    /// Architecture, where it is not the package's own.
    pub arch: Option<&'t str>,
    /// Bound on its version.
    pub version: Option<(Operator, &'t str)>,
}

/// Alternatives, of which one is needed.
pub(super) type Group<'t> = Vec<Relation<'t>>;

/// Reads `a (>= 1) | b, c:any`; the error is the part that cannot be read.
pub(super) fn parse(text: &str) -> Result<Vec<Group<'_>>, &str> {
    let groups = text.split(',').map(str::trim).filter(|g| !g.is_empty());
    groups
        .map(|group| {
            let read = |alternative| relation(alternative).ok_or(group);
            group.split('|').map(str::trim).map(read).collect()
        })
        .collect()
}

fn relation(text: &str) -> Option<Relation<'_>> {
    let (name, version) = match text.split_once('(') {
        Some((name, inner)) => (name.trim(), Some(bound(inner.trim().strip_suffix(')')?)?)),
        None => (text, None),
    };
    let (name, arch) = match name.split_once(':') {
        // any architecture does, the own one included
        Some((name, "any" | "native")) => (name, None),
        Some((name, arch)) => (name, Some(arch)),
        None => (name, None),
    };
    let plain = |c: char| c.is_ascii_alphanumeric() || "+-.".contains(c);
    (!name.is_empty() && name.chars().all(plain)).then_some(Relation {
        name,
        arch,
        version,
    })
}

fn bound(text: &str) -> Option<(Operator, &str)> {
    let at = text.find(|c| !"<>=".contains(c))?;
    let (operator, version) = text.split_at(at);
    let operator = match operator {
        "<<" => Operator::Earlier,
        // one `<` or `>` alone means what it meant long ago
        "<=" | "<" => Operator::AtMost,
        "=" => Operator::Exactly,
        ">=" | ">" => Operator::AtLeast,
        ">>" => Operator::Later,
        _ => return None,
    };
    Some((operator, version.trim()))
}

impl Relation<'_> {
    /// Whether a package of this name and of this version does.
    pub(super) fn takes(&self, found: &str) -> bool {
        let Some((operator, wanted)) = self.version else {
            return true;
        };
        let order = version::compare(found, wanted);
        match operator {
            Operator::Earlier => order.is_lt(),
            Operator::AtMost => order.is_le(),
            Operator::Exactly => order.is_eq(),
            Operator::AtLeast => order.is_ge(),
            Operator::Later => order.is_gt(),
        }
    }

    /// Whether something that `provided` stands for does. What is provided without a version
    /// answers only who asks for none.
    pub(super) fn takes_provided(&self, provided: &Relation<'_>) -> bool {
        provided.name == self.name
            && match (self.version, provided.version) {
                (None, _) => true,
                (Some(_), Some((_, version))) => self.takes(version),
                (Some(_), None) => false,
            }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn alternatives_versions_and_architectures() {
        let groups = parse("libc6 (>= 2.36), a:any |b (<<2~) , python3:native,\n c:arm64").unwrap();
        assert_eq!(groups.len(), 4);
        assert_eq!(groups[0][0].version, Some((Operator::AtLeast, "2.36")));
        assert_eq!((groups[1][0].name, groups[1][0].arch), ("a", None));
        assert_eq!(groups[1][1].version, Some((Operator::Earlier, "2~")));
        assert_eq!(groups[3][0].arch, Some("arm64"));
        assert_eq!(parse("a, b (> "), Err("b (>"));
        assert_eq!(parse(" "), Ok(vec![]));
    }

    #[test]
    fn versions_are_compared_as_debian_does() {
        let takes = |text, v| parse(text).unwrap()[0][0].takes(v);
        assert!(takes("a (>= 1:1)", "1:1") && !takes("a (>= 1:1)", "2"));
        assert!(takes("a (<< 2)", "2~rc1") && !takes("a (>> 2)", "2"));
        assert!(takes("a (<= 2)", "2") && takes("a (= 2)", "2-0") && takes("a", "0"));
    }

    #[test]
    fn what_is_provided_without_a_version_answers_no_bound() {
        let takes = |wanted, provided| {
            parse(wanted).unwrap()[0][0].takes_provided(&parse(provided).unwrap()[0][0])
        };
        assert!(takes("mta", "mta") && takes("mta", "mta (= 3)"));
        assert!(takes("mta (>= 2)", "mta (= 3)") && !takes("mta (>= 4)", "mta (= 3)"));
        assert!(!takes("mta (>= 2)", "mta") && !takes("mta", "other"));
    }

    proptest! {
        #[test]
        fn no_text_makes_it_panic(text in "[ab()|,:<>= 1\u{e4}]{0,30}") {
            let _ = parse(&text);
        }
    }
}
