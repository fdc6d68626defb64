//! Energy by the kernel's own energy model: what it says a busy CPU takes at each clock, times how long
//! CPUs were busy at it. An estimate, for machines that measure nothing.

use super::{folders, number, read, VirtualError, VirtualSource};
use crate::ids::{CoreTypeId, Nanos};
use crate::sample::{Subject, ThreadSample, VirtualCounter, VirtualReading};
use amp_machine::CpuList;
use std::path::{Path, PathBuf};

const WHAT: &str = "the kernel's energy model";
/// Of `flags`: powers are in microwatts, and not on a scale of their own.
const MICROWATTS: u64 = 1;
/// Unit of times in `/proc/stat` and `time_in_state`: 1/`USER_HZ`, which is 100 wherever Linux runs.
const TICK_S: f64 = 0.01;

/// A clock at which CPUs can run.
#[derive(Clone, Copy, Debug, PartialEq)]
struct State {
    khz: u64,
    /// What one busy CPU takes.
    microwatts: u64,
}

/// CPUs that have their clock in common.
#[derive(Debug)]
struct Domain {
    cpus: Vec<u32>,
    /// Ascending by clock.
    states: Vec<State>,
    /// How long each clock was set.
    time_in_state: PathBuf,
}

impl Domain {
    /// What a CPU takes that is busy at this clock, watts: by the slowest state that is as fast.
    fn watts(&self, khz: u64) -> f64 {
        let mut states = self.states.iter();
        let state = states.find(|s| s.khz >= khz).or(self.states.last());
        state.map_or(0.0, |s| s.microwatts as f64 * 1e-6)
    }

    /// What a CPU took on average while it was busy, between two readings of the times of clocks, watts.
    /// Busy and idle CPUs are taken to have been clocked alike. Where no time has passed by those, it
    /// is the average since the machine was started.
    fn mean_watts(&self, from: &[(u64, u64)], to: &[(u64, u64)]) -> f64 {
        let passed = to.iter().map(|(khz, ticks)| {
            let before = from.iter().find(|(k, _)| k == khz).map_or(0, |f| f.1);
            (*khz, ticks.saturating_sub(before) as f64)
        });
        let (energy, time) = passed.fold((0.0, 0.0), |(energy, time), (khz, ticks)| {
            (energy + ticks * self.watts(khz), time + ticks)
        });
        match (time > 0.0, from) {
            (true, _) => energy / time,
            (false, []) => 0.0,
            (false, _) => self.mean_watts(&[], to),
        }
    }
}

/// The domain in folder `dir`, of these CPUs.
fn domain(sysfs: &Path, dir: &Path, cpus: Vec<u32>) -> Result<Domain, VirtualError> {
    let none = |reason: String| VirtualError::None { what: WHAT, reason };
    let flags = dir.join("flags");
    let text = read(&flags)?;
    let bits = text.strip_prefix("0x").unwrap_or(&text);
    let Ok(bits) = u64::from_str_radix(bits, 16) else {
        return Err(VirtualError::Bad {
            path: flags,
            text,
            want: "a hexadecimal number",
        });
    };
    if bits & MICROWATTS == 0 {
        let dir = dir.display();
        return Err(none(format!("{dir}: powers are on a scale of their own")));
    }
    let mut states = Vec::new();
    for state in folders(dir) {
        let name = state.file_name().unwrap_or_default().to_string_lossy();
        if name.starts_with("ps:") {
            states.push(State {
                khz: number(&state.join("frequency"))?,
                microwatts: number(&state.join("power"))?,
            });
        }
    }
    if states.is_empty() {
        return Err(none(format!("{}: no clock in it", dir.display())));
    }
    states.sort_by_key(|s| s.khz);
    let first = cpus.first().copied().unwrap_or(0);
    Ok(Domain {
        cpus,
        states,
        time_in_state: sysfs.join(format!(
            "devices/system/cpu/cpu{first}/cpufreq/stats/time_in_state"
        )),
    })
}

/// Clocks in kHz, with the ticks that each was set.
fn clocks(path: &Path) -> Result<Vec<(u64, u64)>, VirtualError> {
    let text = read(path)?;
    let pair = |line: &str| {
        let (khz, ticks) = line.split_once(' ')?;
        Some((khz.parse().ok()?, ticks.trim().parse().ok()?))
    };
    let all: Option<Vec<(u64, u64)>> = text.lines().map(pair).collect();
    all.ok_or_else(|| VirtualError::Bad {
        path: path.to_owned(),
        text: text.clone(),
        want: "a clock and a time per line",
    })
}

