//! All control groups, from the top down.

use std::path::{Path, PathBuf};

/// Looks at `mount` and the groups below it, of `most` at most; says whether these were all. `look` is given a group
/// and what the look at the one above has found (`top` for `mount`), and says what it found, or nothing where those below are
/// not to be looked at. A group that has gone meanwhile has none below it.
pub(super) fn walk<T: Clone>(
    mount: &Path,
    most: usize,
    top: T,
    mut look: impl FnMut(&Path, &T) -> Option<T>,
) -> bool {
    let mut groups: Vec<(PathBuf, T)> = vec![(mount.to_owned(), top)];
    let mut seen = 0;
    while let Some((dir, above)) = groups.pop() {
        seen += 1;
        if seen > most {
            return false;
        }
        let Some(found) = look(&dir, &above) else {
            continue;
        };
        let below = std::fs::read_dir(&dir).into_iter().flatten().flatten();
        let folders = below.filter(|e| e.file_type().is_ok_and(|t| t.is_dir()));
        groups.extend(folders.map(|e| (e.path(), found.clone())));
    }
    true
}
