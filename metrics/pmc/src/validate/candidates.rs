//! Events to try: which, and in groups that fit the PMU.

use super::{usual, ValidateArgs};
use crate::inventory::CounterInventory;
use amp_host::bad_input;
use amp_metrics::group::{Group, GroupError, Whom};
use amp_metrics::{CoreTypeId, Event, EventSpec};
use amp_workloads::exact::Quantity;
use anyhow::Result;

/// Events of a group, at most: more than any PMU of cores has counters.
const MOST: usize = 24;

/// An event and what it is to count.
#[derive(Clone, Debug)]
pub(super) struct Candidate {
    pub event: Event,
    pub quantity: Quantity,
}

/// The events to try on a core type. Usual ones that the PMU does not have are left out, others are
/// errors.
pub(super) fn candidates(
    args: &ValidateArgs,
    inventory: &CounterInventory,
    t: CoreTypeId,
) -> Result<Vec<Candidate>> {
    let resolve = |text: &str| -> Result<Event, String> {
        let spec: EventSpec = text.parse().map_err(|e| format!("{e}"))?;
        inventory.pmus.resolve(t, &spec).map_err(|e| format!("{e}"))
    };
    let mut out = Vec::new();
    for (quantity, text) in &args.events {
        out.push(Candidate {
            event: resolve(text).map_err(bad_input)?,
            quantity: *quantity,
        });
    }
    if out.is_empty() {
        let usual = usual::events()?.into_iter().filter_map(|(quantity, text)| {
            Some(Candidate {
                event: resolve(&text).ok()?,
                quantity,
            })
        });
        out.extend(usual);
    }
    for c in &mut out {
        // the kernels' counts are those of user mode
        c.event.attr.exclude_kernel = true;
        c.event.attr.exclude_user = false;
    }
    Ok(out)
}

/// Events that are tried together.
pub(super) struct Tried {
    /// The events to judge, then others that fill the group up: it is to use all counters.
    pub candidates: Vec<Candidate>,
    /// How many of them are to be judged.
    pub judged: usize,
    /// The group in several orders, in which each event is in each place once.
    pub turns: Vec<Turn>,
}

impl Tried {
    /// What the events to be judged are to count.
    pub fn quantities(&self) -> impl Iterator<Item = Quantity> + '_ {
        self.candidates.iter().take(self.judged).map(|c| c.quantity)
    }
}

/// A group in one order.
pub(super) struct Turn {
    /// Numbers of the events among [`Tried::candidates`].
    pub order: Vec<usize>,
    /// Their counters.
    pub group: Group,
}

/// Shares events out over groups that fit the PMU. Events that it does not count by themselves are
/// left out with a warning.
///
/// A driver that knows of no ties (PMUv3) puts an event into the first counter that is free, and so
/// the event's place in its group decides on the counter. One that stands still in some counters
/// is only found out by trying all places.
pub(super) fn groups(all: Vec<Candidate>, asked: bool) -> Result<Vec<Tried>> {
    let open = |some: &[Candidate]| {
        let events: Vec<Event> = some.iter().map(|c| c.event.clone()).collect();
        let mut group = Group::open(&events, Whom::Caller, false)?;
        // a group can be opened and yet find no counters
        group.start()?;
        group.stop()?;
        group.read()?;
        Ok::<Group, GroupError>(group)
    };
    let mut wanted = Vec::new();
    for c in all {
        match open(std::slice::from_ref(&c)) {
            Ok(_) => wanted.push(c),
            Err(e @ (GroupError::Unsupported { .. } | GroupError::Refused { .. })) if !asked => {
                log::warn!("{e}");
            }
            Err(e) => return Err(e.into()),
        }
    }
    let mut chunks: Vec<Vec<Candidate>> = Vec::new();
    let mut rest = &wanted[..];
    while !rest.is_empty() {
        let fits = (1..=rest.len()).take_while(|n| open(&rest[..*n]).is_ok());
        let n = fits.last().unwrap_or(1);
        chunks.push(rest[..n].to_vec());
        rest = &rest[n..];
    }
    let mut out = Vec::new();
    for mut candidates in chunks {
        let judged = candidates.len();
        fill(&mut candidates, &wanted, &open);
        let turns = turns(&candidates, &open)?;
        out.push(Tried {
            candidates,
            judged,
            turns,
        });
    }
    Ok(out)
}

/// Fills a group up with any of these events, again and again, until none fits.
fn fill(
    group: &mut Vec<Candidate>,
    with: &[Candidate],
    open: &dyn Fn(&[Candidate]) -> Result<Group, GroupError>,
) {
    loop {
        let before = group.len();
        for c in with {
            if group.len() == MOST {
                return;
            }
            group.push(c.clone());
            if open(group).is_err() {
                group.pop();
            }
        }
        if group.len() == before {
            return;
        }
    }
}

/// The group beginning with each of its events. An order in which the kernel finds no counters is
/// left out; the first one has been tried.
fn turns(
    candidates: &[Candidate],
    open: &dyn Fn(&[Candidate]) -> Result<Group, GroupError>,
) -> Result<Vec<Turn>> {
    let n = candidates.len();
    let mut out = Vec::with_capacity(n);
    for first in 0..n {
        let order: Vec<usize> = (0..n).map(|i| (first + i) % n).collect();
        let events: Vec<Candidate> = order.iter().map(|i| candidates[*i].clone()).collect();
        match open(&events) {
            Ok(group) => out.push(Turn { order, group }),
            Err(GroupError::Refused { .. } | GroupError::Taken { .. }) if first > 0 => {}
            Err(e) => return Err(e.into()),
        }
    }
    Ok(out)
}