/// CPUs with the ticks that each was idle, or waited for a device: of `/proc/stat`.
fn idle(path: &Path) -> Result<Vec<(u32, u64)>, VirtualError> {
    let text = read(path)?;
    let of = |line: &str| {
        let mut fields = line.split_ascii_whitespace();
        let cpu = fields.next()?.strip_prefix("cpu")?.parse().ok()?;
        let ticks: Vec<u64> = fields.map_while(|f| f.parse().ok()).collect();
        // user, nice, system, idle, iowait
        Some((cpu, ticks.get(3)?.saturating_add(*ticks.get(4)?)))
    };
    let found: Vec<(u32, u64)> = text.lines().filter_map(of).collect();
    match found.is_empty() {
        false => Ok(found),
        true => Err(VirtualError::Bad {
            path: path.to_owned(),
            text: text.chars().take(80).collect(),
            want: "a line of times for each CPU",
        }),
    }
}

/// What files said at one moment.
#[derive(Debug)]
struct Moment {
    at: Nanos,
    /// Ticks that each CPU was idle, or waited for a device.
    idle: Vec<(u32, u64)>,
    /// Of each domain, ticks that each clock was set.
    clocks: Vec<Vec<(u64, u64)>>,
}

/// The kernel's energy model (`energy_model` in debugfs).
///
/// Programs that compute and programs that wait take the same by it, and an idle CPU nothing: it is
/// what energy-aware scheduling goes by, and no measurement. Times are in hundredths of a second, so a
/// single short interval is rough; what is left over is in the next one, so sums are not.
#[derive(Debug)]
pub struct EnergyModel {
    domains: Vec<Domain>,
    /// CPUs of each core type, fastest first.
    core_types: Vec<Vec<u32>>,
    /// `/proc/stat`.
    stat: PathBuf,
    last: Option<Moment>,
    /// Idle seconds of CPUs beyond those that had passed: ticks are counted at once.
    owed: Vec<(u32, f64)>,
}

impl EnergyModel {
    /// Opens the model of the kernel whose files are below `sysfs` and `proc`; `core_types` are the
    /// CPUs of each core type.
    ///
    /// # Errors
    /// When there is none (debugfs is not mounted, or may be read by root alone), it is not in watts, or
    /// the kernel does not say for how long which clock was set.
    pub fn open(
        sysfs: &Path,
        proc: &Path,
        core_types: Vec<Vec<u32>>,
    ) -> Result<EnergyModel, VirtualError> {
        let none = |reason: String| VirtualError::None { what: WHAT, reason };
        let folder = sysfs.join("kernel/debug/energy_model");
        let mut domains = Vec::new();
        for dir in folders(&folder) {
            let file = dir.join("cpus");
            // domains of devices have no CPUs
            if !file.exists() {
                continue;
            }
            let text = read(&file)?;
            let Ok(CpuList(cpus)) = text.parse() else {
                return Err(VirtualError::Bad {
                    path: file,
                    text,
                    want: "a list of CPUs",
                });
            };
            domains.push(domain(sysfs, &dir, cpus)?);
        }
        if domains.is_empty() {
            return Err(none(format!(
                "no domain of CPUs under {}; debugfs has to be mounted, and is for root",
                folder.display()
            )));
        }
        let known = |cpu: &u32| domains.iter().any(|d: &Domain| d.cpus.contains(cpu));
        if let Some(cpu) = core_types.iter().flatten().find(|c| !known(c)) {
            return Err(none(format!("CPU {cpu} is in no domain of it")));
        }
        let model = EnergyModel {
            domains,
            core_types,
            stat: proc.join("stat"),
            last: None,
            owed: Vec::new(),
        };
        // what cannot be read is told now, and not in mid-run
        model.moment(Nanos::ZERO)?;
        Ok(model)
    }

    fn moment(&self, at: Nanos) -> Result<Moment, VirtualError> {
        let of = |d: &Domain| clocks(&d.time_in_state);
        Ok(Moment {
            at,
            idle: idle(&self.stat)?,
            clocks: self.domains.iter().map(of).collect::<Result<_, _>>()?,
        })
    }

