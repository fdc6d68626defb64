//! What `scx_amp run` is to do: options, over the configuration, over the profile.

use super::config::Configuration;
use crate::cpufreq::Cpufreq;
use crate::openmetrics::Address;
use crate::profile::{self, Profile, INTERVALS};
use crate::recording::RecordArgs;
use crate::statistics::seconds;
use amp_host::bad_input;
use amp_machine::CpuList;
use amp_metrics::Nanos;
use amp_pmc::TrustArgs;
use amp_sched::policy::{Policy, Settings};
use amp_sched::Topology;
use anyhow::Result;
use clap::Args;
use std::path::PathBuf;
use std::time::Duration;

/// Options of `scx_amp run`, each as it may stand in the configuration, too.
#[derive(Args, Clone, Debug)]
pub struct RunArgs {
    /// Policy, knobs, provider and interval under one name (see `scx_amp help profiles`), or a file
    /// of that form; other options go before it [default: auto]
    #[arg(long, value_name = "NAME|FILE.toml")]
    pub profile: Option<String>,
    /// Follow the power profile of the machine, or its battery where there are no power profiles: profile `battery` to save power,
    /// `throughput` for performance, the one asked for otherwise
    #[arg(long, conflicts_with_all = ["policy", "provider"])]
    pub autopower: bool,
    /// Policy that places threads on core types [default: the profile's]
    #[arg(long, value_name = "NAME")]
    pub policy: Option<String>,
    /// Set a knob of the policy (see `scx_amp help policy NAME`); may be repeated
    #[arg(long = "set", value_name = "[POLICY.]KNOB=VALUE")]
    pub settings: Vec<String>,
    /// Source of the metrics the policy asks for: a name, `auto` for the best one that is possible
    /// here, or a TOML file [default: the profile's, mostly `auto`]
    #[arg(long, value_name = "NAME|FILE.toml")]
    pub provider: Option<String>,
    #[command(flatten)]
    pub trust: TrustArgs,
    /// CPUs of the fast core type (all others are slow), where the kernel cannot distinguish them
    #[arg(long, value_name = "LIST")]
    pub big_cpus: Option<CpuList>,
    /// Where all cores are of one type, leave the machine to the kernel's own scheduler and end with
    /// status 0. Without this that is a failure, and with a policy, a profile or a provider by name
    /// they are scheduled all the same
    #[arg(long)]
    pub if_hybrid: bool,
    /// Time between two decisions, in milliseconds [default: the profile's, mostly 100]
    #[arg(long, value_name = "MS", value_parser = clap::value_parser!(u64).range(*INTERVALS.start()..=*INTERVALS.end()))]
    pub interval: Option<u64>,
    /// What the kernel's frequency scaling is asked for, where its governor is schedutil
    /// [default: the profile's, mostly `load`]
    #[arg(long, value_enum)]
    pub cpufreq: Option<Cpufreq>,
    /// Schedule only the threads of this control group and those below it, absolute or below
    /// /sys/fs/cgroup
    #[arg(long, value_name = "PATH", conflicts_with = "exclude_cgroup")]
    pub only_cgroup: Option<PathBuf>,
    /// Do not place the threads of this control group and those below it: they may run anywhere
    #[arg(long, value_name = "PATH")]
    pub exclude_cgroup: Option<PathBuf>,
    #[command(flatten)]
    pub recording: RecordArgs,
    /// Rules for single programs: where they are to run, whatever the policy thinks; read again when
    /// the file changes
    #[arg(long, value_name = "FILE.toml")]
    pub rules: Option<PathBuf>,
    /// Where is kept what programs were like, for the next run; `none` remembers nothing
    /// [default: /var/lib/scx_amp/memory.json]
    #[arg(long, value_name = "FILE|none")]
    pub memory: Option<PathBuf>,
    /// Print what the scheduler is doing, once per so many seconds
    #[arg(long, value_name = "SECS", value_parser = clap::value_parser!(u64).range(1..))]
    pub stats: Option<u64>,
    /// Schedule nothing: print the statistics of the scheduler that runs, once per so many seconds
    #[arg(long, value_name = "SECS", value_parser = seconds, conflicts_with = "help_stats")]
    pub monitor: Option<Duration>,
    /// Schedule nothing: describe the statistics
    #[arg(long)]
    pub help_stats: bool,
    /// Serve figures as OpenMetrics text over HTTP, at /metrics of this address: PORT for this machine
    /// alone, or IP:PORT
    #[arg(long, value_name = "ADDR")]
    pub metrics: Option<Address>,
    /// Seed of policies that choose at random [default: 1]
    #[arg(long)]
    pub seed: Option<u64>,
    /// Test aid: panic after so many ticks
    #[arg(long, hide = true)]
    pub panic_after: Option<u64>,
    /// Test aid: decide nothing any more after so many ticks, and hear nobody
    #[arg(long, hide = true)]
    pub wedge_after: Option<u64>,
    /// Test aid: room for so many threads, one less to be exact
    #[arg(long, hide = true)]
    pub slots: Option<u32>,
}

