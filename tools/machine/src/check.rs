//! What a machine file must satisfy beyond its syntax.

use crate::file::{CoreType, MachineFile};
use crate::frequency::{MAX_POINTS, STEP_MHZ};
use crate::locate::{Fault, Step};
use crate::model::{Cache, CoreModel, Predictor};
use crate::page::MAX_CPUS;
use std::collections::BTreeMap;

/// Most core types, the bound of the scheduler's per-type tables.
pub(crate) const MAX_CORE_TYPES: usize = 8;

type Checked = Result<(), Fault>;

/// A place in the file, extended step by step.
#[derive(Clone)]
struct At(Vec<Step>);

impl At {
    fn root() -> At {
        At(Vec::new())
    }
    fn key(&self, k: &'static str) -> At {
        let mut v = self.0.clone();
        v.push(Step::Key(k));
        At(v)
    }
    fn index(&self, i: usize) -> At {
        let mut v = self.0.clone();
        v.push(Step::Index(i));
        At(v)
    }
    fn fault(&self, message: impl Into<String>) -> Fault {
        Fault {
            at: self.0.clone(),
            message: message.into(),
        }
    }
    fn ensure(&self, ok: bool, message: impl FnOnce() -> String) -> Checked {
        match ok {
            true => Ok(()),
            false => Err(self.fault(message())),
        }
    }
    /// An integer within `lo..=hi`.
    fn int(&self, k: &'static str, v: u32, lo: u32, hi: u32) -> Checked {
        self.key(k).ensure((lo..=hi).contains(&v), || {
            format!("is {v}: must be {lo} to {hi}")
        })
    }
    /// A number within `lo..=hi`.
    fn num(&self, k: &'static str, v: f64, lo: f64, hi: f64) -> Checked {
        self.key(k).ensure((lo..=hi).contains(&v), || {
            format!("is {v}: must be {lo} to {hi}")
        })
    }
    /// A number above 0 and at most `hi`.
    fn positive(&self, k: &'static str, v: f64, hi: f64) -> Checked {
        self.key(k).ensure(v > 0.0 && v <= hi, || {
            format!("is {v}: must be above 0 and at most {hi}")
        })
    }
    fn power_of_two(&self, k: &'static str, v: u32, hi: u32) -> Checked {
        self.key(k).ensure(v.is_power_of_two() && v <= hi, || {
            format!("is {v}: must be a power of two, at most {hi}")
        })
    }
    fn name(&self, k: &'static str, v: &str) -> Checked {
        let ok = !v.is_empty()
            && v.bytes()
                .all(|b| b.is_ascii_alphanumeric() || b == b'_' || b == b'-');
        self.key(k).ensure(ok, || {
            format!("is `{v}`: must be a word of letters, digits, `-` and `_`")
        })
    }
}

/// Checks a machine; the first fault is reported.
pub(crate) fn check(m: &MachineFile) -> Checked {
    let root = At::root();
    root.name("name", &m.name)?;
    let types = root.key("core_type");
    types.ensure((1..=MAX_CORE_TYPES).contains(&m.core_types.len()), || {
        format!(
            "{} core types: between 1 and {MAX_CORE_TYPES} are supported",
            m.core_types.len()
        )
    })?;
    for (i, t) in m.core_types.iter().enumerate() {
        core_type(&types.index(i), t)?;
    }
    names(&types, m)?;
    capacities(&types, m)?;
    cpus(&types, m)?;
    root.key("migration")
        .num("cost_us", m.migration.cost_us, 0.0, 1e6)?;
    board(&root, m)
}

fn names(types: &At, m: &MachineFile) -> Checked {
    for (i, t) in m.core_types.iter().enumerate() {
        let twice = m.core_types[..i].iter().any(|o| o.name == t.name);
        types.index(i).key("name").ensure(!twice, || {
            format!(
                "two core types are named `{}`: merge them or rename one",
                t.name
            )
        })?;
    }
    Ok(())
}

