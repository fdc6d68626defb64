//! What happens next.

use amp_metrics::Nanos;
use std::cmp::Reverse;
use std::collections::BinaryHeap;

/// Something that is due at a moment.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Event {
    /// A CPU's thread ends its share of a phase, or its slice. Void when the CPU's stamp has moved
    /// on.
    Cpu { cpu: usize, stamp: u64 },
    /// A thread has waited for a CPU of its type for so long that a slower one may take it. Void
    /// when it waits no more or not since then.
    Relief { slot: u32, queued_at: Nanos },
    /// The baseline balances its queues.
    Balance,
    /// An application arrives.
    Arrive { app: usize },
    /// The threads of a process have slept for long enough. Void when it has gone.
    Awake { app: usize, process: u64 },
    /// An application is killed.
    Depart { app: usize },
}

/// Events in order of time; those of the same moment in the order in which they were scheduled.
#[derive(Debug, Default)]
pub(crate) struct Events {
    heap: BinaryHeap<Reverse<(Nanos, u64, Event)>>,
    sequence: u64,
}

impl Events {
    pub fn schedule(&mut self, at: Nanos, event: Event) {
        self.sequence += 1;
        self.heap.push(Reverse((at, self.sequence, event)));
    }

    /// The next event that is due by `limit`.
    pub fn next_by(&mut self, limit: Nanos) -> Option<(Nanos, Event)> {
        match self.heap.peek() {
            Some(Reverse((at, _, _))) if *at <= limit => {
                self.heap.pop().map(|Reverse((at, _, event))| (at, event))
            }
            _ => None,
        }
    }

    pub fn len(&self) -> usize {
        self.heap.len()
    }

    /// Drops events that `keep` refuses.
    pub fn retain(&mut self, keep: impl Fn(&Event) -> bool) {
        self.heap.retain(|Reverse((_, _, e))| keep(e));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn order_of_time_then_of_scheduling() {
        let mut e = Events::default();
        e.schedule(Nanos(5), Event::Balance);
        e.schedule(Nanos(3), Event::Arrive { app: 1 });
        e.schedule(Nanos(3), Event::Arrive { app: 0 });
        assert_eq!(e.next_by(Nanos(2)), None);
        assert_eq!(
            e.next_by(Nanos(3)),
            Some((Nanos(3), Event::Arrive { app: 1 }))
        );
        assert_eq!(
            e.next_by(Nanos(3)),
            Some((Nanos(3), Event::Arrive { app: 0 }))
        );
        assert_eq!(e.next_by(Nanos(9)), Some((Nanos(5), Event::Balance)));
        assert_eq!(e.len(), 0);
    }
}
