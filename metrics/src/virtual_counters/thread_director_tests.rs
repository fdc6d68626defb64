use super::*;
use netlink_packet_core::{DefaultNla, Emitable};
use proptest::prelude::*;
use std::collections::VecDeque;

const THERMAL: u16 = 0x1c;

/// Somebody who sends what the kernel would.
struct Sender(VecDeque<Vec<u8>>);

impl Messages for Sender {
    fn next(&mut self) -> io::Result<Option<Vec<u8>>> {
        Ok(self.0.pop_front())
    }
}

fn number(kind: u16, n: u32) -> DefaultNla {
    DefaultNla::new(kind, n.to_ne_bytes().to_vec())
}

fn bytes(nlas: &[DefaultNla]) -> Vec<u8> {
    let mut out = vec![0; nlas.buffer_len()];
    nlas.emit(&mut out);
    out
}

fn message(family: u16, command: u8, attributes: &[u8]) -> Vec<u8> {
    let length = (16 + GENL_HEADER + attributes.len()) as u32;
    let mut m = length.to_ne_bytes().to_vec();
    m.extend(family.to_ne_bytes());
    m.extend([0; 10]);
    m.extend([command, 1, 0, 0]);
    m.extend(attributes);
    m
}

/// A change as `intel_hfi` makes it: CPU, performance, efficiency.
fn change(cpus: &[[u32; 3]]) -> Vec<u8> {
    let each = |c: &[u32; 3]| {
        [
            number(ID, c[0]),
            number(PERFORMANCE, c[1]),
            number(EFFICIENCY, c[2]),
        ]
    };
    let inner: Vec<DefaultNla> = cpus.iter().flat_map(each).collect();
    let outer = DefaultNla::new(CAPABILITY, bytes(&inner));
    message(THERMAL, CAPABILITY_CHANGE, &bytes(&[outer]))
}

fn source(messages: Vec<Vec<u8>>) -> ThreadDirector {
    let cpus = vec![vec![0, 1], vec![2, 3]];
    ThreadDirector::of(Box::new(Sender(messages.into())), THERMAL, cpus)
}

/// A second after the last look.
fn levels(s: &mut ThreadDirector, counter: VirtualCounter) -> Vec<(u8, f64)> {
    let mut out = Vec::new();
    let now = s
        .listened
        .map_or(Nanos::ZERO, |at| at + Nanos::from_millis(1000));
    s.sample(now, &[], &mut out).unwrap();
    let of = |r: &VirtualReading| match r.of {
        Subject::CoreType(t) if r.counter == counter => Some((t.0, r.value)),
        _ => None,
    };
    out.iter().filter_map(of).collect()
}

#[test]
fn a_message_says_what_each_cpu_can_do() {
    let said = capabilities(&change(&[[0, 1023, 400], [17, 500, 1020]]), THERMAL).unwrap();
    let expected =
        [(0, 1023, 400), (17, 500, 1020)].map(|(cpu, performance, efficiency)| Capability {
            cpu,
            performance,
            efficiency,
        });
    assert_eq!(said, expected);
    // another family, and another event of this one
    assert_eq!(
        capabilities(&message(THERMAL + 1, 14, &[]), THERMAL),
        Ok(vec![])
    );
    assert_eq!(
        capabilities(&message(THERMAL, 5, &[1, 2, 3]), THERMAL),
        Ok(vec![])
    );
}

#[test]
fn core_types_have_the_mean_of_their_cpus_from_the_next_sample_on() {
    let mut s = source(vec![change(&[
        [0, 1023, 100],
        [2, 341, 1023],
        [3, 341, 1023],
    ])]);
    let performance = levels(&mut s, VirtualCounter::Performance);
    assert_eq!(performance.len(), 2);
    assert_eq!(performance[0], (0, 1.0));
    assert!((performance[1].1 - 1.0 / 3.0).abs() < 1e-9);
    assert_eq!(levels(&mut s, VirtualCounter::Efficiency)[1], (1, 1.0));
    // a change of one CPU leaves the others as they were
    s.messages = Box::new(Sender([change(&[[1, 341, 0]])].into()));
    let performance = levels(&mut s, VirtualCounter::Performance);
    assert!((performance[0].1 - 2.0 / 3.0).abs() < 1e-9);
}

/// Both capabilities of both core types, by type.
fn both(s: &mut ThreadDirector) -> [Vec<(u8, f64)>; 2] {
    let performance = levels(s, VirtualCounter::Performance);
    [performance, levels(s, VirtualCounter::Efficiency)]
}

