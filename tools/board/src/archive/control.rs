//! Debian's control files: paragraphs of `Field: value`, continued by indented lines (deb822(5)).
//!
//! The crates that read them are licensed under Apache-2.0 alone, which may not be linked with
//! GPL-2.0-only programs.

/// Paragraphs of a control file, which blank lines separate.
pub(crate) fn paragraphs(text: &str) -> impl Iterator<Item = Paragraph<'_>> {
    let mut rest = text;
    std::iter::from_fn(move || {
        while !rest.is_empty() {
            let (mut end, mut next) = (0, rest.len());
            for line in rest.split_inclusive('\n') {
                if line.trim().is_empty() {
                    next = end + line.len();
                    break;
                }
                end += line.len();
            }
            let (paragraph, after) = (&rest[..end], &rest[next..]);
            rest = after;
            if !paragraph.is_empty() {
                return Some(Paragraph(paragraph));
            }
        }
        None
    })
}

/// One paragraph.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Paragraph<'t>(&'t str);

impl<'t> Paragraph<'t> {
    /// Names and values of its fields. A value has its continuation lines, and comments between
    /// them, as they stand.
    pub(crate) fn fields(self) -> impl Iterator<Item = (&'t str, &'t str)> {
        let mut rest = self.0;
        std::iter::from_fn(move || loop {
            let mut lines = rest.split_inclusive('\n');
            let first = lines.next()?;
            let continued = lines.take_while(|l| l.starts_with([' ', '\t', '#']));
            let end = first.len() + continued.map(str::len).sum::<usize>();
            let (field, after) = rest.split_at(end);
            rest = after;
            match field.split_once(':') {
                Some((name, value)) if !name.starts_with(['#', ' ', '\t']) => {
                    return Some((name.trim(), value.trim()))
                }
                _ => {}
            }
        })
    }

    /// The value of a field, whose name may be in any case.
    pub(crate) fn get(self, name: &str) -> Option<&'t str> {
        let mut fields = self.fields();
        fields.find_map(|(n, v)| n.eq_ignore_ascii_case(name).then_some(v))
    }

    /// The words of a field's value, comments left out.
    pub(crate) fn words(self, name: &str) -> impl Iterator<Item = &'t str> {
        let lines = self.get(name).unwrap_or_default().lines();
        lines
            .filter(|l| !l.starts_with('#'))
            .flat_map(str::split_whitespace)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn fields_with_continuations_comments_and_blank_lines() {
        let text = "\n\nA: 1\n# said of b\nB: x\n y\n# between\n\tz\nnonsense\n \nC:3";
        let all: Vec<Paragraph> = paragraphs(text).collect();
        assert_eq!(all.len(), 2);
        assert_eq!(all[0].get("a"), Some("1\n# said of b"));
        assert_eq!(all[0].words("A").collect::<Vec<_>>(), ["1"]);
        assert_eq!(all[0].words("b").collect::<Vec<_>>(), ["x", "y", "z"]);
        assert_eq!(all[1].get("C"), Some("3"));
        assert_eq!(all[1].get("D"), None);
    }

    proptest! {
        #[test]
        fn no_text_makes_it_panic(text in "[A-C:# \t\n\u{e4}]{0,60}") {
            for p in paragraphs(&text) {
                prop_assert!(p.fields().count() <= text.len());
            }
        }
    }
}
