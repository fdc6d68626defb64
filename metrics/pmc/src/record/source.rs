//! What takes samples, and what it demands: a counter that overflows, or hardware that follows single
//! instructions.
//!
//! | source | PMU | a sample is |
//! |---|---|---|
//! | counter | of cores, or software | where the program was when the counter overflowed |
//! | IBS | `ibs_op`, `ibs_fetch` (AMD) | an operation or a fetch that the hardware has chosen before it ran |
//! | SPE | `arm_spe_0` (Arm) | the same of an operation, in a buffer of its own |
//!
//! Demands of IBS are those of `arch/x86/events/amd/ibs.c`, those of SPE of
//! `drivers/perf/arm_spe_pmu.c`. Neither was ever tried on hardware.

use crate::sets::Unit;
use amp_host::bad_input;
use amp_metrics::{Event, Pmus};
use anyhow::Result;
use std::path::Path;

/// What takes samples.
#[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Source {
    /// A counter that overflows.
    Counter,
    /// AMD's Instruction-Based Sampling.
    Ibs,
    /// Arm's Statistical Profiling Extension.
    Spe,
}

/// Periods that a source can have.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Periods {
    /// They are multiples of this.
    pub grain: u64,
    /// The shortest.
    pub least: u64,
    /// The longest.
    pub most: u64,
}

impl Periods {
    /// Whatever a counter can have.
    pub const ANY: Periods = Periods {
        grain: 1,
        least: 1,
        most: u64::MAX,
    };
    /// The lower four bits of a period are none of the hardware's; kernels since 6.15 refuse what is
    /// shorter than 0x90 operations, and all of them can do with that.
    const IBS: Periods = Periods {
        grain: 16,
        least: 0x90,
        most: u64::MAX,
    };

    /// Of SPE, whose driver states the shortest. It takes others without a word and changes them.
    fn of_spe(pmu: &str, devices: &Path) -> Periods {
        let file = devices.join(pmu).join("caps/min_interval");
        let text = std::fs::read_to_string(file).unwrap_or_default();
        Periods {
            grain: 256,
            // the longest of the shortest ones that the architecture has
            least: text.trim().parse().unwrap_or(4096),
            most: 0xffff_ff00,
        }
    }

    /// Whether `period` is one of them.
    ///
    /// # Errors
    /// [`amp_host::BadInput`], with the closest that is.
    fn check(&self, period: u64, pmu: &str) -> Result<()> {
        let closest = (period / self.grain * self.grain).clamp(self.least, self.most);
        if closest == period {
            return Ok(());
        }
        let most = match self.most {
            u64::MAX => String::new(),
            most => format!(" up to {most}"),
        };
        Err(bad_input(format!(
            "-c {period}: periods of PMU `{pmu}` are multiples of {} from {} on{most}; give -c {closest}",
            self.grain, self.least
        )))
    }
}

/// How the only event of a set is sampled.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Plan {
    /// What takes the samples.
    pub source: Source,
    /// Periods that can be asked for.
    pub periods: Periods,
}

/// Number of the kernel's generic events, and of the PMU `cpu` (`PERF_TYPE_HARDWARE`,
/// `PERF_TYPE_RAW`).
const HARDWARE: u32 = 0;
const RAW: u32 = 4;
/// Event codes of AMD's cycles and retired operations.
const CYCLES: u64 = 0x76;
const OPERATIONS: u64 = 0xc1;
const IBS_OP: &str = "ibs_op";
/// The field of IBS by which the kernel leaves out modes in its interrupt (`:u`, `:k`).
const FILTER: &str = "swfilt";

impl Source {
    /// What samples the events of `unit`; `None` for a PMU that does not show where a program is.
    fn of(pmus: &Pmus, unit: &Unit) -> Option<Source> {
        let forwarded = unit.events.iter().any(|e| is_forwarded(pmus, e));
        match unit.pmu.as_str() {
            IBS_OP | "ibs_fetch" => Some(Source::Ibs),
            pmu if pmu.starts_with("arm_spe_") => Some(Source::Spe),
            _ if forwarded => Some(Source::Ibs),
            "software" => Some(Source::Counter),
            _ => unit.core_type.map(|_| Source::Counter),
        }
    }

    /// Whether nobody has tried it on hardware.
    pub fn is_experimental(self) -> bool {
        self != Source::Counter
    }
}

/// Whether the kernel gives the event to IBS: on AMD a precise one of cycles (`cycles:p`, `r76:p`) or
/// of operations (`rc1:p`). All other precise events it refuses there.
fn is_forwarded(pmus: &Pmus, event: &Event) -> bool {
    let code = match (event.attr.type_, event.attr.config) {
        (HARDWARE, 0) => true,
        (RAW, config) => [CYCLES, OPERATIONS].contains(&config),
        _ => false,
    };
    code && event.pmu == "cpu" && event.attr.precise > 0 && pmus.by_name(IBS_OP).is_some()
}

