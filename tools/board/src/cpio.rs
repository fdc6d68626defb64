//! The "newc" cpio format that the kernel unpacks as initramfs.

use std::fs::File;
use std::io::{self, Read, Seek, SeekFrom, Write};
use std::path::Path;

/// Whether the file at `path` ends as an archive does: one that was cut short does not.
pub(crate) fn has_end(path: &Path) -> bool {
    const LOOKED_AT: u64 = 1024;
    let end = || -> io::Result<Vec<u8>> {
        let mut file = File::open(path)?;
        let length = file.metadata()?.len();
        file.seek(SeekFrom::Start(length.saturating_sub(LOOKED_AT)))?;
        let mut end = Vec::new();
        file.take(LOOKED_AT).read_to_end(&mut end)?;
        Ok(end)
    };
    let last = b"TRAILER!!!";
    end().is_ok_and(|end| end.windows(last.len()).any(|w| w == last))
}

/// What an entry is.
#[derive(Clone, Copy, Debug)]
pub enum Kind<'a> {
    /// A folder.
    Dir,
    /// A file with its content.
    File(&'a [u8]),
    /// A symbolic link with its target.
    Link(&'a str),
}

/// Writes one archive; everything in it belongs to root and has time zero, so that equal input
/// gives equal bytes.
#[derive(Debug)]
pub struct Writer<W: Write> {
    out: W,
    inode: u32,
}

impl<W: Write> Writer<W> {
    /// An archive written to `out`.
    pub fn new(out: W) -> Writer<W> {
        Writer { out, inode: 0 }
    }

    /// Adds an entry; `path` is relative to the root, `mode` its permission bits.
    ///
    /// # Errors
    /// When `out` fails, or a file is 4 GiB or larger.
    pub fn add(&mut self, path: &str, mode: u32, kind: Kind<'_>) -> io::Result<()> {
        let (bits, data) = match kind {
            Kind::Dir => (0o040_000, &[][..]),
            Kind::File(d) => (0o100_000, d),
            Kind::Link(t) => (0o120_000, t.as_bytes()),
        };
        self.inode += 1;
        self.entry(path.trim_start_matches('/'), bits | (mode & 0o7777), data)
    }

    fn entry(&mut self, name: &str, mode: u32, data: &[u8]) -> io::Result<()> {
        let size = u32::try_from(data.len())
            .map_err(|_| io::Error::other(format!("{name}: too large for an initramfs")))?;
        // Fields: inode, mode, uid, gid, links, time, size, device ×4, name length, checksum.
        let name_len = name.len() as u32 + 1;
        let fields = [self.inode, mode, 0, 0, 1, 0, size, 0, 0, 0, 0, name_len, 0];
        let mut head = String::from("070701");
        for f in fields {
            head.push_str(&format!("{f:08x}"));
        }
        head.push_str(name);
        head.push('\0');
        self.padded(head.as_bytes())?;
        self.padded(data)
    }

    fn padded(&mut self, data: &[u8]) -> io::Result<()> {
        self.out.write_all(data)?;
        let gap = data.len().next_multiple_of(4) - data.len();
        self.out.write_all(&[0; 4][..gap])
    }

    /// Ends the archive and gives `out` back. Another archive may follow it in the same file.
    ///
    /// # Errors
    /// When `out` fails.
    pub fn finish(mut self) -> io::Result<W> {
        self.inode = 0;
        self.entry("TRAILER!!!", 0, &[])?;
        Ok(self.out)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::process::{Command, Stdio};

    #[test]
    fn the_layout_is_that_of_the_kernel_documentation() {
        let mut w = Writer::new(Vec::new());
        w.add("/a", 0o755, Kind::File(b"hello")).unwrap();
        let d = w.finish().unwrap();
        let text = String::from_utf8_lossy(&d);
        assert!(text.starts_with("07070100000001000081ed"), "{text}");
        // 110 bytes of header, the name and its NUL make 112; then 5 bytes and 3 of padding.
        assert_eq!(&d[110..112], b"a\0");
        assert_eq!(&d[112..120], b"hello\0\0\0");
        assert_eq!(d.len() % 4, 0);
        assert!(text.contains("TRAILER!!!"));
    }

    #[test]
    fn another_reader_agrees() {
        let mut w = Writer::new(Vec::new());
        w.add("d", 0o755, Kind::Dir).unwrap();
        w.add("d/file", 0o640, Kind::File(&[7; 1001])).unwrap();
        w.add("d/link", 0o777, Kind::Link("file")).unwrap();
        let data = w.finish().unwrap();
        let spawned = Command::new("busybox")
            .args(["cpio", "-t"])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .or_else(|_| {
                Command::new("cpio")
                    .args(["-t", "--quiet"])
                    .stdin(Stdio::piped())
                    .stdout(Stdio::piped())
                    .spawn()
            });
        // Neither reader is needed to use the board: without them the layout test above stands
        // alone.
        let Ok(mut child) = spawned else { return };
        child.stdin.take().unwrap().write_all(&data).unwrap();
        let out = child.wait_with_output().unwrap();
        assert_eq!(String::from_utf8_lossy(&out.stdout), "d\nd/file\nd/link\n");
    }
}
