//! A drawing in SVG, styled by the page's classes so that it reads in light and dark.

use std::fmt::Write;

/// Text made safe for HTML and SVG, attributes included.
pub fn escape(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for c in text.chars() {
        match c {
            '&' => out.push_str("&amp;"),
            '<' => out.push_str("&lt;"),
            '>' => out.push_str("&gt;"),
            '"' => out.push_str("&quot;"),
            '\'' => out.push_str("&#39;"),
            // not allowed in XML at all
            c if c.is_control() && !matches!(c, '\n' | '\t') => out.push('\u{fffd}'),
            c => out.push(c),
        }
    }
    out
}

/// A coordinate: two decimals at most.
fn c(x: f64) -> f64 {
    let r = (x * 100.0).round() / 100.0;
    if r.is_finite() {
        r + 0.0
    } else {
        0.0
    }
}

/// Which point of a text its position names.
#[derive(Clone, Copy)]
pub enum Anchor {
    /// Its begin.
    Start,
    /// Its middle.
    Middle,
    /// Its end.
    End,
}

/// A drawing under construction.
pub struct Svg {
    width: f64,
    height: f64,
    label: String,
    body: String,
}

impl Svg {
    /// A drawing of this size in CSS pixels; `label` says to those who cannot see it what it shows.
    pub fn new(width: f64, height: f64, label: &str) -> Svg {
        Svg {
            width,
            height,
            label: escape(label),
            body: String::new(),
        }
    }

    /// A rectangle, with a text that appears on hovering.
    pub fn rect(&mut self, x: f64, y: f64, w: f64, h: f64, class: &str, title: &str) {
        let (x, y, w, h) = (c(x), c(y), c(w.max(0.0)), c(h.max(0.0)));
        let title = escape(title);
        // Writing to a String cannot fail.
        let _ = write!(
            self.body,
            r#"<rect x="{x}" y="{y}" width="{w}" height="{h}" class="{class}"><title>{title}</title></rect>"#
        );
    }

    /// A line.
    pub fn line(&mut self, x1: f64, y1: f64, x2: f64, y2: f64, class: &str) {
        let (x1, y1, x2, y2) = (c(x1), c(y1), c(x2), c(y2));
        let _ = write!(
            self.body,
            r#"<line x1="{x1}" y1="{y1}" x2="{x2}" y2="{y2}" class="{class}"/>"#
        );
    }

    /// A text whose baseline is at `y`.
    pub fn text(&mut self, x: f64, y: f64, anchor: Anchor, class: &str, text: &str) {
        let anchor = match anchor {
            Anchor::Start => "start",
            Anchor::Middle => "middle",
            Anchor::End => "end",
        };
        let (x, y, text) = (c(x), c(y), escape(text));
        let _ = write!(
            self.body,
            r#"<text x="{x}" y="{y}" text-anchor="{anchor}" class="{class}">{text}</text>"#
        );
    }

    /// A text that runs upwards, its middle at (`x`, `y`).
    pub fn text_upwards(&mut self, x: f64, y: f64, class: &str, text: &str) {
        let (x, y, text) = (c(x), c(y), escape(text));
        let _ = write!(
            self.body,
            r#"<text x="{x}" y="{y}" transform="rotate(-90 {x} {y})" text-anchor="middle" class="{class}">{text}</text>"#
        );
    }

    /// A line through all `points`; nothing for fewer than two.
    pub fn polyline(&mut self, points: &[(f64, f64)], class: &str, title: &str) {
        if points.len() < 2 {
            return;
        }
        let mut d = String::new();
        for (i, (x, y)) in points.iter().enumerate() {
            let to = if i == 0 { 'M' } else { 'L' };
            let _ = write!(d, "{to}{} {}", c(*x), c(*y));
        }
        self.path(&d, class, title);
    }

    /// A filled circle of radius `r` at each of `points`, in one element.
    pub fn dots(&mut self, points: &[(f64, f64)], r: f64, class: &str, title: &str) {
        if points.is_empty() {
            return;
        }
        let mut d = String::new();
        for (x, y) in points {
            let (left, y, wide) = (c(*x - r), c(*y), c(2.0 * r));
            let _ = write!(
                d,
                "M{left} {y}a{r} {r} 0 1 0 {wide} 0a{r} {r} 0 1 0 -{wide} 0"
            );
        }
        self.path(&d, class, title);
    }

    fn path(&mut self, d: &str, class: &str, title: &str) {
        let title = escape(title);
        let _ = write!(
            self.body,
            r#"<path d="{d}" class="{class}"><title>{title}</title></path>"#
        );
    }

    /// Many rectangles (x, y, width, height) of one class in one element.
    pub fn rects(&mut self, rects: &[(f64, f64, f64, f64)], class: &str, title: &str) {
        if rects.is_empty() {
            return;
        }
        let mut d = String::new();
        for (x, y, w, h) in rects {
            let _ = write!(d, "M{} {}h{}v{}h-{}z", c(*x), c(*y), c(*w), c(*h), c(*w));
        }
        self.path(&d, class, title);
    }

    /// A line with end marks from `a` to `b` along one direction, at `across` in the other.
    pub fn whisker(&mut self, horizontal: bool, a: f64, b: f64, across: f64) {
        const END: f64 = 3.5;
        let mut line = |x1, y1, x2, y2| match horizontal {
            true => self.line(x1, y1, x2, y2, "whisker"),
            false => self.line(y1, x1, y2, x2, "whisker"),
        };
        line(a, across, b, across);
        line(a, across - END, a, across + END);
        line(b, across - END, b, across + END);
    }

    /// A small diamond.
    pub fn diamond(&mut self, x: f64, y: f64, title: &str) {
        let (x, y, title) = (c(x), c(y), escape(title));
        let _ = write!(
            self.body,
            r#"<path d="M{x} {y}m0-5l5 5l-5 5l-5-5z" class="oracle"><title>{title}</title></path>"#
        );
    }

    /// The finished element.
    pub fn finish(self) -> String {
        let (w, h) = (c(self.width), c(self.height));
        format!(
            r#"<svg viewBox="0 0 {w} {h}" width="{w}" height="{h}" role="img" aria-label="{}">{}</svg>"#,
            self.label, self.body
        )
    }
}
