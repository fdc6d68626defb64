//! Exercises the mechanism in a guest: `run` schedules and moves threads about, `spin` and `churn`
//! are loads for it.
//!
//! ```text
//! place run TYPES [key=value …]   TYPES: CPU lists with capacities, fastest first: 0-1:1024,2-5:446
//!   secs=10        how long; 0: until a signal or the kernel ends it
//!   prefix=spin    threads to place: those whose name starts so
//!   swap=100       every so many ms each of them moves on by one place (0: leave them alone)
//!   pin=NAME:TYPE  place threads named NAME… on core type TYPE for good
//!   lend=1         idle CPUs run what is placed on slower types
//!   silent=A-B     no commits between seconds A and B
//!   heartbeat=500  ms of silence before the fallback
//!   pause=20       ms between two commits
//!   counters=A,B   raw events (hexadecimal numbers) to count on every CPU; shows what threads named PREFIX… had of them
//!   watch=NAME     and the same of the first thread named NAME… by perf's own account, over the same time
//!   watched=A,B    those of the events that perf counts for it: a PMU has not enough counters for all of them twice
//!   model=1        on the board: what all threads had of the events, beside what the board's own CPUs did
//!   programs=PREFIX  at the end, the threads named PREFIX… and the hash of their arguments
//!   ended=PREFIX   CPU time that was told of threads named PREFIX… when they ended
//!   slice, steal, starve (ms), slots=N, panic=S dump=1; those of the mechanism unless given
//! place spin NAME COUNT SECS [NICE …]   COUNT busy threads NAME0…, one nice value each
//! place hold COUNT                      COUNT hardware counters of every CPU: opened at once, taken while the last line of
//!                                       standard input was `on`, let go after `off`
//! place short NAME COUNT MS             processes called NAME one after the other, each busy for so long; their CPU time
//! place busy NAME MS                    one of them
//! place answer                          is the program of an `exec` provider: every thread gains a factor of 2
//! place churn COUNT                     threads created and destroyed one after the other, from four threads
//! ```

use amp_bpf::{Config, CoreType, CpuEvents, Scheduler, Thread};
use amp_machine::page::{self, Page, Total};
use perf_event_open_sys as perf;
use std::collections::BTreeMap;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::Arc;
use std::time::{Duration, Instant};

type Error = Box<dyn std::error::Error>;

fn main() {
    if let Err(e) = command() {
        println!("ERROR {e}");
        std::process::exit(1);
    }
}

fn command() -> Result<(), Error> {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let args: Vec<&str> = args.iter().map(String::as_str).collect();
    match args[..] {
        ["run", types, ref options @ ..] => run(types, options),
        ["spin", name, count, secs, ref nices @ ..] => {
            let nices = nices
                .iter()
                .map(|n| n.parse())
                .collect::<Result<Vec<i32>, _>>()?;
            spin(name, count.parse()?, secs.parse()?, &nices);
            Ok(())
        }
        ["hold", count] => hold(count.parse()?),
        ["answer"] => answer(),
        ["churn", count] => churn(count.parse()?),
        ["short", name, count, ms] => short(name, count.parse()?, ms),
        ["busy", name, ms] => busy(name, ms.parse()?),
        _ => Err(
            "usage: place run TYPES [key=value …] | spin NAME COUNT SECS [NICE …] | hold COUNT | \
             answer | short NAME COUNT MS | churn COUNT"
                .into(),
        ),
    }
}

fn cpu_list(text: &str) -> Result<Vec<u32>, Error> {
    let (a, b) = text.split_once('-').unwrap_or((text, text));
    Ok((a.parse()?..=b.parse()?).collect())
}

fn config(types: &str, options: &BTreeMap<&str, &str>) -> Result<Config, Error> {
    let mut core_types = vec![];
    for t in types.split(',') {
        let (cpus, capacity) = t.split_once(':').ok_or("a core type is LIST:CAPACITY")?;
        core_types.push(CoreType {
            cpus: cpu_list(cpus)?,
            capacity: capacity.parse()?,
        });
    }
    let mut c = Config::new(core_types);
    let ms = |key: &str, default: Duration| -> Result<Duration, Error> {
        match options.get(key) {
            Some(v) => Ok(Duration::from_millis(v.parse()?)),
            None => Ok(default),
        }
    };
    c.slice = ms("slice", c.slice)?;
    c.steal_after = ms("steal", c.steal_after)?;
    c.starve_after = ms("starve", c.starve_after)?;
    c.heartbeat_timeout = Some(ms("heartbeat", Duration::from_millis(500))?);
    c.counters = options.contains_key("counters");
    if let Some(slots) = options.get("slots") {
        c.slots = slots.parse()?;
    }
    Ok(c)
}

