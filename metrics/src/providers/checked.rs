//! A model whose word is checked against what moves between core types show.

mod turns;
mod words;

use super::fused::{Fused, Trial, EARLY};
use crate::estimate::{Estimate, Quality};
use crate::event::{EventError, EventSets};
use crate::ids::{CoreTypeId, ThreadKey, MAX_CORE_TYPES};
use crate::pmu::Pmus;
use crate::provider::{MetricId, Phase, Provider};
use crate::sample::Snapshot;
use turns::Turns;
use words::{relative, Words, UNSURE, WRONG};

/// Standard uncertainties by which two factors must differ besides, so that chance is unlikely.
const UNLIKELY: f64 = 3.0;
/// CPU time of a thread, in units of 100 ms, from which on a model's word that no move has tried is worth trying. Programs that
/// are over by then would be gone before that pays.
const TRIED: f64 = 20.0;

/// A provider around a model, whose estimates are the model's unless moves show that it is wrong about a program.
///
/// ```text
/// model ─────────────► factor ± u ──┐
///                                   ├─ far apart, and sure of it? ─► what moves show, else the model's
/// instruction rates ─► factor ± u ──┘
/// ```
///
/// A model is better than a few moves on the programs that it was made for, and may be wrong by any factor on others. So what
/// moves show is not averaged with it ([`Fused`] does that): they only tell which programs it was not made for. For that each
/// program that runs for two seconds is to be seen on two core types once, and after 0.4 s where the model says that it is unsure. There
/// what moves show is believed if it is surer than the model.
///
/// What was measured of a thread beside others is believed of one thread after the other: who gains most beyond what the model says is
/// the first (`turns.rs`).
///
/// A move that falls together with a change of phase shows any factor. Where the model sees a program change, it is not held against the
/// model for two seconds, whatever moves show: so a program that goes through short phases is left to the model.
///
/// It also tells by how much a thread is slowed down by its neighbours ([`Provider::slowed`]), and has nobody moved to learn
/// that, neither to look nor for good: it does not tell [`Provider::costs`], by which threads would be put apart. That was tried on the
/// board (docs/evidence/models.md).
pub struct Checked {
    inner: Box<dyn Provider>,
    rates: Fused,
    words: Words,
    turns: Turns,
    /// Whether every core type has counters: else there is nothing to compare.
    counted: bool,
}

impl std::fmt::Debug for Checked {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Checked")
            .field("inner", &self.inner.name())
            .field("counted", &self.counted)
            .finish_non_exhaustive()
    }
}

impl Checked {
    /// Checks `inner`, each of whose event sets begins with instructions, on a machine with these PMUs.
    pub fn new(inner: Box<dyn Provider>, pmus: &Pmus) -> Checked {
        let mut rates = Fused::checking();
        // what it asks for is in every set of the model
        let counted = rates.event_sets(pmus).is_ok();
        Checked {
            inner,
            rates,
            words: Words::default(),
            turns: Turns::default(),
            counted,
        }
    }

    /// What is to be believed in place of what the model says of a thread's speedup, and whether that is shown to be wrong; none while
    /// it is neither wrong nor less sure than what moves show.
    fn instead(
        &self,
        thread: ThreadKey,
        of: CoreTypeId,
        told: &Estimate,
    ) -> Option<(Estimate, bool)> {
        let shown = self.shown(thread, of)?;
        let ln = |e: &Estimate| Some((e.value.ln(), relative(e)?));
        let ((told, a), (seen, b)) = (ln(told)?, ln(&shown)?);
        let apart = (told - seen).abs();
        let wrong = apart > WRONG && apart > UNLIKELY * a.hypot(b);
        let doubted = a >= UNSURE && self.words.are_doubted(thread);
        let surer = doubted && apart > UNSURE && b < a;
        (wrong || surer).then_some((shown, wrong))
    }

    /// By how much more a thread gains than the model says, as a logarithm, where what moves show is to be believed of any of its
    /// factors.
    fn more(&self, thread: ThreadKey) -> Option<f64> {
        let mut of = (0..MAX_CORE_TYPES).map(|c| CoreTypeId(c as u8)); // below MAX_CORE_TYPES
        of.find_map(|of| {
            let told = self.inner.estimate(thread, MetricId::SpeedupFactor(of))?;
            let (shown, _) = self.instead(thread, of, &told)?;
            Some((shown.value / told.value).ln())
        })
    }

    /// Who is believed from now on.
    fn take_turns(&mut self, snapshot: &Snapshot) {
        let mut turns = std::mem::take(&mut self.turns);
        turns.keep(snapshot);
        for r in &snapshot.readings {
            let trial = self.rates.trial(r.thread);
            let units = trial.as_ref().map_or(0.0, |t| t.units);
            // too short a window does not count as having come
            let fastest = CoreTypeId::FASTEST.index();
            let here = trial.and_then(|t| t.here).filter(|(t, _)| *t == fastest);
            let stay = here.map_or(0.0, |(_, units)| units);
            let fast = (r.core_type == CoreTypeId::FASTEST).then_some(stay);
            turns.claim(r.thread, fast, self.more(r.thread), units);
        }
        turns.next();
        self.turns = turns;
    }

    /// What is believed in place of what the model says of a thread's speedup.
    fn believed(&self, thread: ThreadKey, of: CoreTypeId, told: &Estimate) -> Option<Estimate> {
        let believed = self.turns.is_believed(thread);
        let instead = believed.then(|| self.instead(thread, of, told))?;
        instead.map(|(shown, _)| shown)
    }

