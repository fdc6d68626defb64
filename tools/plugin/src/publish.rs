//! Writing the state page.

use crate::counts::Counts;
use crate::decode::Class;
use crate::model::TypeModel;
use amp_machine::page::{Layout, MAGIC, MAX_CPUS, PAGE_BYTES, VERSION};
use std::fs::OpenOptions;
use std::os::fd::AsRawFd;
use std::path::Path;
use std::ptr::NonNull;
use std::sync::atomic::{fence, Ordering::*};
use std::time::{SystemTime, UNIX_EPOCH};

/// The page, mapped for writing. Each record is written by its CPU's thread alone.
#[derive(Debug)]
pub struct PageWriter {
    layout: NonNull<Layout>,
}

// SAFETY: shared memory accessed through atomics only; never unmapped.
unsafe impl Send for PageWriter {}
// SAFETY: as above.
unsafe impl Sync for PageWriter {}

impl PageWriter {
    /// Creates or opens the file, makes it at least as long as the page, and maps it.
    ///
    /// # Errors
    /// Names the file.
    pub fn create(path: &Path) -> Result<PageWriter, String> {
        let fail = |e: std::io::Error| format!("argument `page`: {}: {e}", path.display());
        let file = OpenOptions::new()
            .read(true)
            .write(true)
            .create(true)
            .truncate(false)
            .open(path)
            .map_err(fail)?;
        if file.metadata().map_err(fail)?.len() < PAGE_BYTES as u64 {
            file.set_len(PAGE_BYTES as u64).map_err(fail)?;
        }
        // SAFETY: a fresh shared mapping of a file that is at least as long.
        let address = unsafe {
            libc::mmap(
                std::ptr::null_mut(),
                PAGE_BYTES,
                libc::PROT_READ | libc::PROT_WRITE,
                libc::MAP_SHARED,
                file.as_raw_fd(),
                0,
            )
        };
        if address == libc::MAP_FAILED {
            return Err(fail(std::io::Error::last_os_error()));
        }
        let layout = NonNull::new(address.cast()).ok_or("argument `page`: mapped at address 0")?;
        Ok(PageWriter { layout })
    }

    fn layout(&self) -> &Layout {
        // SAFETY: mapped for the life of the process, aligned to a page, long enough; all atomics.
        unsafe { self.layout.as_ref() }
    }

    /// Writes the constants, and the magic last. `core_types[i]` is the type of CPU `i`.
    pub fn start(&self, types: &[TypeModel], core_types: &[usize], quantum_ps: u64) {
        let header = &self.layout().header;
        header.magic.store(0, SeqCst);
        header.version.store(VERSION, Relaxed);
        header
            .nr_cpus
            .store(core_types.len().min(MAX_CPUS) as u32, Relaxed);
        header
            .cpu_offset
            .store(std::mem::offset_of!(Layout, cpus) as u32, Relaxed);
        header
            .cpu_stride
            .store(size_of_val(&self.layout().cpus[0]) as u32, Relaxed);
        header.nr_types.store(types.len() as u32, Relaxed);
        header
            .dilation
            .store(types.first().map_or(1, |t| t.dilation as u32), Relaxed);
        header.global_ps.store(0, Relaxed);
        header.skipped_ps.store(0, Relaxed);
        header.quantum_ps.store(quantum_ps, Relaxed);
        for (record, t) in header.types.iter().zip(types) {
            record.mhz.store(t.mhz as u32, Relaxed);
            record.active_uw.store(t.power.active_uw, Relaxed);
            record.idle_uw.store(t.power.idle_uw, Relaxed);
            let alone = t.cpi[Class::Alu as usize];
            let thousandths = |cycles: f64| (cycles * 1000.0).round() as u16;
            record.addition.store(thousandths(alone), Relaxed);
            let in_chain = thousandths(alone + t.raw_stall);
            record.addition_in_chain.store(in_chain, Relaxed);
        }
        let allocation = &self.layout().allocation;
        for (record, t) in allocation.l2.iter().zip(types) {
            let bytes = t.l2_sets << t.line_shift;
            record.way_bytes.store(bytes as u32, Relaxed);
            record.ways.store(t.l2_ways as u32, Relaxed);
        }
        allocation.fills.iter().for_each(|f| f.store(0, Relaxed));
        for (i, record) in self.layout().cpus.iter().enumerate() {
            record.seq.store(0, Relaxed);
            record
                .core_type
                .store(core_types.get(i).map_or(0, |t| *t as u32), Relaxed);
            record.state.store(0, Relaxed);
            record.time_ps.store(0, Relaxed);
            record
                .totals
                .iter()
                .flatten()
                .for_each(|t| t.store(0, Relaxed));
        }
        header.magic.store(MAGIC, Release);
    }

    /// Writes global and host time.
    pub fn time(&self, global_ps: u64, skipped_ps: u64) {
        let header = &self.layout().header;
        header.global_ps.fetch_max(global_ps, Release);
        header.skipped_ps.store(skipped_ps, Relaxed);
        let host = SystemTime::now()
            .duration_since(UNIX_EPOCH)
            .unwrap_or_default();
        header.host_ns.store(host.as_nanos() as u64, Relaxed);
    }

    /// The ways of its L2 that the guest lets `cpu` fill, as [`amp_machine::page::CacheAllocation`]
    /// has them.
    pub fn fills(&self, cpu: usize) -> u64 {
        let word = self.layout().allocation.fills.get(cpu);
        word.map_or(0, |w| w.load(Relaxed))
    }

