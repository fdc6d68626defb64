//! What there is to choose from.

use super::dialog::{Choice, Choose, What};
use crate::profile;
use crate::status::Status;
use amp_metrics::providers::PROVIDERS;
use amp_sched::policy::registry::ENTRIES;

/// The entry that stands for a file.
pub const A_FILE: &str = "FILE.toml";

impl Choose {
    /// What can be chosen while the scheduler does as `status` says.
    pub fn of(what: What, status: &Status) -> Choose {
        let (all, now) = match what {
            What::Policy => (policies(), &status.policy),
            What::Profile => (profiles(), &status.profile),
            What::Provider => (providers(), &status.provider),
            What::Knob => (knobs(status), &status.policy),
        };
        let at = all.iter().position(|c| c.name == *now).unwrap_or(0);
        Choose { what, all, at }
    }
}

fn choice(name: &str, about: &str) -> Choice {
    Choice {
        name: name.to_owned(),
        value: String::new(),
        about: about.to_owned(),
    }
}

fn policies() -> Vec<Choice> {
    let all = ENTRIES.iter();
    all.map(|e| choice(e.name, e.summary)).collect()
}

fn profiles() -> Vec<Choice> {
    let shipped = profile::shipped().map(|p| choice(&p.name, &p.about));
    shipped
        .chain([choice(A_FILE, "a profile of your own")])
        .collect()
}

fn providers() -> Vec<Choice> {
    let auto = choice("auto", "the best one that is possible there");
    let all = PROVIDERS.iter().map(|p| choice(p.name, p.summary));
    std::iter::once(auto)
        .chain(all)
        .chain([choice(A_FILE, "one that a file describes")])
        .collect()
}

/// The knobs that the scheduler says there are; what they do is known of those that we know, too.
fn knobs(status: &Status) -> Vec<Choice> {
    let entry = ENTRIES.iter().find(|e| e.name == status.policy);
    let policy = entry.map(|e| (e.make)(1));
    let known = policy.iter().flat_map(|p| p.knobs().iter());
    let mut about: Vec<(String, &str)> = known.map(|k| (k.key.to_owned(), k.help)).collect();
    let own = amp_sched::engine::probes::knobs();
    about.extend(
        own.iter()
            .map(|k| (format!("{}.{}", own.policy(), k.key), k.help)),
    );
    let all = status.knobs.iter();
    all.map(|(name, value)| Choice {
        name: name.clone(),
        value: value.clone(),
        about: about
            .iter()
            .find(|(n, _)| n == name)
            .map(|(_, help)| (*help).to_owned())
            .unwrap_or_default(),
    })
    .collect()
}
