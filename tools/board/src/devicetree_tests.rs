use super::*;
use crate::fdt::cell;
use proptest::prelude::*;
use std::path::Path;

/// What of QEMU's tree matters here: CPUs listed last first, with the addresses the virt machine
/// gives them (16 per cluster), a PMU node, and phandles in use.
fn virt(cpus: usize) -> Vec<u8> {
    let mut root = Node::new("");
    root.set_cells("interrupt-parent", &[0x8001]);
    let mut parent = Node::new("cpus");
    parent
        .set_cells("#address-cells", &[1])
        .set_cells("#size-cells", &[0]);
    for i in (0..cpus as u32).rev() {
        let mut c = Node::new(format!("cpu@{i:x}"));
        c.set_cells("reg", &[(i / 16) << 8 | (i % 16)])
            .set_str("compatible", "arm,cortex-a57")
            .set_str("enable-method", "psci")
            .set_cells("phandle", &[0x8002 + i]);
        parent.children.push(c);
    }
    let mut gic = Node::new("intc@8000000");
    gic.set_cells("phandle", &[0x8001]);
    let chosen = Node::new("chosen");
    root.children = vec![parent, gic, Node::new("pmu"), Node::new("timer"), chosen];
    fdt::write(&root)
}

/// A machine with one core type per list, built from the shipped juno's models.
fn machine(lists: &[&str]) -> MachineFile {
    let mut m = MachineFile::load("juno").unwrap();
    let model = m.core_types[0].model.clone().unwrap();
    m.core_types = lists
        .iter()
        .enumerate()
        .map(|(k, cpus)| {
            let mut model = model.clone();
            model.pmu = format!("arm,pmu-{k}");
            model.compatible = format!("arm,core-{k}");
            CoreType {
                name: format!("t{k}"),
                cpus: cpus.parse().unwrap(),
                capacity: 1024 >> k,
                model: Some(model),
            }
        })
        .collect();
    m
}

const SEED: [u8; 8] = [7, 6, 5, 4, 3, 2, 1, 0];

fn built(m: &MachineFile) -> Node {
    fdt::parse(&build(&virt(m.nr_cpus()), m, &SEED, false).unwrap()).unwrap()
}

#[test]
fn the_kernel_gets_random_bytes_to_begin_with() {
    let tree = built(&machine(&["0"]));
    assert_eq!(
        tree.child("chosen").unwrap().get("rng-seed"),
        Some(&SEED[..])
    );
}

#[test]
fn clocks_can_be_set_where_that_is_asked_for() {
    let juno = MachineFile::load("juno").unwrap();
    assert!(built(&juno).child("reserved-memory").is_none());
    let tree = fdt::parse(&build(&virt(6), &juno, &SEED, true).unwrap()).unwrap();
    let first = frequency::address(juno.board.as_ref().unwrap());
    let low = first as u32;
    let device = tree.child(&format!("cpufreq@{first:x}")).unwrap();
    let (bytes, next) = (DOMAIN_BYTES as u32, low + DOMAIN_BYTES as u32);
    let high = (first >> 32) as u32;
    assert_eq!(
        cells(device, "reg"),
        [high, low, 0, bytes, high, next, 0, bytes]
    );
    let handle = cells(device, "phandle")[0];
    let reserved = &tree.child("reserved-memory").unwrap().children[0];
    assert_eq!(cells(reserved, "reg")[1], low);
    assert!(reserved.get("no-map").is_some());
    let cpus = tree.child("cpus").unwrap();
    for (cpu, domain, coefficient) in [(0, 0, 560), (1, 0, 560), (2, 1, 109), (5, 1, 109)] {
        let node = cpus.child(&format!("cpu@{cpu}")).unwrap();
        assert_eq!(cells(node, "qcom,freq-domain"), [handle, domain]);
        assert_eq!(cells(node, "dynamic-power-coefficient"), [coefficient]);
    }
    // the kernel multiplies with the fastest clock: 577 * 850 / 1100 = 446
    let per_mhz = |cpu: &str| cells(cpus.child(cpu).unwrap(), "capacity-dmips-mhz")[0];
    assert_eq!((per_mhz("cpu@0"), per_mhz("cpu@2")), (1024, 577));
    let mut without = juno;
    for t in &mut without.core_types {
        t.model.as_mut().unwrap().operating_points.clear();
    }
    let e = build(&virt(6), &without, &SEED, true).unwrap_err();
    assert!(e.to_string().contains("operating_points"), "{e}");
}

#[test]
fn the_tree_says_which_machine_it_is() {
    let tree = built(&machine(&["0-1", "2"]));
    assert_eq!(
        tree.get("compatible").unwrap(),
        b"scx-amp,juno\0linux,dummy-virt\0"
    );
}

fn cells(n: &Node, name: &str) -> Vec<u32> {
    n.get(name)
        .unwrap()
        .chunks(4)
        .map(|c| cell(c).unwrap())
        .collect()
}

