//! Stretches of steady behaviour of a program.

/// Spans in a row that must differ from a stretch to end it.
const SPANS_TO_END: usize = 3;
/// By how much a speed, relatively, or the number of cores wanted differs from a stretch.
const DIFFERENT: f64 = 0.25;
/// Most stretches of a program; what comes after them is in the last one.
const MOST_STRETCHES: usize = 2000;
/// Share of a stretch that must have been counted on a core type for its speed there to be known,
/// and the seconds.
const LEAST_COUNTED: f64 = 0.05;
const LEAST_COUNTED_S: f64 = 0.02;
/// Share of what was counted below which a core type may have been visited in another phase: a program that moves as its phase
/// changes is told from its old self only when its factor is known anew.
const SMALL_PART: f64 = 0.3;
/// Share of a stretch below which sleep is not worth simulating.
const LEAST_SLEEP: f64 = 0.02;

/// Where a speed on a core type that a stretch did not visit comes from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Source {
    /// It visited two core types.
    Counted,
    /// The provider's speedup factor.
    Provider,
    /// The program's speeds in other stretches.
    Program,
    /// Nobody knows.
    Nothing,
}

/// What a program did in one span, or in many that are alike. Lists go by core type.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct Stretch {
    pub length_s: f64,
    pub cpu_s: Vec<f64>,
    pub instructions: Vec<f64>,
    pub counted_s: Vec<f64>,
    /// CPU time while CPUs were idle: nobody waited then.
    pub free_s: f64,
    /// CPU time while all CPUs were busy, and thread-seconds that ended with a thread that ran or
    /// waited.
    pub full_s: f64,
    pub wanted_s: f64,
    /// Threads that were busy, times seconds; and the seconds in which there were any.
    pub threads_s: f64,
    pub active_s: f64,
    /// The provider's speedup factor, its uncertainty, and the CPU time for which it was known,
    /// each times that time.
    pub sf: f64,
    pub sf_u: f64,
    pub sf_s: f64,
    /// A core type whose counts are probably another phase's.
    pub doubted: Option<usize>,
}

impl Stretch {
    pub fn of(types: usize, length_s: f64) -> Stretch {
        Stretch {
            length_s,
            cpu_s: vec![0.0; types],
            instructions: vec![0.0; types],
            counted_s: vec![0.0; types],
            ..Stretch::default()
        }
    }

    pub fn add(&mut self, o: &Stretch) {
        let lists = [
            (&mut self.cpu_s, &o.cpu_s),
            (&mut self.instructions, &o.instructions),
            (&mut self.counted_s, &o.counted_s),
        ];
        for (to, from) in lists {
            for (to, from) in to.iter_mut().zip(from) {
                *to += from;
            }
        }
        self.length_s += o.length_s;
        self.free_s += o.free_s;
        self.full_s += o.full_s;
        self.wanted_s += o.wanted_s;
        self.threads_s += o.threads_s;
        self.active_s += o.active_s;
        self.sf += o.sf;
        self.sf_u += o.sf_u;
        self.sf_s += o.sf_s;
    }

    /// CPU time.
    pub fn busy_s(&self) -> f64 {
        self.cpu_s.iter().sum()
    }

    /// Instructions per second on core type `t`, where enough was counted.
    pub fn ips(&self, t: usize) -> Option<f64> {
        let (n, s) = (self.instructions[t], self.counted_s[t]);
        let all: f64 = self.counted_s.iter().sum();
        let enough = s >= LEAST_COUNTED * all && s >= LEAST_COUNTED_S.min(0.5 * self.length_s);
        (enough && n > 0.0 && s > 0.0 && self.doubted != Some(t)).then(|| n / s)
    }

    /// Doubts what was counted on the less visited of two core types where that was little, and contradicts the factor that
    /// the provider knew: `counted` is the factor by counts, between core types `a` and `b`.
    pub fn doubt(&mut self, counted: f64, a: usize, b: usize) {
        let Some((told, u)) = self.told_sf() else {
            return;
        };
        let apart = (counted - told).abs();
        let contradicts = apart > DIFFERENT * counted.max(told) && apart > 2.0 * u;
        let all: f64 = self.counted_s.iter().sum();
        let less = if self.counted_s[a] < self.counted_s[b] {
            a
        } else {
            b
        };
        if contradicts && self.counted_s[less] < SMALL_PART * all {
            self.doubted = Some(less);
        }
    }

    /// The provider's speedup factor with its uncertainty.
    pub fn told_sf(&self) -> Option<(f64, f64)> {
        let known = self.sf_s > 0.0 && self.sf_s >= 0.1 * self.busy_s();
        known.then(|| (self.sf / self.sf_s, self.sf_u / self.sf_s))
    }

    /// Cores that its threads ran on or waited for, on average.
    fn wants(&self) -> f64 {
        (self.free_s + self.full_s.max(self.wanted_s)) / self.length_s
    }

    /// Whether one thread of a program of so many was busy at a time.
    pub fn is_serial(&self, threads: u32) -> bool {
        threads > 1 && self.active_s > 0.0 && self.threads_s < 1.5 * self.active_s
    }

    /// How long a program of so many threads slept in it.
    pub fn sleep_s(&self, threads: u32) -> f64 {
        let at_work = match self.is_serial(threads) {
            true => 1.0,
            false => f64::from(threads),
        };
        let slept = 1.0 - (self.wants() / at_work).min(1.0);
        if slept < LEAST_SLEEP {
            0.0
        } else {
            slept * self.length_s
        }
    }

