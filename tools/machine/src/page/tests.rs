//! Finding the page in a sysfs tree, and refusing what is none.

use super::*;
use std::fs;
use std::path::{Path, PathBuf};

fn device(sysfs: &Path, slot: &str, vendor: &str, id: &str, bar: &[u8]) -> PathBuf {
    let dir = sysfs.join("bus/pci/devices").join(slot);
    fs::create_dir_all(&dir).unwrap();
    fs::write(dir.join("vendor"), format!("{vendor}\n")).unwrap();
    fs::write(dir.join("device"), format!("{id}\n")).unwrap();
    fs::write(dir.join("resource2"), bar).unwrap();
    dir
}

/// A page with a header for `nr` CPUs of one type and version `version`.
fn bar(version: u32, nr: u32) -> Vec<u8> {
    let mut b = vec![0u8; PAGE_BYTES];
    b[..8].copy_from_slice(b"SCXAMPPG");
    b[8..12].copy_from_slice(&version.to_le_bytes());
    b[12..16].copy_from_slice(&nr.to_le_bytes());
    b[24..28].copy_from_slice(&1u32.to_le_bytes());
    b[28..32].copy_from_slice(&4u32.to_le_bytes());
    b[32..40].copy_from_slice(&8_000_000_000_000u64.to_le_bytes());
    b[128..132].copy_from_slice(&1500u32.to_le_bytes());
    b[136..140].copy_from_slice(&1000u32.to_le_bytes());
    b
}

fn put(b: &mut [u8], cpu: usize, total: Total, user: u64, kernel: u64) {
    let at = 512 + cpu * 512 + 64 + total as usize * 16;
    b[at..at + 8].copy_from_slice(&user.to_le_bytes());
    b[at + 8..at + 16].copy_from_slice(&kernel.to_le_bytes());
}

#[test]
fn the_right_one_of_two_devices() {
    let dir = tempfile::tempdir().unwrap();
    let mut page = bar(VERSION, 2);
    put(&mut page, 1, Total::Instructions, 30, 4);
    // A mailbox of the same kind, a network card, and the page: only the page begins with the
    // magic.
    device(
        dir.path(),
        "0000:00:01.0",
        "0x1af4",
        "0x1110",
        &vec![7u8; 2 * PAGE_BYTES],
    );
    device(dir.path(), "0000:00:02.0", "0x1af4", "0x1000", &page);
    device(dir.path(), "0000:00:03.0", "0x1af4", "0x1110", b"short");
    let right = device(dir.path(), "0000:00:04.0", "0x1af4", "0x1110", &page);
    let p = Page::open_under(dir.path()).unwrap();
    let s = p.snapshot().unwrap();
    assert_eq!(
        (p.nr_cpus(), p.dilation(), p.mhz(0), p.mhz(1)),
        (2, 4, Some(1500), None)
    );
    let i = s.cpus[1].split(Total::Instructions);
    assert_eq!((i.user, i.kernel), (30, 4));
    assert_eq!(s.cpus[0].total(Total::Instructions), 0);
    // Two modelled seconds of two idle CPUs at a milliwatt.
    assert_eq!((s.energy_uj(), s.working_uj()), (4000, 0));
    // The write-combining view is preferred when there is one.
    fs::write(right.join("resource2_wc"), bar(VERSION, 5)).unwrap();
    assert_eq!(Page::open_under(dir.path()).unwrap().nr_cpus(), 5);
}

#[test]
fn no_board() {
    let dir = tempfile::tempdir().unwrap();
    for _ in 0..2 {
        let e = Page::open_under(dir.path()).unwrap_err();
        assert!(matches!(e, PageError::NoBoard { .. }));
        let text = e.to_string();
        assert!(
            text.contains("1af4:1110") && text.contains(dir.path().to_str().unwrap()),
            "{text}"
        );
        // Nor with a device of the right kind that is not the page.
        device(
            dir.path(),
            "0000:00:01.0",
            "0x1af4",
            "0x1110",
            &vec![0u8; PAGE_BYTES],
        );
    }
}

#[test]
fn another_version_is_told() {
    let dir = tempfile::tempdir().unwrap();
    device(
        dir.path(),
        "0000:00:01.0",
        "0x1af4",
        "0x1110",
        &bar(VERSION + 1, 2),
    );
    let e = Page::open_under(dir.path()).unwrap_err();
    assert!(matches!(e, PageError::Version { found, .. } if found == VERSION + 1));
    assert!(e.to_string().contains("resource2"), "{e}");
}

#[test]
fn nonsense_is_refused() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("page");
    assert!(matches!(
        Page::open_file(&file),
        Err(PageError::Open { .. })
    ));
    fs::write(&file, bar(VERSION, MAX_CPUS as u32 + 1)).unwrap();
    assert!(matches!(
        Page::open_file(&file),
        Err(PageError::NotAPage { .. })
    ));
    fs::write(&file, &bar(VERSION, 2)[..PAGE_BYTES - 1]).unwrap();
    assert!(matches!(
        Page::open_file(&file),
        Err(PageError::NotAPage { .. })
    ));
}

#[test]
fn cpus_that_do_not_exist() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("page");
    fs::write(&file, bar(VERSION, 2)).unwrap();
    let p = Page::open_file(&file).unwrap();
    assert!(p.cpu(1).is_ok());
    assert!(matches!(
        p.cpu(2),
        Err(PageError::NoCpu { cpu: 2, nr_cpus: 2 })
    ));
    assert!(matches!(p.cpu(u32::MAX), Err(PageError::NoCpu { .. })));
}

#[test]
fn totals_subtract() {
    let a = Split {
        user: 10,
        kernel: 3,
    };
    let b = Split { user: 4, kernel: 1 };
    assert_eq!((a - b).total(), 8);
    assert_eq!(a - b + b, a);
}
