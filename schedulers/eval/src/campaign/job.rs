//! The jobs of a campaign.

use super::file::{Campaign, Mix, Place, Provider};
use crate::bench::pinned;
use crate::contender::Contender;
use crate::Runs;
use amp_machine::BadFile;
use amp_metrics::providers::files_of;
use amp_sched::policy::registry::ENTRIES;
use amp_sched::policy::Settings;
use sha2::{Digest, Sha256};
use std::collections::HashMap;
use std::fmt;
use std::path::{Path, PathBuf};

/// The machine of mixes that name none.
const MACHINE: &str = "juno";
/// Source of metrics of what needs none.
const NO_METRICS: &str = "declared";
/// Longest readable part of the name of a job's file, in characters.
const READABLE: usize = 100;
/// Characters of the digest in the name of a job's file.
const SHORT: usize = 12;

/// One bench of one mix on one machine with one contender, one provider and one seed.
#[derive(Clone, Debug, PartialEq)]
pub struct Job {
    /// Name of its files in the folder of a campaign, without their ends.
    pub id: String,
    /// Everything that its result depends on and that the campaign decides: the texts of mix,
    /// machine and provider, and the options. In hexadecimal digits.
    pub digest: String,
    /// The workload file.
    pub mix: PathBuf,
    /// Name of the mix.
    pub mix_name: String,
    /// The machine, as `bench --machine` takes it; none for this machine without a name.
    pub machine: Option<String>,
    /// The machine, for tables.
    pub machine_label: String,
    /// What is measured.
    pub contender: Contender,
    /// Source of metrics, as `bench --provider` takes it.
    pub provider: String,
    /// Source of metrics, for tables; none where the contender needs no metrics.
    pub provider_label: Option<String>,
    /// Seed of start orders.
    pub seed: u64,
    /// The settings that are meant for the contender.
    pub settings: Vec<String>,
    /// About how much there is to run: runs × programs. For dealing jobs and for estimates.
    pub cost: u64,
}

impl Job {
    /// Every job of a campaign.
    pub(super) fn all(campaign: &Campaign) -> Result<Vec<Job>, BadFile> {
        let mut texts = Texts {
            campaign,
            files: HashMap::new(),
        };
        let mut jobs = Vec::new();
        for mix in campaign.mixes.iter().map(|m| &m.value) {
            for (machine, label) in machines(campaign, mix) {
                for contender in campaign.contenders.iter().map(|c| &c.value) {
                    for provider in providers(campaign, contender) {
                        for seed in &campaign.seeds {
                            let at = At {
                                mix,
                                machine: machine.as_deref(),
                                label: &label,
                                contender,
                                provider,
                                seed: *seed,
                            };
                            jobs.push(at.job(campaign, &mut texts)?);
                        }
                    }
                }
            }
        }
        Ok(jobs)
    }
}

impl fmt::Display for Job {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "{} on {}, {}",
            self.mix_name, self.machine_label, self.contender
        )?;
        if let Some(provider) = &self.provider_label {
            write!(f, ", {provider}")?;
        }
        write!(f, ", seed {}", self.seed)
    }
}

/// The machines of a mix: as they are asked for, and as tables name them.
fn machines(campaign: &Campaign, mix: &Mix) -> Vec<(Option<String>, String)> {
    if !campaign.machines.is_empty() {
        let named = |m: &super::Item<super::file::Machine>| {
            (Some(m.value.asked.clone()), m.value.label.clone())
        };
        return campaign.machines.iter().map(named).collect();
    }
    if campaign.place == Place::Host {
        return vec![(None, "host".to_owned())];
    }
    let own = mix.workload.machine.as_deref().unwrap_or(MACHINE);
    let stem = Path::new(own).file_stem().map(|s| s.to_string_lossy());
    let label = stem.map_or_else(|| own.to_owned(), |s| s.into_owned());
    vec![(Some(own.to_owned()), label)]
}

/// The providers that `contender` is benched with; none once, where it needs no metrics.
fn providers<'a>(campaign: &'a Campaign, contender: &Contender) -> Vec<Option<&'a Provider>> {
    let needs = match contender {
        Contender::Policy(name) => {
            let entry = ENTRIES.iter().find(|e| e.name == name);
            entry.is_none_or(|e| e.uses_metrics)
        }
        Contender::Kernel | Contender::KernelWithoutEas | Contender::Pinned | Contender::Scx(_) => {
            false
        }
    };
    match needs {
        true => campaign.providers.iter().map(|p| Some(&p.value)).collect(),
        false => vec![None],
    }
}

/// The texts of files that jobs depend on, each read once.
struct Texts<'a> {
    campaign: &'a Campaign,
    files: HashMap<PathBuf, String>,
}

