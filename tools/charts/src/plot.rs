//! Lines and points over two axes.

use crate::scale::Scale;
use crate::svg::{Anchor, Svg};

/// An axis: what it shows (with its unit), and the values it covers.
#[derive(Clone, Debug, PartialEq)]
pub struct Axis {
    /// Title, with the unit in it.
    pub title: String,
    /// Smallest value.
    pub low: f64,
    /// Largest value.
    pub high: f64,
}

impl Axis {
    /// An axis from `low` to `high`.
    pub fn new(title: &str, low: f64, high: f64) -> Axis {
        Axis {
            title: title.to_owned(),
            low,
            high,
        }
    }
}

/// Room for marks and titles beside the drawing area, in CSS pixels.
const LEFT: f64 = 66.0;
const RIGHT: f64 = 14.0;
const TOP: f64 = 8.0;
const BOTTOM: f64 = 44.0;
/// Radius of a point.
const RADIUS: f64 = 2.6;

/// A plot under construction. Later shapes are drawn over earlier ones; values that are not finite
/// are left out, values outside of the axes are drawn at their edge.
pub struct XyPlot {
    svg: Svg,
    width: f64,
    height: f64,
    x: Scale,
    y: Scale,
}

impl XyPlot {
    /// A plot of this size in CSS pixels. `label` says what it shows to those who cannot see it.
    pub fn new(label: &str, width: f64, height: f64, x: &Axis, y: &Axis) -> XyPlot {
        let mut plot = XyPlot {
            svg: Svg::new(width, height, label),
            width,
            height,
            x: Scale::covering(x.low, x.high, 8).between(x.low, x.high),
            y: Scale::covering(y.low, y.high, 6).between(y.low, y.high),
        };
        plot.axes(x, y);
        plot
    }

    fn axes(&mut self, x: &Axis, y: &Axis) {
        let (left, right) = (LEFT, self.width - RIGHT);
        let (top, bottom) = (TOP, self.height - BOTTOM);
        for mark in self.y.marks.clone() {
            let at = self.at_y(mark);
            self.svg.line(left, at, right, at, "grid");
            let text = self.y.short_label(mark);
            let to_the_left = left - 8.0;
            self.svg
                .text(to_the_left, at + 4.0, Anchor::End, "mark", &text);
        }
        for mark in self.x.marks.clone() {
            let at = self.at_x(mark);
            self.svg.line(at, bottom, at, bottom + 4.0, "axis");
            let text = self.x.short_label(mark);
            self.svg
                .text(at, bottom + 17.0, Anchor::Middle, "mark", &text);
        }
        self.svg.line(left, bottom, right, bottom, "axis");
        let middle = (left + right) / 2.0;
        self.svg
            .text(middle, self.height - 8.0, Anchor::Middle, "mark", &x.title);
        self.svg
            .text_upwards(14.0, (top + bottom) / 2.0, "mark", &y.title);
    }

    fn at_x(&self, x: f64) -> f64 {
        LEFT + (self.width - LEFT - RIGHT) * self.x.at(x)
    }

    fn at_y(&self, y: f64) -> f64 {
        TOP + (self.height - TOP - BOTTOM) * (1.0 - self.y.at(y))
    }

    fn place(&self, points: impl IntoIterator<Item = (f64, f64)>) -> Vec<(f64, f64)> {
        let finite = points
            .into_iter()
            .filter(|(x, y)| x.is_finite() && y.is_finite());
        finite.map(|(x, y)| (self.at_x(x), self.at_y(y))).collect()
    }

    /// Shades the ground between two values of x.
    pub fn shade(&mut self, from: f64, to: f64) {
        let (a, b) = (self.at_x(from), self.at_x(to));
        let height = self.height - TOP - BOTTOM;
        self.svg.rect(a, TOP, b - a, height, "track", "");
    }

    /// A line through `points` in the colour of `class` (see [`crate::colour`]; `ink` for the
    /// text's own).
    pub fn line(&mut self, points: impl IntoIterator<Item = (f64, f64)>, class: &str, title: &str) {
        let points = self.place(points);
        self.svg.polyline(&points, &format!("line {class}"), title);
    }

    /// A dashed straight line from `a` to `b`.
    pub fn dashed(&mut self, a: (f64, f64), b: (f64, f64)) {
        let points = self.place([a, b]);
        self.svg.polyline(&points, "line dashed ink", "");
    }

    /// A dot per point.
    pub fn points(
        &mut self,
        points: impl IntoIterator<Item = (f64, f64)>,
        class: &str,
        title: &str,
    ) {
        let points = self.place(points);
        self.svg
            .dots(&points, RADIUS, &format!("dot {class}"), title);
    }

    /// The finished drawing.
    pub fn finish(self) -> String {
        self.svg.finish()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn plot() -> XyPlot {
        let (x, y) = (
            Axis::new("time (s)", 0.0, 10.0),
            Axis::new("rate", 0.0, 2.0),
        );
        XyPlot::new("a plot", 400.0, 200.0, &x, &y)
    }

    /// x and y of each corner of the first path of that class.
    fn corners(svg: &str, class: &str) -> Vec<(f64, f64)> {
        let marked = format!("\" class=\"{class}\"");
        let end = svg.find(&marked).unwrap();
        let begin = svg[..end].rfind("d=\"").unwrap() + 3;
        let pairs = svg[begin..end].split(['M', 'L']).filter(|s| !s.is_empty());
        pairs
            .map(|p| {
                let (x, y) = p.split_once(' ').unwrap();
                (x.parse().unwrap(), y.parse().unwrap())
            })
            .collect()
    }

    #[test]
    fn points_lie_where_the_axes_say() {
        let mut p = plot();
        p.line([(0.0, 0.0), (5.0, 1.0), (10.0, 2.0)], "p0", "");
        let svg = p.finish();
        let (right, bottom) = (400.0 - RIGHT, 200.0 - BOTTOM);
        let middle = ((LEFT + right) / 2.0, (TOP + bottom) / 2.0);
        assert_eq!(
            corners(&svg, "line p0"),
            [(LEFT, bottom), middle, (right, TOP)]
        );
    }

    #[test]
    fn what_is_no_number_is_left_out_and_what_is_outside_stays_at_the_edge() {
        let mut p = plot();
        p.line(
            [
                (0.0, f64::NAN),
                (f64::INFINITY, 1.0),
                (5.0, 9.0),
                (10.0, 1.0),
            ],
            "p1",
            "",
        );
        let svg = p.finish();
        assert!(!svg.contains("NaN") && !svg.contains("inf"), "{svg}");
        let corners = corners(&svg, "line p1");
        assert_eq!(corners.len(), 2);
        assert_eq!(corners[0].1, TOP);
    }

    #[test]
    fn names_are_escaped_and_nothing_to_draw_is_no_shape() {
        let mut p = plot();
        p.points([], "p0", "x");
        p.points([(1.0, 1.0)], "p2", "<b>");
        let svg = p.finish();
        assert!(!svg.contains("dot p0"), "{svg}");
        assert!(svg.contains("dot p2") && svg.contains("&lt;b&gt;"), "{svg}");
    }
}
