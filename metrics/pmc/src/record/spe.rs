//! Sample records of Arm's Statistical Profiling Extension (SPE), as the hardware writes them into
//! memory: packets, of which each begins with a byte or two that say its kind and length.
//!
//! By the Arm Architecture Reference Manual for A-profile (DDI 0487), "Statistical Profiling
//! Extension Sample Record Specification":
//!
//! | first byte | packet | then |
//! |---|---|---|
//! | 0x00 | padding | |
//! | 0x01 | end of a record | |
//! | 0x71 | timestamp, and end of a record | 8 bytes |
//! | 01ss0010 | events | 2^ss bytes |
//! | 01ss0011 | data source | 2^ss bytes |
//! | 011001xx | context | 4 bytes |
//! | 010010xx | operation type, its class in xx | 1 byte |
//! | 10ss0xxx, 10ss1xxx | address, counter: which one in xxx | 2^ss bytes |
//! | 001000xx | two more bits of xxx, or an alignment | a byte as above, or 0x00 |
//!
//! Of records made by hand, and of one that a commit of the kernel shows: no machine that has SPE was
//! at hand.

/// Kinds of things that happened to an operation, which are counted for each function.
pub const OUTCOMES: [(&str, u64); 4] = [
    // the branch went where it was not predicted to go
    ("mispredicted", 1 << 7),
    ("l1d refill", 1 << 3),
    // the architecture leaves to the implementation which cache is the last one
    ("llc miss", 1 << 9),
    // the address translation needed a walk of the page tables
    ("tlb walk", 1 << 5),
];

/// One operation that was sampled.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Operation {
    /// Address of its instruction.
    pub pc: u64,
    /// Whether it was not of user mode: at any exception level but 0.
    pub kernel: bool,
    /// What happened to it, one bit per kind ([`OUTCOMES`]).
    pub events: u64,
}

/// What a stretch of memory held.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Decoded {
    /// Whole records with an address.
    pub operations: u64,
    /// Records that were given up: cut off, without an address of an instruction, or with a packet
    /// that is none.
    pub odd: u64,
}

/// What begins at a place in memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Packet {
    Padding,
    /// End of a record.
    End,
    Events(u64),
    /// Which address, and its value.
    Address(u8, u64),
    /// One of those that are not needed here.
    Other,
    /// Not one of the architecture's.
    Unknown,
}

/// Number of the address that is the instruction's own.
const OF_INSTRUCTION: u8 = 0;
/// An address of code has its security state and exception level in the upper byte.
const ADDRESS: u64 = (1 << 56) - 1;
const EXCEPTION_LEVEL: u32 = 61;
/// The bit of an address that all above it repeat.
const SIGN: u64 = 1 << 55;

/// Bytes behind a header: two of its bits say how many.
fn payload(header: u8) -> usize {
    1 << (header >> 4 & 3)
}

fn number(bytes: &[u8]) -> u64 {
    let bytes = bytes.iter().rev();
    bytes.fold(0, |n, b| n << 8 | u64::from(*b))
}

/// The packet at the beginning of `bytes`, and its length, at least 1; `None` when it is cut off.
/// `at` is where it is in memory, modulo a page.
fn packet(bytes: &[u8], at: u64) -> Option<(Packet, usize)> {
    let first = *bytes.first()?;
    let (extension, header, start) = match first {
        0x00 => return Some((Packet::Padding, 1)),
        0x01 => return Some((Packet::End, 1)),
        // two more bits of the header that follows
        0x20..=0x23 => (first & 3, *bytes.get(1)?, 2),
        _ => (0, first, 1),
    };
    if start == 2 && header == 0 {
        let alignment = 2u64 << (first & 0xf);
        let length = alignment - at % alignment;
        return Some((Packet::Padding, usize::try_from(length).unwrap_or(1)));
    }
    // this class has no length in it, and nothing more is defined
    if header >> 6 == 0 {
        return Some((Packet::Unknown, 1));
    }
    let length = start + payload(header);
    let value = number(bytes.get(start..length)?);
    let is = match (start, header) {
        (1, 0x71) => Packet::End,
        (1, h) if h & 0b1100_1111 == 0x42 => Packet::Events(value),
        (1, h) if h & 0b1100_1111 == 0x43 => Packet::Other,
        (1, 0x64..=0x67 | 0x48..=0x4b) => Packet::Other,
        (_, h) if h & 0b1111_1000 == 0xb0 => Packet::Address(extension << 3 | h & 7, value),
        (_, h) if h & 0b1111_1000 == 0x98 => Packet::Other,
        _ => Packet::Unknown,
    };
    Some((is, length))
}

