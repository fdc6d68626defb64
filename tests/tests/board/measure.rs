//! The C example of libs/measure on this machine, linked against the static library: on the board
//! it counts (`pmc.rs`).

use amp_board::{artifacts, Arch, Cache};
use std::process::{Command, Output};

fn region(arguments: &[&str]) -> Output {
    let cache = Cache::open().expect("the cache folder");
    let path = artifacts::guest_binary(&cache, Arch::host(), "measure-region");
    let path = path.expect("tools/setup/build.sh builds it");
    Command::new(path)
        .args(arguments)
        .output()
        .expect("it runs")
}

#[test]
fn c_counts_or_is_told_why_not() {
    const ROUNDS: u64 = 4_000_000;
    let out = region(&["instructions:u", &ROUNDS.to_string()]);
    let (said, why) = (
        String::from_utf8_lossy(&out.stdout),
        String::from_utf8_lossy(&out.stderr),
    );
    if out.status.success() {
        let counts = said.lines().filter(|l| l.starts_with("count "));
        let sum: u64 = counts
            .map(|l| {
                l.split(' ')
                    .nth(3)
                    .expect("a count")
                    .parse::<u64>()
                    .expect("a number")
            })
            .sum();
        let known = 2 * ROUNDS;
        assert!(sum >= known && sum < known + known / 100, "{said}");
        return;
    }
    amp_skips::skip(&format!("this machine cannot count: {why}"));
    assert_eq!(out.status.code(), Some(1));
    // no PMU, or no leave to use it
    assert!(
        why.contains("no PMU") || why.contains("perf_event_paranoid"),
        "{why}"
    );
}

#[test]
fn bad_input_from_c_is_told() {
    let out = region(&[" , "]);
    let why = String::from_utf8_lossy(&out.stderr);
    assert_eq!(out.status.code(), Some(1));
    assert!(why.contains("no event in it"), "{why}");
}
