//! Whom the programs run as that we start: never root where somebody stands behind `sudo`.

use crate::bad_input;
use anyhow::Result;

/// User and group of the person behind `sudo`; `None` when we are not root, or without it.
///
/// # Errors
/// When only half of it is there, or it is not a number.
pub fn behind_sudo() -> Result<Option<(u32, u32)>> {
    let variable = |name| std::env::var(name).ok();
    let user = invoking(
        variable("SUDO_UID").as_deref(),
        variable("SUDO_GID").as_deref(),
    )?;
    // who is not root cannot become anybody
    Ok(user.filter(|_| rustix::process::geteuid().is_root()))
}

fn invoking(uid: Option<&str>, gid: Option<&str>) -> Result<Option<(u32, u32)>> {
    let id = |name: &str, v: &str| {
        v.parse::<u32>()
            .map_err(|_| bad_input(format!("{name}=`{v}` is not a user id")))
    };
    match (uid, gid) {
        (None, None) => Ok(None),
        (Some(u), Some(g)) => Ok(Some((id("SUDO_UID", u)?, id("SUDO_GID", g)?))),
        _ => Err(bad_input("only one of SUDO_UID and SUDO_GID is set")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_or_none() {
        assert_eq!(invoking(None, None).unwrap(), None);
        assert_eq!(
            invoking(Some("1000"), Some("100")).unwrap(),
            Some((1000, 100))
        );
        assert!(invoking(Some("1000"), None).is_err());
        assert!(invoking(Some("me"), Some("100"))
            .unwrap_err()
            .to_string()
            .contains("SUDO_UID"));
    }
}
