//! The threads of a job.

/// Runs `work` on one thread per element of `state`, each with its number and its element. The
/// calling thread is the first; the others, which inherit its affinity, are named `amp-worker`.
pub(super) fn on_threads<T: Send>(state: &mut [T], work: impl Fn(u64, &mut T) + Sync) {
    let Some((first, rest)) = state.split_first_mut() else {
        return;
    };
    let work = &work;
    std::thread::scope(|s| {
        for (i, t) in (1..).zip(rest) {
            let spawned = std::thread::Builder::new()
                .name("amp-worker".into())
                .stack_size(64 << 10)
                .spawn_scoped(s, move || work(i, t));
            if let Err(e) = spawned {
                // the others may already wait for this one: no way back from here
                give_up(&format!("cannot start thread {i}: {e}"));
            }
        }
        work(0, first);
    });
}

/// Ends the program: some of its threads wait for what will not come.
pub(super) fn give_up(why: &str) -> ! {
    eprintln!("amp-workload: {why}");
    std::process::exit(1);
}
