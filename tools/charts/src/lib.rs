//! Charts and pages for people: every page that scx_amp writes has this stylesheet and is drawn
//! with these shapes.
//!
//! ```text
//! Scale ─► Svg (shapes) ─► XyPlot (lines, points) ─► page::figure ─► page::document
//! ```
//!
//! A page is one self-contained file: no script, no external reference, readable in light and dark.

pub mod page;
mod plot;
mod scale;
mod svg;

pub use plot::{Axis, XyPlot};
pub use scale::Scale;
pub use svg::{escape, Anchor, Svg};

/// Number of colours for series: the classes `p0` to `p7` of the stylesheet. Further series repeat
/// them.
pub const COLOURS: usize = 8;

/// The class that colours series number `i`.
pub fn colour(i: usize) -> String {
    format!("p{}", i % COLOURS)
}
