//! What memory can do: a triad on every CPU at once, counted with the same events.

use super::judge::{mean, Attainable, ThreadCounts};
use super::signatures::{Role, SignatureEvents};
use crate::inventory::CounterInventory;
use amp_metrics::group::{Group, Whom};
use amp_workloads::exact::{of_cpu, Caches, Kernel, Level, Traffic};
use anyhow::{Context, Result};
use rustix::thread::CpuSet;
use std::path::Path;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::time::{Duration, Instant};

/// How long all CPUs stream together.
const TIME: Duration = Duration::from_millis(300);
/// Longest wait for the last of them to begin.
const PATIENCE: Duration = Duration::from_secs(10);

/// Measures it: the sum of what the CPUs get, with the uncertainty that their passes over the data
/// differ by. `None` where a PMU has no events for it.
///
/// # Errors
/// When a CPU cannot be used or its events cannot be counted.
pub fn measure(
    inventory: &CounterInventory,
    plans: &[SignatureEvents],
) -> Result<Option<Attainable>> {
    if !plans.iter().all(|p| p.has(Role::Lines)) {
        return Ok(None);
    }
    let on: Vec<(u32, &SignatureEvents)> = plans
        .iter()
        .flat_map(|p| inventory.cpus(p.core_type).into_iter().map(move |c| (c, p)))
        .collect();
    let (begun, over) = (AtomicUsize::new(0), AtomicUsize::new(0));
    let all: Result<Vec<Vec<f64>>> = std::thread::scope(|s| {
        let threads: Vec<_> = on
            .iter()
            .map(|(cpu, plan)| {
                let (begun, over, n) = (&begun, &over, on.len());
                s.spawn(move || {
                    let rates = stream(*cpu, plan, n, begun, over);
                    // whoever fails keeps nobody waiting
                    over.fetch_add(usize::from(rates.is_err()) * n, Relaxed);
                    rates
                })
            })
            .collect();
        let join = |t: std::thread::ScopedJoinHandle<'_, Result<Vec<f64>>>| {
            t.join()
                .unwrap_or_else(|_| Err(anyhow::anyhow!("a thread failed")))
        };
        threads.into_iter().map(join).collect()
    });
    let all = all.context("cannot measure what memory can do; give it with --attainable")?;
    let (mut rate, mut square) = (0.0, 0.0);
    for passes in &all {
        let (m, u) = mean(passes);
        rate += m;
        square += u.unwrap_or(m).powi(2);
    }
    Ok((rate > 0.0).then_some(Attainable {
        rate,
        u: Some(f64::sqrt(square)),
    }))
}

/// Bytes per second of each pass while all `n` CPUs stream.
fn stream(
    cpu: u32,
    plan: &SignatureEvents,
    n: usize,
    begun: &AtomicUsize,
    over: &AtomicUsize,
) -> Result<Vec<f64>> {
    let mut set = CpuSet::new();
    set.set(cpu as usize);
    rustix::thread::sched_setaffinity(None, &set).with_context(|| format!("CPU {cpu}"))?;
    let (found, _) = of_cpu(Path::new("/sys"), cpu);
    // twice the last cache is enough, and passes are short
    let sizes = Caches {
        l1: found.l1,
        l2: found.l2 / 4,
        l3: None,
        last: found.last / 4,
    };
    let mut kernel =
        Kernel::stream(Traffic::Triad, Level::Memory, &sizes, 1).context("a stream of memory")?;
    let events: Vec<_> = plan
        .events
        .iter()
        .filter(|(r, _)| *r == Role::Lines)
        .map(|(_, e)| e.clone())
        .collect();
    let mut group = Group::open(&events, Whom::Caller, false)?;
    kernel.prepare();
    begun.fetch_add(1, Relaxed);
    let arrived = Instant::now();
    while begun.load(Relaxed) < n && over.load(Relaxed) == 0 && arrived.elapsed() < PATIENCE {
        // stream on, so that nobody begins on an idle memory
        kernel.run();
    }
    group.start()?;
    let begin = Instant::now();
    let (mut rates, mut last) = (Vec::new(), (begin, 0.0));
    loop {
        kernel.run();
        let mut sum = ThreadCounts::default();
        for count in group.read()?.counts {
            sum.add(Role::Lines, count as f64);
        }
        let now = (Instant::now(), sum.bytes.unwrap_or(0.0));
        // what another ended has left is not shared by all any more
        if over.load(Relaxed) == 0 || rates.is_empty() {
            rates.push((now.1 - last.1) / now.0.duration_since(last.0).as_secs_f64());
        }
        last = now;
        if begin.elapsed() >= TIME || over.load(Relaxed) > 0 {
            over.fetch_add(1, Relaxed);
            return Ok(rates);
        }
    }
}