/// Decides how the event in `units` is sampled, and gives it what that demands. PMUs are listed in
/// the folder `devices`; `period` is the one that was asked for.
///
/// # Errors
/// [`amp_host::BadInput`]: a PMU that does not show where a program is, and what the kernel would
/// refuse without saying why.
pub fn plan(
    pmus: &Pmus,
    units: &mut [Unit],
    devices: &Path,
    period: Option<u64>,
    all_cpus: bool,
) -> Result<Plan> {
    let mut plan = Plan {
        source: Source::Counter,
        periods: Periods::ANY,
    };
    for unit in units {
        let event = unit.events.first().map_or("", |e| e.name.as_str());
        let Some(source) = Source::of(pmus, unit) else {
            return Err(bad_input(format!(
                "event `{event}`: PMU `{}` is not one of cores, and only those show where a program is",
                unit.pmu
            )));
        };
        let periods = match source {
            Source::Counter => continue,
            Source::Ibs => Periods::IBS,
            Source::Spe if all_cpus => {
                return Err(bad_input(format!(
                    "event `{event}`: -a cannot be sampled with SPE, whose records do not say which process \
                     they are of; give a command or -p"
                )))
            }
            Source::Spe => Periods::of_spe(&unit.pmu, devices),
        };
        if let Some(period) = period {
            periods.check(period, &unit.pmu)?;
        }
        plan = Plan { source, periods };
        for event in &mut unit.events {
            fit(pmus, event, source)?;
        }
    }
    Ok(plan)
}

