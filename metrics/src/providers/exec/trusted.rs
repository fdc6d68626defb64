//! Whether a program may be run with the scheduler's rights: nobody else can put another in its
//! place.

use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

/// Mode bits that let others than the owner write.
const SHARED: u32 = 0o022;
/// Mode bit of a folder in which only an entry's owner may replace it.
const STICKY: u32 = 0o1000;

/// Checks that only `owner` and root can change `program`, which is at `path`: the file, the folders
/// above it, and those above what a symbolic link leads to.
///
/// # Errors
/// Says who else could change what.
pub(super) fn check(program: &str, path: &Path, owner: u32) -> Result<(), String> {
    let real = path.canonicalize().map_err(|e| cannot(program, &e))?;
    // a link in the folder of the path, and what it leads to
    let above = path.parent().into_iter().flat_map(Path::ancestors);
    for part in above.chain(real.ancestors()) {
        let about = std::fs::metadata(part).map_err(|e| cannot(program, &e))?;
        let whose = about.uid();
        let sticky = about.is_dir() && about.mode() & STICKY != 0;
        let why = if whose != owner && whose != 0 {
            format!("belongs to user {whose}")
        } else if about.mode() & SHARED != 0 && !sticky {
            "can be written by others".to_owned()
        } else {
            continue;
        };
        return Err(format!(
            "`{program}` is not run as root: {} {why}. Give it to root and take the others' right \
             to write away, or give the provider file to the user as whom it is to run",
            part.display()
        ));
    }
    Ok(())
}

fn cannot(program: &str, e: &std::io::Error) -> String {
    format!("`{program}` cannot be started: {e}")
}

/// Where `program` is: as it is named, or in one of the system's folders.
///
/// # Errors
/// When it is in none of them.
pub(super) fn found(program: &str) -> Result<PathBuf, String> {
    if program.contains('/') {
        return std::path::absolute(program).map_err(|e| cannot(program, &e));
    }
    let folders = super::confined::PATH.split(':');
    let mut all = folders.map(|folder| Path::new(folder).join(program));
    let first = all.find(|p| {
        p.metadata()
            .is_ok_and(|m| m.is_file() && m.mode() & 0o111 != 0)
    });
    first.ok_or_else(|| {
        let folders = super::confined::PATH;
        format!("`{program}` cannot be started: it is in none of {folders}; name its path")
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs::{create_dir, set_permissions, write, Permissions};
    use std::os::unix::fs::{symlink, PermissionsExt};

    fn mode(path: &Path, mode: u32) {
        set_permissions(path, Permissions::from_mode(mode)).unwrap();
    }

    /// Bug 21 of the review: a provider file of root's could run a program that anybody may change.
    #[test]
    fn what_others_may_change_is_not_run() {
        let dir = tempfile::tempdir().unwrap();
        let us = dir.path().metadata().unwrap().uid();
        let folder = dir.path().join("folder");
        create_dir(&folder).unwrap();
        mode(&folder, 0o755);
        let program = folder.join("program");
        write(&program, "#!/bin/sh\n").unwrap();
        let link = dir.path().join("link");
        symlink(&program, &link).unwrap();
        let refused = |path: &Path| check("it", path, us).unwrap_err();
        for path in [&program, &link] {
            mode(&program, 0o755);
            check("it", path, us).unwrap();
            for shared in [0o775, 0o757] {
                mode(&program, shared);
                assert!(refused(path).contains("program can be written by others"));
            }
            mode(&program, 0o755);
            mode(&folder, 0o777);
            assert!(refused(path).contains("folder can be written by others"));
            // as /tmp is: what is in it is its owner's to replace
            mode(&folder, 0o1777);
            check("it", path, us).unwrap();
            mode(&folder, 0o755);
        }
        // another's, unless that is root
        if us != 0 {
            let text = check("it", &program, us + 1).unwrap_err();
            assert!(text.contains(&format!("belongs to user {us}")), "{text}");
        } else {
            std::os::unix::fs::chown(&program, Some(65534), None).unwrap();
            assert!(refused(&link).contains("belongs to user 65534"));
        }
    }

    #[test]
    fn programs_are_found_in_the_path() {
        assert!(found("sh").unwrap().is_absolute());
        assert!(found("no-such-program")
            .unwrap_err()
            .contains("no-such-program"));
        let nowhere = found("/nowhere/x").unwrap();
        let text = check("/nowhere/x", &nowhere, 0).unwrap_err();
        assert!(text.contains("/nowhere/x"), "{text}");
    }
}