impl RunArgs {
    /// No options.
    pub fn none() -> RunArgs {
        RunArgs {
            profile: None,
            autopower: false,
            policy: None,
            settings: Vec::new(),
            provider: None,
            trust: TrustArgs { trust: None },
            big_cpus: None,
            if_hybrid: false,
            interval: None,
            cpufreq: None,
            only_cgroup: None,
            exclude_cgroup: None,
            recording: RecordArgs::none(),
            rules: None,
            memory: None,
            stats: None,
            monitor: None,
            help_stats: false,
            metrics: None,
            seed: None,
            panic_after: None,
            wedge_after: None,
            slots: None,
        }
    }
}

/// What to do, with nothing left open.
#[derive(Clone, Debug)]
pub struct RunOptions {
    /// The profile, as it was asked for.
    pub profile: String,
    /// Whether the profile follows the power of the machine.
    pub autopower: bool,
    /// Name of the policy.
    pub policy: String,
    /// What was set for the policy, for others, and for the engine.
    pub settings: Settings,
    /// Name or file of the provider.
    pub provider: String,
    /// Which events to trust.
    pub trust: TrustArgs,
    /// CPUs of the fast core type, where the user named them.
    pub big_cpus: Option<CpuList>,
    /// Whether a machine with one core type is left alone, and that is no failure.
    pub if_hybrid: bool,
    /// Whether somebody has asked for a policy, a profile or a provider by name.
    pub by_name: bool,
    /// Time between two decisions, where it is not the profile's.
    pub interval: Option<Nanos>,
    /// Time between two decisions that the profile asks for.
    pub profile_interval: Nanos,
    /// Control group of the threads to schedule; all threads without one.
    pub only_cgroup: Option<PathBuf>,
    /// Control group of threads that are not placed.
    pub exclude_cgroup: Option<PathBuf>,
    /// Whether and where what happens is written.
    pub recording: RecordArgs,
    /// File of rules for single programs.
    pub rules: Option<PathBuf>,
    /// Where is kept what programs were like, where the user has said so; `none` for nowhere.
    pub memory: Option<PathBuf>,
    /// Seconds between two lines of status.
    pub stats: Option<u64>,
    /// What CPUs are to be clocked at; none leaves that to the profile.
    pub cpufreq: Option<Cpufreq>,
    /// The same, as the profile says.
    pub profile_cpufreq: Cpufreq,
    /// Where figures are served.
    pub metrics: Option<Address>,
    /// Seed of policies that choose at random.
    pub seed: u64,
    /// Test aid: panic after so many ticks.
    pub panic_after: Option<u64>,
    /// Test aid: stand still after so many ticks.
    pub wedge_after: Option<u64>,
    /// Test aid: slots of the mechanism's table of threads.
    pub slots: Option<u32>,
}

