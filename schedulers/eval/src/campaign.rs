//! Campaigns: many benches from one file, which may be interrupted, resumed, and split among
//! processes and machines.
//!
//! ```text
//! Campaign (file) ─► jobs ─► Shard (which are mine?) ─► Folder (which are to do?) ─► bench each
//!                                                          │ a result file per job
//!                                                          └─► merge ─► report
//! ```
//!
//! A [`Job`] is one bench of one mix on one machine with one contender, one provider and one seed.
//! What does not depend on a provider is one job per mix, not one per provider. A job knows what
//! its result depends on ([`Job::digest`]), so a result of something else is never taken for its
//! own. This module runs nothing: the command benches a job and puts the result into the
//! [`Folder`].

mod file;
mod folder;
mod job;
mod merge;
mod shard;
#[cfg(test)]
mod tests;

pub use file::{Campaign, Item, Knobs, Place};
pub use folder::{Claim, Failure, Folder, FolderError, MadeBy, State};
pub use job::Job;
pub use merge::{merge, MergeError, Merged, Outcome, Row};
pub use shard::{NoShard, Shard};
