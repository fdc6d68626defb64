//! Hearing from BPF which threads have gone.

use crate::shared::{RawEnded, MAX_TYPES};
use libbpf_rs::{MapCore, RingBuffer, RingBufferBuilder};
use std::mem::size_of;
use std::sync::mpsc::{channel, Receiver};

/// A thread that has gone: it has ended, or another scheduling class has it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ended {
    /// Index of the slot it had.
    pub slot: u32,
    /// Use count of the slot while it had it ([`Thread::generation`](crate::Thread::generation)).
    pub generation: u32,
    /// Kernel thread id.
    pub pid: i32,
    /// Process id.
    pub tgid: i32,
    /// Command name, NUL-padded.
    pub comm: [u8; 16],
    /// Hash of the arguments of its process, 0 if not known.
    pub arguments: u64,
    /// CPU time on each core type in ns.
    pub runtime: [u64; MAX_TYPES],
}

/// What BPF has written down of them since it was last read.
pub(crate) struct Endings {
    ring: RingBuffer<'static>,
    heard: Receiver<Ended>,
}

impl Endings {
    pub fn of(map: &dyn MapCore) -> Result<Endings, libbpf_rs::Error> {
        let (tell, heard) = channel();
        let mut ring = RingBufferBuilder::new();
        ring.add(map, move |message| {
            // nobody listens any more: then nobody misses it
            let _ = parse(message).map(|e| tell.send(e));
            0
        })?;
        let ring = ring.build()?;
        Ok(Endings { ring, heard })
    }

    /// Takes all that wait, oldest first.
    pub fn take(&mut self) -> impl Iterator<Item = Ended> + '_ {
        // what cannot be read now is read next time
        let _ = self.ring.consume();
        self.heard.try_iter()
    }
}

fn parse(message: &[u8]) -> Option<Ended> {
    let fits = message.len() == size_of::<RawEnded>();
    // SAFETY: as many bytes as there are in one, and every bit pattern is a valid one.
    let raw = fits.then(|| unsafe { message.as_ptr().cast::<RawEnded>().read_unaligned() })?;
    Some(Ended {
        slot: raw.slot,
        generation: raw.generation,
        pid: raw.pid as i32,
        tgid: raw.tgid as i32,
        comm: raw.comm,
        arguments: raw.arguments,
        runtime: raw.runtime,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_message_is_read_as_bpf_writes_it_and_nothing_else_is() {
        let mut message = Vec::new();
        for n in [7u32, 3, 42, 40] {
            message.extend(n.to_ne_bytes());
        }
        message.extend(*b"make\0\0\0\0\0\0\0\0\0\0\0\0");
        message.extend(99u64.to_ne_bytes());
        for n in 1..=MAX_TYPES as u64 {
            message.extend((n * 1000).to_ne_bytes());
        }
        let e = parse(&message).unwrap();
        assert_eq!((e.slot, e.generation, e.pid, e.tgid), (7, 3, 42, 40));
        assert_eq!((&e.comm[..5], e.runtime[1]), (&b"make\0"[..], 2000));
        assert_eq!(e.arguments, 99);
        assert_eq!(parse(&message[1..]), None);
        message.push(0);
        assert_eq!(parse(&message), None);
    }
}
