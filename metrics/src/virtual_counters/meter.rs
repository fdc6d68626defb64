//! Energy of the machine over time, whoever counts it.

use super::{VirtualCounters, VirtualError, VirtualSource};
use crate::ids::{CoreTypeId, Nanos};
use crate::sample::{Subject, VirtualCounter, VirtualReading};

/// A meter of energy: the most detailed source of a machine, read in intervals and added up.
///
/// Sources differ in what they tell apart. The board's page knows each CPU, hwmon core types, RAPL
/// only the machine. Counters wrap and power sensors have to be integrated, so whoever measures for
/// longer than a second samples the meter meanwhile.
pub struct EnergyMeter {
    source: Option<Box<dyn VirtualSource>>,
    /// What the last interval brought.
    readings: Vec<VirtualReading>,
    total_j: f64,
}

impl EnergyMeter {
    /// The first source of energy in `sources` (as [`VirtualCounters::detect_energy`] finds them);
    /// without one, a meter that shows nothing.
    pub fn of(sources: VirtualCounters) -> EnergyMeter {
        EnergyMeter {
            source: sources.sources.into_iter().next().map(|s| s.source),
            readings: Vec::new(),
            total_j: 0.0,
        }
    }

    /// Name of the source; none without one.
    pub fn name(&self) -> Option<&'static str> {
        self.source.as_ref().map(|s| s.name())
    }

    /// Whether the source works energy out, and measures nothing.
    pub fn is_estimate(&self) -> bool {
        self.source.as_ref().is_some_and(|s| s.is_estimate())
    }

    /// Ends an interval at `now`. The first call begins the first interval.
    ///
    /// # Errors
    /// When the source can no longer be read.
    pub fn sample(&mut self, now: Nanos) -> Result<(), VirtualError> {
        self.readings.clear();
        let Some(source) = &mut self.source else {
            return Ok(());
        };
        source.sample(now, &[], &mut self.readings)?;
        self.readings
            .retain(|r| r.counter == VirtualCounter::Energy);
        self.total_j += self.machine_j();
        Ok(())
    }

    /// The machine's energy in the last interval: the source's own figure, else all core types.
    fn machine_j(&self) -> f64 {
        let whole = self.readings.iter().find(|r| r.of == Subject::Machine);
        let types = self.readings.iter().filter_map(|r| match r.of {
            Subject::CoreType(_) => Some(r.value),
            _ => None,
        });
        whole.map_or_else(|| types.sum(), |r| r.value)
    }

    /// Joules of the whole machine since the first sample; `None` without a source.
    pub fn total_j(&self) -> Option<f64> {
        self.source.as_ref().map(|_| self.total_j)
    }

    /// Joules in the last interval of `cpu`, which is of core type `t`: of that CPU where the source
    /// tells CPUs apart, else of its core type, else of the machine. 0 before the first interval has
    /// ended; `None` without a source.
    pub fn interval_j(&self, cpu: u32, t: CoreTypeId) -> Option<f64> {
        self.source.as_ref()?;
        let of = |subject| self.readings.iter().find(|r| r.of == subject);
        let subjects = [Subject::Cpu(cpu), Subject::CoreType(t), Subject::Machine];
        let found = subjects.into_iter().find_map(of);
        Some(found.map_or(0.0, |r| r.value))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sample::ThreadSample;

    /// Says the same after every interval.
    struct Steady(Vec<(Subject, f64)>, bool);

    impl VirtualSource for Steady {
        fn name(&self) -> &'static str {
            "steady"
        }

        fn sample(
            &mut self,
            _: Nanos,
            _: &[ThreadSample],
            out: &mut Vec<VirtualReading>,
        ) -> Result<(), VirtualError> {
            if std::mem::replace(&mut self.1, true) {
                out.extend(self.0.iter().map(|(of, value)| VirtualReading {
                    counter: VirtualCounter::Energy,
                    of: *of,
                    value: *value,
                    over: Nanos(1),
                }));
            }
            Ok(())
        }
    }

    fn meter(readings: &[(Subject, f64)]) -> EnergyMeter {
        let steady = Box::new(Steady(readings.to_vec(), false));
        EnergyMeter::of(VirtualCounters::of(vec![steady]))
    }

    #[test]
    fn intervals_add_up_from_the_first_sample_on() {
        let mut m = meter(&[
            (Subject::Machine, 2.0),
            (Subject::CoreType(CoreTypeId(0)), 1.5),
        ]);
        assert_eq!(m.total_j(), Some(0.0));
        m.sample(Nanos(0)).unwrap();
        assert_eq!(
            (m.total_j(), m.interval_j(0, CoreTypeId(0))),
            (Some(0.0), Some(0.0))
        );
        for i in 1..=3 {
            m.sample(Nanos(i)).unwrap();
        }
        assert_eq!(m.total_j(), Some(6.0));
    }

    #[test]
    fn a_cpus_energy_is_the_closest_that_the_source_knows() {
        let (cpu, big) = (Subject::Cpu(3), Subject::CoreType(CoreTypeId(0)));
        let little = Subject::CoreType(CoreTypeId(1));
        let mut m = meter(&[(cpu, 0.25), (big, 1.0), (little, 0.5)]);
        m.sample(Nanos(0)).unwrap();
        m.sample(Nanos(1)).unwrap();
        assert_eq!(m.interval_j(3, CoreTypeId(0)), Some(0.25));
        assert_eq!(m.interval_j(2, CoreTypeId(0)), Some(1.0));
        assert_eq!(m.interval_j(5, CoreTypeId(1)), Some(0.5));
        assert_eq!(m.total_j(), Some(1.5), "core types, and no CPU twice");
        let mut m = meter(&[(Subject::Machine, 2.0)]);
        m.sample(Nanos(0)).unwrap();
        m.sample(Nanos(1)).unwrap();
        assert_eq!(m.interval_j(3, CoreTypeId(0)), Some(2.0));
    }

    #[test]
    fn without_a_source_nothing_is_made_up() {
        let mut m = EnergyMeter::of(VirtualCounters::of(Vec::new()));
        m.sample(Nanos(0)).unwrap();
        m.sample(Nanos(1)).unwrap();
        assert_eq!(
            (m.name(), m.total_j(), m.interval_j(0, CoreTypeId(0))),
            (None, None, None)
        );
    }
}
