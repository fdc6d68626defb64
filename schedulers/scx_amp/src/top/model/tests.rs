use super::dialog::{Confirm, What, MOST_TYPED};
use super::samples::{metric, status, thread};
use super::threads::HISTORY;
use super::*;
use ratatui::crossterm::event::{KeyCode, KeyModifiers};

fn press(model: &mut Model, code: KeyCode) -> Effect {
    model.input(Input::Key(KeyEvent::new(code, KeyModifiers::NONE)))
}

fn type_text(model: &mut Model, text: &str) {
    for c in text.chars() {
        assert_eq!(press(model, KeyCode::Char(c)), Effect::None);
    }
}

fn model() -> Model {
    Model::new(None, status(30))
}

fn names(model: &Model) -> Vec<&str> {
    model
        .threads
        .shown()
        .map(|r| r.thread.comm.as_str())
        .collect()
}

fn question(model: &Model) -> &Confirm {
    match &model.dialog {
        Dialog::Confirm(c) => c,
        other => panic!("{other:?}"),
    }
}

#[test]
fn q_and_ctrl_c_end_it() {
    assert_eq!(press(&mut model(), KeyCode::Char('q')), Effect::Quit);
    let ctrl_c = KeyEvent::new(KeyCode::Char('c'), KeyModifiers::CONTROL);
    for open in ['?', 'p', 'o', '/'] {
        let mut m = model();
        press(&mut m, KeyCode::Char(open));
        assert_ne!(m.dialog, Dialog::Closed);
        assert_eq!(m.input(Input::Key(ctrl_c)), Effect::Quit);
    }
    // within a box it closes the box
    let mut m = model();
    press(&mut m, KeyCode::Char('?'));
    assert_eq!(press(&mut m, KeyCode::Char('q')), Effect::None);
    assert_eq!(m.dialog, Dialog::Closed);
}

#[test]
fn a_change_of_policy_is_chosen_confirmed_and_asked_for() {
    let mut m = model();
    press(&mut m, KeyCode::Char('p'));
    let Dialog::Choose(list) = &m.dialog else {
        panic!("{:?}", m.dialog)
    };
    assert_eq!(
        (list.what, list.all[list.at].name.as_str()),
        (What::Policy, "hsp")
    );
    let rr = list.all.iter().position(|c| c.name == "rr").unwrap();
    for _ in list.at..rr {
        press(&mut m, KeyCode::Down);
    }
    assert_eq!(press(&mut m, KeyCode::Enter), Effect::None);
    assert_eq!(
        question(&m).question,
        "Put policy rr to work instead of hsp?"
    );
    let asked = press(&mut m, KeyCode::Char('y'));
    assert_eq!(asked, Effect::Ask(Request::Policy("rr".into())));
    assert!(m.waiting && m.dialog == Dialog::Closed);
    // one at a time
    press(&mut m, KeyCode::Char('p'));
    assert_eq!(m.dialog, Dialog::Closed);
    m.input(Input::Answer(Ok("rr (), provider none".into())));
    assert!(!m.waiting);
    assert_eq!(m.message, Some(("rr (), provider none".into(), true)));
    press(&mut m, KeyCode::Char('s'));
    assert_eq!(m.message, None);
}

#[test]
fn nothing_but_y_confirms() {
    for key in [
        KeyCode::Enter,
        KeyCode::Esc,
        KeyCode::Char('n'),
        KeyCode::Char(' '),
    ] {
        let mut m = model();
        press(&mut m, KeyCode::Char('P'));
        press(&mut m, KeyCode::Enter);
        question(&m);
        assert_eq!(press(&mut m, key), Effect::None);
        assert!(!m.waiting && m.dialog == Dialog::Closed);
    }
    // text that is pasted is no keys, wherever it is pasted
    let mut m = model();
    for _ in 0..3 {
        m.input(Input::Paste("p\ny".into()));
    }
    assert_eq!(m.dialog, Dialog::Closed);
}

#[test]
fn a_knob_is_typed_in() {
    let mut m = model();
    press(&mut m, KeyCode::Char('o'));
    let Dialog::Choose(list) = &m.dialog else {
        panic!("{:?}", m.dialog)
    };
    let knobs: Vec<_> = list
        .all
        .iter()
        .map(|c| (c.name.as_str(), c.value.as_str()))
        .collect();
    assert_eq!(knobs, [("engine.probes", "5"), ("threshold", "5")]);
    assert!(!list.all[0].about.is_empty());
    press(&mut m, KeyCode::Enter);
    // nothing is no value
    press(&mut m, KeyCode::Enter);
    assert!(matches!(m.dialog, Dialog::Type(_)));
    type_text(&mut m, "qy");
    press(&mut m, KeyCode::Backspace);
    press(&mut m, KeyCode::Backspace);
    m.input(Input::Paste("1\x1b2".into()));
    press(&mut m, KeyCode::Enter);
    assert_eq!(
        question(&m).question,
        "Set engine.probes to 1?2 instead of 5?"
    );
    assert_eq!(
        press(&mut m, KeyCode::Char('y')),
        Effect::Ask(Request::Set(vec!["engine.probes=1?2".into()]))
    );
    m.input(Input::Answer(Err("engine.probes: 1?2 is no number".into())));
    assert!(m.message.as_ref().is_some_and(|(_, done)| !done));
}

