//! Statuses for the tests of model and view.

use crate::status::{CpuStatus, Metric, Status, ThreadStatus};

/// An estimate.
pub fn metric(value: f64, uncertainty: f64) -> Metric {
    Metric {
        value,
        uncertainty,
        quality: "exact".into(),
        age_s: 0.1,
    }
}

/// A thread that has run for `cpu_s` seconds, `big` of them on the big cores.
pub fn thread(tid: i64, comm: &str, on: &str, cpu_s: f64, big_s: f64) -> ThreadStatus {
    ThreadStatus {
        tid,
        app: tid as u64,
        comm: comm.into(),
        weight: 100,
        core_type: on.into(),
        placed: on.into(),
        cpu_s,
        big_time_share: if cpu_s > 0.0 { big_s / cpu_s } else { 0.0 },
        ..ThreadStatus::default()
    }
}

/// A machine of two big and four little cores with five threads, after `s` seconds. Threads take
/// turns on the big cores.
pub fn status(s: u64) -> Status {
    let names = ["hash", "fp", "stream", "chase", "bzip2"];
    let sf = [2.9, 2.35, 1.2, 1.45, 2.1];
    let big_now = |i: u64, at: u64| (i + at / 3) % 5 < 2;
    let mut per_thread: Vec<ThreadStatus> = (0..5u64)
        .map(|i| {
            let big_s = (0..s).filter(|at| big_now(i, *at)).count() as f64;
            let on = if big_now(i, s.saturating_sub(1)) {
                "big"
            } else {
                "little"
            };
            let at = i as usize;
            let mut t = thread(812 + i as i64, names[at], on, s as f64 * 0.97, big_s * 0.97);
            t.metrics = [("sf".to_owned(), metric(sf[at], 0.03 * sf[at]))].into();
            t.phase = [("number".to_owned(), 1.0), ("age_s".to_owned(), 7.0)].into();
            t.rated_s = s as f64 * 0.97;
            t.alone_s = (big_s + (s as f64 - big_s) / sf[at]) * 0.97;
            t
        })
        .collect();
    // as the scheduler sorts them
    per_thread.sort_by(|a, b| b.cpu_s.total_cmp(&a.cpu_s).then(a.tid.cmp(&b.tid)));
    let of = |name: &str| -> Vec<&ThreadStatus> {
        let on = per_thread.iter().filter(|t| t.core_type == name);
        on.collect()
    };
    let cpus = [("big", 0..2u64), ("little", 2..6)];
    let cpus = cpus.into_iter().flat_map(|(name, all)| {
        let there = of(name);
        all.enumerate().map(move |(i, cpu)| CpuStatus {
            cpu,
            core_type: name.into(),
            tid: there.get(i).map_or(0, |t| t.tid),
            comm: there.get(i).map(|t| t.comm.clone()).unwrap_or_default(),
        })
    });
    Status {
        profile: "auto".into(),
        interval_ms: 100,
        policy: "hsp".into(),
        knobs: [
            ("threshold".to_owned(), "5".to_owned()),
            ("engine.probes".to_owned(), "5".to_owned()),
        ]
        .into(),
        provider: "ipc-sampling".into(),
        uptime_s: s as f64,
        ticks: s * 10,
        threads: 41,
        active: 5,
        swaps: s * 2,
        probes: 4,
        swap_latency_p50_us: 38.0,
        core_types: vec!["big".into(), "little".into()],
        cpus: cpus.collect(),
        per_thread,
        ..Status::default()
    }
}
