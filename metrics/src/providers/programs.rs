//! What providers know of programs, by name.

use crate::ids::Nanos;
use crate::sample::ProgramName;
use rustc_hash::FxHashMap;

/// Names that are remembered; the one that was met longest ago makes room.
pub(crate) const MOST_NAMES: usize = 1024;

/// A bounded map from names of programs (command name and arguments) to `P`.
#[derive(Clone, Debug)]
pub(crate) struct Programs<P> {
    known: FxHashMap<ProgramName, (Nanos, P)>,
    /// The program of a command name of which a factor was known last.
    latest: FxHashMap<[u8; 16], ProgramName>,
}

impl<P> Default for Programs<P> {
    fn default() -> Programs<P> {
        Programs {
            known: FxHashMap::default(),
            latest: FxHashMap::default(),
        }
    }
}

impl<P: Default> Programs<P> {
    /// The program of this name, made if need be: it is met now.
    pub fn meet(&mut self, name: ProgramName, now: Nanos) -> &mut P {
        let (at, program) = self.known.entry(name).or_default();
        *at = now;
        program
    }

    pub fn get(&self, name: &ProgramName) -> Option<&P> {
        self.known.get(name).map(|(_, p)| p)
    }

    pub fn get_mut(&mut self, name: &ProgramName) -> Option<&mut P> {
        self.known.get_mut(name).map(|(_, p)| p)
    }

    /// A factor of this one is known.
    pub fn is_latest(&mut self, name: ProgramName) {
        self.latest.insert(name.comm, name);
    }

    /// The program that has the same command name and of which a factor was known last.
    pub fn kin(&self, name: &ProgramName) -> Option<&P> {
        self.get(self.latest.get(&name.comm)?)
    }

    /// How many there are.
    pub fn len(&self) -> usize {
        self.known.len()
    }

    /// Forgets those that are too many.
    pub fn make_room(&mut self) {
        while self.known.len() > MOST_NAMES {
            let oldest = self.known.iter().min_by_key(|(n, (at, _))| (*at, **n));
            let Some(name) = oldest.map(|(name, _)| *name) else {
                return;
            };
            self.known.remove(&name);
            if self.latest.get(&name.comm) == Some(&name) {
                self.latest.remove(&name.comm);
            }
        }
    }
}
