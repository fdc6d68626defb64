//! What the agent in the guest is to do.

use serde::{Deserialize, Serialize};

/// Where the job lies in the guest.
pub const PATH: &str = "/amp/job.json";
/// Where the script lies in the guest.
pub const SCRIPT: &str = "/amp/script";
/// Where the agent lies in the guest.
pub const AGENT: &str = "/amp/amp-guest";
/// Programs from packages first, busybox for the rest.
pub const SEARCH_PATH: &str =
    "/usr/local/bin:/usr/local/sbin:/usr/bin:/usr/sbin:/usr/games:/bin:/sbin:/amp/bin";
/// Byte that begins the agent's own console messages; no program prints it by accident.
pub const MARK: char = '\u{1e}';
/// The script's output begins behind this line.
pub const BEGIN: &str = "amp:begin";
/// The script's output has ended.
pub const END: &str = "amp:end";

/// Folder of modules that the agent loads first.
pub const MODULES: &str = "/amp/modules";

/// What the agent is to do.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Job {
    /// A shell on the console instead of the script.
    pub interactive: bool,
    /// Guest paths to hand back: files, or folders with all that is below.
    pub collect: Vec<String>,
}
