//! Bad input. It ends a command with status 2; failed work ends it with status 1.

use std::fmt;

/// Input that is not right. The text says what is wrong with which flag, file, line, key or CPU,
/// and what would be right.
#[derive(Debug)]
pub struct BadInput(pub String);

impl fmt::Display for BadInput {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for BadInput {}

/// An [`anyhow::Error`] that ends the command with status 2.
pub fn bad_input(text: impl fmt::Display) -> anyhow::Error {
    BadInput(text.to_string()).into()
}
