//! Which kernel is wanted: the newest, or one by its version.

use crate::version;

/// The first series whose sched_ext the scheduler supports.
pub(super) const OLDEST: &str = "6.18";

/// Which kernel is wanted.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum KernelChoice {
    /// The newest one from 6.18 on that can load sched_ext schedulers.
    #[default]
    Newest,
    /// The newest that can and whose version begins so: `7.0`, `6.18`, or a whole release such as
    /// `7.0.13+deb13-cloud-amd64`.
    Version(String),
    /// The newest of the generic flavour that can.
    NewestGeneric,
    /// The newest of the generic flavour that can and whose version begins so, or a whole release
    /// such as `7.0.13+deb13-amd64`.
    Generic(String),
}

/// A flavour of Debian's kernels.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Flavour {
    /// For virtual machines: smaller, without frequency scaling.
    Cloud,
    /// For any machine.
    Generic,
}

impl Flavour {
    /// That of a release, as `uname -r` gives it.
    pub(super) fn of(release: &str) -> Flavour {
        match release.contains("-cloud-") {
            true => Flavour::Cloud,
            false => Flavour::Generic,
        }
    }

    /// Its part of a package's name, as a regular expression for what is between version and
    /// architecture.
    pub(super) fn pattern(self) -> &'static str {
        match self {
            Flavour::Cloud => "-cloud-",
            Flavour::Generic => "-",
        }
    }
}

impl std::fmt::Display for Flavour {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Flavour::Cloud => "cloud",
            Flavour::Generic => "generic",
        })
    }
}

impl std::str::FromStr for KernelChoice {
    type Err = String;
    fn from_str(s: &str) -> Result<KernelChoice, String> {
        let version = |v: &str| {
            v.starts_with(|c: char| c.is_ascii_digit())
                .then(|| v.to_owned())
        };
        let generic = s.strip_prefix("generic-").or(s.strip_suffix("-generic"));
        // a whole release without `cloud`
        let whole = |v: &str| {
            let rest = ["-amd64", "-arm64"].iter().find_map(|a| v.strip_suffix(a));
            rest.is_some_and(|r| !r.contains('-'))
        };
        let choice = match (s, generic) {
            ("newest", _) => Some(KernelChoice::Newest),
            ("generic", _) => Some(KernelChoice::NewestGeneric),
            (_, Some(v)) => version(v).map(KernelChoice::Generic),
            (v, None) if whole(v) => version(v).map(KernelChoice::Generic),
            (v, None) => version(v).map(KernelChoice::Version),
        };
        choice.ok_or_else(|| {
            format!(
                "`{s}`: want `newest`, a version such as 7.0, or the generic flavour: `generic` or 7.0-generic"
            )
        })
    }
}

impl std::fmt::Display for KernelChoice {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            KernelChoice::Newest => f.write_str("newest"),
            KernelChoice::Version(v) => f.write_str(v),
            KernelChoice::NewestGeneric => f.write_str("generic"),
            KernelChoice::Generic(v) => write!(f, "{v}-generic"),
        }
    }
}

impl KernelChoice {
    /// Whether a release answers the request.
    pub(super) fn fits(&self, release: &str) -> bool {
        Flavour::of(release) == self.flavour()
            && match self.version() {
                None => version::compare(release, OLDEST).is_ge(),
                Some(v) => release
                    .strip_prefix(v)
                    .is_some_and(|rest| !rest.starts_with(|c: char| c.is_ascii_digit())),
            }
    }

    /// The flavour that is wanted.
    pub fn flavour(&self) -> Flavour {
        match self {
            KernelChoice::Newest | KernelChoice::Version(_) => Flavour::Cloud,
            KernelChoice::NewestGeneric | KernelChoice::Generic(_) => Flavour::Generic,
        }
    }

    /// The beginning of the version that is wanted; `None` is the newest.
    pub(super) fn version(&self) -> Option<&str> {
        match self {
            KernelChoice::Newest | KernelChoice::NewestGeneric => None,
            KernelChoice::Version(v) | KernelChoice::Generic(v) => Some(v),
        }
    }

    /// The newest of the same flavour.
    pub(super) fn newest(&self) -> KernelChoice {
        match self.flavour() {
            Flavour::Cloud => KernelChoice::Newest,
            Flavour::Generic => KernelChoice::NewestGeneric,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn requests_match_whole_numbers() {
        let v = |s: &str| KernelChoice::Version(s.into());
        assert!(v("7.0").fits("7.0.13+deb13-cloud-amd64"));
        assert!(!v("7.1").fits("7.13.1+deb13-cloud-amd64"));
        assert!(v("7.0.13").fits("7.0.13+deb13-cloud-amd64"));
        assert!(!v("7.0.1").fits("7.0.13+deb13-cloud-amd64"));
        assert!(KernelChoice::Newest.fits("6.18.5+deb13-cloud-arm64"));
        assert!(!KernelChoice::Newest.fits("6.12.107+deb13-cloud-arm64"));
        assert!("six".parse::<KernelChoice>().is_err());
    }

    #[test]
    fn a_request_names_the_flavour() {
        let parse = |s: &str| s.parse::<KernelChoice>();
        for (text, fits, fits_not) in [
            ("newest", "7.3.4+deb13-cloud-arm64", "7.3.4+deb13-arm64"),
            ("7.3", "7.3.4+deb13-cloud-arm64", "7.3.4+deb13-arm64"),
            ("generic", "7.3.4+deb13-arm64", "7.3.4+deb13-cloud-arm64"),
            ("7.3-generic", "7.3.4+deb13-arm64", "7.30.1+deb13-arm64"),
            (
                "generic-7.3",
                "7.3.4+deb13-arm64",
                "7.3.4+deb13-cloud-arm64",
            ),
            (
                "7.3.4+deb13-arm64",
                "7.3.4+deb13-arm64",
                "7.3.4+deb14-arm64",
            ),
            (
                "7.3.4+deb13-cloud-arm64",
                "7.3.4+deb13-cloud-arm64",
                "7.3.4+deb13-arm64",
            ),
        ] {
            let choice = parse(text).unwrap();
            assert!(choice.fits(fits), "{text}: {fits}");
            assert!(!choice.fits(fits_not), "{text}: {fits_not}");
            assert_eq!(parse(&choice.to_string()).as_ref(), Ok(&choice), "{text}");
        }
        for text in ["generic-", "-generic", "generic-new", "Generic"] {
            assert!(parse(text).unwrap_err().contains("7.0-generic"), "{text}");
        }
    }
}
