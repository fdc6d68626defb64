//! The device tree of a machine, made from QEMU's own `virt` tree.
//!
//! What the kernel's asymmetry-aware code reads: CPU compatibles, `capacity-dmips-mhz`, `cpu-map`
//! clusters, caches, and one PMU node per core type whose per-CPU interrupts tell which CPUs it
//! covers (`interrupt-affinity`).

use crate::error::BoardError;
use crate::fdt::{self, Node};
use amp_machine::frequency::{self, DOMAIN_BYTES, STEP_MHZ};
use amp_machine::{Board, Cache, CoreModel, CoreType, MachineFile, PMU_SPI_BASE};

/// As many CPUs as there are interrupts for their PMUs.
pub const MAX_CPUS: usize = 64;

const LEVEL_HIGH: u32 = 4;

/// Rewrites QEMU's tree for a machine. `seed` are random bytes, as firmware gives a kernel: without
/// them the first program that asks for random numbers computes for seconds until there are some.
/// With `dvfs` the guest can set the clocks of a machine that has operating points.
///
/// # Errors
/// When the tree is not what `virt` gives, or the machine does not suit the board.
pub fn build(
    virt: &[u8],
    machine: &MachineFile,
    seed: &[u8],
    dvfs: bool,
) -> Result<Vec<u8>, BoardError> {
    let bad = |why: String| BoardError::DeviceTree {
        machine: machine.name.clone(),
        why,
    };
    let types = check(machine)?;
    if dvfs && !machine.scales_frequency() {
        return Err(BoardError::MachineUnfit {
            machine: machine.name.clone(),
            why: "its core types have no operating_points, between which `--dvfs` would choose"
                .into(),
        });
    }
    let mut root = fdt::parse(virt).map_err(bad)?;
    let place = |name: &str| {
        let at = root.children.iter().position(|c| c.name == name);
        at.ok_or_else(|| bad(format!("no node {name} in QEMU's tree")))
    };
    let (chosen_at, cpus_at, pmu_at) = (place("chosen")?, place("cpus")?, place("pmu")?);
    root.children[chosen_at].set("rng-seed", seed.to_vec());
    let mut handles = Handles {
        next: root.max_phandle() + 1,
    };
    let cpu_handles: Vec<u32> = (0..machine.nr_cpus()).map(|_| handles.take()).collect();
    let cpus = cpus(&root.children[cpus_at], &types, &cpu_handles, &mut handles).map_err(bad)?;
    root.children[cpus_at] = cpus;
    let pmus: Vec<Node> = types
        .iter()
        .map(|(t, m)| pmu(t, m, &cpu_handles))
        .collect::<Result<_, _>>()
        .map_err(bad)?;
    root.children.splice(pmu_at..=pmu_at, pmus);
    if dvfs {
        let (board, _) = machine.board_models()?;
        clocks(&mut root, board, &types, &mut handles).map_err(bad)?;
    }
    // as real boards name themselves: the machine, then what it is compatible with
    root.set(
        "compatible",
        format!("scx-amp,{}\0linux,dummy-virt\0", machine.name).into_bytes(),
    );
    root.set_str("model", &format!("scx_amp virtual board: {}", machine.name));
    Ok(fdt::write(&root))
}

/// The core types with their models.
pub(crate) fn check(machine: &MachineFile) -> Result<Vec<(&CoreType, &CoreModel)>, BoardError> {
    let (_, models) = machine.board_models()?;
    let n = machine.nr_cpus();
    if n > MAX_CPUS {
        let why = format!("it has {n} CPUs, the board takes at most {MAX_CPUS}");
        return Err(BoardError::MachineUnfit {
            machine: machine.name.clone(),
            why,
        });
    }
    Ok(machine.core_types.iter().zip(models).collect())
}

struct Handles {
    next: u32,
}

impl Handles {
    fn take(&mut self) -> u32 {
        self.next += 1;
        self.next - 1
    }
}

fn handle_of(cpu: u32, handles: &[u32]) -> Result<u32, String> {
    handles
        .get(cpu as usize)
        .copied()
        .ok_or_else(|| format!("CPU {cpu} out of range"))
}

/// The `cpus` node: QEMU's CPU addresses (they skip numbers beyond 16 CPUs) with the machine's
/// properties.
fn cpus(
    virt: &Node,
    types: &[(&CoreType, &CoreModel)],
    handles: &[u32],
    more: &mut Handles,
) -> Result<Node, String> {
    let mut out = Node {
        name: virt.name.clone(),
        ..Node::default()
    };
    out.properties = virt.properties.clone();
    let mut old: Vec<&Node> = virt
        .children
        .iter()
        .filter(|c| c.name.starts_with("cpu@"))
        .collect();
    if old.len() != handles.len() {
        return Err(format!(
            "QEMU's tree has {} CPUs, the machine {}",
            old.len(),
            handles.len()
        ));
    }
    // QEMU writes them last first.
    old.sort_by_key(|c| c.get("reg").map(<[u8]>::to_vec));
    let (mut nodes, mut clusters, mut caches) = (vec![Node::default(); old.len()], vec![], vec![]);
    for (k, (core, model)) in types.iter().enumerate() {
        let l2 = more.take();
        caches.push(l2_cache(k, &model.l2, l2));
        let mut cluster = Node::new(format!("cluster{k}"));
        for (j, cpu) in core.cpus.0.iter().enumerate() {
            let handle = handle_of(*cpu, handles)?;
            let mut node = old
                .get(*cpu as usize)
                .copied()
                .cloned()
                .ok_or("CPU out of range")?;
            node.set_str("compatible", &model.compatible)
                .set_cells("capacity-dmips-mhz", &[core.capacity])
                .set_cells("next-level-cache", &[l2])
                .set_cells("phandle", &[handle]);
            geometry(&mut node, "d-cache", &model.l1d);
            nodes[*cpu as usize] = node;
            let mut entry = Node::new(format!("core{j}"));
            entry.set_cells("cpu", &[handle]);
            cluster.children.push(entry);
        }
        clusters.push(cluster);
    }
    let mut socket = Node::new("socket0");
    socket.children = clusters;
    let mut map = Node::new("cpu-map");
    map.children.push(socket);
    out.children.push(map);
    out.children.extend(nodes);
    out.children.extend(caches);
    Ok(out)
}