fn capacities(types: &At, m: &MachineFile) -> Checked {
    let first = m.core_types[0].capacity;
    types.index(0).key("capacity").ensure(first == 1024, || {
        format!("is {first}: the first core type is the fastest and has capacity 1024")
    })?;
    for (i, pair) in m.core_types.windows(2).enumerate() {
        let (a, b) = (&pair[0], &pair[1]);
        types.index(i + 1).key("capacity").ensure(b.capacity < a.capacity, || {
            format!(
                "is {}, not below the {} of `{}`: core types are listed fastest first, and cores of equal capacity \
                 are one core type",
                b.capacity, a.capacity, a.name
            )
        })?;
    }
    Ok(())
}

fn cpus(types: &At, m: &MachineFile) -> Checked {
    let mut owner: BTreeMap<u32, (usize, &str)> = BTreeMap::new();
    for (i, t) in m.core_types.iter().enumerate() {
        for &cpu in &t.cpus.0 {
            if let Some((_, other)) = owner.insert(cpu, (i, &t.name)) {
                let at = types.index(i).key("cpus");
                return Err(at.fault(format!("CPU {cpu} already belongs to `{other}`")));
            }
        }
    }
    for (want, (&cpu, &(i, _))) in (0u32..).zip(&owner) {
        types.index(i).key("cpus").ensure(cpu == want, || {
            format!("CPU {want} belongs to no core type: number the CPUs from 0 without gaps")
        })?;
        types
            .index(i)
            .key("cpus")
            .ensure((cpu as usize) < MAX_CPUS, || {
                format!("CPU {cpu}: at most {MAX_CPUS} CPUs are supported")
            })?;
    }
    Ok(())
}

fn core_type(at: &At, t: &CoreType) -> Checked {
    at.name("name", &t.name)?;
    at.int("capacity", t.capacity, 1, 1024)?;
    match &t.model {
        Some(model) => core_model(&at.key("model"), model),
        None => Ok(()),
    }
}

fn cache(at: &At, c: &Cache) -> Checked {
    at.power_of_two("size_kib", c.size_kib, 1 << 16)?;
    at.power_of_two("ways", c.ways, 64)?;
    at.power_of_two("line", c.line, 256)?;
    at.key("line").ensure(c.line >= 16, || {
        format!("is {}: must be at least 16 bytes", c.line)
    })?;
    at.ensure(c.sets() >= 1, || {
        format!(
            "{} ways of {} bytes are more than {} KiB",
            c.ways, c.line, c.size_kib
        )
    })
}