    /// Seconds that `cpu` was busy between two moments. One that was not there, or is not there any
    /// more, was not.
    fn busy(&mut self, cpu: u32, from: &Moment, to: &Moment) -> f64 {
        let of = |m: &Moment| m.idle.iter().find(|(c, _)| *c == cpu).map(|i| i.1);
        let (Some(before), Some(now)) = (of(from), of(to)) else {
            return 0.0;
        };
        let idle = now.saturating_sub(before) as f64 * TICK_S;
        let passed = to.at.saturating_sub(from.at).as_secs_f64();
        let owed = match self.owed.iter().position(|(c, _)| *c == cpu) {
            Some(i) => self.owed.swap_remove(i).1,
            None => 0.0,
        };
        let busy = passed - idle - owed;
        if busy < 0.0 {
            self.owed.push((cpu, -busy));
        }
        busy.max(0.0)
    }
}

impl VirtualSource for EnergyModel {
    fn name(&self) -> &'static str {
        "energy-model"
    }

    fn is_estimate(&self) -> bool {
        true
    }

    fn sample(
        &mut self,
        now: Nanos,
        _threads: &[ThreadSample],
        out: &mut Vec<VirtualReading>,
    ) -> Result<(), VirtualError> {
        let to = self.moment(now)?;
        let Some(from) = self.last.take() else {
            self.last = Some(to);
            return Ok(());
        };
        let clocks = from.clocks.iter().zip(&to.clocks);
        let each = self.domains.iter().zip(clocks);
        let watts = each.flat_map(|(d, (from, to))| {
            let watts = d.mean_watts(from, to);
            d.cpus.iter().map(move |cpu| (*cpu, watts))
        });
        let watts: Vec<(u32, f64)> = watts.collect();
        let joules = watts
            .into_iter()
            .map(|(cpu, watts)| (cpu, self.busy(cpu, &from, &to) * watts));
        let joules: Vec<(u32, f64)> = joules.collect();
        let over = now.saturating_sub(from.at);
        let energy = |of, value| VirtualReading {
            counter: VirtualCounter::Energy,
            of,
            value,
            over,
        };
        out.extend(joules.iter().map(|(c, j)| energy(Subject::Cpu(*c), *j)));
        for (t, cpus) in self.core_types.iter().enumerate() {
            let own = joules.iter().filter(|(c, _)| cpus.contains(c));
            let of = Subject::CoreType(CoreTypeId(t as u8));
            out.push(energy(of, own.map(|(_, j)| j).sum()));
        }
        self.last = Some(to);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Two CPUs of 1 W at 1 GHz and 4 W at 2 GHz, and one of 0.5 W at its only clock.
    fn machine(root: &Path) {
        let put = |path: &str, text: &str| {
            let path = root.join(path);
            std::fs::create_dir_all(path.parent().unwrap()).unwrap();
            std::fs::write(path, text).unwrap();
        };
        let domain = |name: &str, cpus: &str, states: &[(u64, u64)]| {
            let dir = format!("sys/kernel/debug/energy_model/{name}");
            put(&format!("{dir}/cpus"), cpus);
            put(&format!("{dir}/flags"), "0x1\n");
            for (khz, microwatts) in states {
                put(&format!("{dir}/ps:{khz}/frequency"), &format!("{khz}\n"));
                put(&format!("{dir}/ps:{khz}/power"), &format!("{microwatts}\n"));
            }
        };
        domain(
            "cpu0",
            "0-1\n",
            &[(2_000_000, 4_000_000), (1_000_000, 1_000_000)],
        );
        domain("cpu2", "2\n", &[(800_000, 500_000)]);
        put("sys/kernel/debug/energy_model/gpu/flags", "0x1\n");
        says(root, [0, 0, 0], [0, 0], 0);
    }

    /// Idle ticks of each CPU, ticks of the clocks of the first domain, and of the second's.
    fn says(root: &Path, idle: [u64; 3], first: [u64; 2], second: u64) {
        let put = |path: &str, text: String| {
            let path = root.join(path);
            std::fs::create_dir_all(path.parent().unwrap()).unwrap();
            std::fs::write(path, text).unwrap();
        };
        let mut stat = "cpu  1 2 3 4 5 6 7 8 9 10\n".to_owned();
        for (cpu, idle) in idle.iter().enumerate() {
            // half of it waiting for a device
            let (idle, waiting) = (idle - idle / 2, idle / 2);
            stat += &format!("cpu{cpu} 7 0 7 {idle} {waiting} 0 0 0 0 0\n");
        }
        put("proc/stat", stat + "intr 12 0 0\n");
        let of = |cpu| format!("sys/devices/system/cpu/cpu{cpu}/cpufreq/stats/time_in_state");
        let [slow, fast] = first;
        put(&of(0), format!("1000000 {slow}\n2000000 {fast}\n"));
        put(&of(2), format!("800000 {second}\n"));
    }

    fn open(root: &Path) -> Result<EnergyModel, VirtualError> {
        let types = vec![vec![0, 1], vec![2]];
        EnergyModel::open(&root.join("sys"), &root.join("proc"), types)
    }

    fn joules(model: &mut EnergyModel, ms: u64) -> Vec<(Subject, f64)> {
        let mut out = Vec::new();
        model.sample(Nanos::from_millis(ms), &[], &mut out).unwrap();
        out.iter().map(|r| (r.of, r.value)).collect()
    }

    #[test]
    fn energy_is_busy_time_at_the_powers_of_the_clocks() {
        let d = tempfile::tempdir().unwrap();
        machine(d.path());
        let mut model = open(d.path()).unwrap();
        assert_eq!(joules(&mut model, 500), [], "one reading is no increment");
        // one second: CPU 0 busy, CPU 1 for a quarter; a quarter at the slow clock, the rest at the fast one
        says(d.path(), [0, 75, 100], [25, 75], 100);
        let found = joules(&mut model, 1500);
        let watts = 0.25 + 0.75 * 4.0;
        let t = |t| Subject::CoreType(CoreTypeId(t));
        let want = [
            (Subject::Cpu(0), watts),
            (Subject::Cpu(1), 0.25 * watts),
            (Subject::Cpu(2), 0.0),
            (t(0), 1.25 * watts),
            (t(1), 0.0),
        ];
        assert_eq!(found.len(), want.len());
        for ((of, joules), (subject, want)) in found.iter().zip(want) {
            assert_eq!(*of, subject);
            assert!((joules - want).abs() < 1e-9, "{of:?}: {joules} for {want}");
        }
    }

    #[test]
    fn what_ticks_show_late_is_in_the_next_interval() {
        let d = tempfile::tempdir().unwrap();
        machine(d.path());
        let mut model = open(d.path()).unwrap();
        joules(&mut model, 0);
        // always idle; a tick is counted just before the first reading, none before the second
        let mut sum = 0.0;
        for (ms, ticks) in [(5, 1), (14, 1), (25, 2), (40, 4)] {
            says(d.path(), [ticks; 3], [0, ticks], ticks);
            let found = joules(&mut model, ms);
            sum += found.iter().find(|f| f.0 == Subject::Cpu(0)).unwrap().1;
        }
        // at most what a tick is worth is made up
        assert!((0.0..=0.01 * 4.0 + 1e-9).contains(&sum), "{sum}");
    }

    #[test]
    fn a_machine_without_says_what_is_missing() {
        let d = tempfile::tempdir().unwrap();
        let e = |what: &str| {
            let e = open(d.path()).unwrap_err().to_string();
            assert!(e.contains(what), "{e}");
        };
        e("debugfs");
        machine(d.path());
        open(d.path()).unwrap();
        let types = vec![vec![0, 1], vec![2, 3]];
        let e3 = EnergyModel::open(&d.path().join("sys"), &d.path().join("proc"), types);
        assert!(e3.unwrap_err().to_string().contains("CPU 3"));
        let put = |path: &str, text: &str| std::fs::write(d.path().join(path), text).unwrap();
        put("sys/kernel/debug/energy_model/cpu0/flags", "0x2\n");
        e("scale of their own");
        put("sys/kernel/debug/energy_model/cpu0/flags", "0x1\n");
        put("sys/kernel/debug/energy_model/cpu2/cpus", "x\n");
        e("cpu2/cpus");
        put("sys/kernel/debug/energy_model/cpu2/cpus", "2\n");
        put("sys/kernel/debug/energy_model/cpu2/ps:800000/power", "?\n");
        e("ps:800000/power");
        put("sys/kernel/debug/energy_model/cpu2/ps:800000/power", "1\n");
        put("proc/stat", "cpu\n");
        e("stat");
        machine(d.path());
        std::fs::remove_dir_all(d.path().join("sys/devices")).unwrap();
        e("time_in_state");
    }
}
