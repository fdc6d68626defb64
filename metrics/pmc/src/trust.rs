//! Which events of this machine are known to be broken: the trust file of `pmc validate`.

use amp_host::bad_input;
use amp_metrics::trust::{CountError, EventTrust, TrustFile, Verdict};
use anyhow::Result;
use clap::Args;
use serde::{Deserialize, Serialize};
use std::path::{Path, PathBuf};

/// What the trust file says of an event that is counted.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Trusted {
    /// How far the event can be trusted.
    pub verdict: Verdict,
    /// Smallest error that was found, relative to the truth; negative where too little is counted.
    pub error_min: f64,
    /// Largest error that was found.
    pub error_max: f64,
}

impl Trusted {
    /// Of an event that is in the file.
    pub fn of(entry: &EventTrust) -> Trusted {
        Trusted {
            verdict: entry.verdict,
            error_min: entry.error_min,
            error_max: entry.error_max,
        }
    }

    /// What the event may be off by; `None` where nobody can say.
    pub fn error(&self) -> Option<CountError> {
        CountError::of(self.verdict, self.error_min, self.error_max)
    }

    /// The interval of the truth, of a count whose own interval is this.
    pub fn widen(&self, (low, high): (f64, f64)) -> Option<(f64, f64)> {
        let (least, most) = self.error()?.factors();
        Some((low * least, high * most))
    }

    /// Standard uncertainty of `count`, whose own one is `u`.
    pub fn u(&self, count: f64, u: Option<f64>) -> Option<f64> {
        Some(u?.hypot(count * self.error()?.u()))
    }
}

/// Option that names the trust file.
#[derive(Args, Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct TrustArgs {
    /// Trust file of the machine (`scx_amp pmc validate --out FILE`): events that it calls broken
    /// are not used [default: /etc/scx_amp/trust.toml, if there is one; none for a board]
    #[arg(long, value_name = "FILE.toml")]
    pub trust: Option<PathBuf>,
}

impl TrustArgs {
    /// The file, if there is one. One that was measured under another kernel is used all the same,
    /// with a warning: drivers have faults of their own.
    ///
    /// # Errors
    /// [`amp_host::BadInput`] naming the file, and line and key at fault.
    pub fn find(&self) -> Result<Option<TrustFile>> {
        let found = TrustFile::find(Path::new("/"), self.trust.as_deref()).map_err(bad_input)?;
        if let Some(f) = &found {
            let uname = rustix::system::uname();
            let now = uname.release().to_string_lossy();
            if f.trust.kernel != now {
                log::warn!(
                    "{}: measured under kernel {}, this is {now}: `scx_amp pmc validate --out {0}` measures again",
                    f.path.display(),
                    f.trust.kernel
                );
            }
        }
        Ok(found)
    }
}