fn state() -> String {
    let state = std::fs::read_to_string("/sys/kernel/sched_ext/state");
    state.map_or_else(|e| e.to_string(), |s| s.trim().to_owned())
}

fn run(types: &str, options: &[&str]) -> Result<(), Error> {
    let options: BTreeMap<&str, &str> = options
        .iter()
        .map(|o| o.split_once('=').ok_or("an option is key=value"))
        .collect::<Result<_, _>>()?;
    let number =
        |key: &str, default: f64| options.get(key).map_or(Ok(default), |v| v.parse::<f64>());
    let secs = number("secs", 10.0)?;
    let swap = number("swap", 100.0)? / 1e3;
    let pause = Duration::try_from_secs_f64(number("pause", 20.0)? / 1e3)?;
    let panic_after = number("panic", f64::MAX)?;
    let prefix = options.get("prefix").copied().unwrap_or("spin");
    let pins: Vec<(&str, u8)> = match options.get("pin") {
        Some(v) => {
            let pin = |p: &'_ str| -> Result<(&str, u8), Error> {
                let (name, t) = p.split_once(':').ok_or("pin=NAME:TYPE")?;
                Ok((Box::leak(name.to_owned().into_boxed_str()), t.parse()?))
            };
            v.split(',').map(pin).collect::<Result<_, _>>()?
        }
        None => vec![],
    };
    let silent = match options.get("silent").and_then(|v| v.split_once('-')) {
        Some((a, b)) => a.parse::<f64>()?..b.parse::<f64>()?,
        None => 0.0..0.0,
    };
    let config = config(types, &options)?;
    let per_type: Vec<usize> = config.core_types.iter().map(|t| t.cpus.len()).collect();

    let stop = Arc::new(AtomicBool::new(false));
    let flag = stop.clone();
    ctrlc::set_handler(move || flag.store(true, Ordering::Relaxed))?;
    let begin = Instant::now();
    let mut scheduler = Scheduler::load(&config)?;
    let loaded = begin.elapsed();
    scheduler.attach()?;
    scheduler.lend(options.contains_key("lend"));
    println!(
        "LOADED in {loaded:?}, attached in {:?}, state={}",
        begin.elapsed() - loaded,
        state()
    );

    for p in libbpf_rs::query::ProgInfoIter::default() {
        let name = p.name.to_string_lossy();
        if name.starts_with("amp_") {
            println!("VERIFIED {name} {} instructions", p.verified_insns);
        }
    }

    let counters = counter_list(&options, "counters")?;
    let to_watch: Vec<usize> = match options.contains_key("watched") {
        false => (0..counters.len()).collect(),
        true => {
            let of = |e: &u64| {
                counters
                    .iter()
                    .position(|c| c == e)
                    .ok_or("watched is not counted")
            };
            let some = counter_list(&options, "watched")?;
            some.iter().map(of).collect::<Result<_, _>>()?
        }
    };
    let watch = options.get("watch").copied().unwrap_or_default();
    let mut watched: Option<Watched> = None;
    // they count as long as they are open
    let mut groups = vec![];
    if !counters.is_empty() {
        groups = cpu_groups(&counters)?;
        let events: Vec<CpuEvents> = groups.iter().map(given).collect();
        scheduler.set_counters(&events)?;
        for t in 0..per_type.len() as u8 {
            println!(
                "COUNTING type {t} generation {}",
                scheduler.count(t, Some(0))?
            );
        }
    }
    let model = match options.contains_key("model") {
        true => Some((Page::open()?, Page::open()?.snapshot()?)),
        false => None,
    };

    let begin = Instant::now();
    let (mut round, mut last, mut spent, mut commits) = (0usize, 0.0, Duration::ZERO, 0u32);
    let mut was_fallback = false;
    let mut ended = None;
    let gone_prefix = options.get("ended").copied();
    let mut gone = (0u32, 0u64);
    while !stop.load(Ordering::Relaxed) && ended.is_none() {
        let now = begin.elapsed().as_secs_f64();
        if secs > 0.0 && now >= secs {
            break;
        }
        assert!(now < panic_after, "told to panic");
        if !silent.contains(&now) {
            let t = Instant::now();
            let mut mine = vec![];
            for thread in scheduler.threads() {
                let name = thread.name();
                if let Some((_, core)) = pins.iter().find(|(n, _)| name.starts_with(n)) {
                    scheduler.place(thread.slot, thread.generation, Some(*core));
                } else if swap > 0.0 && name.starts_with(prefix) {
                    mine.push(thread);
                }
            }
            if swap > 0.0 && now - last >= swap {
                (round, last) = (round + 1, now);
                mine.sort_by_key(|t| t.pid);
                let n = mine.len();
                for (i, t) in mine.iter().enumerate() {
                    let mut place = (i + round) % n;
                    let core = per_type.iter().position(|k| {
                        let here = place < *k;
                        place = place.saturating_sub(*k);
                        here
                    });
                    scheduler.place(
                        t.slot,
                        t.generation,
                        Some(core.unwrap_or(per_type.len() - 1) as u8),
                    );
                }
            }
            scheduler.commit()?;
            spent += t.elapsed();
            commits += 1;
        }
        if scheduler.stats().fallback != was_fallback {
            was_fallback = !was_fallback;
            println!(
                "FALLBACK {} at {now:.2} s",
                if was_fallback { "on" } else { "off" }
            );
            shares(&scheduler, prefix);
        }
        if !counters.is_empty() && !watch.is_empty() && watched.is_none() {
            let found = scheduler.threads().find(|t| t.name().starts_with(watch));
            watched = found
                .map(|t| Watched::begin(&scheduler, t, &counters, &to_watch, per_type.len()))
                .transpose()?;
        }
        if let Some(prefix) = gone_prefix {
            hear(&mut scheduler, prefix, &mut gone);
        }
        ended = scheduler.exited();
        std::thread::sleep(pause);
    }
    println!(
        "ROUNDS {commits}, {:.0} us each",
        spent.as_secs_f64() * 1e6 / f64::from(commits.max(1))
    );
    println!("STATS {:?}", scheduler.stats());
    if let Some(prefix) = gone_prefix {
        hear(&mut scheduler, prefix, &mut gone);
        println!("ENDED {} {:.1}", gone.0, gone.1 as f64 / 1e6);
    }
    if let Some(prefix) = options.get("programs") {
        for t in scheduler.threads().filter(|t| t.name().starts_with(prefix)) {
            println!("PROGRAM {} {:016x}", t.pid, t.arguments);
        }
    }
    if options.contains_key("dump") {
        for t in scheduler.threads() {
            println!("THREAD {t:?} {}", t.name());
        }
    }
    shares(&scheduler, prefix);
    if let Some(w) = watched {
        w.end(&scheduler)?;
    }
    if let Some((page, before)) = model {
        beside_the_model(&scheduler, &page, &before, &counters, per_type.len())?;
    }
    drop(groups);
    if let Some(reason) = ended.or_else(|| scheduler.exited()) {
        println!("EXIT {reason:?}");
    }
    drop(scheduler);
    println!("DETACHED, state={}", state());
    Ok(())
}

