//! The models of the kernels of known counts, on x86_64: each kernel is run in a child one
//! instruction at a time, and what goes by is held against what the model says. (On arm64 the
//! board's own totals do that, in `tests/`.)

#[cfg(target_arch = "x86_64")]
mod steps;

#[cfg(target_arch = "x86_64")]
fn main() {
    use libtest_mimic::{Arguments, Trial};
    use rustix::thread::{sched_getcpu, sched_setaffinity, CpuSet};
    // each step goes from the child to this process and back, which takes four times as long between two CPUs
    let mut here = CpuSet::new();
    here.set(sched_getcpu());
    if let Err(e) = sched_setaffinity(None, &here) {
        println!("on any CPU: {e}");
    }
    let mut arguments = Arguments::from_args();
    // the child is a copy of this process, which is to have no other thread
    arguments.test_threads = Some(1);
    let trials = steps::kernels().into_iter().map(|(name, make)| {
        Trial::test(name, move || {
            steps::compare(make.as_ref()).map_err(Into::into)
        })
    });
    libtest_mimic::run(&arguments, trials.collect()).exit();
}

#[cfg(not(target_arch = "x86_64"))]
fn main() {
    println!("not run: instructions are decoded for x86_64 only; the board's totals check arm64");
}