#[test]
fn a_policy_without_knobs_says_so() {
    let mut s = status(1);
    s.knobs.clear();
    let mut m = Model::new(None, s);
    press(&mut m, KeyCode::Char('o'));
    assert_eq!(m.dialog, Dialog::Closed);
    assert!(m.message.unwrap().0.contains("no knobs"));
}

#[test]
fn profiles_and_providers_may_be_files() {
    for (key, wants) in [
        ('P', Request::Profile("/my.toml".into())),
        ('m', Request::Provider("/my.toml".into())),
    ] {
        let mut m = model();
        press(&mut m, KeyCode::Char(key));
        press(&mut m, KeyCode::End);
        press(&mut m, KeyCode::Enter);
        type_text(&mut m, "/my.toml");
        press(&mut m, KeyCode::Enter);
        assert_eq!(press(&mut m, KeyCode::Char('y')), Effect::Ask(wants));
    }
    let mut m = model();
    press(&mut m, KeyCode::Char('m'));
    press(&mut m, KeyCode::Home);
    press(&mut m, KeyCode::Enter);
    assert_eq!(
        question(&m).question,
        "Put provider auto to work instead of ipc-sampling?"
    );
}

#[test]
fn fields_are_bounded() {
    let mut m = model();
    press(&mut m, KeyCode::Char('/'));
    m.input(Input::Paste("x".repeat(3 * MOST_TYPED)));
    assert_eq!(m.threads.filter().len(), MOST_TYPED);
}

#[test]
fn a_filter_shows_what_it_fits_as_it_is_typed() {
    let mut m = model();
    press(&mut m, KeyCode::Char('/'));
    type_text(&mut m, "HA");
    assert_eq!(names(&m), ["hash", "chase"]);
    type_text(&mut m, "s");
    press(&mut m, KeyCode::Enter);
    assert_eq!(
        (names(&m), m.dialog.clone()),
        (vec!["hash", "chase"], Dialog::Closed)
    );
    // Esc while it is typed goes back to the one before
    press(&mut m, KeyCode::Char('/'));
    type_text(&mut m, "zzz");
    assert!(names(&m).is_empty());
    press(&mut m, KeyCode::Esc);
    assert_eq!(m.threads.filter(), "HAs");
    // and over the table drops it
    press(&mut m, KeyCode::Esc);
    assert_eq!(names(&m).len(), 5);
    // ids, core types
    m.threads.set_filter("813");
    assert_eq!(names(&m), ["fp"]);
    m.threads.set_filter("big");
    assert_eq!(names(&m).len(), 2);
}

#[test]
fn it_is_sorted_either_way_and_what_is_not_known_comes_last() {
    let mut s = status(30);
    s.per_thread[1].metrics.clear();
    let gone = s.per_thread[1].comm.clone();
    let mut m = Model::new(None, s);
    press(&mut m, KeyCode::Char('s'));
    assert_eq!(m.threads.sort, Sort::Speedup);
    assert_eq!(names(&m)[0], "hash");
    assert_eq!(*names(&m).last().unwrap(), gone);
    press(&mut m, KeyCode::Char('r'));
    assert_eq!(names(&m)[0], "stream");
    assert_eq!(*names(&m).last().unwrap(), gone);
    for _ in 1..Sort::ALL.len() {
        press(&mut m, KeyCode::Char('s'));
    }
    assert_eq!((m.threads.sort, m.threads.reverse), (Sort::Cpu, false));
    m.threads.set_sort(Sort::Name, false);
    assert_eq!(names(&m), ["bzip2", "chase", "fp", "hash", "stream"]);
    m.threads.set_sort(Sort::Tid, true);
    assert_eq!(names(&m), ["bzip2", "chase", "stream", "fp", "hash"]);
}

