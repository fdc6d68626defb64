//! What is mapped where in the processes that are sampled.

use std::collections::HashMap;
use std::path::{Path, PathBuf};

/// Part of a file in a process's memory.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Mapping {
    /// First address.
    pub start: u64,
    /// Length in bytes.
    pub len: u64,
    /// Place in the file of what is at `start`.
    pub offset: u64,
    /// The file; `[vdso]` and the like, and `//anon`, are none.
    pub file: PathBuf,
}

/// Mappings by process.
#[derive(Debug, Default)]
pub struct Maps {
    by_pid: HashMap<u32, Vec<Mapping>>,
}

impl Maps {
    /// Takes what a process that runs already has mapped.
    ///
    /// # Errors
    /// When it is gone, or not to be looked at.
    pub fn read(&mut self, pid: i32) -> procfs::ProcResult<()> {
        for m in procfs::process::Process::new(pid)?.maps()? {
            if let procfs::process::MMapPath::Path(file) = m.pathname {
                let (start, end) = m.address;
                let len = end.saturating_sub(start);
                self.add(
                    pid as u32,
                    Mapping {
                        start,
                        len,
                        offset: m.offset,
                        file,
                    },
                );
            }
        }
        Ok(())
    }

    /// A process has mapped something.
    pub fn add(&mut self, pid: u32, mapping: Mapping) {
        self.by_pid.entry(pid).or_default().push(mapping);
    }

    /// A process was forked off another one.
    pub fn fork(&mut self, pid: u32, parent: u32) {
        if pid != parent {
            let inherited = self.by_pid.get(&parent).cloned().unwrap_or_default();
            self.by_pid.insert(pid, inherited);
        }
    }

    /// A process has become another program.
    pub fn exec(&mut self, pid: u32) {
        self.by_pid.remove(&pid);
    }

    /// The file and the place in it of an address; the newest mapping counts.
    pub fn find(&self, pid: u32, address: u64) -> Option<(&Path, u64)> {
        let m = self.by_pid.get(&pid)?.iter().rev();
        let m = m.clone().find(|m| address.wrapping_sub(m.start) < m.len)?;
        Some((&m.file, address - m.start + m.offset))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn mapping(start: u64, file: &str) -> Mapping {
        Mapping {
            start,
            len: 0x1000,
            offset: 0x200,
            file: file.into(),
        }
    }

    #[test]
    fn children_inherit_and_new_programs_begin_afresh() {
        let mut m = Maps::default();
        m.add(1, mapping(0x4000, "a"));
        m.fork(2, 1);
        assert_eq!(m.find(2, 0x4010), Some((Path::new("a"), 0x210)));
        m.add(2, mapping(0x4000, "b"));
        assert_eq!(m.find(2, 0x4fff), Some((Path::new("b"), 0x11ff)));
        assert_eq!(m.find(1, 0x4fff), Some((Path::new("a"), 0x11ff)));
        assert_eq!(m.find(1, 0x5000), None);
        m.exec(2);
        assert_eq!(m.find(2, 0x4010), None);
        m.fork(1, 1);
        assert!(m.find(1, 0x4000).is_some());
    }

    #[test]
    fn our_own_code_is_found() {
        let mut m = Maps::default();
        m.read(std::process::id() as i32).unwrap();
        let here = our_own_code_is_found as fn() as usize as u64;
        let (file, _) = m.find(std::process::id(), here).unwrap();
        assert_eq!(file, std::env::current_exe().unwrap());
        assert!(m.read(i32::MAX).is_err());
    }
}
