//! Events to try: which, and in groups that fit the PMU.

use super::{usual, ValidateArgs};
use crate::inventory::CounterInventory;
use amp_host::bad_input;
use amp_metrics::group::{Group, GroupError, Whom};
use amp_metrics::{CoreTypeId, Event, EventSpec};
use amp_workloads::exact::Quantity;
use anyhow::Result;

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

/// Shares events out over groups that fit the PMU. Events that it does not count by themselves are
/// left out with a warning.
pub(super) fn groups(all: Vec<Candidate>, asked: bool) -> Result<Vec<(Vec<Candidate>, Group)>> {
    let open = |some: &[Candidate]| {
        let events: Vec<Event> = some.iter().map(|c| c.event.clone()).collect();
        let mut group = Group::open(&events, Whom::Caller, false)?;
        // a group can be opened and yet find no counters
        group.start()?;
        group.stop()?;
        group.read()?;
        Ok::<Group, GroupError>(group)
    };
    let mut out: Vec<(Vec<Candidate>, Group)> = Vec::new();
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
    let mut rest = &wanted[..];
    while !rest.is_empty() {
        let fits = (1..=rest.len()).take_while(|n| open(&rest[..*n]).is_ok());
        let n = fits.last().unwrap_or(1);
        out.push((rest[..n].to_vec(), open(&rest[..n])?));
        rest = &rest[n..];
    }
    Ok(out)
}