/// Adds up the threads named `prefix`… that have ended, and their CPU time in ns.
fn hear(scheduler: &mut Scheduler, prefix: &str, gone: &mut (u32, u64)) {
    let named = |e: &amp_bpf::Ended| e.comm.starts_with(prefix.as_bytes());
    for e in scheduler.ended().filter(named) {
        gone.0 += 1;
        gone.1 += e.runtime.iter().sum::<u64>();
    }
}

/// The events that option `key` lists.
fn counter_list(options: &BTreeMap<&str, &str>, key: &str) -> Result<Vec<u64>, Error> {
    let list = options.get(key).copied().unwrap_or_default();
    let of = |e: &str| u64::from_str_radix(e.trim_start_matches("0x"), 16);
    let list = list.split(',').filter(|e| !e.is_empty()).map(of);
    Ok(list.collect::<Result<_, _>>()?)
}

/// What all threads were charged since counting began, and what the CPUs of each type did
/// meanwhile.
fn beside_the_model(
    s: &Scheduler,
    page: &Page,
    before: &page::Snapshot,
    counters: &[u64],
    types: usize,
) -> Result<(), Error> {
    let now = page.snapshot()?;
    let mut charged = vec![vec![0u64; counters.len()]; types];
    for t in s.threads() {
        for (core_type, sums) in charged.iter_mut().enumerate() {
            let mut c = s.counts(&t, core_type as u8);
            // what is being written just now cannot be read, for as long as the host keeps that CPU from
            // going on
            let mut tries = 0..20;
            while c.generation == 0 && t.runtime[core_type] > 0 && tries.next().is_some() {
                std::thread::sleep(Duration::from_millis(1));
                c = s.counts(&t, core_type as u8);
            }
            sums.iter_mut().zip(c.values).for_each(|(sum, v)| *sum += v);
        }
    }
    for (i, event) in counters.iter().enumerate() {
        let (name, total) = match event {
            0x03 => ("l1d_refills", Total::L1dRefill),
            0x08 => ("instructions", Total::Instructions),
            0x10 => ("branch_misses", Total::Mispredicts),
            0x11 => ("cycles", Total::Cycles),
            0x17 => ("l2_refills", Total::L2Refill),
            _ => continue,
        };
        let mut sums = (0, 0);
        for (t, charged) in charged.iter().enumerate() {
            let cpus = now.cpus.iter().zip(&before.cpus);
            let model: u64 = cpus
                .filter(|(now, _)| now.core_type as usize == t)
                .map(|(now, before)| now.total(total) - before.total(total))
                .sum();
            sums = (sums.0 + charged[i], sums.1 + model);
            println!("MODEL {name} type {t} charged {} model {model}", charged[i]);
        }
        println!("MODEL {name} all charged {} model {}", sums.0, sums.1);
    }
    Ok(())
}