    fn differs(&self, o: &Stretch) -> bool {
        let apart = |a: f64, b: f64| (a - b).abs() > DIFFERENT * a.max(b);
        let speeds = (0..self.cpu_s.len())
            .any(|t| matches!((self.ips(t), o.ips(t)), (Some(a), Some(b)) if apart(a, b)));
        let factors = match (self.told_sf(), o.told_sf()) {
            // beyond what the estimates themselves scatter by
            (Some((a, u)), Some((b, v))) => apart(a, b) && (a - b).abs() > 2.0 * (u + v),
            _ => false,
        };
        let wants = (self.wants() - o.wants()).abs() > DIFFERENT * self.wants().max(1.0);
        let serial = self.is_serial(2) != o.is_serial(2) && o.active_s > 0.0 && self.active_s > 0.0;
        speeds || factors || wants || serial
    }
}

/// Cuts spans into stretches.
pub(super) fn cut(spans: impl Iterator<Item = Stretch>) -> Vec<Stretch> {
    let mut out: Vec<Stretch> = Vec::new();
    let mut now: Option<Stretch> = None;
    let mut against: Vec<Stretch> = Vec::new();
    for span in spans {
        let Some(current) = &mut now else {
            now = Some(span);
            continue;
        };
        if current.differs(&span) && out.len() + 1 < MOST_STRETCHES {
            against.push(span);
            if against.len() >= SPANS_TO_END {
                let mut next = against.remove(0);
                against.drain(..).for_each(|s| next.add(&s));
                out.push(std::mem::replace(current, next));
            }
        } else {
            against.drain(..).for_each(|s| current.add(&s));
            current.add(&span);
        }
    }
    if let Some(mut current) = now {
        against.iter().for_each(|s| current.add(s));
        out.push(current);
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    /// 0.1 s on core type `t` at so many instructions a second.
    fn span(t: usize, cpu_s: f64, ips: f64) -> Stretch {
        let mut s = Stretch::of(2, 0.1);
        s.cpu_s[t] = cpu_s;
        s.counted_s[t] = cpu_s;
        s.instructions[t] = cpu_s * ips;
        s.free_s = cpu_s;
        (s.threads_s, s.active_s) = (0.1, 0.1);
        s
    }

    #[test]
    fn another_core_type_is_no_other_phase_and_another_speed_there_is() {
        let steady = (0..20).map(|i| span(i / 5 % 2, 0.1, [2e9, 1e9][i / 5 % 2]));
        let whole = cut(steady.clone());
        assert_eq!(whole.len(), 1);
        let near = |t: usize, ips: f64| (whole[0].ips(t).unwrap() / ips - 1.0).abs() < 1e-9;
        assert!(near(0, 2e9) && near(1, 1e9));
        let later = (0..20).map(|i| span(i / 5 % 2, 0.1, [3e9, 1e9][i / 5 % 2]));
        let cuts = cut(steady.chain(later));
        assert_eq!(cuts.len(), 2);
        assert!(
            (cuts[0].length_s - 2.0).abs() < 1e-9,
            "{}",
            cuts[0].length_s
        );
    }

    #[test]
    fn a_move_with_a_change_of_phase_is_no_factor() {
        let of = |sf: f64, u: f64, on_fast: f64| {
            let mut s = Stretch::of(2, 1.0);
            s.cpu_s = vec![on_fast, 1.0 - on_fast];
            s.counted_s.clone_from(&s.cpu_s);
            // as fast there as here
            s.instructions = vec![on_fast * 1e9, (1.0 - on_fast) * 1e9];
            (s.sf, s.sf_u, s.sf_s) = (sf, u, 1.0);
            s.doubt(1.0, 0, 1);
            s.doubted
        };
        assert_eq!(of(3.0, 0.2, 0.2), Some(0));
        assert_eq!(of(3.0, 0.2, 0.8), Some(1));
        // enough was seen; or the provider is not that sure; or it agrees
        assert_eq!(of(3.0, 0.2, 0.4), None);
        assert_eq!(of(3.0, 1.5, 0.2), None);
        assert_eq!(of(1.2, 0.0, 0.2), None);
    }

    #[test]
    fn a_blip_ends_nothing_and_no_time_is_lost() {
        let all: Vec<Stretch> = (0..30)
            .map(|i| span(0, if i % 10 > 7 { 0.0 } else { 0.1 }, 1e9))
            .collect();
        let cuts = cut(all.into_iter());
        assert_eq!(cuts.len(), 1);
        assert!((cuts[0].length_s - 3.0).abs() < 1e-9);
        assert!((cuts[0].sleep_s(1) - 0.6).abs() < 1e-9);
    }

    #[test]
    fn who_waits_does_not_sleep() {
        let mut s = span(0, 0.05, 1e9);
        (s.free_s, s.full_s, s.wanted_s) = (0.0, 0.05, 0.1);
        assert_eq!(s.sleep_s(1), 0.0);
        // of two threads one waits or runs at a time: half of a program of two
        assert!((s.sleep_s(2) - 0.0).abs() < 1e-9 && s.is_serial(2));
        s.threads_s = 0.2;
        assert!((s.sleep_s(2) - 0.05).abs() < 1e-9);
    }
}
