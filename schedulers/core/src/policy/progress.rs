//! Virtual time of threads: who is ahead, who is behind.

use crate::policy::threads::{PerThread, Presence};
use crate::view::{ThreadView, View};
use amp_metrics::Nanos;

/// Where newcomers start.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Join {
    /// At the maximum of those present. Who leads all holders of fast cores by more than this does
    /// not compete for them and does not count.
    Maximum(f64),
    /// At the mean of those who compete for fast cores.
    Front,
}

#[derive(Clone, Copy, Debug, Default)]
struct Account {
    v: f64,
    /// How far ahead of the front it was when last seen.
    lead: f64,
}

/// Virtual times, one per thread, in seconds. Only differences matter.
///
/// A thread that comes back from a rest is where it was relative to the *front* (the mean of those
/// on fast cores, or of those who were last): a rest neither earns nor costs anything. So is the
/// next run of a program relative to the one before. Leads and lags beyond a bound are forgotten.
/// At the first decision, when threads may have run for long under another policy, virtual time is
/// rebuilt from what they have run so far.
#[derive(Debug, Default)]
pub struct Progress {
    accounts: PerThread<Account>,
    /// Per thread of the view, relative to the front; none when it was not charged.
    ahead: Vec<Option<f64>>,
    /// Per thread of the view, what it was charged with in this round.
    charged: Vec<f64>,
    joining: Vec<Newcomer>,
    /// Where the front was when a thread was passed over first, until it is charged.
    waiting: PerThread<Option<f64>>,
    front: f64,
    /// Whether anybody has been on a fast core yet.
    seated: bool,
}

#[derive(Clone, Copy, Debug)]
struct Newcomer {
    thread: usize,
    dv: f64,
    past: Past,
}

/// What a thread has done before the policy saw it.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Past {
    /// CPU time, in seconds.
    pub ran: f64,
    /// Virtual time that would have been charged for it.
    pub v: f64,
}

impl Progress {
    /// Begins a round. Each thread of the view is then charged or passed over, in order.
    pub fn begin(&mut self) {
        self.accounts.begin();
        self.waiting.begin();
        self.ahead.clear();
        self.charged.clear();
        self.joining.clear();
    }

    /// Charges the next thread of the view with `dv` seconds; `past` is what it had done before
    /// this interval. Where `dv` contains what it did before it was known ([`ThreadView::unrated`]), others
    /// have gone on meanwhile, and it is behind by that.
    pub fn charge(&mut self, th: &ThreadView, dv: f64, past: impl FnOnce() -> Past) {
        let front = self.front;
        if th.unrated.time > Nanos::ZERO {
            self.waiting.pass_on(th.key, th.succeeds);
        }
        let waited = self.waiting.get_mut(th.key).and_then(Option::take);
        let waited = waited.filter(|_| th.unrated.time > Nanos::ZERO);
        let dv = dv - waited.map_or(0.0, |since| front - since);
        let first = self.accounts.is_first_round();
        let (presence, a) = self.accounts.enter(th.key, th.succeeds, Account::default);
        match presence {
            Presence::Here => a.v += dv,
            Presence::Back => a.v = front + a.lead + dv,
            Presence::New => self.joining.push(Newcomer {
                thread: self.ahead.len(),
                dv,
                past: if first { past() } else { Past::default() },
            }),
        }
        self.ahead.push(Some(a.v));
        self.charged.push(dv);
    }

    /// Passes over the next thread of the view.
    pub fn skip(&mut self, th: &ThreadView) {
        self.accounts.pass_on(th.key, th.succeeds);
        let (_, since) = self.waiting.enter(th.key, th.succeeds, || None);
        since.get_or_insert(self.front);
        self.ahead.push(None);
        self.charged.push(0.0);
    }