/// Tells the kernel that it can set the clocks: the registers, the memory that they lie in, who has
/// which clock, and what the energy model is made from.
fn clocks(
    root: &mut Node,
    board: &Board,
    types: &[(&CoreType, &CoreModel)],
    handles: &mut Handles,
) -> Result<(), String> {
    let wide = |n: u64| [(n >> 32) as u32, n as u32];
    let range = |at: u64, bytes: u64| [wide(at), wide(bytes)].concat();
    let first = frequency::address(board);
    let (xo, hardware) = (handles.take(), handles.take());
    let mut reserved = Node::new("reserved-memory");
    reserved
        .set_cells("#address-cells", &[2])
        .set_cells("#size-cells", &[2])
        .set("ranges", Vec::new());
    let mut registers = Node::new(format!("clocks@{first:x}"));
    registers
        .set_cells("reg", &range(first, frequency::BYTES))
        .set("no-map", Vec::new());
    reserved.children.push(registers);
    let mut reference = Node::new("xo-clock");
    reference
        .set_str("compatible", "fixed-clock")
        .set_cells("#clock-cells", &[0])
        .set_cells("clock-frequency", &[STEP_MHZ * 1_000_000])
        .set_cells("phandle", &[xo]);
    let each: Vec<u32> = (0..types.len() as u64)
        .flat_map(|i| range(first + i * DOMAIN_BYTES, DOMAIN_BYTES))
        .collect();
    let names: Vec<String> = (0..types.len())
        .map(|i| format!("freq-domain{i}\0"))
        .collect();
    let mut device = Node::new(format!("cpufreq@{first:x}"));
    device
        .set_str("compatible", "qcom,cpufreq-hw")
        .set_cells("reg", &each)
        .set("reg-names", names.concat().into_bytes())
        .set_cells("clocks", &[xo, xo])
        .set("clock-names", b"xo\0alternate\0".to_vec())
        .set_cells("#freq-domain-cells", &[1])
        .set_cells("#clock-cells", &[1])
        .set_cells("phandle", &[hardware]);
    root.children.extend([reserved, reference, device]);
    let fastest = types.first().map_or(1, |(_, m)| m.mhz);
    let cpus = root.children.iter_mut().find(|c| c.name == "cpus");
    let nodes = cpus.ok_or("no cpus")?.children.iter_mut();
    let nodes: Vec<&mut Node> = nodes.filter(|c| c.name.starts_with("cpu@")).collect();
    for (cpu, node) in (0..).zip(nodes) {
        let Some((i, (core, model))) = (0..)
            .zip(types)
            .find(|(_, (core, _))| core.cpus.0.contains(&cpu))
        else {
            return Err(format!("CPU {cpu} has no core type"));
        };
        // The kernel multiplies this with the fastest clock; the machine's capacity is the product.
        let per_mhz = u64::from(core.capacity) * u64::from(fastest) / u64::from(model.mhz.max(1));
        node.set_cells("qcom,freq-domain", &[hardware, i])
            .set_cells("capacity-dmips-mhz", &[per_mhz as u32])
            .set_cells(
                "dynamic-power-coefficient",
                &[model.power_coefficient.unwrap_or(0)],
            );
    }
    Ok(())
}

fn geometry(node: &mut Node, prefix: &str, c: &Cache) {
    node.set_cells(
        &format!("{prefix}-size"),
        &[c.size_kib.saturating_mul(1024)],
    )
    .set_cells(&format!("{prefix}-line-size"), &[c.line])
    .set_cells(&format!("{prefix}-sets"), &[c.sets()]);
}

fn l2_cache(k: usize, c: &Cache, handle: u32) -> Node {
    let mut node = Node::new(format!("l2-cache{k}"));
    node.set_str("compatible", "cache")
        .set_cells("cache-level", &[2])
        .set("cache-unified", Vec::new())
        .set_cells("phandle", &[handle]);
    geometry(&mut node, "cache", c);
    node
}

fn pmu(core: &CoreType, model: &CoreModel, handles: &[u32]) -> Result<Node, String> {
    let cpus = &core.cpus.0;
    let mut node = Node::new(format!("pmu-{}", core.name));
    let interrupts: Vec<u32> = cpus
        .iter()
        .flat_map(|c| [0, PMU_SPI_BASE + c, LEVEL_HIGH])
        .collect();
    let affinity: Vec<u32> = cpus
        .iter()
        .map(|c| handle_of(*c, handles))
        .collect::<Result<_, _>>()?;
    node.set_str("compatible", &model.pmu)
        .set_cells("interrupts", &interrupts)
        .set_cells("interrupt-affinity", &affinity);
    Ok(node)
}

#[cfg(test)]
#[path = "devicetree_tests.rs"]
mod tests;