impl RunOptions {
    /// The options `args` over those of the `configuration`, over those of the profile.
    ///
    /// # Errors
    /// [`amp_host::BadInput`] naming what there is not, with file, line and key where a file says
    /// so.
    pub fn new(args: RunArgs, configuration: Configuration) -> Result<RunOptions> {
        let Configuration { args: below, file } = configuration;
        let by_name = [&args, &below]
            .iter()
            .any(|a| a.policy.is_some() || a.profile.is_some() || a.provider.is_some());
        // what the file says is told with its place there
        let at = |said: bool, key: &'static str, e: &dyn std::fmt::Display| match &file {
            Some(file) if said => bad_input(file.key(key, e.to_string())),
            _ => bad_input(e.to_string()),
        };
        let options = (
            args.profile.is_some(),
            args.policy.is_some(),
            args.provider.is_some(),
        );
        // who asks for profiles by option does not mean the policy of the configuration
        let (policy, provider, interval) = match args.profile.is_some() || args.autopower {
            true => (args.policy, args.provider, args.interval),
            false => (
                args.policy.or(below.policy),
                args.provider.or(below.provider),
                args.interval.or(below.interval),
            ),
        };
        // nor, who asks for a policy, the power of the configuration; both in one place are refused there
        let autopower = args.autopower || below.autopower && !(options.1 || options.2);
        let name = args.profile.or(below.profile);
        let profile = Profile::find(name.as_deref().unwrap_or(profile::DEFAULT))
            .map_err(|e| at(!options.0, "profile", &e))?;
        let policy = policy.unwrap_or(profile.policy);
        let provider = provider.unwrap_or(profile.provider);
        let none: &[&str] = &[];
        Settings::new(none, std::slice::from_ref(&policy))
            .map_err(|e| at(!options.1, "policy", &e))?;
        crate::provider::check_name(&provider).map_err(|e| at(!options.2, "provider", &e))?;
        let mut settings = Settings::default();
        settings
            .add(&profile.settings, &policy)
            .map_err(bad_input)?;
        // an option may choose another policy than the one that the file was written for
        let whose = |s: &&String| !s.split('=').next().unwrap_or("").contains('.');
        if let Some(bare) = below.settings.iter().find(whose) {
            let why = format!("{bare}: want POLICY.KNOB=VALUE");
            return Err(at(true, "set", &why));
        }
        settings
            .add(&below.settings, &policy)
            .map_err(|e| at(true, "set", &e))?;
        let asked = Settings::new(&args.settings, std::slice::from_ref(&policy));
        asked.map_err(bad_input)?;
        settings.add(&args.settings, &policy).map_err(bad_input)?;
        Ok(RunOptions {
            profile: profile.name,
            autopower,
            policy,
            settings,
            provider,
            trust: TrustArgs {
                trust: args.trust.trust.or(below.trust.trust),
            },
            big_cpus: args.big_cpus.or(below.big_cpus),
            if_hybrid: args.if_hybrid || below.if_hybrid,
            by_name,
            interval: interval.map(Nanos::from_millis),
            profile_interval: profile.interval.map_or(USUAL_INTERVAL, Nanos::from_millis),
            cpufreq: args.cpufreq.or(below.cpufreq),
            profile_cpufreq: profile.cpufreq,
            only_cgroup: args.only_cgroup.or(below.only_cgroup),
            exclude_cgroup: args.exclude_cgroup.or(below.exclude_cgroup),
            recording: args.recording,
            rules: args.rules.or(below.rules),
            memory: args.memory.or(below.memory),
            stats: args.stats.or(below.stats),
            metrics: args.metrics.or(below.metrics),
            seed: args.seed.or(below.seed).unwrap_or(1),
            panic_after: args.panic_after,
            wedge_after: args.wedge_after,
            slots: args.slots,
        })
    }

    /// Time between two decisions.
    pub fn interval(&self) -> Nanos {
        self.interval.unwrap_or(self.profile_interval)
    }

    /// What CPUs are to be clocked at.
    pub fn cpufreq(&self) -> Cpufreq {
        self.cpufreq.unwrap_or(self.profile_cpufreq)
    }

    /// The policy, with what was set for it, for a machine of that `topology` where it is known.
    ///
    /// # Errors
    /// [`amp_host::BadInput`] when it cannot tell so many core types apart.
    pub fn policy_for(&self, topology: Option<&Topology>) -> Result<Box<dyn Policy>> {
        let made = self.settings.policy(&self.policy, self.seed, topology);
        made.map_err(bad_input)
    }
}

/// Time between two decisions where nobody says otherwise.
pub const USUAL_INTERVAL: Nanos = Nanos::from_millis(100);

#[cfg(test)]
mod tests {
    use super::*;
    use clap::Parser;
    use std::path::Path;

    #[derive(Parser)]
    struct Line {
        #[command(flatten)]
        args: RunArgs,
    }

    fn resolved(line: &str, configuration: &str) -> Result<RunOptions> {
        let words = ["run"].into_iter().chain(line.split_whitespace());
        let args = Line::try_parse_from(words).unwrap().args;
        let configuration = Configuration::parse(Path::new("c.toml"), configuration)?;
        RunOptions::new(args, configuration)
    }

