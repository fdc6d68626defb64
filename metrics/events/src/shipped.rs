//! The tables inside this crate.

use crate::{compact, Cpu, MapRow, PmuEvent, PmuMetric};

/// The kernel whose tables these are.
pub const KERNEL: &str = include_str!("../tables/kernel.txt");

/// Name (`arm64-arm-cortex-a53`) and compressed table of each model.
const FILES: &[(&str, &[u8])] = include!(concat!(env!("OUT_DIR"), "/tables.rs"));

/// The same of the derived metrics; models without any have no file.
const METRICS: &[(&str, &[u8])] = include!(concat!(env!("OUT_DIR"), "/derived.rs"));

const MAPS: &[(&str, &str)] = &[
    ("x86", include_str!("../tables/x86.csv")),
    ("arm64", include_str!("../tables/arm64.csv")),
];

/// The table of one model.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Shipped {
    /// Name of the file, without `.gz`: architecture and folder in the kernel's tree.
    pub name: &'static str,
    compressed: &'static [u8],
}

impl Shipped {
    /// Every table, by name.
    pub fn all() -> impl Iterator<Item = Shipped> {
        let shipped = |&(name, compressed)| Shipped { name, compressed };
        FILES.iter().map(shipped)
    }

    /// The table of a processor; `None` when none is shipped.
    pub fn of(cpu: &Cpu) -> Option<Shipped> {
        let rows = Shipped::map(cpu.arch());
        // each pattern was tried when the tables were made, and is again by the tests
        let row = cpu.find(&rows).ok()??;
        let name = file_name(cpu.arch(), &row.folder);
        Shipped::all().find(|s| s.name == name)
    }

    /// The rows of the map of `x86` or `arm64`; none of another architecture.
    pub fn map(arch: &str) -> Vec<MapRow> {
        let text = MAPS.iter().find(|(a, _)| *a == arch);
        text.map_or_else(Vec::new, |(_, text)| MapRow::parse(text))
    }

    /// Its events.
    pub fn events(&self) -> Vec<PmuEvent> {
        // data of this crate, every one of which the tests read
        compact::read(self.compressed).unwrap_or_default()
    }

    /// Its derived metrics.
    pub fn metrics(&self) -> Vec<PmuMetric> {
        let file = METRICS.iter().find(|(name, _)| *name == self.name);
        // as for events
        file.and_then(|(_, compressed)| compact::read_metrics(compressed).ok())
            .unwrap_or_default()
    }

    /// Bytes in the program, without those of the metrics.
    pub fn size(&self) -> usize {
        self.compressed.len()
    }
}

/// Name of the file of a model, without `.gz`.
pub fn file_name(arch: &str, folder: &str) -> String {
    format!("{arch}/{folder}").replace('/', "-")
}
