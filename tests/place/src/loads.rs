//! Loads for the mechanism.

use crate::Error;
use amp_workloads::busy::{divide, pass};
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

pub fn spin(name: &str, count: usize, secs: f64, nices: &[i32]) {
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
                while begin.elapsed().as_secs_f64() < secs {
                    pass();
                    work.fetch_add(1, Ordering::Relaxed);
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
pub fn short(name: &str, count: usize, ms: &str) -> Result<(), Error> {
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

pub fn busy(name: &str, ms: u64) -> Result<(), Error> {
    rustix::thread::set_name(&std::ffi::CString::new(name)?)?;
    let ran = || rustix::time::clock_gettime(rustix::time::ClockId::ThreadCPUTime);
    // not what exec and the loader took
    let end = Duration::try_from(ran())? + Duration::from_millis(ms);
    while Duration::try_from(ran())? < end {
        divide();
    }
    Ok(())
}

pub fn churn(count: usize) -> Result<(), Error> {
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