fn core_model(at: &At, m: &CoreModel) -> Checked {
    for (k, v) in [("compatible", &m.compatible), ("pmu", &m.pmu)] {
        let ok = v
            .split_once(',')
            .is_some_and(|(a, b)| !a.is_empty() && !b.is_empty())
            && v.bytes()
                .all(|b| b.is_ascii_graphic() && b != b'"' && b != b'\\');
        at.key(k).ensure(ok, || {
            format!("is `{v}`: must be a device-tree compatible such as `arm,cortex-a57`")
        })?;
    }
    at.int("mhz", m.mhz, 1, 10_000)?;
    cache(&at.key("l1d"), &m.l1d)?;
    cache(&at.key("l2"), &m.l2)?;
    at.key("l2")
        .key("line")
        .ensure(m.l2.line == m.l1d.line, || {
            format!(
                "is {}, that of l1d is {}: both caches have lines of one length",
                m.l2.line, m.l1d.line
            )
        })?;
    at.key("l2")
        .key("size_kib")
        .ensure(m.l2.size_kib >= m.l1d.size_kib, || {
            format!(
                "is {}: smaller than the {} of l1d",
                m.l2.size_kib, m.l1d.size_kib
            )
        })?;
    let (cpi, c) = (at.key("cpi"), &m.cpi);
    for (k, v) in [
        ("alu", c.alu),
        ("mul", c.mul),
        ("div", c.div),
        ("load", c.load),
        ("store", c.store),
        ("branch", c.branch),
        ("fp", c.fp),
        ("fp_div", c.fp_div),
        ("system", c.system),
    ] {
        cpi.positive(k, v, 1000.0)?;
    }
    let (at_p, p) = (at.key("pipeline"), &m.pipeline);
    at_p.num("raw_stall", p.raw_stall, 0.0, 100.0)?;
    at_p.num("load_use_stall", p.load_use_stall, 0.0, 100.0)?;
    at_p.num("fp_raw_stall", p.fp_raw_stall, 0.0, 100.0)?;
    branch(&at.key("branch"), m)?;
    let (at_m, mem) = (at.key("memory"), &m.memory);
    at_m.positive("l2_latency", mem.l2_latency, 1000.0)?;
    at_m.positive("dram_ns", mem.dram_ns, 10_000.0)?;
    at_m.positive("overlap_independent", mem.overlap_independent, 1.0)?;
    at_m.positive("overlap_sequential", mem.overlap_sequential, 1.0)?;
    at_m.key("overlap_independent").ensure(
        !p.in_order || mem.overlap_independent >= 0.5,
        || {
            format!(
                "is {}: an in-order core stalls on most of a miss (0.5 to 1)",
                mem.overlap_independent
            )
        },
    )?;
    let (at_e, e) = (at.key("energy"), &m.energy);
    at_e.positive("instruction_pj", e.instruction_pj, 1e6)?;
    at_e.num("fp_pj", e.fp_pj, 0.0, 1e6)?;
    at_e.num("l1d_refill_pj", e.l1d_refill_pj, 0.0, 1e6)?;
    at_e.num("l2_refill_pj", e.l2_refill_pj, 0.0, 1e6)?;
    at_e.positive("active_mw", e.active_mw, 1e6)?;
    at_e.num("idle_mw", e.idle_mw, 0.0, 1e6)?;
    at_e.key("idle_mw").ensure(e.idle_mw <= e.active_mw, || {
        format!("is {}: above the active_mw of {}", e.idle_mw, e.active_mw)
    })?;
    operating_points(at, m)
}

fn operating_points(model: &At, m: &CoreModel) -> Checked {
    let (at, points) = (model.key("operating_points"), &m.operating_points);
    model
        .key("power_coefficient")
        .ensure(m.power_coefficient.is_some() != points.is_empty(), || {
            "goes with operating_points: give both, or neither".into()
        })?;
    at.ensure(points.len() <= MAX_POINTS, || {
        format!("are {}: at most {MAX_POINTS} are supported", points.len())
    })?;
    for (i, p) in points.iter().enumerate() {
        let at = at.index(i);
        at.key("mhz").ensure(
            p.mhz % STEP_MHZ == 0 && (1..=255).contains(&(p.mhz / STEP_MHZ)),
            || {
                format!(
                    "is {}: must be a multiple of {STEP_MHZ}, at most {}",
                    p.mhz,
                    255 * STEP_MHZ
                )
            },
        )?;
        at.int("mv", p.mv, 1, 4095)?;
    }
    for (i, pair) in points.windows(2).enumerate() {
        let (a, b) = (pair[0], pair[1]);
        at.index(i + 1).ensure(a.mhz < b.mhz && a.mv <= b.mv, || {
            "is not above the one before it: operating points are listed slowest first".into()
        })?;
    }
    match points.last() {
        Some(p) => at
            .index(points.len() - 1)
            .key("mhz")
            .ensure(p.mhz == m.mhz, || {
                format!("is {}: the last one has the core's {} MHz", p.mhz, m.mhz)
            }),
        None => Ok(()),
    }
}

