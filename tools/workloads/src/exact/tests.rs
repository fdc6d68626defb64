//! Expectations by hand, and that every kernel runs.

use super::*;

const CACHES: Caches = Caches {
    l1: 32 << 10,
    l2: 1 << 20,
    l3: None,
    last: 2 << 20,
};
const WITH_L3: Caches = Caches {
    l3: Some(16 << 20),
    last: 16 << 20,
    ..CACHES
};

fn count(k: &Kernel, q: Quantity) -> f64 {
    k.expected(q).unwrap().count
}

#[test]
fn footprints_fit_what_they_are_named_after() {
    assert_eq!(CACHES.footprint(Level::L1), Some(16 << 10));
    assert_eq!(CACHES.footprint(Level::L2), Some(256 << 10));
    assert_eq!(CACHES.footprint(Level::L3), None);
    assert_eq!(CACHES.footprint(Level::Memory), Some(16 << 20));
    assert_eq!(WITH_L3.footprint(Level::L3), Some(4 << 20));
    assert_eq!(WITH_L3.footprint(Level::Memory), Some(128 << 20));
    // half of it is not four times an L2
    let shallow = Caches {
        l3: Some(6 << 20),
        ..CACHES
    };
    assert_eq!(shallow.footprint(Level::L3), None);
    assert_eq!(shallow.levels().count(), 3);
    assert_eq!(WITH_L3.levels().count(), 4);
    let small = Caches {
        l2: 64 << 10,
        last: 1 << 30,
        ..CACHES
    };
    assert_eq!(small.footprint(Level::L2), Some(128 << 10));
    assert_eq!(small.footprint(Level::Memory), Some(Caches::MOST));
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
    let stream = |traffic, level, accesses| {
        Kernel::stream(traffic, level, &CACHES, accesses).expect("a level that is there")
    };
    let k = stream(Traffic::Triad, Level::Memory, 1);
    let lines = ((16 << 20) / 64 / 3) as f64;
    assert_eq!(count(&k, Quantity::Loads), 16.0 * lines);
    assert_eq!(count(&k, Quantity::Stores), 8.0 * lines);
    assert_eq!(count(&k, Quantity::L2Refills), 3.0 * lines);
    assert_eq!(count(&k, Quantity::Instructions), 37.0 * lines + 6.0);
    assert_eq!(k.expected(Quantity::L2Accesses), None);
    let k = stream(Traffic::Load, Level::L1, 20_000);
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
        l3: Some(64 << 10),
        last: 64 << 10,
    };
    let mut all = vec![Kernel::nops(0), Kernel::random_branches(0, 1)];
    for t in Traffic::ALL {
        for l in Level::ALL {
            all.extend(Kernel::stream(t, l, &tiny, 100_000));
        }
    }
    for first in [true, false] {
        for l in [Level::L1, Level::L2] {
            all.extend(Kernel::triangle(first, l, &tiny, 100_000, || {}));
        }
        all.push(Kernel::handoff(first, &tiny, || {}));
    }
    assert!(Kernel::triangle(true, Level::Memory, &tiny, 1, || {}).is_none());
    for abreast in [false, true] {
        all.push(Kernel::additions(1, abreast, Some(AdditionCost::ONE)));
    }
    all.extend(
        Arithmetic::ALL
            .into_iter()
            .filter_map(|a| Kernel::float(a, 1)),
    );
    all.extend(Reach::ALL.into_iter().filter_map(|r| Kernel::pages(r, 64)));
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
    let each = if cfg!(target_arch = "x86_64") {
        2.0
    } else {
        1.0
    };
    let of = |traffic, q| {
        let k = Kernel::stream(traffic, Level::L1, &CACHES, 4000);
        count(&k.expect("L1"), q)
    };
    let elements = of(Traffic::Triad, Quantity::Stores);
    let counts = Quantity::FLOATING_POINT.map(|q| of(Traffic::Triad, q));
    let both = 2.0 * elements;
    assert_eq!(counts, [each * elements, both, 0.0, both]);
    assert_eq!(
        Quantity::FLOATING_POINT.map(|q| of(Traffic::Copy, q)),
        [0.0; 4]
    );
    assert_eq!(
        Quantity::FLOATING_POINT.map(|q| count(&Kernel::nops(5), q)),
        [0.0; 4]
    );
    let half = Kernel::triangle(true, Level::L1, &CACHES, 4000, || {}).expect("L1");
    assert_eq!(half.expected(Quantity::FloatingPoint), None);
    // of each element of the matrix, which is loaded with one of the vector
    assert_eq!(count(&half, Quantity::Flops), count(&half, Quantity::Loads));
    let counts = |kind| {
        let k = Kernel::float(kind, 1000)?;
        Some(Quantity::FLOATING_POINT.map(|q| k.expected(q).map(|e| e.count)))
    };
    let n = Some(1024.0);
    assert_eq!(counts(Arithmetic::Scalar), Some([n, n, Some(0.0), n]));
    let twice = Some(2048.0);
    if let Some(fused) = counts(Arithmetic::Fused) {
        assert_eq!(fused, [n, twice, Some(0.0), twice]);
    }
    assert_eq!(
        counts(Arithmetic::Vector),
        Some([None, Some(0.0), n, twice])
    );
}

