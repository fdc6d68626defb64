//! What the service manager is told, where one listens (`sd_notify(3)`): that scheduling has begun, that decisions go on, and that it
//! ends. A unit with `WatchdogSec=` restarts a scheduler whose decisions stand still, which nobody else would: the kernel is content
//! with the mechanism, which shares the CPUs without them.

use amp_host::clock;
use amp_metrics::Nanos;
use sd_notify::NotifyState;

/// Signs of life per time of the watchdog.
const SIGNS: u64 = 4;

/// The service manager that started this process, if one did.
#[derive(Debug)]
pub struct ServiceManager {
    /// Time between two signs of life; `None` where nobody waits for them.
    every: Option<Nanos>,
    next: Nanos,
}

impl ServiceManager {
    /// The one that the environment names (`NOTIFY_SOCKET`, `WATCHDOG_USEC`).
    pub fn of_environment() -> ServiceManager {
        let patience = sd_notify::watchdog_enabled();
        ServiceManager {
            every: patience.map(|p| Nanos(p.as_nanos() as u64 / SIGNS)),
            next: Nanos::ZERO,
        }
    }

    /// The service is up: `what` it does is shown by `systemctl status`. Before this, whoever started it waits.
    pub fn ready(&self, what: &str) {
        tell(&[NotifyState::Ready, NotifyState::Status(what)]);
    }

    /// What it does is something else now.
    pub fn status(&self, what: &str) {
        tell(&[NotifyState::Status(what)]);
    }

    /// Decisions go on. Told as often as the watchdog wants to know.
    pub fn alive(&mut self) {
        if self.is_due(clock::now()) {
            tell(&[NotifyState::Watchdog]);
        }
    }

    /// Whether a sign of life is due at `now`; the next one is due later then.
    fn is_due(&mut self, now: Nanos) -> bool {
        match self.every {
            Some(every) if now >= self.next => {
                self.next = now + every;
                true
            }
            _ => false,
        }
    }

    /// It is ending.
    pub fn stopping(&self) {
        tell(&[NotifyState::Stopping]);
    }
}

/// Nothing is lost but what somebody would have liked to read, or a restart that comes too soon.
fn tell(what: &[NotifyState]) {
    if let Err(e) = sd_notify::notify(what) {
        log::debug!("the service manager was not told: {e}");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn patient(every: Option<u64>) -> ServiceManager {
        ServiceManager {
            every: every.map(Nanos::from_millis),
            next: Nanos::ZERO,
        }
    }

    #[test]
    fn signs_of_life_come_as_often_as_somebody_wants_them() {
        let mut manager = patient(Some(250));
        let due = |m: &mut ServiceManager| {
            let of_seconds = (0..100).map(|i| Nanos::from_millis(100 * i));
            of_seconds.filter(|at| m.is_due(*at)).count()
        };
        assert_eq!(due(&mut manager), 34, "every 300 ms of 10 s");
        assert_eq!(due(&mut patient(None)), 0);
    }

    #[test]
    fn where_nobody_listens_nothing_is_told() {
        // the tests run without a service manager
        let mut manager = ServiceManager::of_environment();
        manager.ready("scheduling");
        manager.alive();
        manager.stopping();
        assert!(manager.every.is_none());
    }
}
