//! How results leave a guest that has no disk and no network: a memory the guest sees as a PCI
//! device.
//!
//! The host makes a file of [`SIZE`] bytes with a [`Header`] whose `state` is [`EMPTY`] and gives
//! it to QEMU as an `ivshmem-plain` device. The agent in the guest maps BAR 2 of the ivshmem device
//! whose memory begins with [`MAGIC`], writes a tar archive behind the header, then the header. The
//! host reads the file after QEMU has ended.
//!
//! | offset | type | what |
//! |---|---|---|
//! | 0 | `[u8; 8]` | [`MAGIC`] |
//! | 8 | u32 LE | layout version, [`VERSION`] |
//! | 12 | u32 LE | state: [`EMPTY`], [`DONE`] or [`FAILED`] |
//! | 16 | i32 LE | exit code of the script; 128+n when signal n ended it |
//! | 24 | u64 LE | length of the tar archive, or of the message when `FAILED` |
//! | 32 | u64 LE | FNV-1a of those bytes |
//! | 4096 | bytes | tar archive, or the agent's message |

/// Size of the memory.
pub const SIZE: usize = 64 << 20;
/// Where the payload begins.
pub const PAYLOAD_AT: usize = 4096;
/// First bytes.
pub const MAGIC: [u8; 8] = *b"AMPMBOX1";
/// Version of the layout.
pub const VERSION: u32 = 1;
/// Nothing was written yet.
pub const EMPTY: u32 = 0;
/// The script ended; the payload is the archive of what was collected.
pub const DONE: u32 = 1;
/// The agent could not do its work; the payload is its message.
pub const FAILED: u32 = 2;

/// Members of the archive that the agent adds by itself begin with this.
pub const OWN: &str = ".amp/";
/// The guest's kernel log.
pub const KERNEL_LOG: &str = ".amp/kernel.log";
/// Files that were to be collected and are not there, one per line.
pub const MISSING: &str = ".amp/missing";

/// What stands in front of the payload.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Header {
    /// [`EMPTY`], [`DONE`] or [`FAILED`].
    pub state: u32,
    /// Exit code of the script.
    pub exit_code: i32,
    /// Length of the payload in bytes.
    pub length: u64,
    /// FNV-1a of the payload.
    pub hash: u64,
}

impl Header {
    /// The header of a fresh mailbox.
    pub const fn empty() -> Header {
        Header {
            state: EMPTY,
            exit_code: 0,
            length: 0,
            hash: 0,
        }
    }

    /// A header for a payload.
    pub fn of(state: u32, exit_code: i32, payload: &[u8]) -> Header {
        Header {
            state,
            exit_code,
            length: payload.len() as u64,
            hash: fnv1a(payload),
        }
    }

    /// Its bytes.
    pub fn to_bytes(self) -> [u8; 40] {
        let mut b = [0; 40];
        b[..8].copy_from_slice(&MAGIC);
        b[8..12].copy_from_slice(&VERSION.to_le_bytes());
        b[12..16].copy_from_slice(&self.state.to_le_bytes());
        b[16..20].copy_from_slice(&self.exit_code.to_le_bytes());
        b[24..32].copy_from_slice(&self.length.to_le_bytes());
        b[32..40].copy_from_slice(&self.hash.to_le_bytes());
        b
    }

    /// Reads it.
    ///
    /// # Errors
    /// When magic or version differ.
    pub fn from_bytes(d: &[u8]) -> Result<Header, String> {
        fn take<const N: usize>(d: &[u8], at: usize) -> Result<[u8; N], String> {
            let b = d.get(at..at + N).and_then(|b| b.try_into().ok());
            b.ok_or_else(|| "the mailbox is cut off".into())
        }
        if take::<8>(d, 0)? != MAGIC {
            return Err("this memory is no mailbox".into());
        }
        let version = u32::from_le_bytes(take(d, 8)?);
        if version != VERSION {
            return Err(format!(
                "amp-guest writes mailbox version {version}, this program reads {VERSION}: build both anew"
            ));
        }
        Ok(Header {
            state: u32::from_le_bytes(take(d, 12)?),
            exit_code: i32::from_le_bytes(take(d, 16)?),
            length: u64::from_le_bytes(take(d, 24)?),
            hash: u64::from_le_bytes(take(d, 32)?),
        })
    }

    /// Takes the payload out of a mailbox.
    ///
    /// # Errors
    /// When length or hash do not fit.
    pub fn payload<'a>(&self, mailbox: &'a [u8]) -> Result<&'a [u8], String> {
        let length = usize::try_from(self.length).map_err(|_| "its length is absurd")?;
        let end = PAYLOAD_AT.checked_add(length);
        let payload = end
            .and_then(|e| mailbox.get(PAYLOAD_AT..e))
            .ok_or("it is cut off")?;
        if fnv1a(payload) != self.hash {
            return Err("its content is damaged".into());
        }
        Ok(payload)
    }
}

/// FNV-1a, 64 bits.
pub fn fnv1a(d: &[u8]) -> u64 {
    d.iter().fold(0xcbf2_9ce4_8422_2325, |h, b| {
        (h ^ u64::from(*b)).wrapping_mul(0x100_0000_01b3)
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn what_is_written_is_read(code in any::<i32>(), body in prop::collection::vec(any::<u8>(), 0..200), flip in any::<usize>()) {
            let h = Header::of(DONE, code, &body);
            let mut m = vec![0; PAYLOAD_AT];
            m[..40].copy_from_slice(&h.to_bytes());
            m.extend(&body);
            let back = Header::from_bytes(&m).unwrap();
            prop_assert_eq!(back, h);
            prop_assert_eq!(back.payload(&m).unwrap(), &body[..]);
            if !body.is_empty() {
                m[PAYLOAD_AT + flip % body.len()] ^= 1;
                prop_assert!(back.payload(&m).is_err());
            }
        }

        #[test]
        fn no_input_makes_it_panic(d in prop::collection::vec(any::<u8>(), 0..100)) {
            let mut d = d;
            if d.len() > 12 { d[..8].copy_from_slice(&MAGIC); d[8..12].copy_from_slice(&VERSION.to_le_bytes()); }
            if let Ok(h) = Header::from_bytes(&d) {
                let _ = h.payload(&d);
            }
        }
    }
}
