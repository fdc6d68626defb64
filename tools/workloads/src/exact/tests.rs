//! Expectations by hand, and that every kernel runs.

use super::*;

const CACHES: Caches = Caches {
    l1: 32 << 10,
    l2: 1 << 20,
    last: 2 << 20,
};

fn count(k: &Kernel, q: Quantity) -> f64 {
    k.expected(q).unwrap().count
}

#[test]
fn footprints_fit_what_they_are_named_after() {
    assert_eq!(CACHES.footprint(Level::L1), 16 << 10);
    assert_eq!(CACHES.footprint(Level::L2), 256 << 10);
    assert_eq!(CACHES.footprint(Level::Memory), 16 << 20);
    let small = Caches {
        l2: 64 << 10,
        last: 1 << 30,
        ..CACHES
    };
    assert_eq!(small.footprint(Level::L2), 128 << 10);
    assert_eq!(small.footprint(Level::Memory), Caches::MOST);
}

#[test]
fn stores_copies_and_triads_write_what_they_should() {
    let lines = 5;
    let mut data = vec![Line([7; 8]); 4 * (lines + SHIFT)];
    let at = |i: usize| i * (lines + SHIFT);
    streams::walk(Traffic::Store, &mut data, lines, 2);
    // a store writes the lines that are left
    assert_eq!(
        (data[0].0[0], data[lines - 1].0[7], data[lines].0[0]),
        (5, 1, 7)
    );
    for i in 0..lines {
        data[at(1) + i].0 = [2.0f64.to_bits() + i as u64; 8];
        data[at(2) + i].0 = [6.0f64.to_bits(); 8];
    }
    streams::walk(Traffic::Copy, &mut data, lines, 1);
    assert_eq!(data[4].0[7], 2.0f64.to_bits() + 4);
    streams::walk(Traffic::Triad, &mut data, lines, 3);
    assert_eq!(f64::from_bits(data[0].0[0]), 5.0);
    assert_eq!((data[lines].0[7], data[at(1) - 1].0[0]), (7, 7));
    for i in 0..lines {
        data[at(1) + i].0 = [2.0f64.to_bits(); 8];
        data[at(3) + i].0 = [0.25f64.to_bits(); 8];
    }
    streams::walk(Traffic::VectorTriad, &mut data, lines, 2);
    let all = data[..lines].iter().flat_map(|l| l.0);
    assert!(all.map(f64::from_bits).all(|v| v == 3.5));
    assert_eq!((data[lines].0[7], data[at(1) - 1].0[0]), (7, 7));
    streams::walk(Traffic::Dot, &mut data, lines, 2);
    assert_eq!(
        f64::from_bits(data[0].0[0]),
        3.5,
        "a dot product writes nothing"
    );
    data[0].0[0] = 5.0f64.to_bits();
    // too little memory is not touched
    streams::walk(Traffic::Store, &mut data[..lines - 1], lines, 1);
    assert_eq!(f64::from_bits(data[0].0[0]), 5.0);
}

#[test]
fn expectations_by_hand() {
    let k = Kernel::stream(Traffic::Triad, Level::Memory, &CACHES, 1);
    let lines = ((16 << 20) / 64 / 3) as f64;
    assert_eq!(count(&k, Quantity::Loads), 16.0 * lines);
    assert_eq!(count(&k, Quantity::Stores), 8.0 * lines);
    assert_eq!(count(&k, Quantity::L2Refills), 3.0 * lines);
    assert_eq!(count(&k, Quantity::Instructions), 37.0 * lines + 6.0);
    assert_eq!(k.expected(Quantity::L2Accesses), None);
    let k = Kernel::stream(Traffic::Load, Level::L1, &CACHES, 20_000);
    // 256 lines of 8 loads, ten passes
    assert_eq!(count(&k, Quantity::Accesses), 20_480.0);
    assert_eq!(count(&k, Quantity::Branches), 2570.0);
    assert_eq!(count(&k, Quantity::L1Refills), 0.0);
    // lines of another, and the few of the caller that they push out of L1
    let k = Kernel::handoff(true, &CACHES, || {});
    let refills = k.expected(Quantity::L1Refills).unwrap();
    assert_eq!((refills.count, refills.tolerance), (4096.0, 16.0));
    let k = Kernel::nops(10);
    assert_eq!(count(&k, Quantity::Instructions), 640.0);
    let k = Kernel::random_branches(1000, 1);
    assert_eq!(count(&k, Quantity::Branches), 1025.0);
    assert_eq!(count(&k, Quantity::Mispredicts), 512.0);
}

#[test]
fn every_kernel_runs() {
    let tiny = Caches {
        l1: 1 << 10,
        l2: 8 << 10,
        last: 8 << 10,
    };
    let mut all = vec![Kernel::nops(0), Kernel::random_branches(0, 1)];
    for t in Traffic::ALL {
        for l in Level::ALL {
            all.push(Kernel::stream(t, l, &tiny, 100_000));
        }
    }
    for first in [true, false] {
        for l in [Level::L1, Level::L2] {
            all.extend(Kernel::triangle(first, l, &tiny, 100_000, || {}));
        }
        all.push(Kernel::handoff(first, &tiny, || {}));
    }
    assert!(Kernel::triangle(true, Level::Memory, &tiny, 1, || {}).is_none());
    for k in &mut all {
        k.prepare();
        k.run();
        assert!(count(k, Quantity::Instructions) >= 64.0, "{}", k.name);
    }
    for q in Quantity::ALL {
        assert_eq!(Quantity::by_name(q.name()), Some(q));
        assert!(all
            .iter()
            .any(|k| k.expected(q).is_some_and(|e| e.count > 0.0)));
    }
}

#[test]
fn floating_point_is_in_the_kernels_that_calculate() {
    let each = if cfg!(target_arch = "x86_64") { 2 } else { 1 };
    let fp = |traffic| Kernel::stream(traffic, Level::L1, &CACHES, 4000).floating_point();
    let triad = Kernel::stream(Traffic::Triad, Level::L1, &CACHES, 4000);
    let stores = count(&triad, Quantity::Stores) as u64;
    assert_eq!(triad.floating_point(), Some(each * stores));
    assert_eq!(fp(Traffic::Copy), Some(0));
    assert_eq!(Kernel::nops(5).floating_point(), Some(0));
    let half = Kernel::triangle(true, Level::L1, &CACHES, 4000, || {});
    assert_eq!(half.unwrap().floating_point(), None);
}