    /// Writes the record of `cpu`, from that CPU's thread.
    pub fn cpu(&self, cpu: usize, state: u32, time_ps: u64, counts: &[Counts; 2], t: &TypeModel) {
        let Some(record) = self.layout().cpus.get(cpu) else {
            return;
        };
        let totals = [counts[0].totals(t), counts[1].totals(t)];
        let seq = record.seq.load(Relaxed);
        record.seq.store(seq.wrapping_add(1), Relaxed);
        fence(Release);
        record.state.store(state, Relaxed);
        record.time_ps.store(time_ps, Relaxed);
        for (i, to) in record.totals.iter().take(totals[0].len()).enumerate() {
            to[0].store(totals[0][i], Relaxed);
            to[1].store(totals[1][i], Relaxed);
        }
        record.seq.store(seq.wrapping_add(2), Release);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::tests::juno;
    use crate::timing::Events;
    use amp_machine::page::{CacheDivider, Page, PageError, Total, STATE_RUNNING};

    fn page() -> (tempfile::TempDir, std::path::PathBuf, PageWriter) {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("page");
        let writer = PageWriter::create(&path).unwrap();
        (dir, path, writer)
    }

    #[test]
    fn what_is_written_is_read() {
        let (_dir, path, w) = page();
        assert!(matches!(
            Page::open_file(&path),
            Err(PageError::NotAPage { .. })
        ));
        let types = juno();
        w.start(&types, &[0, 0, 1, 1, 1, 1], 50_000_000);
        w.time(16_000_000_000_000, 7);
        let mut counts = [Counts::default(), Counts::default()];
        counts[0].recent.0[Events::INSTRUCTIONS] = 1000;
        counts[1].recent.0[Events::INSTRUCTIONS] = 10;
        counts[1].l2_refills = 3;
        counts.iter_mut().for_each(Counts::settle);
        w.cpu(4, STATE_RUNNING, 42, &counts, &types[1]);

        let page = Page::open_file(&path).unwrap();
        let s = page.snapshot().unwrap();
        assert_eq!(
            (s.cpus.len(), s.global_ps, s.skipped_ps),
            (6, 16_000_000_000_000, 7)
        );
        assert!(s.host_ns > 0);
        let c = &s.cpus[4];
        assert_eq!((c.core_type, c.running, c.time_ps), (1, true, 42));
        let inst = c.split(Total::Instructions);
        assert_eq!((inst.user, inst.kernel, inst.total()), (1000, 10, 1010));
        assert_eq!(c.total(Total::L2Refill), 3);
        // 16 s of virtual time at dilation 8 are two modelled seconds, at idle power.
        let idle = |t: &TypeModel| u64::from(t.power.idle_uw) * 2;
        assert_eq!(
            (c.energy_uj, s.cpus[0].energy_uj),
            (idle(&types[1]), idle(&types[0]))
        );
        assert_eq!(
            (page.mhz(0), page.mhz(1), page.mhz(2)),
            (Some(1100), Some(850), None)
        );
        // as juno's file has them: an ALU instruction, and with the wait for the one before it
        assert_eq!(page.addition(0), Some((0.42, 0.54)));
        assert_eq!(page.addition(1), Some((0.56, 0.74)));
        assert_eq!(page.addition(2), None);
        assert_eq!(page.dilation(), 8);
        assert!(matches!(
            page.cpu(6),
            Err(PageError::NoCpu { cpu: 6, nr_cpus: 6 })
        ));
    }

    #[test]
    fn the_guest_says_which_ways_a_cpu_fills() {
        let (_dir, path, w) = page();
        w.start(&juno(), &[0, 0, 1, 1, 1, 1], 1);
        let mut divider = CacheDivider::open_file(&path).unwrap();
        let (big, little) = (divider.l2(0).unwrap(), divider.l2(5).unwrap());
        assert_eq!((big.ways, big.way_bytes), (16, 128 << 10));
        assert_eq!((little.core_type, divider.l2(6)), (1, None));
        assert_eq!(divider.cpus(little), [2, 3, 4, 5]);
        divider.fill(1, 0b11);
        divider.fill(1000, 1);
        assert_eq!((w.fills(1), w.fills(0), w.fills(1000)), (0b11, 0, 0));
        drop(divider);
        assert_eq!(w.fills(1), 0, "given back");
        CacheDivider::open_file(&path).unwrap().fill(1, 1);
        w.start(&juno(), &[0, 0, 1, 1, 1, 1], 1);
        assert_eq!(w.fills(1), 0, "as after power-on");
    }

    #[test]
    fn global_time_never_runs_backwards() {
        let (_dir, path, w) = page();
        w.start(&juno(), &[0, 1], 1);
        w.time(10, 0);
        w.time(9, 0);
        assert_eq!(Page::open_file(&path).unwrap().global_ps(), 10);
    }

    #[test]
    fn readers_never_see_half_a_record() {
        let (_dir, path, w) = page();
        let types = juno();
        w.start(&types, &[0], 1);
        let page = Page::open_file(&path).unwrap();
        std::thread::scope(|s| {
            s.spawn(|| {
                let mut counts = [Counts::default(), Counts::default()];
                for n in 0..20_000 {
                    counts[0].l2_refills = n;
                    counts[1].mispredicts = n;
                    w.cpu(0, STATE_RUNNING, n, &counts, &types[0]);
                }
            });
            for _ in 0..2_000 {
                let c = page.cpu(0).unwrap();
                assert_eq!(c.total(Total::L2Refill), c.time_ps);
                assert_eq!(c.total(Total::Mispredicts), c.time_ps);
            }
        });
    }

    #[test]
    fn a_path_that_cannot_be_made_is_named() {
        let e = PageWriter::create(Path::new("/nowhere/at/all")).unwrap_err();
        assert!(e.contains("/nowhere/at/all"), "{e}");
    }
}
