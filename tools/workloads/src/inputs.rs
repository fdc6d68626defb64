//! Makes input files.
//!
//! An input is the same on every machine: generators use integer arithmetic, or floating-point
//! additions and multiplications only, and files of a package are taken in order of their names.

use crate::catalogue::{Concatenate, Generate, Input};
use crate::rng::Rng;
use std::path::{Path, PathBuf};

/// Why an input cannot be made.
#[derive(Debug, thiserror::Error)]
pub enum InputError {
    /// Reading or writing failed.
    #[error("{path}: {source}")]
    Io {
        /// The file or folder.
        path: PathBuf,
        /// The system's error.
        source: std::io::Error,
    },
    /// The package does not hold what the catalogue expects.
    #[error("input `{input}`: {folder} of package {package} holds {found} bytes of such files, {wanted} are wanted: is the package unpacked there?")]
    TooShort {
        /// The input.
        input: String,
        /// The package.
        package: String,
        /// The folder that was looked into.
        folder: PathBuf,
        /// Bytes found.
        found: usize,
        /// Bytes wanted.
        wanted: usize,
    },
    /// An input without a source, which the catalogue's checker would have refused.
    #[error("input `{0}` has no source")]
    NoSource(String),
}

/// Makes `inputs` in `dir`, which is created; existing files are replaced, each at once. `packages`
/// is the root that the data packages were unpacked into (any root will do when no input comes out
/// of a package).
///
/// # Errors
/// When a file cannot be read or written, or a package does not hold what is wanted; the error
/// names it.
pub fn prepare<'a>(
    inputs: impl IntoIterator<Item = &'a Input>,
    packages: &Path,
    dir: &Path,
) -> Result<Vec<PathBuf>, InputError> {
    std::fs::create_dir_all(dir).map_err(at(dir))?;
    let mut made = Vec::new();
    for i in inputs {
        let contents = contents(i, packages)?;
        let path = dir.join(&i.name);
        // written aside and renamed: nobody ever sees half a file
        let aside = dir.join(format!(".{}.{}", i.name, std::process::id()));
        std::fs::write(&aside, contents).map_err(at(&aside))?;
        std::fs::rename(&aside, &path).map_err(at(&path))?;
        made.push(path);
    }
    Ok(made)
}

fn at(path: &Path) -> impl Fn(std::io::Error) -> InputError + '_ {
    move |source| InputError::Io {
        path: path.into(),
        source,
    }
}

fn contents(i: &Input, packages: &Path) -> Result<Vec<u8>, InputError> {
    if let Some(t) = &i.text {
        return Ok(t.clone().into_bytes());
    }
    if let Some(c) = &i.concatenate {
        return concatenate(&i.name, c, packages);
    }
    match i.generate {
        Some(Generate::Wav { samples, seed }) => Ok(wav(samples, seed)),
        None => Err(InputError::NoSource(i.name.clone())),
    }
}

fn concatenate(input: &str, c: &Concatenate, packages: &Path) -> Result<Vec<u8>, InputError> {
    let folder = packages.join(&c.folder);
    let mut files = Vec::new();
    for entry in std::fs::read_dir(&folder).map_err(at(&folder))? {
        let path = entry.map_err(at(&folder))?.path();
        let extension = path.extension().map_or("".into(), |e| e.to_string_lossy());
        // a symbolic link is another name of a file that is there already, or leads out of the
        // package
        let plain = std::fs::symlink_metadata(&path)
            .map_err(at(&path))?
            .is_file();
        if plain && extension == c.extension.as_str() {
            files.push(path);
        }
    }
    files.sort();
    let mut all = Vec::new();
    for f in files {
        if all.len() >= c.bytes {
            break;
        }
        all.extend(std::fs::read(&f).map_err(at(&f))?);
    }
    if all.len() < c.bytes {
        return Err(InputError::TooShort {
            input: input.into(),
            package: c.package.clone(),
            folder,
            found: all.len(),
            wanted: c.bytes,
        });
    }
    all.truncate(c.bytes);
    Ok(all)
}

/// [`pcm`] behind the 44 bytes of a RIFF header.
fn wav(samples: u32, seed: u64) -> Vec<u8> {
    const RATE: u32 = 44_100;
    let data = samples * 2;
    let mut out = Vec::with_capacity(44 + data as usize);
    out.extend(b"RIFF");
    out.extend((36 + data).to_le_bytes());
    out.extend(b"WAVEfmt ");
    out.extend(16u32.to_le_bytes()); // length of the format chunk
    out.extend(1u16.to_le_bytes()); // PCM
    out.extend(1u16.to_le_bytes()); // one channel
    out.extend(RATE.to_le_bytes());
    out.extend((RATE * 2).to_le_bytes()); // bytes a second
    out.extend(2u16.to_le_bytes()); // bytes a sample
    out.extend(16u16.to_le_bytes()); // bits a sample
    out.extend(b"data");
    out.extend(data.to_le_bytes());
    out.extend(pcm(samples, seed));
    out
}

