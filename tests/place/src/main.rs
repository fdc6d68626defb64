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
//!   caches=N       every N CPUs, by number, share a last-level cache (all of them otherwise)
//!   threads=N      every N CPUs, by number, are the hardware threads of one core
//!   partial=1      schedules only who asked for it
//!   slice, steal, starve (ms), slots=N, panic=S dump=1; those of the mechanism unless given
//! place spin NAME COUNT SECS [NICE …]   COUNT busy threads NAME0…, one nice value each
//! place hold COUNT                      COUNT hardware counters of every CPU: opened at once, taken while the last line of
//!                                       standard input was `on`, let go after `off`
//! place short NAME COUNT MS             processes called NAME one after the other, each busy for so long; their CPU time
//! place busy NAME MS                    one of them
//! place answer                          is the program of an `exec` provider: every thread gains a factor of 2
//! place churn COUNT                     threads created and destroyed one after the other, from four threads
//! ```

mod compare;
mod events;
mod loads;

use amp_bpf::{Config, CoreType, CpuEvents, Scheduler};
use amp_machine::page::Page;
use compare::{beside_the_model, Watched};
use events::{counter_list, cpu_groups, given, hold};
use loads::{busy, churn, short, spin};
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, Ordering};
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
    c.only_sched_ext = options.contains_key("partial");
    let by = |key: &str| -> Result<Vec<u32>, Error> {
        let Some(n) = options.get(key) else {
            return Ok(vec![]);
        };
        let n: u32 = n.parse()?;
        let group = |cpu: u32| {
            cpu.checked_div(n)
                .ok_or(format!("{key}=0: nothing has none"))
        };
        Ok((0..1024).map(group).collect::<Result<_, _>>()?)
    };
    (c.llc, c.core) = (by("caches")?, by("threads")?);
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
            let Some(c) = scheduler.counts(&t, core_type) else {
                println!("COUNTS {} type {core_type} cannot be read now", t.name());
                continue;
            };
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