#[test]
fn cycles_are_those_of_the_longest_chain() {
    let cycles = |abreast, cost| Kernel::additions(5000, abreast, cost).expected(Quantity::Cycles);
    let e = cycles(false, Some(AdditionCost::ONE)).expect("known");
    // five rounds of 1024
    assert_eq!((e.count, e.tolerance), (5120.0, 74.0));
    let e = cycles(true, Some(AdditionCost::ONE)).expect("known");
    assert_eq!(e.count, 2560.0);
    let board = AdditionCost {
        in_chain: 0.5,
        of_pair: 0.75,
    };
    assert_eq!(cycles(false, Some(board)).map(|e| e.count), Some(2560.0));
    assert_eq!(cycles(true, Some(board)).map(|e| e.count), Some(1920.0));
    assert_eq!(cycles(true, None), None);
    // no other kernel says anything of cycles
    assert_eq!(Kernel::nops(9).expected(Quantity::Cycles), None);
}

#[test]
fn l3_and_memory_by_hand() {
    let of = |caches: &Caches, traffic, level| {
        let k = Kernel::stream(traffic, level, caches, 1).expect("a level that is there");
        let e = |q| k.expected(q).map(|e| e.count);
        Quantity::BEYOND_L2.map(e)
    };
    let lines = |bytes: u64, arrays: u64| Some((bytes / 64 / arrays * arrays) as f64);
    let none = Some(0.0);
    let l3 = lines(4 << 20, 1);
    assert_eq!(
        of(&WITH_L3, Traffic::Load, Level::L3),
        [l3, none, none, none, none]
    );
    let all = lines(128 << 20, 1);
    assert_eq!(
        of(&WITH_L3, Traffic::Load, Level::Memory),
        [all, all, all, all, none]
    );
    // what is stored to comes in, and leaves; L3 may be asked for it once or twice
    let (both, one) = (lines(128 << 20, 2), lines(64 << 20, 1));
    assert_eq!(
        of(&WITH_L3, Traffic::Copy, Level::Memory),
        [None, both, None, both, one]
    );
    assert_eq!(of(&WITH_L3, Traffic::Load, Level::L2), [none; 5]);
    // without an L3 there is nothing to say of it, and memory comes after L2
    let all = lines(16 << 20, 1);
    assert_eq!(
        of(&CACHES, Traffic::Load, Level::Memory),
        [None, None, None, all, none]
    );
    let k = Kernel::stream(Traffic::Load, Level::L3, &WITH_L3, 1).expect("L3");
    assert_eq!(Some(count(&k, Quantity::L2Refills)), l3);
    assert!(Kernel::stream(Traffic::Load, Level::L3, &CACHES, 1).is_none());
    // data of 256 MiB does not drive everything out of 64 MiB
    let large = Caches {
        l3: Some(64 << 20),
        last: 64 << 20,
        ..CACHES
    };
    assert_eq!(
        of(&large, Traffic::Load, Level::Memory),
        [lines(256 << 20, 1), None, None, None, None]
    );
}

#[test]
fn translations_by_hand() {
    let of = |reach| {
        let k = Kernel::pages(reach, 1000).expect("pages");
        let e = |q| k.expected(q).map(|e| e.count);
        (count(&k, Quantity::Loads), Quantity::DTLB.map(e))
    };
    let none = Some(0.0);
    assert_eq!(of(Reach::Few), (1000.0, [none; 3]));
    // four times 256: more than the first TLB has, fewer than the second
    assert_eq!(of(Reach::Some), (1024.0, [None, Some(1024.0), none]));
    assert_eq!(of(Reach::Many), (32768.0, [Some(32768.0); 3]));
    let k = Kernel::pages(Reach::Few, 1).expect("pages");
    assert_eq!(
        k.addresses().map(|a| a.len()),
        Some(4 * rustix::param::page_size())
    );
    assert_eq!(count(&k, Quantity::Loads), 8.0);
    assert_eq!(Kernel::nops(1).addresses(), None);
}
