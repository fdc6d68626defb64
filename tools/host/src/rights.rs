//! Capabilities: giving up for good those that a command never needs again.

use anyhow::{Context, Result};
use rustix::thread::{
    capabilities, capability_is_in_bounding_set, clear_ambient_capability_set,
    remove_capability_from_bounding_set, set_capabilities, set_no_new_privs, CapabilitySet,
    CapabilitySets,
};

/// Gives up every capability that is not in `needed`, and every way to gain one: out of the
/// permitted and effective sets, and where this thread may, out of the bounding set. The
/// inheritable and ambient sets become empty.
///
/// Counts for the calling thread and those that it starts from now on: call it before there are
/// others.
///
/// # Errors
/// When the kernel refuses.
pub fn keep_only(needed: CapabilitySet) -> Result<()> {
    let has = capabilities(None).context("cannot read capabilities")?;
    // a capability that nobody here has can be gained from a file only, which is ruled out below
    if has.effective.contains(CapabilitySet::SETPCAP) {
        for one in (0..u64::BITS).map(|bit| CapabilitySet::from_bits_retain(1 << bit)) {
            // a number that this kernel does not know is an error
            if !needed.contains(one) && capability_is_in_bounding_set(one).unwrap_or(false) {
                remove_capability_from_bounding_set(one)
                    .with_context(|| format!("cannot rule out capability {one:?}"))?;
            }
        }
    }
    clear_ambient_capability_set().context("cannot clear ambient capabilities")?;
    set_no_new_privs(true).context("cannot rule out new privileges")?;
    let sets = CapabilitySets {
        effective: has.effective & needed,
        permitted: has.permitted & needed,
        inheritable: CapabilitySet::empty(),
    };
    set_capabilities(None, sets).context("cannot give up capabilities")
}

#[cfg(test)]
mod tests {
    use super::*;
    use rustix::thread::no_new_privs;

    /// The kernel keeps them for each thread, so that no other test notices.
    #[test]
    fn what_is_not_needed_is_gone_for_the_thread_and_those_it_starts() {
        std::thread::spawn(|| {
            let before = capabilities(None).unwrap();
            let needed = CapabilitySet::SYS_NICE | CapabilitySet::KILL;
            keep_only(needed).unwrap();
            let check = move || {
                let now = capabilities(None).unwrap();
                assert_eq!(now.permitted, before.permitted & needed);
                assert_eq!(now.effective, before.effective & needed);
                assert_eq!(now.inheritable, CapabilitySet::empty());
                assert!(no_new_privs().unwrap());
                if before.effective.contains(CapabilitySet::SETPCAP) {
                    let bound = |c| capability_is_in_bounding_set(c).unwrap();
                    assert!(!bound(CapabilitySet::SYS_MODULE) && bound(CapabilitySet::KILL));
                }
            };
            check();
            std::thread::spawn(check).join().unwrap();
            // once more, without the right to narrow the bounding set
            keep_only(needed).unwrap();
            check();
        })
        .join()
        .unwrap();
    }
}
