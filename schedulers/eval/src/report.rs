//! A bench's result for people: a text table, and one self-contained HTML page.

pub mod campaign;
pub mod changes;
mod charts;
pub mod columns;
mod html;
mod number;
mod text;
mod words;

pub use html::html;
pub use number::measured;
pub use text::text;

#[cfg(test)]
mod tests;