/// Gives the event what its source demands.
fn fit(pmus: &Pmus, event: &mut Event, source: Source) -> Result<()> {
    let forwarded = is_forwarded(pmus, event);
    match (forwarded, event.attr.precise) {
        (true, 3) => {
            return Err(bad_input(format!(
                "event `{}`: IBS samples it, which can do `:pp` at most",
                event.name
            )))
        }
        (false, 1..) => {
            return Err(bad_input(format!(
                "event `{}`: each sample of PMU `{}` is of the very instruction; leave the `p` out",
                event.name, event.pmu
            )))
        }
        _ => {}
    }
    let part = event.attr.exclude_kernel || event.attr.exclude_user;
    if source != Source::Ibs || !part {
        return Ok(());
    }
    let pmu = if forwarded {
        IBS_OP
    } else {
        event.pmu.as_str()
    };
    let filter = pmus.by_name(pmu).and_then(|p| p.formats.get(FILTER));
    match filter {
        Some(filter) if filter.put(&mut event.attr, 1).is_ok() => Ok(()),
        _ => Err(bad_input(format!(
            "event `{}`: the PMU `{pmu}` of this kernel cannot leave out a mode (it has no field `{FILTER}`, \
             which came with Linux 6.14). Leave the modifier out; as an ordinary user you need \
             `sysctl kernel.perf_event_paranoid=1` for that",
            event.name
        ))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::inventory::CounterInventory;
    use crate::sets::Set;
    use amp_metrics::pmu::DEVICES;
    use amp_metrics::virtual_counters::VirtualCounters;
    use std::path::PathBuf;
    use tempfile::TempDir;

    /// A machine whose `/sys` holds these lines.
    struct Machine {
        root: TempDir,
        inventory: CounterInventory,
    }

    impl Machine {
        fn of(lines: &str, cpus: &[u32]) -> Machine {
            let root = tempfile::tempdir().unwrap();
            for line in lines.lines() {
                let (path, text) = line.split_once(" = ").unwrap();
                let path = root.path().join(path);
                std::fs::create_dir_all(path.parent().unwrap()).unwrap();
                std::fs::write(path, format!("{text}\n")).unwrap();
            }
            let pmus = Pmus::discover(root.path()).unwrap();
            let pmus = pmus.with_core_types(&[cpus.to_vec()]);
            let none = VirtualCounters::of(Vec::new());
            let inventory = CounterInventory::from_parts(pmus, &["all"], none);
            Machine { root, inventory }
        }

        /// A fixture of amp-metrics.
        fn fixture(name: &str, without: &str) -> Machine {
            let fixtures = Path::new(env!("CARGO_MANIFEST_DIR")).join("../tests/fixtures");
            let text = std::fs::read_to_string(fixtures.join(format!("{name}.sysfs"))).unwrap();
            let kept = text
                .lines()
                .filter(|l| without.is_empty() || !l.contains(without));
            Machine::of(
                &kept.collect::<Vec<_>>().join("\n"),
                &(0..16).collect::<Vec<_>>(),
            )
        }

        fn devices(&self) -> PathBuf {
            self.root.path().join(DEVICES)
        }

        fn plan(&self, event: &str, period: Option<u64>) -> Result<(Plan, Event)> {
            let mut set = Set::parse(&self.inventory, event)?;
            let plan = plan(
                &self.inventory.pmus,
                &mut set.units,
                &self.devices(),
                period,
                false,
            )?;
            Ok((plan, set.units[0].events[0].clone()))
        }

        /// Why the event is bad input.
        fn refusal(&self, event: &str, period: Option<u64>) -> String {
            let e = self.plan(event, period).unwrap_err();
            assert!(e.is::<amp_host::BadInput>(), "{event}: {e}");
            e.to_string()
        }
    }

    /// Zen 4, as the fixture has it.
    fn zen() -> Machine {
        Machine::fixture("zen", "")
    }

    /// An Arm machine with SPE. No report of one's files was found: they are those of the driver's
    /// source (Linux 6.x), on the fixture of a Juno, which has none.
    fn arm() -> Machine {
        const SPE: &str = "\
bus/event_source/devices/arm_spe_0/type = 20
bus/event_source/devices/arm_spe_0/cpumask = 0-5
bus/event_source/devices/arm_spe_0/caps/arch_inst = 1
bus/event_source/devices/arm_spe_0/caps/count_size = 12
bus/event_source/devices/arm_spe_0/caps/ernd = 1
bus/event_source/devices/arm_spe_0/caps/min_interval = 1024
bus/event_source/devices/arm_spe_0/format/branch_filter = config:32
bus/event_source/devices/arm_spe_0/format/event_filter = config1:0-63
bus/event_source/devices/arm_spe_0/format/jitter = config:16
bus/event_source/devices/arm_spe_0/format/load_filter = config:33
bus/event_source/devices/arm_spe_0/format/min_latency = config2:0-11
bus/event_source/devices/arm_spe_0/format/pa_enable = config:1
bus/event_source/devices/arm_spe_0/format/pct_enable = config:2
bus/event_source/devices/arm_spe_0/format/store_filter = config:34
bus/event_source/devices/arm_spe_0/format/ts_enable = config:0
";
        let fixtures = Path::new(env!("CARGO_MANIFEST_DIR")).join("../tests/fixtures");
        let juno = std::fs::read_to_string(fixtures.join("juno.sysfs")).unwrap();
        Machine::of(
            &format!("{}\n{}", juno.trim_end(), SPE.trim_end()),
            &[0, 1, 2, 3, 4, 5],
        )
    }

    #[test]
    fn ibs_is_asked_for_by_its_pmu() {
        let zen = zen();
        for (text, config, config2) in [
            ("ibs_op//", 0, 0),
            ("ibs_op/cnt_ctl=1/", 1 << 19, 0),
            ("ibs_op/cnt_ctl,l3missonly/", 1 << 19 | 1 << 16, 0),
            // the kernel leaves out modes only if it is asked to
            ("ibs_op//u", 0, 1),
            ("ibs_op/swfilt=1/k", 0, 1),
        ] {
            let (plan, event) = zen.plan(text, Some(160)).unwrap();
            assert_eq!(
                (plan.source, plan.periods),
                (Source::Ibs, Periods::IBS),
                "{text}"
            );
            let attr = event.attr;
            assert_eq!(
                (attr.type_, attr.config, attr.config2),
                (11, config, config2),
                "{text}"
            );
            assert_eq!(attr.precise, 0, "{text}");
        }
        let (_, fetch) = zen.plan("ibs_fetch/rand_en=1/", None).unwrap();
        assert_eq!((fetch.attr.type_, fetch.attr.config), (10, 1 << 57));
    }

    #[test]
    fn precise_cycles_and_operations_of_amd_are_ibs() {
        let zen = zen();
        for text in [
            "cycles:p",
            "cpu-cycles:pp",
            "r76:p",
            "rc1:pp",
            "cpu/event=0x76/p",
        ] {
            let (plan, event) = zen.plan(text, None).unwrap();
            assert_eq!(plan.source, Source::Ibs, "{text}");
            assert_eq!(event.attr.config2, 0, "{text}");
        }
        assert_eq!(
            zen.plan("cycles:up", None).unwrap().1.attr.config2,
            1,
            "left out by IBS"
        );
        // as it is written, and not by itself
        for text in ["cycles", "instructions", "instructions:p", "rc0:p"] {
            assert_eq!(
                zen.plan(text, Some(1001)).unwrap().0.source,
                Source::Counter,
                "{text}"
            );
        }
        let e = zen.refusal("cycles:ppp", None);
        assert!(e.contains("`:pp`"), "{e}");
        let e = zen.refusal("cycles:p", Some(1001));
        assert!(e.contains("multiples of 16") && e.contains("-c 992"), "{e}");
        let older = Machine::fixture("zen", "devices/ibs_");
        assert_eq!(
            older.plan("cycles:p", None).unwrap().0.source,
            Source::Counter
        );
    }

    #[test]
    fn what_the_kernel_would_refuse_of_ibs_is_said_beforehand() {
        let zen = zen();
        for (period, closest) in [(1000, 992), (100, 144), (128, 144), (145, 144)] {
            let e = zen.refusal("ibs_op//", Some(period));
            assert!(e.starts_with(&format!("-c {period}: ")), "{e}");
            assert!(
                e.contains("`ibs_op`") && e.ends_with(&format!("give -c {closest}")),
                "{e}"
            );
        }
        let e = zen.refusal("ibs_op//pp", None);
        assert!(e.contains("leave the `p` out"), "{e}");
        let e = zen.refusal("ibs_op/cnt_ctrl=1/", None);
        assert!(
            e.contains("no field `cnt_ctrl`") && e.contains("cnt_ctl"),
            "{e}"
        );
        for many in ["cpu//", "software//", "power//"] {
            let e = zen.refusal(many, None);
            assert!(e.contains("nothing between the slashes"), "{e}");
        }
        let e = zen.refusal("amd_l3/event=1/", None);
        assert!(e.contains("`amd_l3` is not one of cores"), "{e}");
        // before Linux 6.14
        let older = Machine::fixture("zen", "format/swfilt");
        for text in ["ibs_op//u", "ibs_fetch//k", "cycles:up"] {
            let e = older.refusal(text, None);
            assert!(e.contains("`swfilt`") && e.contains("paranoid=1"), "{e}");
        }
        assert!(older.plan("ibs_op//", None).is_ok());
    }

    #[test]
    fn a_pmu_that_is_not_there_is_named_with_those_that_are() {
        for text in ["ibs_op//", "arm_spe_0/ts_enable=1/"] {
            let juno = Machine::fixture("juno", "");
            let e = juno.refusal(text, None);
            let (pmu, _) = text.split_once('/').unwrap();
            assert!(e.contains(&format!("no PMU `{pmu}`")), "{e}");
            assert!(e.contains("`armv8_cortex_a57`"), "{e}");
        }
        let e = Machine::fixture("vm", "").refusal("ibs_op//", None);
        assert!(e.contains("no PMU `ibs_op`") && e.contains("`msr`"), "{e}");
    }

    #[test]
    fn spe_is_asked_for_by_its_fields() {
        let arm = arm();
        for (text, words) in [
            ("arm_spe_0//", [0, 0, 0]),
            ("arm_spe_0/ts_enable=1,jitter=1/u", [1 << 16 | 1, 0, 0]),
            (
                "arm_spe_0/load_filter,store_filter=1,min_latency=30/",
                [1 << 33 | 1 << 34, 0, 30],
            ),
            (
                "arm_spe_0/branch_filter=1,event_filter=0x80/",
                [1 << 32, 0x80, 0],
            ),
        ] {
            let (plan, event) = arm.plan(text, Some(4096)).unwrap();
            assert_eq!(plan.source, Source::Spe, "{text}");
            let a = event.attr;
            assert_eq!(
                (a.type_, [a.config, a.config1, a.config2]),
                (20, words),
                "{text}"
            );
        }
        let (plan, _) = arm.plan("arm_spe_0//", None).unwrap();
        let expected = Periods {
            grain: 256,
            least: 1024,
            most: 0xffff_ff00,
        };
        assert_eq!(plan.periods, expected);
    }

    #[test]
    fn what_spe_cannot_do_is_said_beforehand() {
        let arm = arm();
        for (period, closest) in [(768, 1024), (5000, 4864), (1 << 33, 0xffff_ff00u64)] {
            let e = arm.refusal("arm_spe_0//", Some(period));
            assert!(e.ends_with(&format!("give -c {closest}")), "{e}");
        }
        let e = arm.refusal("arm_spe_0/load=1/", None);
        assert!(
            e.contains("no field `load`") && e.contains("load_filter"),
            "{e}"
        );
        let e = arm.refusal("arm_spe_0/min_latency=0x1000/", None);
        assert!(e.contains("12 bits"), "{e}");
        let e = arm.refusal("arm_spe_0//p", None);
        assert!(e.contains("leave the `p` out"), "{e}");
        let mut set = Set::parse(&arm.inventory, "arm_spe_0//").unwrap();
        let e = plan(
            &arm.inventory.pmus,
            &mut set.units,
            &arm.devices(),
            None,
            true,
        )
        .unwrap_err();
        assert!(
            e.is::<amp_host::BadInput>() && e.to_string().contains("-a"),
            "{e}"
        );
        // a driver that states no shortest period
        let none = Periods::of_spe("arm_spe_1", &arm.devices());
        assert_eq!(none.least, 4096);
    }
}
