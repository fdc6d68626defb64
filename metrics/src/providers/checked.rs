//! A model whose word is checked against what moves between core types show.

mod words;

use super::fused::Fused;
use crate::estimate::{Estimate, Quality};
use crate::event::{EventError, EventSets};
use crate::ids::{CoreTypeId, ThreadKey};
use crate::pmu::Pmus;
use crate::provider::{MetricId, Phase, Provider};
use crate::sample::Snapshot;
use words::{Words, WRONG};

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
/// program that runs for two seconds is to be seen on two core types once.
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
            counted,
        }
    }

    /// What is to be believed in place of what the model says of a thread's speedup; none while that is not shown to be wrong.
    fn instead(&self, thread: ThreadKey, of: CoreTypeId, told: &Estimate) -> Option<Estimate> {
        let shown = self.shown(thread, of)?;
        let ln = |e: &Estimate| {
            let u = e.uncertainty.unwrap_or(0.0) / e.value;
            (e.value > 0.0 && u.is_finite()).then(|| (e.value.ln(), u * u))
        };
        let ((told, a), (seen, b)) = (ln(told)?, ln(&shown)?);
        let apart = (told - seen).abs();
        (apart > WRONG && apart * apart > UNLIKELY * UNLIKELY * (a + b)).then_some(shown)
    }

    /// Whether the model's word of a thread was never tried. One thread of a program is tried at a time.
    fn is_untried(&self, thread: ThreadKey) -> bool {
        let trial = self.rates.trial(thread);
        trial.is_some_and(|s| !s.tried && !s.by_another && s.units >= TRIED)
    }

    /// Whether what moves show of a thread is believed.
    fn is_wrong(&self, thread: ThreadKey) -> bool {
        let of = MetricId::SpeedupFactor(CoreTypeId::FASTEST);
        let told = self.inner.estimate(thread, of);
        told.is_some_and(|t| self.instead(thread, CoreTypeId::FASTEST, &t).is_some())
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
        }
    }

    /// What is remembered is the model's word, or a mean of that and of what moves have shown: nothing to hold against a model.
    fn expect(&mut self, thread: ThreadKey, metric: MetricId, remembered: Option<Estimate>) {
        self.inner.expect(thread, metric, remembered);
    }

    fn expect_shown(&mut self, thread: ThreadKey, of: CoreTypeId, remembered: Option<Estimate>) {
        self.rates.expect_shown(thread, of, remembered);
    }

    /// What moves of the thread and of others of its program show, where that is enough to be held against a model.
    fn shown(&self, thread: ThreadKey, of: CoreTypeId) -> Option<Estimate> {
        let trial = self.rates.trial(thread)?;
        let enough = trial.tried && self.words.are_steady(thread, trial.units);
        enough.then(|| self.rates.estimate(thread, MetricId::SpeedupFactor(of)))?
    }

    fn estimate(&self, thread: ThreadKey, metric: MetricId) -> Option<Estimate> {
        let told = self.inner.estimate(thread, metric)?;
        match metric {
            MetricId::SpeedupFactor(of) => self.instead(thread, of, &told).or(Some(told)),
            MetricId::EfficiencyFactor(of) => {
                // EF = SF over a ratio of energies: a model that is wrong about the one is wrong about the other
                let speedup = self.inner.estimate(thread, MetricId::SpeedupFactor(of));
                let Some(wrong) = speedup.filter(|s| s.value > 0.0) else {
                    return Some(told);
                };
                let Some(right) = self.instead(thread, of, &wrong) else {
                    return Some(told);
                };
                let by = right.value / wrong.value;
                let relative = |e: &Estimate| e.uncertainty.unwrap_or(0.0) / e.value;
                Some(Estimate {
                    value: told.value * by,
                    uncertainty: Some(told.value * by * relative(&told).hypot(relative(&right))),
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