    /// Ends the round: lets newcomers in and forgets leads and lags beyond `bound` seconds.
    pub fn settle(&mut self, view: &View<'_>, join: Join, bound: f64) {
        self.start(view, join);
        let slowest = view.topology.slowest();
        let (mut n, mut sum, mut all, mut total) = (0u32, 0.0, 0u32, 0.0);
        for (th, v) in view.threads.iter().zip(&self.ahead) {
            let Some(v) = v else { continue };
            all += 1;
            total += v;
            let fast = th.placed.is_some_and(|t| t < slowest);
            if fast && th.allowed.contains(slowest) {
                n += 1;
                sum += v;
            }
        }
        self.front = match (n, all) {
            (0, 0) => return,
            // who held the fast cores has ended or rests just now, and will be measured by it
            (0, _) if self.seated => self.front,
            (0, _) => total / f64::from(all),
            _ => sum / f64::from(n),
        };
        self.seated |= n > 0;
        for (th, v) in view.threads.iter().zip(&mut self.ahead) {
            let Some(v) = v else { continue };
            let lead = (*v - self.front).clamp(-bound, bound);
            *v = lead;
            if let Some(a) = self.accounts.get_mut(th.key) {
                *a = Account {
                    v: self.front + lead,
                    lead,
                };
            }
        }
    }

    /// Gives newcomers their virtual time.
    fn start(&mut self, view: &View<'_>, join: Join) {
        if self.joining.is_empty() {
            return;
        }
        let (ran, done) = self
            .joining
            .iter()
            .fold((0.0, 0.0), |(r, v), n| (r + n.past.ran, v + n.past.v));
        let rate = if ran > 0.0 { done / ran } else { 0.0 };
        let mut newcomer = is_newcomer(&self.joining);
        let mut maximum = f64::NEG_INFINITY;
        let mut seated = f64::NEG_INFINITY;
        // what they gained on whoever came in this interval, before he came included
        let (mut of_maximum, mut of_seated) = (0.0, 0.0);
        let slowest = view.topology.slowest();
        for (i, (th, v)) in view.threads.iter().zip(&self.ahead).enumerate() {
            let Some(v) = v.filter(|_| !newcomer(i)) else {
                continue;
            };
            let gained = self.charged.get(i).copied().unwrap_or(0.0);
            if v > maximum {
                (maximum, of_maximum) = (v, gained);
            }
            if v > seated && th.placed.is_some_and(|t| t < slowest) && th.allowed.contains(slowest)
            {
                (seated, of_seated) = (v, gained);
            }
        }
        // Who held the only fast core may have ended just now.
        if seated == f64::NEG_INFINITY {
            seated = self.front;
        }
        let (start, gained) = match join {
            _ if maximum == f64::NEG_INFINITY => (self.front, 0.0),
            Join::Maximum(within) if maximum <= seated + within => (maximum, of_maximum),
            Join::Maximum(within) => (seated + within, of_seated),
            Join::Front => (self.front, 0.0),
        };
        let interval = view.interval.as_secs_f64();
        for n in &self.joining {
            let carried = n.past.v - n.past.ran * rate;
            // while it ran, the others did, too
            let ran = view
                .threads
                .get(n.thread)
                .map_or(0.0, |th| th.ran_up_to(slowest));
            let part = if interval > 0.0 {
                (ran / interval).min(1.0)
            } else {
                0.0
            };
            self.ahead[n.thread] = Some(start - part * gained.max(0.0) + carried + n.dv);
        }
    }

    /// How far thread `i` of the view is ahead of the front, in seconds; `None` when it was passed
    /// over.
    pub fn ahead(&self, i: usize) -> Option<f64> {
        self.ahead.get(i).copied().flatten()
    }
}

/// Whether a thread of the view is a newcomer; asked in ascending order.
fn is_newcomer(joining: &[Newcomer]) -> impl FnMut(usize) -> bool + '_ {
    let mut next = joining.iter().map(|n| n.thread).peekable();
    move |i| next.next_if_eq(&i).is_some()
}