#[test]
fn the_mark_stays_with_its_thread() {
    let mut m = model();
    m.threads.set_sort(Sort::Name, false);
    press(&mut m, KeyCode::Down);
    press(&mut m, KeyCode::Down);
    assert_eq!(m.threads.at(), Some(1));
    m.threads.set_sort(Sort::Name, true);
    assert_eq!(names(&m)[m.threads.at().unwrap()], "chase");
    press(&mut m, KeyCode::Enter);
    assert_eq!(m.dialog, Dialog::Details(815));
    // it ends: its details close, and its neighbour is marked
    let mut s = status(31);
    s.per_thread.retain(|t| t.tid != 815);
    m.input(Input::Status(Box::new(s)));
    assert_eq!(m.dialog, Dialog::Closed);
    assert_eq!(names(&m)[m.threads.at().unwrap()], "bzip2");
    press(&mut m, KeyCode::Esc);
    assert_eq!(m.threads.at(), None);
    // without threads there is nothing to mark
    let none = Status::default();
    let mut m = Model::new(None, none);
    for key in [
        KeyCode::Down,
        KeyCode::Up,
        KeyCode::End,
        KeyCode::Enter,
        KeyCode::PageDown,
    ] {
        press(&mut m, key);
        assert_eq!((m.threads.at(), &m.dialog), (None, &Dialog::Closed));
    }
}

#[test]
fn history_is_the_share_of_the_fastest_core_type_in_each_look() {
    let at = |uptime_s, cpu_s, big_s| Status {
        uptime_s,
        core_types: vec!["big".into(), "little".into()],
        per_thread: vec![thread(7, "x", "big", cpu_s, big_s)],
        ..Status::default()
    };
    let mut m = Model::new(None, at(1.0, 1.0, 1.0));
    let row = |m: &Model| m.threads.rows().next().unwrap().clone();
    assert_eq!((row(&m).cpu, row(&m).history.len()), (None, 0));
    m.input(Input::Status(Box::new(at(2.0, 1.5, 1.5))));
    m.input(Input::Status(Box::new(at(3.0, 2.5, 1.5))));
    m.input(Input::Status(Box::new(at(4.0, 2.5, 1.5))));
    assert_eq!(row(&m).cpu, Some(0.0));
    assert_eq!(row(&m).history, [Some(1.0), Some(0.0), None]);
    // it rests, and is in no status; then it is there again
    for _ in 0..2 {
        let mut s = at(5.0, 0.0, 0.0);
        s.per_thread.clear();
        m.input(Input::Status(Box::new(s)));
    }
    m.input(Input::Status(Box::new(at(7.0, 3.5, 2.0))));
    assert_eq!(
        row(&m).history,
        [Some(1.0), Some(0.0), None, None, None, Some(0.5)]
    );
    // another thread with its number
    m.input(Input::Status(Box::new(at(8.0, 0.1, 0.1))));
    assert_eq!((row(&m).cpu, row(&m).history.len()), (None, 0));
    // bounded
    for i in 0..2 * HISTORY as u64 {
        let t = 9.0 + i as f64;
        m.input(Input::Status(Box::new(at(t, t, 1.0))));
    }
    assert_eq!(row(&m).history.len(), HISTORY);
    // another scheduler counts from the start
    m.input(Input::Status(Box::new(at(1.0, 200.0, 1.0))));
    assert_eq!(row(&m).history.len(), 0);
    assert_eq!(m.swaps_per_s, None);
}

#[test]
fn factors_of_three_core_types_are_those_of_the_fastest() {
    let mut s = status(3);
    s.core_types = vec!["prime".into(), "big".into(), "little".into()];
    s.per_thread[0].metrics = [
        ("sf_big".to_owned(), metric(1.5, 0.0)),
        ("sf_prime".to_owned(), metric(2.5, 0.0)),
    ]
    .into();
    let m = Model::new(None, s);
    let row = m.threads.rows().next().unwrap();
    assert_eq!(row.metric("sf").map(|m| m.value), Some(2.5));
    assert_eq!(row.metric("ef"), None);
}

#[test]
fn silence_is_counted_from_the_last_status() {
    let mut m = model();
    let secs = Duration::from_secs;
    m.input(Input::Clock(secs(5)));
    m.input(Input::Lost("gone".into()));
    m.input(Input::Clock(secs(9)));
    assert_eq!((m.silence(), m.lost.as_deref()), (secs(9), Some("gone")));
    m.input(Input::Status(Box::new(status(31))));
    assert_eq!((m.silence(), m.lost.clone()), (secs(0), None));
}

#[test]
fn the_help_scrolls_to_its_end_and_no_further() {
    let mut m = model();
    press(&mut m, KeyCode::Char('?'));
    for _ in 0..100 {
        press(&mut m, KeyCode::PageDown);
    }
    assert_eq!(m.dialog, Dialog::Help(HELP.len() - 1));
    for _ in 0..100 {
        press(&mut m, KeyCode::Up);
    }
    assert_eq!(m.dialog, Dialog::Help(0));
}
