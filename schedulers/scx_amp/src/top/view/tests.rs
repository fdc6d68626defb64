use super::*;
use crate::status::{Status, ThreadStatus};
use crate::top::model::samples::{metric, status, thread};
use crate::top::model::{Effect, Input};
use crate::top::source::clean;
use ratatui::backend::TestBackend;
use ratatui::buffer::Buffer;
use ratatui::crossterm::event::{KeyCode, KeyEvent, KeyModifiers};
use ratatui::style::Color;
use ratatui::Terminal;
use std::time::Duration;

const FULL: Theme = Theme {
    colour: true,
    unicode: true,
};
const PLAIN: Theme = Theme {
    colour: false,
    unicode: false,
};

fn drawn(model: &Model, theme: &Theme, width: u16, height: u16) -> Buffer {
    let mut terminal = Terminal::new(TestBackend::new(width, height)).unwrap();
    terminal.draw(|f| draw(f, model, theme)).unwrap();
    terminal.backend().buffer().clone()
}

fn text(buffer: &Buffer) -> String {
    let width = usize::from(buffer.area.width).max(1);
    let mut out = String::new();
    for line in buffer.content.chunks(width) {
        let mut cells = line.iter();
        let mut text = String::new();
        while let Some(cell) = cells.next() {
            text += cell.symbol();
            // the cell behind a wide sign is part of it
            for _ in 1..text::width(cell.symbol()) {
                cells.next();
            }
        }
        out += text.trim_end();
        out.push('\n');
    }
    out
}

fn screen(model: &Model, theme: &Theme) -> String {
    text(&drawn(model, theme, 80, 24))
}

/// A model that has looked at the machine for half a minute.
fn model() -> Model {
    let mut m = Model::new(None, status(10));
    for s in 11..=40 {
        m.input(Input::Status(Box::new(status(s))));
    }
    m
}

fn press(m: &mut Model, keys: &str) {
    for c in keys.chars() {
        let code = match c {
            '\n' => KeyCode::Enter,
            'v' => KeyCode::Down,
            c => KeyCode::Char(c),
        };
        let done = m.input(Input::Key(KeyEvent::new(code, KeyModifiers::NONE)));
        assert_eq!(done, Effect::None);
    }
}

#[test]
fn a_screen_of_80_by_24_shows_what_matters() {
    let shown = screen(&model(), &FULL);
    let lines: Vec<&str> = shown.lines().collect();
    assert_eq!(
        lines[0],
        "scx_amp  profile auto  policy hsp  provider ipc-sampling  up 40 s"
    );
    for wants in [
        "threads 41 (5 active)",
        "swaps 80 (2.0/s)",
        "latency 38 us",
        "every 100 ms",
        "engine.probes 5  threshold 5",
        "big     0 stream      1 chase\n",
        "little  2 hash        3 fp          4 bzip2       5 -\n",
        "2.90±0.09",
        "hash",
        "slow",
        "phase",
        "? help",
        "o knobs",
    ] {
        assert!(shown.contains(wants), "{wants}\n{shown}");
    }
    assert_eq!(lines.len(), 24);
    // whose turn it was: high in three of five, by turns of three looks
    let hash = lines.iter().find(|l| l.contains("812 hash")).unwrap();
    assert!(hash.ends_with(" 1 ▁▁▁██████▁▁▁▁"), "{shown}");
}

/// The threads of the sample take turns, as under this policy.
fn turns(s: u64) -> Status {
    Status {
        profile: String::new(),
        policy: "rr".into(),
        ..status(s)
    }
}

/// The guide shows this very screen, without its empty lines.
#[test]
fn the_guide_shows_what_is_drawn() {
    let guide = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/guide/run.md");
    // a package has no guide
    if let Ok(guide) = std::fs::read_to_string(guide) {
        let mut m = Model::new(None, turns(10));
        for s in 11..=40 {
            m.input(Input::Status(Box::new(turns(s))));
        }
        let shown = screen(&m, &FULL);
        let lines = shown.lines().filter(|l| !l.is_empty());
        let shown: String = lines.map(|l| format!("{l}\n")).collect();
        assert!(guide.contains(&format!("\n{shown}```\n")), "{shown}");
    }
}

#[test]
fn without_colours_and_without_unicode_the_same_is_there() {
    let buffer = drawn(&model(), &PLAIN, 80, 24);
    for cell in &buffer.content {
        assert_eq!((cell.fg, cell.bg), (Color::Reset, Color::Reset));
        assert!(cell.symbol().is_ascii(), "{:?}", cell.symbol());
    }
    let shown = text(&buffer);
    for wants in ["2.90+-0.09", "___######____", "big     0 stream"] {
        assert!(shown.contains(wants), "{wants}\n{shown}");
    }
    let coloured = drawn(&model(), &FULL, 80, 24);
    assert!(coloured.content.iter().any(|c| c.fg == Color::Yellow));
    let mut m = model();
    press(&mut m, "?");
    for cell in &drawn(&m, &PLAIN, 80, 24).content {
        assert!(cell.symbol().is_ascii(), "{:?}", cell.symbol());
    }
}

