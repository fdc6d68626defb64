//! From a kernel image as Debian ships it to the uncompressed kernel.

use std::io::Read;

/// More than any kernel: a damaged size must not eat the machine's memory.
const MAX_KERNEL: u64 = 1 << 30;

fn u32_at(d: &[u8], at: usize) -> Option<usize> {
    let b = d.get(at..at.checked_add(4)?)?;
    Some(u32::from_le_bytes([b[0], b[1], b[2], b[3]]) as usize)
}

/// Unpacks an x86 bzImage, an EFI zboot image, a gzip file or a plain arm64 image.
///
/// # Errors
/// When the format or the compression is not known, or the data is damaged.
pub fn uncompressed(image: Vec<u8>) -> Result<Vec<u8>, String> {
    if image.get(0x202..0x206) == Some(b"HdrS") {
        return unpack(bzimage_payload(&image).ok_or("its bzImage header does not fit")?);
    }
    // EFI zboot header: MZ, 0, "zimg", payload offset, payload size (Linux
    // drivers/firmware/efi/libstub/zboot-header.S).
    if image.get(4..8) == Some(b"zimg") {
        let range = u32_at(&image, 8).zip(u32_at(&image, 12));
        let payload = range.and_then(|(at, len)| image.get(at..at.checked_add(len)?));
        return unpack(payload.ok_or("its zboot header does not fit")?);
    }
    if image.starts_with(&[0x1f, 0x8b]) {
        return unpack(&image);
    }
    if image.get(0x38..0x3c) == Some(b"ARMd") || image.starts_with(b"\x7fELF") {
        return Ok(image);
    }
    Err("not a kernel image of a kind known here".into())
}

/// The payload as the x86 boot protocol (2.08) gives it: offset from the protected-mode code, and
/// length.
fn bzimage_payload(d: &[u8]) -> Option<&[u8]> {
    let sectors = match *d.get(0x1f1)? {
        0 => 4,
        n => n as usize,
    };
    let at = (sectors + 1) * 512 + u32_at(d, 0x248)?;
    d.get(at..at.checked_add(u32_at(d, 0x24c)?)?)
}

fn unpack(payload: &[u8]) -> Result<Vec<u8>, String> {
    let mut out = Vec::new();
    let done = if payload.starts_with(&[0x1f, 0x8b]) {
        flate2::read::GzDecoder::new(payload)
            .take(MAX_KERNEL)
            .read_to_end(&mut out)
    } else if payload.starts_with(&[0x28, 0xb5, 0x2f, 0xfd]) {
        let decoder = ruzstd::decoding::StreamingDecoder::new(payload)
            .map_err(|e| format!("zstd payload: {e}"))?;
        decoder.take(MAX_KERNEL).read_to_end(&mut out)
    } else if payload.starts_with(b"\x7fELF") {
        return Ok(payload.to_vec());
    } else {
        let magic: Vec<String> = payload.iter().take(6).map(|b| format!("{b:02x}")).collect();
        return Err(format!(
            "its payload is neither gzip nor zstd (it begins {})",
            magic.join(" ")
        ));
    };
    done.map_err(|e| format!("its payload is damaged: {e}"))?;
    Ok(out)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Write;

    fn gz(d: &[u8]) -> Vec<u8> {
        let mut e = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
        e.write_all(d).unwrap();
        e.finish().unwrap()
    }

    #[test]
    fn bzimage_zboot_gzip_and_plain() {
        let body = b"the kernel".to_vec();
        let z = gz(&body);
        let mut bz = vec![0u8; 0x400];
        bz[0x1f1] = 1;
        bz[0x202..0x206].copy_from_slice(b"HdrS");
        bz[0x248..0x24c].copy_from_slice(&16u32.to_le_bytes());
        bz[0x24c..0x250].copy_from_slice(&(z.len() as u32).to_le_bytes());
        bz.extend([0u8; 16]);
        bz.extend(&z);
        assert_eq!(uncompressed(bz), Ok(body.clone()));
        let mut zboot = b"MZ\0\0zimg".to_vec();
        zboot.extend(64u32.to_le_bytes());
        zboot.extend((z.len() as u32).to_le_bytes());
        zboot.resize(64, 0);
        zboot.extend(&z);
        assert_eq!(uncompressed(zboot), Ok(body.clone()));
        assert_eq!(uncompressed(z), Ok(body));
        let mut plain = vec![0u8; 64];
        plain[0x38..0x3c].copy_from_slice(b"ARMd");
        assert_eq!(uncompressed(plain.clone()), Ok(plain));
    }

    #[test]
    fn damage_and_strangers_are_errors() {
        assert!(uncompressed(b"hello".to_vec()).is_err());
        let mut z = gz(b"the kernel");
        z.truncate(12);
        assert!(uncompressed(z).unwrap_err().contains("damaged"));
        let mut bz = vec![0u8; 0x260];
        bz[0x202..0x206].copy_from_slice(b"HdrS");
        bz[0x24c] = 255;
        assert!(uncompressed(bz).unwrap_err().contains("header"));
    }
}
