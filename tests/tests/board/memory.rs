//! What `scx_amp run` remembers of programs from one run to the next.

use amp_tests::Lab;
use serde_json::Value;

const SCRIPT: &str = r#"
wait_for() { i=0; while [ "$(cat /sys/kernel/sched_ext/state)" != $1 ] && [ $i -lt 600 ]; do i=$((i+1)); sleep 0.1; done; }
begin() { scx_amp run --policy hsp "$@" 2>>/tmp/log & pid=$!; wait_for enabled; answers; }
end() { kill $pid; wait $pid; echo "status $?"; }
ask() { scx_amp ctl status | tr -d '\n'; echo; }
list() { echo "memory $(scx_amp ctl memory --json | tr -d '\n')"; }
file=/var/lib/scx_amp/memory.json
sleep 2
begin
amp-workload bench spin --threads 1 --name known --seconds 6 >/dev/null & load=$!
sleep 5
list; ask
wait $load
end
echo "mode $(stat -c %a $file) $(stat -c %a /var/lib/scx_amp)"
begin
list; ask
scx_amp ctl memory | sed 's/^/table /'
echo "gone $(scx_amp ctl memory forget '/nowhere/**')"
echo "gone $(scx_amp ctl memory forget 'known*')"
scx_amp ctl memory forget '[' 2>/tmp/e; echo "bad-status $?"
list
end
echo '{"scx_amp_memory":99}' >$file
begin
list; ask
end
echo "aside $(cat $file.refused)"
begin --memory none
scx_amp ctl memory 2>/tmp/e; echo "bad-status $?"; echo "bad $(cat /tmp/e)"
end
scx_amp run --memory /nowhere/m 2>/tmp/e; echo "bad-status $?"; echo "bad $(tail -1 /tmp/e)"
echo "said $(tr '\n' ' ' </tmp/log)"
"#;

#[test]
fn a_program_is_known_after_a_restart() {
    let r = Lab::pair().run(SCRIPT).ok();
    let lists: Vec<Vec<Value>> = r
        .lines("memory")
        .map(|l| serde_json::from_str(l).unwrap())
        .collect();
    let known = |list: &[Value]| -> Option<Value> {
        let mut all = list.iter();
        let it = all.find(|p| p["comm"].as_str().is_some_and(|c| c.starts_with("known")));
        it.cloned()
    };
    let first = known(&lists[0]).unwrap();
    let path = first["executable"].as_str().unwrap();
    assert!(path.ends_with("/amp-workload"), "{first}");
    let factor = &first["speedup"]["big"];
    let number = |key: &str| factor[key].as_f64().unwrap();
    assert!(
        number("value") > 1.0 && number("uncertainty") > 0.0,
        "{first}"
    );
    let second = known(&lists[1]).unwrap();
    assert_eq!(second["executable"], first["executable"]);
    assert!(second["speedup"]["big"]["weight"].as_f64() >= factor["weight"].as_f64());
    assert_eq!((known(&lists[2]), known(&lists[3])), (None, None));
    assert_eq!(r.line("mode"), "600 700");
    assert!(r
        .lines("table")
        .any(|l| l.contains("amp-workload") && l.contains("sf big")));
    let gone: Vec<&str> = r.lines("gone").collect();
    assert_eq!(gone[0], "0 programs forgotten");
    assert!(
        gone[1].ends_with("forgotten") && gone[1] != gone[0],
        "{gone:?}"
    );
    let json = r.json();
    for status in json.iter().filter(|j| j["ticks"].is_u64()) {
        let memory = status["memory"].as_str().unwrap();
        assert!(
            memory.starts_with("/var/lib/scx_amp/memory.json: "),
            "{memory}"
        );
        assert_eq!(status["memory_failed"], "");
    }
    assert_eq!(r.line("aside"), "{\"scx_amp_memory\":99}");
    let said = r.line("said");
    assert!(
        said.contains("version 99") && said.contains("memory begins anew"),
        "{said}"
    );
    assert_eq!(r.lines("status").collect::<Vec<_>>(), ["0"; 4]);
    assert_eq!(r.lines("bad-status").collect::<Vec<_>>(), ["2", "1", "2"]);
    let bad: Vec<&str> = r.lines("bad").collect();
    assert!(
        bad[0].contains("nothing is remembered") && bad[1].contains("--memory /nowhere/m"),
        "{bad:?}"
    );
}