/// Type number of the PMU of each CPU that has one.
fn pmus() -> Result<BTreeMap<u32, u32>, Error> {
    let mut of = BTreeMap::new();
    for dir in std::fs::read_dir("/sys/bus/event_source/devices")? {
        let dir = dir?.path();
        let Ok(cpus) = std::fs::read_to_string(dir.join("cpus")) else {
            continue;
        };
        let kind: u32 = std::fs::read_to_string(dir.join("type"))?.trim().parse()?;
        for range in cpus.trim().split(',') {
            of.extend(cpu_list(range)?.into_iter().map(|c| (c, kind)));
        }
    }
    Ok(of)
}

/// Opens an event; `leader` is that of its group, or -1 for a leader of its own, which begins
/// disabled.
fn open(kind: u32, config: u64, tid: i32, cpu: i32, leader: i32) -> Result<OwnedFd, Error> {
    let mut attr = perf::bindings::perf_event_attr::default();
    attr.size = std::mem::size_of::<perf::bindings::perf_event_attr>() as u32;
    (attr.type_, attr.config) = (kind, config);
    if leader < 0 && tid < 0 {
        attr.set_disabled(1);
        attr.set_pinned(1);
    }
    // SAFETY: `attr` is whole and lives over the call, which only reads it.
    let fd = unsafe { perf::perf_event_open(&mut attr, tid, cpu, leader, 8) };
    if fd < 0 {
        return Err(std::io::Error::last_os_error().into());
    }
    // SAFETY: a new descriptor that nobody else owns.
    Ok(unsafe { OwnedFd::from_raw_fd(fd) })
}

/// Who opened first goes first when counters are given out anew: one that is opened before others
/// and switched on after them takes theirs.
fn hold(count: usize) -> Result<(), Error> {
    /// Cycles and instructions, by the architecture's numbers.
    const CYCLES: u64 = 0x11;
    const INSTRUCTIONS: u64 = 0x08;
    let mut events = vec![CYCLES];
    events.resize(count.max(1), INSTRUCTIONS);
    let groups = opened(&events)?;
    println!("HOLD {} CPUs", groups.len());
    for line in std::io::stdin().lines() {
        let line = line?;
        for leader in groups.iter().filter_map(|(_, events)| events.first()) {
            let fd = leader.as_raw_fd();
            // SAFETY: takes no memory of ours.
            let failed = unsafe {
                match line.trim() {
                    "on" => perf::ioctls::ENABLE(fd, 0),
                    _ => perf::ioctls::DISABLE(fd, 0),
                }
            };
            if failed != 0 {
                return Err(std::io::Error::last_os_error().into());
            }
        }
        println!("HOLD {line}");
    }
    Ok(())
}