/// 0 is a recommendation to leave a CPU alone, not a measure of it.
#[test]
fn a_cpu_that_is_rated_0_is_left_out_of_the_mean() {
    let mut s = source(vec![change(&[[0, 1023, 0], [1, 0, 341], [2, 341, 682]])]);
    let rated = [
        vec![(0, 1.0), (1, 1.0 / 3.0)],
        vec![(0, 1.0 / 3.0), (1, 2.0 / 3.0)],
    ];
    assert_eq!(both(&mut s), rated);
    assert_eq!(s.logged, CoreTypeSet::EMPTY);
}

#[test]
fn a_core_type_whose_cpus_are_all_rated_0_keeps_its_last_rating() {
    let mut s = source(vec![change(&[
        [0, 1023, 341],
        [1, 1023, 341],
        [2, 341, 1023],
        [3, 341, 1023],
    ])]);
    let before = both(&mut s);
    s.messages = Box::new(Sender([change(&[[2, 0, 0], [3, 0, 0]])].into()));
    assert_eq!(both(&mut s), before);
    assert_eq!(s.logged, CoreTypeSet::EMPTY.with(CoreTypeId(1)), "once");
    // every CPU of the machine, and then they are wanted again
    s.messages = Box::new(Sender([change(&[[0, 0, 0], [1, 0, 0]])].into()));
    assert_eq!(both(&mut s), before);
    s.messages = Box::new(Sender([change(&[[3, 682, 682]])].into()));
    assert_eq!(both(&mut s)[0], [(0, 1.0), (1, 2.0 / 3.0)]);
}

/// As Meteor Lake's low-power cores are in [intel-lpmd #37](https://github.com/intel/intel-lpmd/issues/37).
#[test]
fn nothing_is_said_of_a_core_type_that_was_never_rated_but_0() {
    let mut s = source(vec![change(&[[0, 1023, 341], [2, 0, 0], [3, 0, 0]])]);
    assert_eq!(both(&mut s), [vec![(0, 1.0)], vec![(0, 1.0 / 3.0)]]);
    let text = unrated(CoreTypeId(1), false);
    assert!(
        text.contains("core type 1") && text.contains("no rating"),
        "{text}"
    );
    assert!(unrated(CoreTypeId(0), true).contains("the last rating holds"));
}

#[test]
fn nothing_is_said_of_whom_nothing_was_heard() {
    let mut s = source(vec![]);
    assert!(levels(&mut s, VirtualCounter::Performance).is_empty());
    // CPUs that are no core type's, and one that cannot be
    s.messages = Box::new(Sender([change(&[[9, 1, 1], [u32::MAX, 1, 1]])].into()));
    assert!(levels(&mut s, VirtualCounter::Performance).is_empty());
    assert_eq!(s.now.len(), 10);
}

#[test]
fn a_message_that_is_wrong_is_refused_whole_and_nothing_is_lost() {
    let inner = |n: &[DefaultNla]| {
        let outer = DefaultNla::new(CAPABILITY, bytes(n));
        message(THERMAL, CAPABILITY_CHANGE, &bytes(&[outer]))
    };
    let one = [number(ID, 0), number(PERFORMANCE, 7), number(EFFICIENCY, 7)];
    let mut cut = change(&[[0, 7, 7]]);
    cut.truncate(cut.len() - 6);
    for (bad, why) in [
        (
            inner(&[one[0].clone(), one[1].clone()]),
            "without all of number",
        ),
        (
            inner(&[one[0].clone(), number(PERFORMANCE, 1024)]),
            "attribute 22 is 1024",
        ),
        (inner(&[one[0].clone(), one[0].clone()]), "twice"),
        (
            inner(&[DefaultNla::new(ID, vec![0; 8])]),
            "8 bytes in place of 4",
        ),
        (cut, ""),
        (message(THERMAL, CAPABILITY_CHANGE, &[9, 0, 20, 0, 1]), ""),
        (vec![1, 2, 3], ""),
    ] {
        let said = capabilities(&bad, THERMAL).unwrap_err();
        assert!(said.contains(why), "{said}: {why}");
        // what was known before and what comes after holds
        let mut s = source(vec![change(&[[0, 1023, 9]]), bad, change(&[[2, 1023, 9]])]);
        let performance = levels(&mut s, VirtualCounter::Performance);
        assert_eq!(performance, [(0, 1.0), (1, 1.0)]);
    }
}

