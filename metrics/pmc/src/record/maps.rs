//! What is mapped where in the processes that are sampled.

use std::collections::{HashMap, HashSet};
use std::path::{Path, PathBuf};
use std::rc::Rc;

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

/// Mappings by process. Those of a process go a while after it: there may be samples of it yet.
#[derive(Debug, Default)]
pub struct Maps {
    /// A child shares its parent's until one of them maps something.
    by_pid: HashMap<u32, Rc<Vec<Mapping>>>,
    /// Whose first thread has ended.
    ending: HashSet<u32>,
    /// Which of those were gone at the last [`Maps::forget_ended`].
    ended: HashSet<u32>,
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

    /// A process has mapped something, in the place of what was there.
    pub fn add(&mut self, pid: u32, mapping: Mapping) {
        let of = Rc::make_mut(self.by_pid.entry(pid).or_default());
        of.retain(|m| {
            let into = m.start.wrapping_sub(mapping.start);
            into >= mapping.len || m.len > mapping.len - into
        });
        of.push(mapping);
    }

    /// A process was forked off another one.
    pub fn fork(&mut self, pid: u32, parent: u32) {
        if pid != parent {
            let inherited = self.by_pid.get(&parent).cloned().unwrap_or_default();
            self.by_pid.insert(pid, inherited);
            self.lives(pid);
        }
    }

    /// A process has become another program.
    pub fn exec(&mut self, pid: u32) {
        self.by_pid.remove(&pid);
        self.lives(pid);
    }

    /// The first thread of a process has ended. Others of it may go on.
    pub fn end(&mut self, pid: u32) {
        if self.by_pid.contains_key(&pid) {
            self.ending.insert(pid);
        }
    }

    fn lives(&mut self, pid: u32) {
        self.ending.remove(&pid);
        self.ended.remove(&pid);
    }

    /// Drops what processes had mapped that were gone, by `is_there`, the last time already: to be called when
    /// everything that is known has been taken in.
    pub fn forget_ended(&mut self, is_there: impl Fn(u32) -> bool) {
        for pid in std::mem::take(&mut self.ended) {
            self.by_pid.remove(&pid);
            self.ending.remove(&pid);
        }
        let gone = self.ending.iter().filter(|pid| !is_there(**pid));
        self.ended = gone.copied().collect();
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
    fn what_is_mapped_again_takes_the_place_of_what_was_there() {
        let mut m = Maps::default();
        for _ in 0..1000 {
            m.add(1, mapping(0x4000, "a"));
            m.add(1, mapping(0x4800, "b"));
        }
        assert!(m.by_pid[&1].len() <= 2, "{:?}", m.by_pid[&1]);
        // what is left of one that is covered in part is found
        assert_eq!(m.find(1, 0x4010), Some((Path::new("a"), 0x210)));
        assert_eq!(m.find(1, 0x4900), Some((Path::new("b"), 0x300)));
    }

    #[test]
    fn processes_that_have_ended_are_forgotten_after_their_samples() {
        let mut m = Maps::default();
        m.add(1, mapping(0x4000, "a"));
        for pid in 2..1000 {
            m.fork(pid, 1);
            m.end(pid);
        }
        // 2 has threads yet, and the number of 3 is another process's soon
        m.forget_ended(|pid| pid == 2);
        assert!(m.find(4, 0x4000).is_some());
        m.fork(3, 1);
        m.forget_ended(|pid| pid == 2 || pid == 3);
        assert_eq!(m.by_pid.len(), 3);
        assert!([1, 2, 3].iter().all(|pid| m.find(*pid, 0x4000).is_some()));
        for _ in 0..2 {
            m.forget_ended(|pid| pid == 3);
        }
        assert_eq!((m.by_pid.len(), m.ending.len(), m.ended.len()), (2, 0, 0));
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
