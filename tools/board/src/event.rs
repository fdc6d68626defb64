//! Events that a caller gets while a fetch or a run goes on.

/// Progress of a fetch or a run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Event {
    /// Something is being fetched or prepared; `percent` where it is known.
    Progress {
        /// The step, in a few words.
        what: String,
        /// Progress in percent, where it is known.
        percent: Option<u8>,
    },
    /// A decision worth telling, such as the kernel chosen.
    Note(String),
    /// Something was wrong and is being mended, such as damage to the cache: to be told always.
    Warning(String),
    /// A line of the guest's console, without its end.
    Console {
        /// The line.
        line: String,
        /// Writer of the line.
        from: Origin,
    },
}

/// Who wrote a console line.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Origin {
    /// Firmware, kernel or set-up, before or after the script.
    Kernel,
    /// The script (or the kernel while the script ran, which `quiet` keeps to emergencies).
    Script,
}

/// Where events go.
pub type Sink<'a> = dyn FnMut(Event) + 'a;

pub(crate) fn progress(sink: &mut Sink<'_>, what: impl Into<String>, percent: Option<u8>) {
    sink(Event::Progress {
        what: what.into(),
        percent,
    });
}