/// Gives each operation of `bytes` to `found`. `at` is where they begin in the buffer, which is
/// aligned to pages: alignments depend on it.
///
/// Whatever the bytes are, it ends after at most as many steps as there are bytes. A packet that is
/// unknown ends no record, but the record is given up: the bytes may not be what they seem from there
/// on.
pub fn decode(bytes: &[u8], at: u64, mut found: impl FnMut(Operation)) -> Decoded {
    let mut out = Decoded::default();
    // of the record that is being read: its address, its events, whether it has begun, is to be trusted
    let (mut pc, mut events, mut begun, mut whole) = (None, 0, false, true);
    let mut i = 0;
    while let Some(rest) = bytes.get(i..).filter(|r| !r.is_empty()) {
        let Some((packet, length)) = packet(rest, at.wrapping_add(i as u64)) else {
            break;
        };
        i += length;
        begun |= packet != Packet::Padding;
        match packet {
            Packet::Padding | Packet::Other => {}
            Packet::Unknown => whole = false,
            Packet::Events(e) => events = e,
            Packet::Address(OF_INSTRUCTION, address) => pc = Some(address),
            Packet::Address(..) => {}
            Packet::End => {
                match pc.filter(|_| whole) {
                    Some(address) => {
                        out.operations += 1;
                        found(operation(address, events));
                    }
                    None => out.odd += 1,
                }
                (pc, events, begun, whole) = (None, 0, false, true);
            }
        }
    }
    out.odd += u64::from(begun || i < bytes.len());
    out
}

fn operation(address: u64, events: u64) -> Operation {
    let pc = address & ADDRESS;
    Operation {
        // the kernel's addresses begin with ones
        pc: if pc & SIGN == 0 { pc } else { pc | !ADDRESS },
        kernel: address >> EXCEPTION_LEVEL & 3 != 0,
        events,
    }
}