#[test]
fn who_has_never_said_anything_is_listened_to_now_and_then() {
    let mut s = source(vec![]);
    let heard = |s: &mut ThreadDirector, ms| {
        let mut out = Vec::new();
        s.sample(Nanos::from_millis(ms), &[], &mut out).unwrap();
        out.iter().map(|r| r.value * 1023.0).map(f64::round).next()
    };
    assert_eq!(heard(&mut s, 0), None);
    s.messages = Box::new(Sender([change(&[[0, 7, 7]])].into()));
    assert_eq!(heard(&mut s, 100), None);
    assert_eq!(heard(&mut s, 500), Some(7.0));
    // from then on in every interval
    s.messages = Box::new(Sender([change(&[[0, 8, 8]])].into()));
    assert_eq!(heard(&mut s, 501), Some(8.0));
}

/// Somebody who sends and sends what is not the kernel's.
struct Flood(usize);

impl Messages for Flood {
    fn next(&mut self) -> io::Result<Option<Vec<u8>>> {
        self.0 += 1;
        assert!(self.0 <= MESSAGES, "read without end");
        Ok(Some(Vec::new()))
    }
}

#[test]
fn a_flood_of_what_is_not_the_kernels_ends_with_the_interval() {
    let mut s = ThreadDirector::of(Box::new(Flood(0)), THERMAL, vec![vec![0]]);
    assert!(levels(&mut s, VirtualCounter::Performance).is_empty());
    assert!(!s.heard);
}

#[test]
fn a_flood_is_read_by_parts() {
    let flood = (0..200u32).map(|i| change(&[[0, i, i]])).collect();
    let mut s = source(flood);
    for expected in [63, 127, 191, 199, 199] {
        let level = levels(&mut s, VirtualCounter::Performance)[0].1;
        assert!(
            (level * 1023.0 - f64::from(expected)).abs() < 1e-6,
            "{level}"
        );
    }
}

#[test]
fn this_machines_kernel_is_listened_to_or_it_is_told_why_not() {
    match ThreadDirector::open(vec![vec![0]]) {
        Ok(mut s) => assert!(s.sample(Nanos::ZERO, &[], &mut Vec::new()).is_ok()),
        Err(e) => {
            let e = e.to_string();
            assert!(e.starts_with("thread-director: none here ("), "{e}");
        }
    }
}

/// Whoever has CAP_NET_ADMIN can send to the group.
#[test]
fn what_is_not_the_kernels_word_is_not_believed() {
    let told = |e: &dyn std::fmt::Display| amp_skips::skip(&e.to_string());
    let mut director = match ThreadDirector::open(vec![vec![0]]) {
        Ok(d) => d,
        Err(e) => return told(&e),
    };
    let mut forger = Socket::new(NETLINK_GENERIC).unwrap();
    forger.bind_auto().unwrap();
    let (family, group) = ask(&forger).unwrap();
    let mut witness = Socket::new(NETLINK_GENERIC).unwrap();
    witness.bind_auto().unwrap();
    witness.set_non_blocking(true).unwrap();
    witness.add_membership(group).unwrap();
    let mut forged = change(&[[0, 1, 1]]);
    forged[4..6].copy_from_slice(&family.to_ne_bytes());
    let Some(groups) = 1u32.checked_shl(group - 1) else {
        return told(&"the group's number is above 32: nobody can send to it");
    };
    if let Err(e) = forger.send_to(&forged, &SocketAddr::new(0, groups), 0) {
        return told(&format!("sending to the group: {e}"));
    }
    let (heard, from) = witness.recv_from_full().unwrap();
    assert_eq!((heard, from.port_number() != 0), (forged, true));
    assert!(levels(&mut director, VirtualCounter::Performance).is_empty());
}

proptest! {
    #[test]
    fn no_bytes_make_it_panic(bytes in prop::collection::vec(any::<u8>(), 0..200)) {
        let _ = capabilities(&bytes, THERMAL);
        let _ = family(&bytes);
    }

    #[test]
    fn nor_does_a_message_with_a_byte_changed(at in 0usize..60, byte: u8) {
        let mut m = change(&[[0, 1, 2], [3, 4, 5]]);
        if let Some(b) = m.get_mut(at) {
            *b = byte;
        }
        if let Ok(said) = capabilities(&m, THERMAL) {
            prop_assert!(said.iter().all(|c| c.performance <= MOST && c.efficiency <= MOST));
        }
    }
}
