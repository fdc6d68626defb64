//! What a machine calls itself: a platform model is for machines of some name, and PMUs alone do
//! not identify them (two boards with the same cores, two generations of hybrid processors whose
//! PMUs are both `cpu_core` and `cpu_atom`).

use std::path::Path;

/// The names of the machine whose sysfs is at `sysfs`, the most specific first; none where it does
/// not say.
///
/// - `compatible` of the device tree's root, one name each: `arm,juno`;
/// - the processor's family and model on x86, from the modalias of the CPUs:
///   `x86,ven0000fam0006mod0097` (0000 is Intel);
/// - maker and product of the firmware (DMI): `LENOVO 21BXCTO1WW`.
pub fn names(sysfs: &Path) -> Vec<String> {
    let read = |path: &str| std::fs::read(sysfs.join(path)).unwrap_or_default();
    let text = |path: &str| {
        String::from_utf8_lossy(&read(path))
            .trim()
            .trim_end_matches('\0')
            .to_owned()
    };
    let compatible = read("firmware/devicetree/base/compatible");
    let compatible = compatible.split(|b| *b == 0).map(String::from_utf8_lossy);
    let mut names: Vec<String> = compatible.map(|n| n.trim().to_owned()).collect();
    names.extend(processor(&text("devices/system/cpu/modalias")));
    let (vendor, product) = (
        text("class/dmi/id/sys_vendor"),
        text("class/dmi/id/product_name"),
    );
    if !vendor.is_empty() && !product.is_empty() {
        names.push(format!("{vendor} {product}"));
    }
    names.retain(|n| !n.is_empty());
    names
}

/// The processor's name in a modalias such as `cpu:type:x86,ven0000fam0006mod0097:feature:,0000,…`;
/// other architectures do not name the model there.
fn processor(modalias: &str) -> Option<String> {
    let rest = modalias.strip_prefix("cpu:type:")?;
    let name = rest.split(':').next()?;
    name.starts_with("x86,").then(|| name.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tree(files: &[(&str, &[u8])]) -> tempfile::TempDir {
        let dir = tempfile::tempdir().unwrap();
        for (path, content) in files {
            let path = dir.path().join(path);
            std::fs::create_dir_all(path.parent().unwrap()).unwrap();
            std::fs::write(path, content).unwrap();
        }
        dir
    }

    #[test]
    fn a_device_tree_names_the_machine_and_its_family() {
        let dir = tree(&[
            (
                "firmware/devicetree/base/compatible",
                b"arm,juno-r2\0arm,juno\0arm,vexpress\0",
            ),
            (
                "devices/system/cpu/modalias",
                b"cpu:type:aarch64:feature:,0000,0001\n",
            ),
        ]);
        assert_eq!(
            names(dir.path()),
            ["arm,juno-r2", "arm,juno", "arm,vexpress"]
        );
    }

    #[test]
    fn a_pc_is_named_by_its_processor_then_by_its_firmware() {
        let dir = tree(&[
            (
                "devices/system/cpu/modalias",
                b"cpu:type:x86,ven0000fam0006mod0097:feature:,0000,0001\n",
            ),
            ("class/dmi/id/sys_vendor", b"Dell Inc.\n"),
            ("class/dmi/id/product_name", b"XPS 8950\n"),
        ]);
        assert_eq!(
            names(dir.path()),
            ["x86,ven0000fam0006mod0097", "Dell Inc. XPS 8950"]
        );
    }

    #[test]
    fn nothing_is_made_up() {
        let half = tree(&[
            ("class/dmi/id/sys_vendor", b"QEMU\n"),
            ("devices/system/cpu/modalias", b"nonsense"),
            ("firmware/devicetree/base/compatible", b"\0\xff\0"),
        ]);
        assert_eq!(names(half.path()), ["\u{fffd}"]);
        assert!(names(Path::new("/nowhere")).is_empty());
    }
}
