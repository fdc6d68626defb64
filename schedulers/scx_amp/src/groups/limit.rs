//! The limit of CPU time of a control group, as its files have it.

use amp_bpf::Limit;
use std::path::Path;
use std::time::Duration;

/// That of the group in folder `dir` (`cpu.max`, and `cpu.max.burst` where the kernel has it), without what is above; none where
/// there is none, or what the files say is none.
pub(super) fn limit(dir: &Path) -> Option<Limit> {
    let read = |file: &str| std::fs::read_to_string(dir.join(file)).ok();
    let (quota, period) = parse(&read("cpu.max")?)?;
    let burst = read("cpu.max.burst").and_then(|text| text.trim().parse().ok());
    Some(Limit {
        quota,
        period,
        burst: Duration::from_micros(burst.unwrap_or(0)).min(quota),
        above: None,
    })
}

/// Quota and period of a text like `20000 100000`, in microseconds; `max` is no limit. The kernel takes periods up to a second.
fn parse(text: &str) -> Option<(Duration, Duration)> {
    let mut words = text.split_whitespace();
    let quota: u64 = words.next()?.parse().ok()?;
    let period: u64 = words.next()?.parse().ok()?;
    // more than all CPUs that there can be have is no limit
    let sound = (1..=1_000_000).contains(&period) && quota <= period * 8192;
    sound.then(|| (Duration::from_micros(quota), Duration::from_micros(period)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_the_kernel_writes_is_read_and_nothing_else() {
        let dir = tempfile::tempdir().unwrap();
        let put = |file: &str, text: &str| std::fs::write(dir.path().join(file), text).unwrap();
        assert_eq!(limit(dir.path()), None);
        for text in [
            "max 100000\n",
            "",
            "20000",
            "a b",
            "1 0",
            "1 2000000",
            "-1 100000",
            "900000000 100000",
        ] {
            put("cpu.max", text);
            assert_eq!(limit(dir.path()), None, "{text:?}");
        }
        put("cpu.max", "20000 100000\n");
        let mut wanted = Limit {
            quota: Duration::from_millis(20),
            period: Duration::from_millis(100),
            burst: Duration::ZERO,
            above: None,
        };
        assert_eq!(limit(dir.path()), Some(wanted));
        put("cpu.max.burst", "5000\n");
        wanted.burst = Duration::from_millis(5);
        assert_eq!(limit(dir.path()), Some(wanted));
        // the kernel allows no more
        put("cpu.max.burst", "50000\n");
        wanted.burst = wanted.quota;
        assert_eq!(limit(dir.path()), Some(wanted));
    }
}
