//! Intel's top-down metrics (`topdown-retiring` and others of `cpu_core`). They are parts of one register and no
//! counters: the kernel takes them only in a group that `slots` leads (`intel_pmu_hw_config`).

use crate::event::Event;

/// PMUs that have them: of processors with one core type, and of a hybrid's fast cores.
const PMUS: [&str; 2] = ["cpu", "cpu_core"];
/// Event 0x00, unit mask 0x04.
const SLOTS: u64 = 0x0400;
/// Event 0x00, unit masks 0x80 to 0x87.
const METRICS: std::ops::RangeInclusive<u64> = 0x80..=0x87;

fn code(event: &Event) -> Option<u64> {
    let own = PMUS.contains(&event.pmu.as_str());
    own.then_some(event.attr.config & 0xffff)
}

fn is_slots(event: &Event) -> bool {
    code(event) == Some(SLOTS)
}

fn is_metric(event: &Event) -> bool {
    code(event).is_some_and(|c| c & 0xff == 0 && METRICS.contains(&(c >> 8)))
}

/// Position of the event that has to lead the group of these: the first, but for top-down metrics.
pub(super) fn leader(events: &[Event]) -> usize {
    let slots = || events.iter().position(is_slots);
    match events.iter().any(is_metric) {
        true => slots().unwrap_or(0),
        false => 0,
    }
}

/// A top-down metric among these events, where there is no `slots` to lead it.
pub fn without_slots(events: &[Event]) -> Option<&Event> {
    match events.iter().any(is_slots) {
        true => None,
        false => events.iter().find(|e| is_metric(e)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::event::EventAttr;

    fn event(pmu: &str, config: u64) -> Event {
        Event {
            name: "e".into(),
            pmu: pmu.into(),
            attr: EventAttr {
                type_: 4,
                config,
                ..EventAttr::default()
            },
        }
    }

    #[test]
    fn slots_lead_where_there_are_metrics() {
        let core = |config| event("cpu_core", config);
        let (cycles, slots, retiring) = (core(0x3c), core(0x400), core(0x8000));
        let set = [cycles.clone(), retiring.clone(), slots.clone()];
        assert_eq!((leader(&set), without_slots(&set)), (2, None));
        let set = [cycles.clone(), slots];
        assert_eq!((leader(&set), without_slots(&set)), (0, None));
        let set = [cycles, retiring];
        assert_eq!((leader(&set), without_slots(&set)), (0, Some(&set[1])));
        // Arm's event of that code is another, and so is a small core's
        for pmu in ["armv8_cortex_a76", "cpu_atom"] {
            assert_eq!(without_slots(&[event(pmu, 0x8000)]), None);
        }
        assert_eq!(leader(&[]), 0);
    }
}
