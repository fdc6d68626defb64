//! The kernel's own scheduler without its energy model: energy-aware scheduling is switched off for a run.

use super::peer::PeerFailed;
use anyhow::{Context, Result};
use std::path::{Path, PathBuf};

/// The kernel's switch, relative to the root of the file system. It reads as nothing where the kernel cannot schedule so.
const SWITCH: &str = "proc/sys/kernel/sched_energy_aware";

/// Energy-aware scheduling is off for as long as this lives.
#[derive(Debug)]
pub struct SwitchedOff {
    switch: PathBuf,
}

impl SwitchedOff {
    /// Switches it off in the system at `root`.
    ///
    /// # Errors
    /// [`PeerFailed`] where there is nothing to switch off: a run would say nothing that one of `eevdf` does not.
    pub fn begin(root: &Path) -> Result<SwitchedOff> {
        let switch = root.join(SWITCH);
        let nothing = |why: &str| PeerFailed(format!("{}: {why}", switch.display()));
        let now = std::fs::read_to_string(&switch)
            .map_err(|e| nothing(&format!("this kernel has no energy-aware scheduling ({e})")))?;
        match now.trim() {
            "1" => {}
            "" => Err(nothing(
                "energy-aware scheduling is not possible here: it wants core types that differ, an energy model and the governor schedutil",
            ))?,
            other => Err(nothing(&format!(
                "energy-aware scheduling is off already (`{other}`), so this is what `eevdf` is"
            )))?,
        }
        std::fs::write(&switch, "0")
            .with_context(|| format!("{}: energy-aware scheduling stays on", switch.display()))?;
        Ok(SwitchedOff { switch })
    }
}

impl Drop for SwitchedOff {
    fn drop(&mut self) {
        if let Err(e) = std::fs::write(&self.switch, "1") {
            log::error!(
                "{}: energy-aware scheduling stays off ({e}): write 1 there",
                self.switch.display()
            );
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_is_off_for_a_while_where_it_was_on() {
        let root = tempfile::tempdir().unwrap();
        let switch = root.path().join(SWITCH);
        let told = || match SwitchedOff::begin(root.path()) {
            Err(e) => e.downcast_ref::<PeerFailed>().unwrap().to_string(),
            Ok(_) => panic!("there was nothing to switch off"),
        };
        assert!(told().contains("no energy-aware scheduling"), "{}", told());
        std::fs::create_dir_all(switch.parent().unwrap()).unwrap();
        for (there, says) in [("", "not possible here"), ("0\n", "off already")] {
            std::fs::write(&switch, there).unwrap();
            assert!(told().contains(says), "{}", told());
            assert_eq!(std::fs::read_to_string(&switch).unwrap(), there);
        }
        std::fs::write(&switch, "1\n").unwrap();
        let off = SwitchedOff::begin(root.path()).unwrap();
        assert_eq!(std::fs::read_to_string(&switch).unwrap(), "0");
        drop(off);
        assert_eq!(std::fs::read_to_string(&switch).unwrap(), "1");
    }
}