/// Three tones that beat against each other, swelling and fading, over noise.
fn pcm(samples: u32, seed: u64) -> Vec<u8> {
    let mut r = Rng::new(seed);
    // a rotation by additions and multiplications only, which keeps its amplitude: steps are
    // 2·sin(angle / 2)
    let mut tones = [
        (0.0313, 0.0, 1.0),
        (0.0394, 0.0, 0.8),
        (0.1253, 0.0, 0.4),
        (0.000_31, 0.0, 1.0),
    ];
    let mut out = Vec::with_capacity(samples as usize * 2);
    for _ in 0..samples {
        for (step, sine, cosine) in &mut tones {
            *sine += *step * *cosine;
            *cosine -= *step * *sine;
        }
        let swell = 0.6 + 0.4 * tones[3].1;
        let noise = (r.next() >> 48) as f64 / 32768.0 - 1.0;
        let v = 9000.0 * swell * (tones[0].1 + tones[1].1 + tones[2].1) + 600.0 * noise;
        out.extend((v as i16).to_le_bytes());
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::catalogue::Catalogue;

    fn fnv(bytes: &[u8]) -> u64 {
        bytes.iter().fold(0xcbf2_9ce4_8422_2325, |h, b| {
            (h ^ u64::from(*b)).wrapping_mul(0x0100_0000_01b3)
        })
    }

    #[test]
    fn generated_sound_never_changes() {
        assert_eq!(fnv(&pcm(10_000, 1)), 0x2300_8db4_562b_5259);
    }

    #[test]
    fn the_header_tells_the_lengths() {
        let w = wav(1000, 1);
        assert_eq!(w.len(), 2044);
        assert_eq!(w[4..8], 2036u32.to_le_bytes());
        assert_eq!(w[40..44], 2000u32.to_le_bytes());
    }

    #[test]
    fn sound_uses_the_range_without_clipping() {
        let v: Vec<i16> = pcm(100_000, 1)
            .chunks_exact(2)
            .map(|b| i16::from_le_bytes([b[0], b[1]]))
            .collect();
        let peak = v.iter().map(|x| x.unsigned_abs()).max().unwrap();
        assert!((8000..32767).contains(&peak), "{peak}");
    }

    fn corpus(bytes: usize) -> Input {
        let text = format!(
            "[[program]]\nexecutable='a'\nabout=''\npackages=['aa']\ncommand=['a']\n[[input]]\nname='c'\nabout=''\n\
             concatenate={{package='pp',folder='usr/t',extension='',bytes={bytes}}}"
        );
        let c = Catalogue::parse(&text, Path::new("x")).unwrap();
        let i = c.inputs().next().unwrap().clone();
        i
    }

    #[test]
    fn files_of_a_package_in_order_cut_to_length() {
        let root = tempfile::tempdir().unwrap();
        let folder = root.path().join("usr/t");
        std::fs::create_dir_all(&folder).unwrap();
        for (name, text) in [("b", "world"), ("a", "hello "), ("a.dat", "no")] {
            std::fs::write(folder.join(name), text).unwrap();
        }
        std::os::unix::fs::symlink("a", folder.join("a2")).unwrap();
        let out = tempfile::tempdir().unwrap();
        let made = prepare([&corpus(8)], root.path(), &out.path().join("new")).unwrap();
        assert_eq!(std::fs::read(&made[0]).unwrap(), b"hello wo");
        // nothing is left beside it
        assert_eq!(
            std::fs::read_dir(out.path().join("new")).unwrap().count(),
            1
        );
        let e = prepare([&corpus(12)], root.path(), out.path())
            .unwrap_err()
            .to_string();
        assert!(
            e.contains("package pp") && e.contains("11 bytes") && e.contains("12"),
            "{e}"
        );
    }

    #[test]
    fn a_package_that_is_not_there_is_named_by_its_folder() {
        let d = tempfile::tempdir().unwrap();
        let e = prepare([&corpus(1)], d.path(), d.path())
            .unwrap_err()
            .to_string();
        assert!(e.contains("usr/t"), "{e}");
    }

    #[test]
    fn texts_are_written_as_they_stand() {
        let c = Catalogue::shipped().unwrap();
        let d = tempfile::tempdir().unwrap();
        let texts: Vec<&Input> = c.inputs().filter(|i| i.text.is_some()).collect();
        assert!(!texts.is_empty());
        for (i, path) in texts
            .iter()
            .zip(prepare(texts.iter().copied(), d.path(), d.path()).unwrap())
        {
            assert_eq!(Some(std::fs::read_to_string(path).unwrap()), i.text);
        }
    }
}
