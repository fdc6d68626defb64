//! `run --autopower`: the profile follows what the machine's power is set to.
//!
//! ```text
//! system bus ── power profile, else: on battery? ──► Power ──► profile ──► scheduling thread (run)
//! ```
//!
//! A thread of its own listens to the bus, and asks for a profile as `ctl profile` does. A profile that a user chooses meanwhile
//! holds until the power changes next. When nobody says any more what the power is set to, the profile that was asked for at
//! the start comes back. Nothing is changed outside the scheduler, so that there is nothing to be put back at the end.

#[cfg(feature = "bus")]
mod bus;

use crate::control::{Answer, Call, Order, Request};
use anyhow::{Context, Result};
use std::fmt;
use std::sync::mpsc::channel;

/// What the machine's power is set to.
// without a bus nobody says it
#[cfg_attr(not(feature = "bus"), allow(dead_code))]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Power {
    /// Power is to be saved.
    Saver,
    /// Neither.
    Balanced,
    /// Power may be used.
    Performance,
}

impl Power {
    /// The shipped profile for it; none where it is the one that was asked for.
    fn profile(self) -> Option<&'static str> {
        match self {
            Power::Saver => Some("battery"),
            Power::Balanced => None,
            Power::Performance => Some("throughput"),
        }
    }
}

impl fmt::Display for Power {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Power::Saver => "power is to be saved",
            Power::Balanced => "power is balanced",
            Power::Performance => "power may be used",
        })
    }
}

/// Which profile is to be in use.
struct Choice {
    /// The one that was asked for at the start.
    base: String,
    /// The last one that power has chosen, or `base`; none if it could not be had.
    now: Option<String>,
}

impl Choice {
    fn new(base: String) -> Choice {
        Choice {
            now: Some(base.clone()),
            base,
        }
    }

    /// The profile to change to now that the power is set so; none where that is no change.
    fn change(&mut self, power: Option<Power>) -> Option<&str> {
        let wanted = power.and_then(Power::profile).unwrap_or(&self.base);
        if self.now.as_deref() == Some(wanted) {
            return None;
        }
        Some(self.now.insert(wanted.to_owned()))
    }

    /// The last change was refused: the next word on power, if it is the same, asks for it again.
    fn failed(&mut self) {
        self.now = None;
    }
}

/// Has the profile follow the power from now on, from `base` on. `call` brings a call to the scheduling thread and says whether
/// anybody is there.
///
/// # Errors
/// When the system refuses a thread.
pub fn follow(base: String, call: impl Fn(Call) -> bool + Send + 'static) -> Result<()> {
    let mut choice = Choice::new(base);
    let tell = move |power: Option<Power>| match choice.change(power) {
        None => true,
        Some(profile) => {
            let why = power.map_or("nobody says what power is set to".into(), |p| p.to_string());
            log::info!("{why}: profile `{profile}`");
            let put = put(profile, &call);
            if put == Put::Refused {
                choice.failed();
            }
            put != Put::NobodyThere
        }
    };
    let thread = std::thread::Builder::new().name("power".to_owned());
    let spawned = thread.spawn(move || listen(tell));
    spawned.context("cannot follow the power profile")?;
    Ok(())
}

/// What became of a wish.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Put {
    Done,
    Refused,
    NobodyThere,
}

/// Asks for a profile.
fn put(profile: &str, call: &impl Fn(Call) -> bool) -> Put {
    let order = match Order::read(Request::Profile(profile.to_owned())) {
        Ok(order) => order,
        Err(e) => {
            log::warn!("profile `{profile}`: {e:#}");
            return Put::Refused;
        }
    };
    let (answer, answered) = channel();
    if !call(Call { order, answer }) {
        return Put::NobodyThere;
    }
    match answered.recv() {
        Ok(Answer::Bad(why) | Answer::Failed(why)) => {
            log::warn!("profile `{profile}`: {why}");
            Put::Refused
        }
        Ok(_) => Put::Done,
        Err(_) => Put::NobodyThere,
    }
}

#[cfg(feature = "bus")]
fn listen(mut tell: impl FnMut(Option<Power>) -> bool) {
    let ended = bus::system().and_then(|bus| bus::watch(&bus, &mut tell));
    if let Err(e) = ended {
        log::warn!("power profiles are not followed: system bus: {e}");
        tell(None);
    }
}

#[cfg(not(feature = "bus"))]
fn listen(_tell: impl FnMut(Option<Power>) -> bool) {
    log::warn!("power profiles are not followed: this scx_amp was built without `bus`");
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_profile_follows_and_comes_back() {
        let mut choice = Choice::new("fair".to_owned());
        assert_eq!(choice.change(None), None);
        assert_eq!(choice.change(Some(Power::Balanced)), None);
        assert_eq!(choice.change(Some(Power::Saver)), Some("battery"));
        assert_eq!(choice.change(Some(Power::Saver)), None);
        assert_eq!(choice.change(Some(Power::Performance)), Some("throughput"));
        assert_eq!(choice.change(Some(Power::Balanced)), Some("fair"));
        assert_eq!(choice.change(Some(Power::Saver)), Some("battery"));
        assert_eq!(choice.change(None), Some("fair"));
        // one that was refused is asked for again
        assert_eq!(choice.change(Some(Power::Saver)), Some("battery"));
        choice.failed();
        assert_eq!(choice.change(Some(Power::Saver)), Some("battery"));
        assert_eq!(choice.change(None), Some("fair"));
        // the one that was asked for may be the same
        let mut choice = Choice::new("battery".to_owned());
        assert_eq!(choice.change(Some(Power::Saver)), None);
        for power in [Power::Saver, Power::Performance] {
            let profile = power.profile().unwrap();
            assert!(crate::profile::Profile::find(profile).is_ok());
        }
    }

    #[test]
    fn a_profile_is_asked_for_as_ctl_does_it() {
        let seen = std::cell::RefCell::new(Vec::new());
        let call = |c: Call| {
            if let Order::Profile(p, _) = &c.order {
                seen.borrow_mut().push(p.name.clone());
            }
            c.answer.send(Answer::Done(String::new())).is_ok()
        };
        assert_eq!(put("battery", &call), Put::Done);
        // a file that has gone meanwhile changes nothing
        assert_eq!(put("/nonexistent/p.toml", &call), Put::Refused);
        assert_eq!(*seen.borrow(), ["battery"]);
        assert_eq!(put("battery", &|_| false), Put::NobodyThere);
        let busy = |c: Call| c.answer.send(Answer::Failed("busy".into())).is_ok();
        assert_eq!(put("battery", &busy), Put::Refused);
    }
}