fn branch(at: &At, m: &CoreModel) -> Checked {
    let b = &m.branch;
    at.int("entries", b.entries, 1, 1 << 20)?;
    at.power_of_two("targets", b.targets, 1 << 20)?;
    at.int("history", b.history, 0, 16)?;
    at.key("history").ensure(
        (b.predictor == Predictor::Gshare) == (b.history > 0),
        || {
            format!(
                "is {}: `gshare` needs 1 to 16 bits, `bimodal` has 0",
                b.history
            )
        },
    )?;
    at.num("penalty", b.penalty, 0.0, 1000.0)
}

fn board(root: &At, m: &MachineFile) -> Checked {
    let types = root.key("core_type");
    let with = m.core_types.iter().filter(|t| t.model.is_some()).count();
    if with != 0 && with != m.core_types.len() {
        let i = m
            .core_types
            .iter()
            .position(|t| t.model.is_none())
            .unwrap_or(0);
        return Err(types.index(i).key("model").fault(
            "is missing while other core types have one: give all or none (a simulated machine needs none)",
        ));
    }
    for (i, t) in m.core_types.iter().enumerate() {
        let Some(model) = &t.model else { continue };
        let other = m.core_types[..i]
            .iter()
            .find(|o| o.model.as_ref().is_some_and(|o| o.pmu == model.pmu));
        if let Some(other) = other {
            return Err(types.index(i).key("model").key("pmu").fault(format!(
                "is `{}`, as of `{}`: the kernel registers one PMU by each name, so core types need different ones",
                model.pmu, other.name
            )));
        }
    }
    let at = root.key("board");
    let Some(b) = &m.board else {
        return at.ensure(with == 0, || {
            "is missing while the core types have models: add [board]".into()
        });
    };
    at.ensure(with != 0, || {
        "needs a [core_type.model] for each core type (leave [board] out for a simulated machine)"
            .into()
    })?;
    at.int("dilation", b.dilation, 1, 1000)?;
    at.int("quantum_us", b.quantum_us, 1, 10_000)?;
    at.int("memory_mib", b.memory_mib, 256, 65_536)?;
    if let Some(rate) = b.memory_gb_per_s {
        at.positive("memory_gb_per_s", rate, 1e5)?;
    }
    frequencies(&types, m)?;
    transfers(&types, m)
}

/// Either every core type has operating points, or none has.
fn frequencies(types: &At, m: &MachineFile) -> Checked {
    let any = m.scales_frequency();
    for (i, t) in m.core_types.iter().enumerate() {
        let Some(model) = &t.model else { continue };
        let at = types.index(i).key("model").key("operating_points");
        at.ensure(model.operating_points.is_empty() != any, || {
            format!(
                "are missing, which other core types have: give `{}` some, or none at all",
                t.name
            )
        })?;
    }
    Ok(())
}

/// Either every core type says what a line from another core costs, or none does.
fn transfers(types: &At, m: &MachineFile) -> Checked {
    let says = |t: &CoreType| {
        let memory = t.model.as_ref().map(|m| &m.memory);
        memory.is_some_and(|m| m.transfer_ns.is_some())
    };
    let any = m.core_types.iter().any(says);
    for (i, t) in m.core_types.iter().enumerate() {
        let Some(model) = &t.model else { continue };
        let at = types.index(i).key("model").key("memory");
        let (near, far) = (model.memory.transfer_ns, model.memory.transfer_far_ns);
        at.ensure(near.is_some() == any, || {
            format!(
                "has no transfer_ns, which other core types have: give `{}` one, or none at all",
                t.name
            )
        })?;
        at.ensure(near.is_some() == far.is_some(), || {
            "transfer_ns and transfer_far_ns go together".into()
        })?;
        for (key, ns) in [("transfer_ns", near), ("transfer_far_ns", far)] {
            if let Some(ns) = ns {
                at.positive(key, ns, 10_000.0)?;
            }
        }
    }
    Ok(())
}
