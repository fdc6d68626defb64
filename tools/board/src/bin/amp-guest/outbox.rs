//! Writing into the mailbox.

use amp_board::mailbox::{Header, MAGIC, PAYLOAD_AT, SIZE};
use memmap2::{MmapOptions, MmapRaw};
use std::fs::{self, OpenOptions};
use std::path::Path;
use std::sync::atomic::{fence, Ordering};

const DEVICES: &str = "/sys/bus/pci/devices";

/// Puts a payload and its header into the mailbox.
pub fn deliver(state: u32, exit_code: i32, payload: &[u8]) -> Result<(), String> {
    let mailbox = open()?;
    let room = SIZE - PAYLOAD_AT;
    let payload = &payload[..payload.len().min(room)];
    copy(&mailbox, PAYLOAD_AT, payload);
    fence(Ordering::SeqCst);
    copy(
        &mailbox,
        0,
        &Header::of(state, exit_code, payload).to_bytes(),
    );
    fence(Ordering::SeqCst);
    Ok(())
}

/// The ivshmem device of the right size whose memory begins with the magic.
fn open() -> Result<MmapRaw, String> {
    let entries = fs::read_dir(DEVICES).map_err(|e| format!("{DEVICES}: {e}"))?;
    let mut why = String::from("no ivshmem device");
    for dir in entries.flatten().map(|e| e.path()) {
        let id = |f: &str| {
            fs::read_to_string(dir.join(f))
                .unwrap_or_default()
                .trim()
                .to_string()
        };
        if (id("vendor").as_str(), id("device").as_str()) != ("0x1af4", "0x1110") {
            continue;
        }
        match map(&dir) {
            Ok(Some(m)) => return Ok(m),
            Ok(None) => {}
            Err(e) => why = e,
        }
    }
    Err(format!("no mailbox: {why}"))
}

fn map(dir: &Path) -> Result<Option<MmapRaw>, String> {
    // The BAR's memory is not enabled as long as no driver claims the device.
    let enable = dir.join("enable");
    fs::write(&enable, "1").map_err(|e| format!("{}: {e}", enable.display()))?;
    // Write-combining is ordinary memory to the CPU; the plain file is device memory, which arm64
    // wants aligned.
    let path = [dir.join("resource2_wc"), dir.join("resource2")]
        .into_iter()
        .find(|p| p.exists());
    let path = path.ok_or("the device has no BAR 2")?;
    let bad = |e: std::io::Error| format!("{}: {e}", path.display());
    let size = fs::metadata(&path).map_err(bad)?.len();
    if size != SIZE as u64 {
        return Ok(None);
    }
    let file = OpenOptions::new()
        .read(true)
        .write(true)
        .open(&path)
        .map_err(bad)?;
    let m = MmapOptions::new().len(SIZE).map_raw(&file).map_err(bad)?;
    let mut head = [0u8; 8];
    for (i, b) in head.iter_mut().enumerate() {
        // SAFETY: the mapping has SIZE bytes, more than eight.
        *b = unsafe { m.as_ptr().add(i).read_volatile() };
    }
    Ok((head == MAGIC).then_some(m))
}

/// Copies in whole aligned words, as device memory wants it.
fn copy(to: &MmapRaw, at: usize, from: &[u8]) {
    debug_assert!(at.is_multiple_of(8) && at + from.len() <= SIZE);
    for (i, chunk) in from.chunks(8).enumerate() {
        let mut word = [0; 8];
        word[..chunk.len()].copy_from_slice(chunk);
        // SAFETY: `at` is a multiple of 8 and `at + from.len()` at most SIZE, itself a multiple of
        // 8, so that the whole word lies in the mapping, which is page-aligned.
        unsafe {
            let p = to.as_mut_ptr().add(at + 8 * i).cast::<u64>();
            p.write_volatile(u64::from_ne_bytes(word));
        }
    }
}
