//! Recordings of what a scheduler saw and did, and what can be made of them.
//!
//! ```text
//! Snapshot, Engine ──► Recorder ──lines──► RecordingFile ──► FILE.1, FILE
//!                                                                 │ Recording::load
//!                        workload + machine (replay) ◄────────────┤
//!                        trace for ui.perfetto.dev   ◄────────────┘
//! ```
//!
//! | module | concern |
//! |---|---|
//! | [`mod@format`] | the lines of a recording, version [`format::VERSION`] |
//! | [`recorder`] | from ticks to lines; no I/O |
//! | [`file`](mod@file) | a file of bounded size that is written beside the scheduling thread |
//! | [`read`] | from files to a [`Recording`], or to what is wrong in which line |
//! | [`replay`] | a recording as a workload and a machine for the simulator, drawn where it cannot know |
//! | [`trace`] | a recording as a trace of placements and phases |
#![forbid(unsafe_code)]

pub mod file;
pub mod format;
pub mod read;
pub mod recorder;
pub mod replay;
pub mod trace;

pub use file::RecordingFile;
pub use format::Header;
pub use read::Recording;
pub use recorder::Recorder;
pub use replay::Replay;
