//! Does a kernel's BTF let sched_ext schedulers load?
//!
//! A kfunc may take an implicit last argument `aux` that the verifier fills in. Its public
//! prototype must not show it: resolve_btfids takes it out when the build knows which functions are
//! kfuncs. Kernels whose BTF was written without that knowledge keep the argument, and libbpf then
//! refuses every scheduler (`func_proto incompatible with vmlinux`).

const KIND_STRUCT: u32 = 4;
const KIND_FUNC: u32 = 12;
const KIND_FUNC_PROTO: u32 = 13;

/// What the BTF says about sched_ext.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// Schedulers load.
    Loads,
    /// The kernel was built without sched_ext.
    NoSchedExt,
    /// These kfuncs still show the implicit argument.
    ImplicitArgument(Vec<String>),
}

struct Type {
    kind: u32,
    name: u32,
    vlen: usize,
    /// Size or referred type.
    value: u32,
    /// Offset of what follows the common part, in the type section.
    extra: usize,
}

struct Btf<'a> {
    types: &'a [u8],
    strings: &'a [u8],
}

fn u32_at(d: &[u8], at: usize) -> Option<u32> {
    let b = d.get(at..at.checked_add(4)?)?;
    Some(u32::from_le_bytes([b[0], b[1], b[2], b[3]]))
}

