//! The archive of what the host wants back.

use amp_board::mailbox::{KERNEL_LOG, MISSING, OWN, PAYLOAD_AT, SIZE};
use std::path::Path;

/// Packs files and folders, the kernel log, and the names of what is not there.
pub fn archive(paths: &[String]) -> Result<Vec<u8>, String> {
    let mut tar = tar::Builder::new(Vec::new());
    tar.follow_symlinks(true);
    let mut missing = String::new();
    for path in paths {
        let name = path.trim_matches('/');
        let done = match std::fs::metadata(path) {
            Ok(m) if m.is_dir() => tar.append_dir_all(name, path),
            Ok(_) => tar.append_path_with_name(path, name),
            Err(_) => {
                missing.push_str(path);
                missing.push('\n');
                continue;
            }
        };
        done.map_err(|e| format!("collecting {path}: {e}"))?;
    }
    own(&mut tar, MISSING, missing.as_bytes())?;
    own(&mut tar, KERNEL_LOG, &kernel_log())?;
    let data = tar.into_inner().map_err(|e| format!("packing: {e}"))?;
    let room = SIZE - PAYLOAD_AT;
    if data.len() > room {
        return Err(format!(
            "what is to be collected ({}) takes {} MiB, there is room for {}: collect less or compress it",
            paths.join(", "),
            data.len() >> 20,
            room >> 20
        ));
    }
    Ok(data)
}

fn own(tar: &mut tar::Builder<Vec<u8>>, name: &str, data: &[u8]) -> Result<(), String> {
    debug_assert!(name.starts_with(OWN));
    let mut head = tar::Header::new_gnu();
    head.set_size(data.len() as u64);
    head.set_mode(0o644);
    head.set_entry_type(tar::EntryType::Regular);
    tar.append_data(&mut head, Path::new(name), data)
        .map_err(|e| format!("packing {name}: {e}"))
}

/// What the kernel logged; empty when it cannot be read.
fn kernel_log() -> Vec<u8> {
    const READ_ALL: i32 = 3;
    let mut buf = vec![0u8; 1 << 20];
    let room = i32::try_from(buf.len()).unwrap_or(i32::MAX);
    // SAFETY: the kernel writes at most `room` bytes into the buffer of that size.
    let n = unsafe { libc::klogctl(READ_ALL, buf.as_mut_ptr().cast(), room) };
    buf.truncate(usize::try_from(n).unwrap_or(0));
    buf
}
