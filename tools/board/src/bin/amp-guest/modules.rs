//! Loading kernel modules that the guest was given.

use std::fs::{self, File};
use std::os::unix::fs::FileExt;

/// First bytes of a file that xz has compressed.
const XZ: [u8; 6] = [0xfd, b'7', b'z', b'X', b'Z', 0];
/// `MODULE_INIT_COMPRESSED_FILE`: the kernel is to unpack it.
const COMPRESSED: i32 = 4;

/// Loads every module in `folder`, in the order of their names; none where there is no folder.
pub fn load(folder: &str) -> Result<(), String> {
    let Ok(entries) = fs::read_dir(folder) else {
        return Ok(());
    };
    let mut paths: Vec<_> = entries.flatten().map(|e| e.path()).collect();
    paths.sort();
    for path in paths {
        let failed = |e: std::io::Error| format!("module {}: {e}", path.display());
        let file = File::open(&path).map_err(failed)?;
        let mut head = [0; 6];
        file.read_exact_at(&mut head, 0).map_err(failed)?;
        let flags = if head == XZ { COMPRESSED } else { 0 };
        rustix::system::finit_module(&file, c"", flags).map_err(|e| failed(e.into()))?;
    }
    Ok(())
}