    /// Whether the model is unsure of its word of a thread on the core type from which it is heard.
    fn is_unsure(&self, thread: ThreadKey) -> bool {
        let on = self.inner.heard_on(thread);
        on.is_some_and(|on| self.words.are_unsure(thread, on))
    }

    /// Whether threads of a program have been moved to and fro for long enough to tell what the model is worth: where that was unsure of it
    /// itself, sooner.
    fn was_tried(&self, thread: ThreadKey, trial: &Trial) -> bool {
        trial.tried || trial.tried_early && self.words.are_doubted(thread)
    }

    /// Whether the model's word of a thread was never tried, or was too early and of what it does no more. One thread of a program is
    /// tried at a time.
    fn is_untried(&self, thread: ThreadKey) -> bool {
        let Some(trial) = self.rates.trial(thread).filter(|t| !t.by_another) else {
            return false;
        };
        let early = || trial.tried_early && self.shown(thread, CoreTypeId::FASTEST).is_some();
        let due = trial.units >= TRIED && !early();
        let soon = trial.units >= EARLY
            && !trial.tried_early
            && !trial.by_another_early
            && self.is_unsure(thread)
            && self.words.are_steady(thread, trial.units);
        !trial.tried && (due || soon)
    }

    /// Whether what moves show of a thread is to be believed because the model is wrong.
    fn is_wrong(&self, thread: ThreadKey) -> bool {
        let of = MetricId::SpeedupFactor(CoreTypeId::FASTEST);
        let instead = |t| self.instead(thread, CoreTypeId::FASTEST, &t);
        let told = self.inner.estimate(thread, of);
        told.and_then(instead).is_some_and(|(_, wrong)| wrong)
    }
}

impl Provider for Checked {
    /// That of the model: what the estimates rest on.
    fn name(&self) -> &str {
        self.inner.name()
    }

    fn inner(&self) -> Option<&dyn Provider> {
        Some(&*self.inner)
    }

    fn event_sets(&mut self, pmus: &Pmus) -> Result<EventSets, EventError> {
        self.inner.event_sets(pmus)
    }

    fn observe(&mut self, snapshot: &Snapshot) {
        self.inner.observe(snapshot);
        if self.counted {
            self.rates.observe(snapshot);
            let rates = &self.rates;
            let units = |thread| Some(rates.trial(thread)?.units);
            self.words.listen(snapshot, &*self.inner, units);
            self.take_turns(snapshot);
        }
    }

    /// What is remembered is the model's word, or a mean of that and of what moves have shown: nothing to hold against a model.
    fn expect(&mut self, thread: ThreadKey, metric: MetricId, remembered: Option<Estimate>) {
        self.inner.expect(thread, metric, remembered);
    }

    fn expect_shown(&mut self, thread: ThreadKey, of: CoreTypeId, remembered: Option<Estimate>) {
        self.rates.expect_shown(thread, of, remembered);
        if remembered.is_some() && self.more(thread).is_some_and(|more| more > 0.0) {
            self.turns.recall(thread);
        }
    }

    /// What moves of the thread and of others of its program show, where that is enough to be held against a model.
    fn shown(&self, thread: ThreadKey, of: CoreTypeId) -> Option<Estimate> {
        let trial = self.rates.trial(thread)?;
        let enough = self.was_tried(thread, &trial) && self.words.are_steady(thread, trial.units);
        enough.then(|| self.rates.estimate(thread, MetricId::SpeedupFactor(of)))?
    }

    fn estimate(&self, thread: ThreadKey, metric: MetricId) -> Option<Estimate> {
        let told = self.inner.estimate(thread, metric)?;
        match metric {
            MetricId::SpeedupFactor(of) => Some(self.believed(thread, of, &told).unwrap_or(told)),
            MetricId::EfficiencyFactor(of) => {
                // EF = SF over a ratio of energies: a model that is wrong about the one is wrong about the other
                let speedup = self.inner.estimate(thread, MetricId::SpeedupFactor(of));
                let Some(wrong) = speedup.filter(|s| s.value > 0.0) else {
                    return Some(told);
                };
                let Some(right) = self.believed(thread, of, &wrong) else {
                    return Some(told);
                };
                let by = right.value / wrong.value;
                let u = |e: &Estimate| relative(e).unwrap_or(0.0);
                Some(Estimate {
                    value: told.value * by,
                    uncertainty: Some(told.value * by * u(&told).hypot(u(&right))),
                    quality: told.quality.max(Quality::Multiplexed),
                    ..told
                })
            }
            MetricId::Ipc(_) => Some(told),
        }
    }

    /// By rates, whose phases last over moves: a model that watches each core type for itself sees one change again when the
    /// thread comes to another.
    fn phase(&self, thread: ThreadKey) -> Option<Phase> {
        let by_rates = self.counted.then(|| self.rates.phase(thread)).flatten();
        by_rates.or_else(|| self.inner.phase(thread))
    }

    fn wanted_on(&self, thread: ThreadKey) -> Option<CoreTypeId> {
        let asked = self.is_untried(thread) || self.is_wrong(thread);
        let own = asked.then(|| self.rates.wanted_on(thread)).flatten();
        own.or_else(|| self.inner.wanted_on(thread))
    }

    /// A model that was never tried may be wrong by any factor: that is worth a look whatever it says.
    fn suspects(&self, thread: ThreadKey) -> bool {
        self.is_untried(thread)
    }

    fn slowed(&self, thread: ThreadKey) -> f64 {
        self.rates.slowed(thread)
    }
}

#[cfg(test)]
mod tests;
#[cfg(test)]
mod turns_tests;