#[test]
fn the_environment_says_what_a_terminal_has() {
    let of = |set: &[(&str, &str)]| {
        let theme = Theme::of(|name| {
            let found = set.iter().find(|(n, _)| *n == name);
            found.map(|(_, v)| (*v).to_owned())
        });
        (theme.colour, theme.unicode)
    };
    assert_eq!(of(&[]), (true, false));
    assert_eq!(
        of(&[("NO_COLOR", "1"), ("LANG", "en_US.UTF-8")]),
        (false, true)
    );
    assert_eq!(
        of(&[("LC_ALL", "C"), ("LANG", "en_US.UTF-8")]),
        (true, false)
    );
    assert_eq!(of(&[("LC_CTYPE", "C.utf8")]), (true, true));
}

#[test]
fn every_size_is_drawn() {
    let mut models = vec![model(), Model::new(Some("far"), Status::default())];
    for keys in ["?", "p", "o", "o\n", "p\ny", "pv\n", "v\n", "/x"] {
        let mut m = model();
        for c in keys.chars().filter(|c| *c != 'y') {
            press(&mut m, &c.to_string());
        }
        models.push(m);
    }
    for m in &models {
        for (width, height) in (0..24).flat_map(|w| (0..14).map(move |h| (w * 5, h * 3))) {
            for theme in [&FULL, &PLAIN] {
                drawn(m, theme, width, height);
            }
        }
        for size in 0..12 {
            drawn(m, &FULL, size, size);
        }
    }
}

#[test]
fn a_small_screen_keeps_names_and_factors() {
    let shown = text(&drawn(&model(), &FULL, 40, 10));
    for wants in ["hash", "2.90±0.09", "cpu%", "hsp"] {
        assert!(shown.contains(wants), "{wants}\n{shown}");
    }
}

#[test]
fn a_wide_screen_has_every_column() {
    let mut s = status(40);
    s.per_thread[0].rule = "3: prefer fast".into();
    s.per_thread[0]
        .metrics
        .insert("ef".into(), metric(1.75, 0.25));
    let shown = text(&drawn(&Model::new(None, s), &FULL, 220, 30));
    for wants in [
        "app",
        "weight",
        "cpu s",
        "big%",
        "quality",
        "work s",
        "history",
        "3: prefer fast",
        "1.75±0.25",
        "by cpu%",
    ] {
        assert!(shown.contains(wants), "{wants}\n{shown}");
    }
}

#[test]
fn long_and_wide_names_stay_in_their_columns() {
    let mut s = status(5);
    s.per_thread[0].comm = "a-name-that-is-much-longer-than-any".into();
    s.per_thread[1].comm = "火火火火火火火火火火".into();
    s.policy = "p".repeat(300);
    s.knobs.insert("k".repeat(200), "v".repeat(200));
    s.cpus[0].comm = "x".repeat(100);
    let mut m = Model::new(Some(&"h".repeat(100)), s);
    m.threads.set_sort(crate::top::model::Sort::Tid, false);
    let shown = screen(&m, &FULL);
    assert!(shown.contains("a-name-that-is… "), "{shown}");
    let column = |tid: &str, word: &str| {
        let line = shown.lines().find(|l| l.contains(tid)).unwrap();
        text::width(line.split(word).next().unwrap())
    };
    // what comes behind the names stands where it stands in the other lines
    let there = column("814 ", " 1.20±");
    assert_eq!(column("812 ", " 2.90±"), there, "{shown}");
    assert_eq!(column("813 ", " 2.35±"), there, "{shown}");
}

#[test]
fn no_threads_is_said() {
    let shown = screen(&Model::new(None, Status::default()), &FULL);
    assert!(shown.contains("no thread is placed at present"), "{shown}");
    let mut m = model();
    press(&mut m, "/zz");
    let shown = screen(&m, &FULL);
    assert!(shown.contains("no thread has \"zz\" in it"), "{shown}");
    assert!(shown.contains("show only: zz_"), "{shown}");
}

#[test]
fn a_lost_connection_is_said_and_the_last_status_stays() {
    let mut m = model();
    m.input(Input::Clock(Duration::from_secs(75)));
    m.input(Input::Lost("no scx_amp is running".into()));
    let shown = screen(&m, &FULL);
    assert!(
        shown.contains("nothing new for 1:15: no scx_amp is running"),
        "{shown}"
    );
    assert!(shown.contains("812 hash"), "{shown}");
    // one that simply does not answer
    let mut m = model();
    m.input(Input::Clock(Duration::from_secs(7)));
    assert!(screen(&m, &FULL).contains("no answer for 7 s"));
}