impl<'a> Btf<'a> {
    /// The largest well-formed BTF in an image: modules and embedded objects have smaller ones.
    fn find(image: &'a [u8]) -> Option<Btf<'a>> {
        const HEADER: [u8; 8] = [0x9f, 0xeb, 1, 0, 24, 0, 0, 0];
        let mut best: Option<Btf<'a>> = None;
        let mut from = 0;
        while let Some(i) = find_bytes(&image[from..], &HEADER) {
            let at = from + i;
            from = at + 1;
            let Some(b) = Btf::parse(&image[at..]) else {
                continue;
            };
            if best.as_ref().is_none_or(|o| b.types.len() > o.types.len()) {
                best = Some(b);
            }
        }
        best
    }

    fn parse(d: &'a [u8]) -> Option<Btf<'a>> {
        let field = |i: usize| u32_at(d, 8 + 4 * i).map(|v| v as usize);
        let section = |off: usize, len: usize| {
            let start = off.checked_add(24)?;
            d.get(start..start.checked_add(len)?)
        };
        let types = section(field(0)?, field(1)?)?;
        let strings = section(field(2)?, field(3)?)?;
        (strings.first() == Some(&0) && strings.last() == Some(&0))
            .then_some(Btf { types, strings })
    }

    fn types(&self) -> Option<Vec<Type>> {
        let mut all = vec![Type {
            kind: 0,
            name: 0,
            vlen: 0,
            value: 0,
            extra: 0,
        }];
        let mut at = 0;
        while at < self.types.len() {
            let info = u32_at(self.types, at + 4)?;
            let (kind, vlen) = (info >> 24 & 31, (info & 0xffff) as usize);
            let extra = at + 12;
            let follows = match kind {
                1 | 14 | 17 => 4,
                3 => 12,
                4 | 5 | 15 | 19 => 12 * vlen,
                6 | 13 => 8 * vlen,
                2 | 7..=12 | 16 | 18 => 0,
                _ => return None,
            };
            let (name, value) = (u32_at(self.types, at)?, u32_at(self.types, at + 8)?);
            all.push(Type {
                kind,
                name,
                vlen,
                value,
                extra,
            });
            at = extra + follows;
        }
        Some(all)
    }

    fn name(&self, at: u32) -> &'a [u8] {
        let s = self.strings.get(at as usize..).unwrap_or_default();
        &s[..s.iter().position(|b| *b == 0).unwrap_or(s.len())]
    }
}

fn find_bytes(hay: &[u8], needle: &[u8]) -> Option<usize> {
    let first = *needle.first()?;
    let mut from = 0;
    while let Some(i) = hay[from..].iter().position(|b| *b == first) {
        let at = from + i;
        if hay[at..].starts_with(needle) {
            return Some(at);
        }
        from = at + 1;
    }
    None
}

/// Judges an uncompressed kernel.
///
/// # Errors
/// When it holds no BTF, or one that cannot be read.
pub fn judge(kernel: &[u8]) -> Result<Verdict, String> {
    let btf = Btf::find(kernel).ok_or("no BTF in it")?;
    let types = btf
        .types()
        .ok_or("its BTF has types of a kind not known here")?;
    let has_ops = types
        .iter()
        .any(|t| t.kind == KIND_STRUCT && btf.name(t.name) == b"sched_ext_ops");
    if !has_ops {
        return Ok(Verdict::NoSchedExt);
    }
    let mut bad = Vec::new();
    for f in types.iter().filter(|t| t.kind == KIND_FUNC) {
        let name = btf.name(f.name);
        let kfunc = name.starts_with(b"scx_bpf_") || name.starts_with(b"__scx_bpf_");
        // Functions ending in _impl are the bodies: they do take the argument.
        if !kfunc || name.ends_with(b"_impl") {
            continue;
        }
        let Some(proto) = types
            .get(f.value as usize)
            .filter(|p| p.kind == KIND_FUNC_PROTO)
        else {
            continue;
        };
        let shows = (0..proto.vlen)
            .any(|i| u32_at(btf.types, proto.extra + 8 * i).is_some_and(|n| btf.name(n) == b"aux"));
        if shows {
            bad.push(String::from_utf8_lossy(name).into_owned());
        }
    }
    Ok(if bad.is_empty() {
        Verdict::Loads
    } else {
        Verdict::ImplicitArgument(bad)
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// A BTF with one struct and one kfunc whose prototype has the given parameters.
    fn image(structure: &str, kfunc: &str, parameters: &[&str]) -> Vec<u8> {
        let mut strings = vec![0u8];
        let mut intern = |s: &str| {
            let at = strings.len() as u32;
            strings.extend(s.bytes());
            strings.push(0);
            at
        };
        let mut types = Vec::new();
        let mut word = |w: u32| types.extend(w.to_le_bytes());
        for w in [intern(structure), KIND_STRUCT << 24, 0] {
            word(w);
        }
        for w in [0, KIND_FUNC_PROTO << 24 | parameters.len() as u32, 0] {
            word(w);
        }
        for p in parameters {
            for w in [intern(p), 1] {
                word(w);
            }
        }
        for w in [intern(kfunc), KIND_FUNC << 24, 2] {
            word(w);
        }
        let mut d = b"padding\x9f\xeb\x01\x00\x18\0\0\0".to_vec();
        for w in [0, types.len(), types.len(), strings.len()] {
            d.extend((w as u32).to_le_bytes());
        }
        d.extend(types);
        d.extend(strings);
        d.extend(b"more padding");
        d
    }

    #[test]
    fn the_implicit_argument_is_seen() {
        let bad = image(
            "sched_ext_ops",
            "scx_bpf_create_dsq",
            &["dsq_id", "node", "aux"],
        );
        let why = Verdict::ImplicitArgument(vec!["scx_bpf_create_dsq".into()]);
        assert_eq!(judge(&bad), Ok(why));
        let good = image("sched_ext_ops", "scx_bpf_create_dsq", &["dsq_id", "node"]);
        assert_eq!(judge(&good), Ok(Verdict::Loads));
        let body = image(
            "sched_ext_ops",
            "scx_bpf_create_dsq_impl",
            &["dsq_id", "aux"],
        );
        assert_eq!(judge(&body), Ok(Verdict::Loads));
    }

    #[test]
    fn a_kernel_without_sched_ext_is_told_apart() {
        assert_eq!(
            judge(&image("task_struct", "x", &[])),
            Ok(Verdict::NoSchedExt)
        );
        assert!(judge(b"nothing here").is_err());
    }

    proptest! {
        #[test]
        fn no_input_makes_it_panic(mut d in Just(image("sched_ext_ops", "scx_bpf_x", &["aux"])),
                                   flips in prop::collection::vec((15usize..120, any::<u8>()), 0..8)) {
            for (i, b) in flips {
                let n = d.len();
                d[i % n] = b;
            }
            let _ = judge(&d);
        }
    }
}