impl Texts<'_> {
    fn of(&mut self, path: &Path) -> Result<String, BadFile> {
        if let Some(text) = self.files.get(path) {
            return Ok(text.clone());
        }
        let text = BadFile::read(path)?;
        self.files.insert(path.to_owned(), text.clone());
        Ok(text)
    }

    /// A machine: the file's text, or the name of a shipped one, which the command's commit tells.
    fn machine(&mut self, asked: Option<&str>) -> Result<String, BadFile> {
        let place = self.campaign.place;
        match asked {
            Some(name) if place != Place::Host && !amp_machine::SHIPPED.contains(&name) => {
                self.of(Path::new(name))
            }
            name => Ok(name.unwrap_or_default().to_owned()),
        }
    }

    /// A provider: the texts of its files, or its name.
    fn provider(&mut self, asked: &str) -> Result<Vec<String>, BadFile> {
        if !asked.ends_with(".toml") {
            return Ok(vec![asked.to_owned()]);
        }
        let files = files_of(Path::new(asked)).map_err(|e| {
            let all = &self.campaign.providers;
            let i = all.iter().position(|p| p.value.asked == asked).unwrap_or(0);
            let at = all.get(i).map_or(0, |p| p.at);
            self.campaign.bad(at, format!("providers[{i}]"), e)
        })?;
        files.iter().map(|f| self.of(f)).collect()
    }

    fn solo(&mut self) -> Result<String, BadFile> {
        let Some(solo) = &self.campaign.knobs.solo else {
            return Ok(String::new());
        };
        let (at, path) = (solo.at, solo.value.clone());
        self.of(&path).map_err(|e| self.campaign.bad(at, "solo", e))
    }
}

/// Where in the campaign a job is.
struct At<'a> {
    mix: &'a Mix,
    machine: Option<&'a str>,
    label: &'a str,
    contender: &'a Contender,
    provider: Option<&'a Provider>,
    seed: u64,
}

impl At<'_> {
    fn job(&self, campaign: &Campaign, texts: &mut Texts<'_>) -> Result<Job, BadFile> {
        let knobs = &campaign.knobs;
        let provider = self.provider.map_or(NO_METRICS, |p| p.asked.as_str());
        let settings = self.settings(campaign);
        let number = |n: Option<u64>| n.map_or_else(String::new, |n| n.to_string());
        let mut digest = Sha256::new();
        let mut add = |part: &str| {
            digest.update((part.len() as u64).to_le_bytes());
            digest.update(part.as_bytes());
        };
        add("job of an scx_amp campaign, 1");
        for part in [
            campaign.place.to_string(),
            self.mix.text.clone(),
            texts.machine(self.machine)?,
            self.contender.to_string(),
            self.seed.to_string(),
            knobs.runs.to_string(),
            number(knobs.completions.map(Into::into)),
            number(knobs.solo_runs.map(Into::into)),
            number(knobs.interval),
            number(knobs.timeout),
            knobs
                .kernel
                .as_ref()
                .map_or_else(String::new, |k| k.value.clone()),
            knobs
                .big_cpus
                .as_ref()
                .map_or_else(String::new, ToString::to_string),
            texts.solo()?,
            settings.len().to_string(),
        ] {
            add(&part);
        }
        settings.iter().for_each(|s| add(s));
        // nothing where it is not asked for: jobs of before are the same then
        if knobs.dvfs {
            add("dvfs");
        }
        texts.provider(provider)?.iter().for_each(|t| add(t));
        let digest: String = digest
            .finalize()
            .iter()
            .map(|b| format!("{b:02x}"))
            .collect();
        let label = self.provider.map(|p| p.label.clone());
        Ok(Job {
            id: self.id(label.as_deref(), &digest),
            digest,
            mix: self.mix.path.clone(),
            mix_name: self.mix.workload.name.clone(),
            machine: self.machine.map(str::to_owned),
            machine_label: self.label.to_owned(),
            contender: self.contender.clone(),
            provider: provider.to_owned(),
            provider_label: label,
            seed: self.seed,
            settings,
            cost: self.cost(knobs.runs),
        })
    }

    /// The settings that are meant for the contender; the campaign's are all right, so that what is
    /// not right here is meant for somebody else.
    fn settings(&self, campaign: &Campaign) -> Vec<String> {
        let Contender::Policy(name) = self.contender else {
            return Vec::new();
        };
        let mine = |s: &&String| Settings::new(&[s], &[name]).is_ok();
        let all = campaign.knobs.set.iter().map(|s| &s.value);
        all.filter(mine).cloned().collect()
    }

    fn id(&self, provider: Option<&str>, digest: &str) -> String {
        let readable = format!(
            "{}.{}.{}.{}.{}",
            self.mix.workload.name,
            self.label,
            self.contender,
            provider.unwrap_or("none"),
            self.seed
        );
        let plain = |c: char| match c {
            c if c.is_ascii_alphanumeric() || ".-_".contains(c) => c,
            _ => '_',
        };
        let readable: String = readable.chars().map(plain).take(READABLE).collect();
        let readable = readable.trim_start_matches('.');
        format!("{readable}-{}", &digest[..SHORT])
    }

    fn cost(&self, runs: Runs) -> u64 {
        let runs = u64::from(runs.planned(self.contender.is_kernel(), None));
        let tried = match self.contender {
            Contender::Pinned => pinned::trial_runs(pinned::MOST) as u64,
            _ => 0,
        };
        (runs + tried) * self.mix.workload.apps.len() as u64
    }
}