/// Answers each sample of a scheduler with a speedup factor of 2 for every thread.
fn answer() -> Result<(), Error> {
    for line in std::io::stdin().lines() {
        let line = line?;
        // the numbers behind a key, in the order in which they stand there
        let numbers = |key: &str| -> Vec<String> {
            let behind = line.split(key).skip(1);
            let digits = behind.map(|s| s.chars().take_while(char::is_ascii_digit).collect());
            digits.collect()
        };
        let [seq, ..] = &numbers("\"seq\":")[..] else {
            continue;
        };
        let (slots, generations) = (numbers("\"slot\":"), numbers("\"generation\":"));
        let estimates: Vec<String> = slots
            .iter()
            .zip(&generations)
            .map(|(s, g)| {
                format!(
                    "{{\"slot\":{s},\"generation\":{g},\"metric\":\"sf\",\"core_type\":0,\"value\":2}}"
                )
            })
            .collect();
        println!("{{\"seq\":{seq},\"estimates\":[{}]}}", estimates.join(","));
    }
    Ok(())
}

/// The events of every CPU that has a PMU, counting.
fn cpu_groups(counters: &[u64]) -> Result<Vec<(u32, Vec<OwnedFd>)>, Error> {
    let all = opened(counters)?;
    for leader in all.iter().filter_map(|(_, events)| events.first()) {
        // SAFETY: takes no memory of ours.
        if unsafe { perf::ioctls::ENABLE(leader.as_raw_fd(), 0) } != 0 {
            return Err(std::io::Error::last_os_error().into());
        }
    }
    Ok(all)
}

/// The events of every CPU that has a PMU, one pinned group each, stopped.
fn opened(counters: &[u64]) -> Result<Vec<(u32, Vec<OwnedFd>)>, Error> {
    let mut all = vec![];
    for (cpu, kind) in pmus()? {
        let mut events: Vec<OwnedFd> = vec![];
        for config in counters {
            let leader = events.first().map_or(-1, AsRawFd::as_raw_fd);
            events.push(open(kind, *config, -1, cpu as i32, leader)?);
        }
        all.push((cpu, events));
    }
    Ok(all)
}

fn given((cpu, events): &(u32, Vec<OwnedFd>)) -> CpuEvents {
    CpuEvents {
        cpu: *cpu,
        set: 0,
        events: events.iter().map(AsRawFd::as_raw_fd).collect(),
    }
}

/// A thread that is counted by BPF and by perf at the same time.
struct Watched {
    thread: Thread,
    types: usize,
    /// Those of our events that perf counts too.
    which: Vec<usize>,
    /// Per event its descriptors, one per PMU.
    perf: Vec<Vec<OwnedFd>>,
    before: (Vec<u64>, Vec<u64>, u64),
    began: Instant,
}

impl Watched {
    fn begin(
        s: &Scheduler,
        thread: Thread,
        counters: &[u64],
        which: &[usize],
        types: usize,
    ) -> Result<Watched, Error> {
        let mut kinds: Vec<u32> = pmus()?.into_values().collect();
        kinds.sort_unstable();
        kinds.dedup();
        let mut perf = vec![];
        for config in which.iter().map(|i| counters[*i]) {
            let of_pmu = |kind: &u32| open(*kind, config, thread.pid, -1, -1);
            perf.push(kinds.iter().map(of_pmu).collect::<Result<_, _>>()?);
        }
        let mut w = Watched {
            thread,
            types,
            which: which.to_vec(),
            perf,
            before: Default::default(),
            began: Instant::now(),
        };
        w.before = w.read(s)?;
        Ok(w)
    }

    /// Perf's counts, ours, and the CPU time that ours cover.
    fn read(&self, s: &Scheduler) -> Result<(Vec<u64>, Vec<u64>, u64), Error> {
        let mut perf = vec![];
        for fds in &self.perf {
            let mut sum = 0;
            for fd in fds {
                let mut b = [0; 8];
                rustix::io::read(fd, &mut b)?;
                sum += u64::from_ne_bytes(b);
            }
            perf.push(sum);
        }
        let mut ours = vec![0; self.perf.len()];
        let mut covered = 0;
        for t in 0..self.types as u8 {
            let c = s.counts(&self.thread, t);
            covered += c.counted_ns;
            for (sum, i) in ours.iter_mut().zip(&self.which) {
                *sum += c.values[*i];
            }
        }
        Ok((perf, ours, covered))
    }

    fn end(self, s: &Scheduler) -> Result<(), Error> {
        let after = self.read(s)?;
        let secs = self.began.elapsed().as_secs_f64();
        println!(
            "WATCHED {} for {secs:.2} s, covered {:.2} s",
            self.thread.name(),
            (after.2 - self.before.2) as f64 / 1e9
        );
        for i in 0..self.perf.len() {
            let (p, o) = (after.0[i] - self.before.0[i], after.1[i] - self.before.1[i]);
            println!("COMPARED event {} perf {p} ours {o}", self.which[i]);
        }
        Ok(())
    }
}

