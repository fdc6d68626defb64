//! What is open over the table.

use crate::control::Request;

/// Most characters that can be typed into a field.
pub const MOST_TYPED: usize = 200;

/// What is open over the table.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Dialog {
    /// Nothing.
    Closed,
    /// The keys, from this line on.
    Help(usize),
    /// Everything that is known of the thread with this id.
    Details(i64),
    /// The filter is being typed; with what it was before.
    Filter(String),
    /// One of several is to be chosen.
    Choose(Choose),
    /// A value is to be typed.
    Type(Field),
    /// A change is to be confirmed.
    Confirm(Confirm),
}

/// What can be changed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum What {
    /// The policy.
    Policy,
    /// The profile.
    Profile,
    /// The source of metrics.
    Provider,
    /// A knob.
    Knob,
}

/// Something to choose.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Choice {
    /// Its name.
    pub name: String,
    /// Its value now, for a knob.
    pub value: String,
    /// What it is, in a line; may be empty.
    pub about: String,
}

/// A list to choose from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Choose {
    /// What it is a list of.
    pub what: What,
    /// What there is.
    pub all: Vec<Choice>,
    /// The one that is marked.
    pub at: usize,
}

/// A field to type in.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Field {
    /// What it is for: a knob, or else a file.
    pub what: What,
    /// Name of the knob.
    pub name: String,
    /// Its value now.
    pub now: String,
    /// What was typed.
    pub text: String,
}

/// A question.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Confirm {
    /// What is asked for once it is confirmed.
    pub request: Request,
    /// The question.
    pub question: String,
}
