//! What the system allows this process.

use rustix::process::Resource;

/// Lets us open as many files as the system allows, the hard limit raised where we may: each event
/// needs one per thread or CPU. Programs that were started before keep their limit.
pub fn open_many_files() {
    let limit = rustix::process::getrlimit(Resource::Nofile);
    let raise = |to: Option<u64>| {
        let limit = rustix::process::Rlimit {
            current: to,
            maximum: to,
        };
        rustix::process::setrlimit(Resource::Nofile, limit)
    };
    let system = std::fs::read_to_string("/proc/sys/fs/nr_open");
    let system = system.ok().and_then(|t| t.trim().parse().ok());
    let above = system.filter(|s| limit.maximum.is_some_and(|m| m < *s));
    // only a privileged process may have more than its hard limit; the old one may do
    if above.is_none_or(|s| raise(Some(s)).is_err()) {
        let _ = raise(limit.maximum);
    }
}