fn phandles(n: &Node, out: &mut Vec<u32>) {
    out.extend(n.get("phandle").and_then(cell));
    n.children.iter().for_each(|c| phandles(c, out));
}

/// Everything the kernel relies on, for any machine.
fn check_tree(m: &MachineFile) {
    let t = built(m);
    let mut all = Vec::new();
    phandles(&t, &mut all);
    let n = all.len();
    all.sort_unstable();
    all.dedup();
    assert_eq!(all.len(), n, "phandles are unique");
    let cpus = t.child("cpus").unwrap();
    let nodes: Vec<&Node> = cpus
        .children
        .iter()
        .filter(|c| c.name.starts_with("cpu@"))
        .collect();
    assert_eq!(nodes.len(), m.nr_cpus());
    let clusters = &cpus
        .child("cpu-map")
        .unwrap()
        .child("socket0")
        .unwrap()
        .children;
    for (k, core) in m.core_types.iter().enumerate() {
        let model = core.model.as_ref().unwrap();
        let handles: Vec<u32> = core
            .cpus
            .0
            .iter()
            .map(|c| cells(nodes[*c as usize], "phandle")[0])
            .collect();
        for c in &core.cpus.0 {
            let node = nodes[*c as usize];
            assert_eq!(
                cells(node, "reg"),
                [(c / 16) << 8 | (c % 16)],
                "QEMU's address is kept"
            );
            assert_eq!(cells(node, "capacity-dmips-mhz"), [core.capacity]);
            assert_eq!(
                node.get("compatible").unwrap(),
                [model.compatible.as_bytes(), b"\0"].concat()
            );
            assert_eq!(cells(node, "d-cache-size"), [model.l1d.size_kib * 1024]);
            assert!(node.get("enable-method").is_some());
            let l2 = cpus.child(&format!("l2-cache{k}")).unwrap();
            assert_eq!(cells(node, "next-level-cache"), cells(l2, "phandle"));
        }
        let mapped: Vec<u32> = clusters[k]
            .children
            .iter()
            .map(|c| cells(c, "cpu")[0])
            .collect();
        assert_eq!(mapped, handles);
        let pmu = t.child(&format!("pmu-{}", core.name)).unwrap();
        assert_eq!(cells(pmu, "interrupt-affinity"), handles);
        let spis: Vec<u32> = cells(pmu, "interrupts").chunks(3).map(|i| i[1]).collect();
        let want: Vec<u32> = core.cpus.0.iter().map(|c| PMU_SPI_BASE + c).collect();
        assert_eq!(spis, want);
        assert!(spis.iter().all(|s| *s < 256));
    }
    assert!(t.child("pmu").is_none() && t.child("timer").is_some());
}

#[test]
fn shipped_machines_have_a_tree() {
    for name in amp_machine::SHIPPED {
        let m = MachineFile::load(name).unwrap();
        if m.board.is_some() {
            check_tree(&m);
        }
    }
}

#[test]
fn three_types_in_mixed_order_and_64_cpus() {
    check_tree(&machine(&["3,7", "0-2", "4-6"]));
    check_tree(&machine(&["1-63", "0"]));
}

#[test]
fn too_many_cpus_and_foreign_trees_are_errors() {
    let e = build(&virt(65), &machine(&["0-64"]), &SEED, false)
        .unwrap_err()
        .to_string();
    assert!(e.contains("65 CPUs"), "{e}");
    let e = build(&virt(3), &machine(&["0-5"]), &SEED, false)
        .unwrap_err()
        .to_string();
    assert!(e.contains("3 CPUs"), "{e}");
    assert!(build(b"junk", &machine(&["0"]), &SEED, false).is_err());
    assert!(build(&fdt::write(&Node::new("")), &machine(&["0"]), &SEED, false).is_err());
}

#[test]
fn a_machine_that_is_only_simulated_is_refused() {
    let text = "name = \"x\"\n[[core_type]]\nname = \"a\"\ncpus = \"0\"\ncapacity = 1024\n";
    let m = MachineFile::parse(Path::new("x.toml"), text).unwrap();
    assert!(check(&m).unwrap_err().to_string().contains('x'));
}

proptest! {
    #[test]
    fn any_assignment_of_cpus_to_types(owner in prop::collection::vec(0usize..4, 4..64)) {
        let mut owner = owner;
        // Each type has a CPU.
        owner[..4].copy_from_slice(&[0, 1, 2, 3]);
        let lists: Vec<String> = (0..4)
            .map(|k| {
                let mine = owner.iter().enumerate().filter(|(_, o)| **o == k);
                mine.map(|(i, _)| i.to_string()).collect::<Vec<_>>().join(",")
            })
            .collect();
        check_tree(&machine(&lists.iter().map(String::as_str).collect::<Vec<_>>()));
    }
}