    fn shown(line: &str, configuration: &str) -> String {
        let o = resolved(line, configuration).unwrap();
        format!(
            "{} {} {} {}",
            o.profile,
            o.policy,
            o.provider,
            o.interval().as_millis()
        )
    }

    #[test]
    fn options_go_before_the_configuration_and_that_before_the_profile() {
        assert_eq!(shown("", ""), "auto hsp auto 100");
        assert_eq!(shown("--policy rr", ""), "auto rr auto 100");
        assert_eq!(shown("--profile latency", ""), "latency rr none 25");
        assert_eq!(
            shown("--profile latency --interval 50", ""),
            "latency rr none 50"
        );
        let file = "policy = \"acfs\"\nprovider = \"none\"\ninterval = 200\n";
        assert_eq!(shown("", file), "auto acfs none 200");
        assert_eq!(shown("--policy rr", file), "auto rr none 200");
        assert_eq!(shown("--profile server", file), "server pareto auto 100");
        assert_eq!(
            shown("", "profile = \"fair\"\npolicy = \"rr\""),
            "fair rr auto 100"
        );
    }

    #[test]
    fn knobs_of_the_three_add_up() {
        let o = resolved(
            "--profile server",
            "set = [\"pareto.memory=5000\", \"rr.threshold=7\"]",
        )
        .unwrap();
        let values: Vec<_> = o.policy_for(None).unwrap().knobs().values().collect();
        assert!(values.contains(&("unfairness", "1.2".into())), "{values:?}");
        assert!(values.contains(&("memory", "5000".into())), "{values:?}");
        let o = resolved("--profile server --set unfairness=1.5", "").unwrap();
        let policy = o.policy_for(None).unwrap();
        assert!(policy
            .knobs()
            .values()
            .any(|v| v == ("unfairness", "1.5".into())));
        // those of another policy wait for it, unless an option says so: that is a slip
        assert!(resolved("", "set = [\"rr.threshold=7\"]").is_ok());
        let e = resolved("--set rr.threshold=7", "")
            .unwrap_err()
            .to_string();
        assert!(e.contains("`rr` is not a policy in use"), "{e}");
    }

    #[test]
    fn power_chooses_profiles_where_nobody_asks_for_a_policy() {
        let follows = |line, file| resolved(line, file).unwrap().autopower;
        let file = "autopower = true\nprofile = \"fair\"";
        assert!(!follows("", "") && follows("--autopower", "") && follows("", file));
        assert!(!follows("--policy rr", file) && !follows("--provider none", file));
        assert_eq!(shown("--policy rr", file), "fair rr auto 100");
        // the option goes before the policy of the configuration, as a profile does
        let named = "policy = \"rr\"\nprovider = \"none\"";
        assert!(follows("--autopower", named));
        assert_eq!(shown("--autopower", named), "auto hsp auto 100");
        assert!(Line::try_parse_from(["run", "--autopower", "--policy", "rr"]).is_err());
    }

    #[test]
    fn what_is_wrong_is_told() {
        for (line, file, wants) in [
            ("", "autopower = true\npolicy = \"rr\"", "c.toml: "),
            ("--policy hps", "", "unknown policy `hps`"),
            ("--profile sever", "", "did you mean `server`?"),
            ("--provider nome", "", "did you mean `none`?"),
            (
                "",
                "\npolicy = \"hps\"",
                "c.toml: line 2: key `policy`: unknown policy `hps`",
            ),
            (
                "",
                "provider = \"nome\"",
                "c.toml: line 1: key `provider`: ",
            ),
            (
                "",
                "profile = \"sever\"",
                "c.toml: line 1: key `profile`: unknown profile",
            ),
            ("--policy hps", "policy = \"hsp\"", "unknown policy `hps`"),
            (
                "",
                "set = [\"smoothing=8\"]",
                "c.toml: line 1: key `set`: smoothing=8: want POLICY.KNOB=VALUE",
            ),
            (
                "",
                "set = [\"hsp.smoothing=x\"]",
                "c.toml: line 1: key `set`: hsp.smoothing=x",
            ),
        ] {
            let e = resolved(line, file).unwrap_err();
            assert!(e.is::<amp_host::BadInput>());
            assert!(e.to_string().contains(wants), "{line} {file}: {e}");
        }
    }
}