/// Prints how the CPU time of the threads in question divides among core types.
fn shares(scheduler: &Scheduler, prefix: &str) {
    for t in scheduler.threads().filter(|t| t.name().starts_with(prefix)) {
        let total: u64 = t.runtime.iter().sum();
        println!(
            "SHARE {} weight {} {:.3} s, fastest {:.3}, stolen {} swaps {} on cpu {} placed {:?}",
            t.name(),
            t.weight,
            total as f64 / 1e9,
            t.runtime[0] as f64 / total.max(1) as f64,
            t.stolen,
            t.swaps,
            t.cpu,
            t.placement
        );
        for core_type in 0..amp_bpf::MAX_CORE_TYPES as u8 {
            let c = scheduler.counts(&t, core_type);
            if c.generation > 0 {
                println!(
                    "COUNTS {} type {core_type} generation {} of {:.3} s: {:?}",
                    t.name(),
                    c.generation,
                    c.counted_ns as f64 / 1e9,
                    c.values
                );
            }
        }
    }
}

fn spin(name: &str, count: usize, secs: f64, nices: &[i32]) {
    let work: Vec<AtomicU64> = (0..count).map(|_| AtomicU64::new(0)).collect();
    let begin = Instant::now();
    std::thread::scope(|scope| {
        for (i, work) in work.iter().enumerate() {
            let nice = nices.get(i).copied().unwrap_or(0);
            let body = move || {
                if nice != 0 {
                    if let Err(e) = rustix::process::setpriority_process(None, nice) {
                        println!("nice {nice}: {e}");
                    }
                }
                let mut x = i as u64 + 1;
                while begin.elapsed().as_secs_f64() < secs {
                    for _ in 0..2000 {
                        x = std::hint::black_box(
                            x.wrapping_mul(6_364_136_223_846_793_005).rotate_left(17),
                        );
                    }
                    work.fetch_add(2000, Ordering::Relaxed);
                }
            };
            let started = std::thread::Builder::new()
                .name(format!("{name}{i}"))
                .spawn_scoped(scope, body);
            if let Err(e) = started {
                println!("thread {i}: {e}");
            }
        }
    });
    let work: Vec<u64> = work.into_iter().map(AtomicU64::into_inner).collect();
    println!("WORK {work:?}");
}

/// Prints how many ended well, and their CPU time in ms by the kernel's account.
fn short(name: &str, count: usize, ms: &str) -> Result<(), Error> {
    let me = std::env::current_exe()?;
    let mut done = 0;
    for _ in 0..count {
        let status = std::process::Command::new(&me)
            .args(["busy", name, ms])
            .status()?;
        done += usize::from(status.success());
    }
    let stat = std::fs::read_to_string("/proc/self/stat")?;
    let (_, fields) = stat.rsplit_once(')').ok_or("no name in /proc/self/stat")?;
    // cutime and cstime, the 14th and 15th behind the name, in hundredths of a second
    let times = fields.split_whitespace().skip(13).take(2);
    let ticks: u64 = times.map(str::parse::<u64>).sum::<Result<_, _>>()?;
    println!("SHORT {done} {}", ticks * 10);
    Ok(())
}

fn busy(name: &str, ms: u64) -> Result<(), Error> {
    rustix::thread::set_name(&std::ffi::CString::new(name)?)?;
    let ran = || rustix::time::clock_gettime(rustix::time::ClockId::ThreadCPUTime);
    // not what exec and the loader took
    let end = Duration::try_from(ran())? + Duration::from_millis(ms);
    while Duration::try_from(ran())? < end {
        for x in 0..500u32 {
            std::hint::black_box(x);
        }
    }
    Ok(())
}

fn churn(count: usize) -> Result<(), Error> {
    let begin = Instant::now();
    let workers: Vec<_> = (0..4)
        .map(|w| {
            std::thread::spawn(move || {
                let share = count / 4 + usize::from(w < count % 4);
                (0..share)
                    .filter(|_| {
                        std::thread::Builder::new()
                            .spawn(|| ())
                            .is_ok_and(|t| t.join().is_ok())
                    })
                    .count()
            })
        })
        .collect();
    let done: usize = workers.into_iter().map(|w| w.join().unwrap_or(0)).sum();
    println!(
        "CHURN {done} of {count} threads in {:.1} s",
        begin.elapsed().as_secs_f64()
    );
    Ok(())
}
