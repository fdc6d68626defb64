//! What a policy remembers of each application.

use crate::view::AppView;
use amp_metrics::AppId;

/// Rounds after which an absent application is forgotten.
const FORGET_AFTER: u64 = 100;

#[derive(Debug)]
struct Entry<S> {
    id: AppId,
    seen: u64,
    state: S,
}

/// One state per application, kept sorted by id as the applications of a view are, so that they are
/// matched by walking along both lists.
#[derive(Debug)]
pub struct PerApp<S> {
    entries: Vec<Entry<S>>,
    /// Per application of the view: its entry.
    at: Vec<usize>,
    round: u64,
}

impl<S> Default for PerApp<S> {
    fn default() -> Self {
        PerApp {
            entries: Vec::new(),
            at: Vec::new(),
            round: 0,
        }
    }
}

impl<S: Default> PerApp<S> {
    /// Finds or makes the states of these applications, ascending by id; returns whether this is
    /// the first round.
    pub fn update(&mut self, apps: &[AppView]) -> bool {
        self.round += 1;
        let round = self.round;
        if !self.align(apps) {
            let known = self.entries.len();
            for app in apps {
                if self.entries[..known]
                    .binary_search_by_key(&app.id, |e| e.id)
                    .is_err()
                {
                    let state = self.inherited(app, apps);
                    self.entries.push(Entry {
                        id: app.id,
                        seen: round,
                        state: state.unwrap_or_default(),
                    });
                }
            }
            self.entries.sort_by_key(|e| e.id);
            self.entries.retain(|e| e.seen + FORGET_AFTER > round);
            self.align(apps);
        }
        for at in &self.at {
            self.entries[*at].seen = round;
        }
        round == 1
    }

    /// The state of the application that `app` succeeds, unless that is still among `apps`.
    fn inherited(&mut self, app: &AppView, apps: &[AppView]) -> Option<S> {
        let before = app.succeeds?;
        if apps.binary_search_by_key(&before, |a| a.id).is_ok() {
            return None;
        }
        let entry = self.entries.iter_mut().find(|e| e.id == before)?;
        Some(std::mem::take(&mut entry.state))
    }

    /// Whether every application has its entry.
    fn align(&mut self, apps: &[AppView]) -> bool {
        self.at.clear();
        let mut next = 0;
        for app in apps {
            while self.entries.get(next).is_some_and(|e| e.id < app.id) {
                next += 1;
            }
            match self.entries.get(next) {
                Some(e) if e.id == app.id => self.at.push(next),
                _ => return false,
            }
        }
        true
    }

    /// The state of application `i` of the view of this round.
    pub fn get_mut(&mut self, i: usize) -> Option<&mut S> {
        self.entries.get_mut(*self.at.get(i)?).map(|e| &mut e.state)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn apps(ids: &[u64]) -> Vec<AppView> {
        let view = |id: &u64| AppView {
            id: AppId(*id),
            succeeds: None,
            threads: 0..0,
            runnable: 1,
            busy: [1.0; amp_metrics::MAX_CORE_TYPES],
        };
        ids.iter().map(view).collect()
    }

    #[test]
    fn states_stay_with_their_application() {
        let mut p = PerApp::<u64>::default();
        for ids in [&[2, 5][..], &[1, 2, 9], &[5], &[1, 5, 9], &[]] {
            p.update(&apps(ids));
            for (i, id) in ids.iter().enumerate() {
                let s = p.get_mut(i).unwrap();
                assert!([0, *id].contains(s), "{id}: {s}");
                *s = *id;
            }
            assert!(p.get_mut(ids.len()).is_none());
        }
        // the next run of 9, and one that says so while 9 is still there
        p.update(&apps(&[9]));
        let mut next = apps(&[9, 20]);
        next[1].succeeds = Some(AppId(9));
        p.update(&next);
        assert_eq!(p.get_mut(0), Some(&mut 9));
        assert_eq!(p.get_mut(1), Some(&mut 0));
        let mut next = apps(&[21]);
        next[0].succeeds = Some(AppId(9));
        p.update(&next);
        assert_eq!(p.get_mut(0), Some(&mut 9));
        for round in 0..300 {
            p.update(&apps(&[7, 1000 + round]));
        }
        assert!(p.entries.len() < 200);
    }
}
