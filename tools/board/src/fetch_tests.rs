use super::*;
use crate::archive::apt::tests::Fake;
use crate::event::Event;
use std::fs;

/// Programs that fetch and unpack packages of one file.
fn mirror() -> Fake {
    let fake = Fake::new();
    // apt-cache -c CONF madison NAME
    fake.program(
        "apt-cache",
        r#"echo "$4 | 1 | http://mirror/debian bookworm/main arm64 Packages""#,
    )
    .program(
        "apt-get",
        r#"for last; do :; done
case "$*" in
*download*) echo deb > "${last%=*}_1_arm64.deb" ;;
esac"#,
    )
    .program(
        "dpkg-deb",
        r#"mkdir -p "$3/usr/bin" && echo a program > "$3/usr/bin/$(basename "$2" _1_arm64.deb)""#,
    );
    fake
}

fn warnings(events: &[Event]) -> Vec<&str> {
    let mut found = Vec::new();
    for e in events {
        if let Event::Warning(text) = e {
            found.push(text.as_str());
        }
    }
    found
}

/// Bug 16 of the review: what was damaged in the cache went into the guest.
#[test]
fn packages_that_are_damaged_are_fetched_again() {
    let fake = mirror();
    let never = AtomicBool::new(false);
    let mut events = Vec::new();
    let mut base = |care| {
        let sink = &mut |e| events.push(e);
        let arch = Arch::Arm64;
        packages::obtain_base(&fake.cache, &fake.host(), arch, care, &never, sink).unwrap()
    };
    let archive = base(Care::Usual).archive(&fake.cache);
    let good = fs::read(&archive).unwrap();
    fs::write(&archive, &good[..good.len() / 2]).unwrap();
    assert_eq!(
        fs::read(base(Care::Usual).archive(&fake.cache)).unwrap(),
        good
    );

    // an older version sealed nothing
    let seal = crate::seal::place(&archive);
    for damaged in [true, false] {
        fs::remove_file(&seal).unwrap();
        if damaged {
            fs::write(&archive, &good[..good.len() / 2]).unwrap();
        }
        base(Care::Usual);
        assert_eq!(fs::read(&archive).unwrap(), good);
        assert!(seal.is_file());
    }

    // the same length and time: only who reads it sees it
    let time = fs::metadata(&archive).unwrap().modified().unwrap();
    let mut other = good.clone();
    other[200] ^= 1;
    fs::write(&archive, &other).unwrap();
    let file = fs::File::options().append(true).open(&archive).unwrap();
    file.set_modified(time).unwrap();
    base(Care::Usual);
    assert_eq!(fs::read(&archive).unwrap(), other);
    let found = check(&fake.cache, &fake.host(), &never, &mut |_| ()).unwrap();
    assert_eq!(found.damaged, Vec::<String>::new());
    assert_eq!(found.whole, ["packages bash-static busybox-static (arm64)"]);
    assert_eq!(fs::read(&archive).unwrap(), good);

    let said = warnings(&events);
    assert_eq!(said.len(), 2, "{said:?}");
    assert!(said[0].contains("bytes in place of"), "{said:?}");
    assert!(said[1].contains("it has no end"), "{said:?}");
}

#[test]
fn what_is_damaged_and_cannot_be_fetched_is_named_with_both_reasons() {
    let fake = mirror();
    let never = AtomicBool::new(false);
    let base = |sink: &mut Sink<'_>| {
        let arch = Arch::Arm64;
        packages::obtain_base(&fake.cache, &fake.host(), arch, Care::Usual, &never, sink)
    };
    let archive = base(&mut |_| ()).unwrap().archive(&fake.cache);
    fs::write(&archive, "x").unwrap();
    fake.program("apt-get", "echo 'E: Could not resolve' >&2; exit 100");
    let said = base(&mut |_| ()).unwrap_err().to_string();
    for w in ["bash-static", "1 bytes in place of", "cannot be reached"] {
        assert!(said.contains(w), "no `{w}` in {said}");
    }
    let found = check(&fake.cache, &fake.host(), &never, &mut |_| ()).unwrap();
    assert!(found.whole.is_empty());
    assert_eq!(found.damaged.len(), 1, "{:?}", found.damaged);
}