/// Whether bytes hold an operation: for `amp-fuzz`.
pub fn has_operations(bytes: &[u8]) -> bool {
    decode(bytes, 0, |_| ()).operations > 0
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// A packet of an address, by its number.
    fn address(which: u8, value: u64) -> Vec<u8> {
        [&[0xb0 | which][..], &value.to_le_bytes()].concat()
    }

    /// A load in user mode, made by hand from the manual's description, with all kinds of packets.
    fn load(pc: u64, events: u16) -> Vec<u8> {
        [
            vec![0x49, 0x00],             // operation type: load or store; a load
            address(0, pc),               // instruction
            address(2, 0xffff_1234),      // data, virtual
            address(3, 1 << 63 | 0x8000), // data, physical
            vec![0x98, 20, 0],            // counter: total latency
            vec![0x99, 5, 0],             // counter: issue latency
            vec![0x9a, 1, 0],             // counter: translation latency
            vec![0x52, events as u8, (events >> 8) as u8],
            vec![0x43, 0x0d],       // data source
            vec![0x64, 7, 0, 0, 0], // context of EL1
            vec![0x01],             // end
        ]
        .concat()
    }

    fn all(bytes: &[u8], at: u64) -> (Vec<Operation>, Decoded) {
        let mut out = Vec::new();
        let decoded = decode(bytes, at, |o| out.push(o));
        (out, decoded)
    }

    #[test]
    fn an_operation_has_its_address_mode_and_events() {
        let kernel = [
            address(0, 0x20ff_8000_0008_1234),
            vec![0x42, 0x82, 0x71],
            vec![9; 8],
        ]
        .concat();
        let bytes = [load(0x40_1000, 0x20a), vec![0, 0, 0], kernel].concat();
        let (found, decoded) = all(&bytes, 0);
        let user = Operation {
            pc: 0x40_1000,
            kernel: false,
            events: 0x20a,
        };
        let other = Operation {
            pc: 0xffff_8000_0008_1234,
            kernel: true,
            events: 0x82,
        };
        assert_eq!(found, [user, other]);
        assert_eq!(
            decoded,
            Decoded {
                operations: 2,
                odd: 0
            }
        );
        let names = |o: &Operation| {
            let happened = OUTCOMES.iter().filter(|(_, bit)| o.events & bit != 0);
            happened.map(|(name, _)| *name).collect::<Vec<_>>()
        };
        assert_eq!(names(&found[0]), ["l1d refill", "llc miss"]);
        assert_eq!(names(&found[1]), ["mispredicted"]);
    }

    /// A record that is shown in the message of the kernel's commit ffd3d18c20b8 ("perf tools: Add ARM
    /// Statistical Profiling Extensions (SPE) support"), by what machine or model it does not say.
    #[test]
    fn the_record_that_a_commit_of_the_kernel_shows_is_read() {
        let bytes = [
            0x49, 0x00, 0xb2, 0xc0, 0x3b, 0x29, 0x0f, 0x00, 0x00, 0xff, 0xff, 0xb3, 0xc0, 0xeb,
            0x24, 0xfb, 0x00, 0x00, 0x00, 0x80, 0x9a, 0x00, 0x00, 0x42, 0x16, 0xb0, 0x00, 0xc4,
            0x15, 0x08, 0x00, 0x00, 0xff, 0xff, 0x98, 0x00, 0x00, 0x71, 0x36, 0x6c, 0x21, 0x2c,
            0x09, 0x00, 0x00, 0x00,
        ];
        let (found, decoded) = all(&bytes, 0x5c8);
        let expected = Operation {
            pc: 0xffff_0000_0815_c400,
            kernel: true,
            events: 0x16,
        };
        assert_eq!((found.as_slice(), decoded.odd), (&[expected][..], 0));
    }

    #[test]
    fn extended_headers_and_alignments_are_passed_over() {
        // address number 8 and counter number 9 are not defined; their lengths are
        let extended = [vec![0x21, 0xb0], vec![7; 8], vec![0x21, 0x99, 1, 0]].concat();
        // to the next multiple of 16, from offset 3 of the packet
        let aligned = |at: usize| [vec![0x23, 0x00], vec![0xff; 16 - at % 16 - 2]].concat();
        let mut bytes = extended;
        bytes.extend(load(0x1000, 2));
        bytes.extend(aligned(bytes.len() + 5));
        bytes.extend(load(0x2000, 2));
        let (found, decoded) = all(&bytes, 5);
        assert_eq!(
            found.iter().map(|o| o.pc).collect::<Vec<_>>(),
            [0x1000, 0x2000]
        );
        assert_eq!(decoded.odd, 0);
    }

    #[test]
    fn a_record_that_is_odd_is_given_up_and_the_next_one_is_read() {
        let good = load(0x1000, 2);
        for odd in [
            vec![0x01],                                         // no address
            [address(1, 0x2000), vec![0x01]].concat(),          // that of a branch's target only
            [address(0, 0x2000), vec![0x02, 0x01]].concat(),    // no packet
            [address(0, 0x2000), vec![0x80, 7, 0x01]].concat(), // reserved, with a length
        ] {
            let (found, decoded) = all(&[odd.clone(), good.clone()].concat(), 0);
            assert_eq!(found.len(), 1, "{odd:x?}");
            assert_eq!(
                decoded,
                Decoded {
                    operations: 1,
                    odd: 1
                },
                "{odd:x?}"
            );
        }
    }

    #[test]
    fn what_is_cut_off_is_no_operation() {
        let bytes = load(0x1000, 2);
        for cut in 1..bytes.len() {
            let (found, decoded) = all(&bytes[..cut], 0);
            assert!(found.is_empty(), "{cut}");
            assert_eq!(decoded.odd, 1, "{cut}");
        }
        assert_eq!(all(&[], 0).1, Decoded::default());
        assert_eq!(all(&[0; 64], 0).1, Decoded::default());
    }

    proptest! {
        /// A step takes a byte at least, so it ends; what it counts is bounded by the bytes.
        #[test]
        fn no_bytes_make_it_panic_or_loop(bytes in prop::collection::vec(any::<u8>(), 0..400), at: u64) {
            let mut rest = &bytes[..];
            let mut steps = 0u64;
            while let Some((_, length)) = packet(rest, at.wrapping_add(steps)) {
                prop_assert!(length >= 1);
                rest = rest.get(length..).unwrap_or_default();
                steps += 1;
            }
            prop_assert!(steps <= bytes.len() as u64);
            let (found, decoded) = all(&bytes, at);
            prop_assert_eq!(found.len() as u64, decoded.operations);
            prop_assert!(decoded.operations + decoded.odd <= bytes.len() as u64);
        }

        #[test]
        fn records_are_found_whatever_lies_between_them_as_padding(
            records in prop::collection::vec((0u64..1 << 55, any::<u16>(), 0usize..40), 0..20),
        ) {
            let mut bytes = Vec::new();
            for (pc, events, padding) in &records {
                bytes.extend(load(*pc, *events));
                bytes.resize(bytes.len() + padding, 0);
            }
            let (found, decoded) = all(&bytes, 0);
            prop_assert_eq!(decoded.odd, 0);
            let found: Vec<_> = found.iter().map(|o| (o.pc, o.events)).collect();
            let made: Vec<_> = records.iter().map(|r| (r.0, u64::from(r.1))).collect();
            prop_assert_eq!(found, made);
        }

        #[test]
        fn a_changed_byte_costs_few_records(at in 0usize..400, byte: u8) {
            let mut bytes: Vec<u8> = (0..10).flat_map(|i| load(i << 12, 2)).collect();
            let last = bytes.len() - 1;
            bytes[at.min(last)] = byte;
            let (_, decoded) = all(&bytes, 0);
            prop_assert!(decoded.operations >= 7, "{decoded:?}");
        }
    }
}