#[test]
fn what_is_wrong_stands_on_top() {
    let mut s = status(5);
    s.provider_failed = "the program ended; it is started again in 2 s".into();
    s.uncounted = "set 2 has lost its counters".into();
    s.rules = "3 rules in rules.toml".into();
    s.rules_failed = "rules.toml, line 4: key `prefr`".into();
    s.recording = [
        ("file", "/var/tmp/x"),
        ("bytes", "77"),
        ("ended", "disk full"),
    ]
    .map(|(k, v)| (k.to_owned(), v.to_owned()))
    .into();
    let shown = screen(&Model::new(None, s), &FULL);
    for wants in [
        "provider ipc-sampling (failed)",
        "it is started again in 2 s",
        "set 2 has lost its counters",
        "line 4: key `prefr`: the rules before hold on",
        "recording ended: disk full",
        "rules 3 rules in rules.toml",
    ] {
        assert!(shown.contains(wants), "{wants}\n{shown}");
    }
}

#[test]
fn escape_codes_in_names_do_not_reach_the_terminal() {
    let evil = "\x1b]0;owned\x07\x1b[2J";
    let mut s = status(5);
    // as it comes from a source
    s.per_thread[0].comm = clean(evil);
    // and even if it did not
    s.per_thread[1].comm = evil.into();
    s.cpus[0].comm = evil.into();
    s.policy = evil.into();
    s.provider_failed = evil.into();
    let mut m = Model::new(None, s);
    m.message = Some((evil.into(), false));
    for cell in &drawn(&m, &FULL, 120, 30).content {
        assert!(!cell.symbol().chars().any(char::is_control));
    }
}

#[test]
fn many_cpus_leave_room_for_threads() {
    let mut s = status(5);
    s.cpus = (0..256)
        .map(|cpu| crate::status::CpuStatus {
            cpu,
            core_type: if cpu < 64 { "big" } else { "little" }.into(),
            tid: i64::from(cpu % 2 == 0),
            comm: "x".into(),
        })
        .collect();
    s.per_thread = (0..50)
        .map(|i| ThreadStatus {
            placed: String::new(),
            ..thread(1000 + i, "many", "big", 1.0, 0.5)
        })
        .collect();
    let mut m = Model::new(None, s);
    let shown = screen(&m, &FULL);
    assert!(shown.contains("busy"), "{shown}");
    assert!(shown.matches("many").count() >= 7, "{shown}");
    // the mark takes the page along
    m.threads.select(49);
    assert!(screen(&m, &FULL).contains("1049 many"));
}

#[test]
fn boxes_say_what_is_asked() {
    let mut m = model();
    press(&mut m, "p");
    let shown = screen(&m, &FULL);
    assert!(
        shown.contains("> hsp") && shown.contains("acfs") && shown.contains("policy ─"),
        "{shown}"
    );
    press(&mut m, "v\n");
    let shown = screen(&m, &FULL);
    assert!(
        shown.contains("instead of hsp?") && shown.contains("y: yes"),
        "{shown}"
    );
    let mut m = model();
    press(&mut m, "o\n7");
    assert!(screen(&m, &FULL).contains("engine.probes (now 5) = 7_"));
    let mut m = model();
    press(&mut m, "v\n");
    let shown = screen(&m, &FULL);
    for wants in [
        "progress",
        "slowdown",
        "sf ",
        "± 0.0",
        "exact, 0.1 s old",
        "phase",
    ] {
        assert!(shown.contains(wants), "{wants}\n{shown}");
    }
    let mut m = model();
    press(&mut m, "?");
    let shown = screen(&m, &FULL);
    assert!(
        shown.contains("keys and columns") && shown.contains("all that is known of"),
        "{shown}"
    );
}

#[test]
fn energies_of_single_cpus_stand_back_behind_those_of_core_types() {
    let with = |names: &[&str]| {
        let mut s = status(11);
        s.virtual_counters = names.iter().map(|n| ((*n).to_owned(), 0.5)).collect();
        let mut m = model();
        m.input(Input::Status(Box::new(s)));
        screen(&m, &FULL)
    };
    let shown = with(&["energy_J big", "energy_J cpu0", "energy_J cpu12"]);
    assert!(shown.contains("energy_J big 0.5000"), "{shown}");
    assert!(!shown.contains("energy_J cpu"), "{shown}");
    let shown = with(&["energy_J cpu0", "energy_J cpu12"]);
    assert!(shown.contains("energy_J cpu12 0.5000"), "{shown}");
}
