//! What each key does.

use super::choices::A_FILE;
use super::dialog::{Choose, Confirm, Dialog, Field, What, MOST_TYPED};
use super::{Effect, Model};
use crate::control::Request;
use crate::top::source::clean;
use ratatui::crossterm::event::{KeyCode, KeyEvent, KeyEventKind, KeyModifiers};

/// Lines that a page key moves.
const PAGE: usize = 10;

/// What each key does, for the page on `?`; an empty line is a gap.
pub const HELP: &[(&str, &str)] = &[
    ("q, Ctrl-C", "end"),
    ("?", "this page"),
    ("up, down, PgUp, PgDn", "mark a thread (also j, k)"),
    ("Enter", "all that is known of the marked thread"),
    ("Esc", "mark none, drop the filter"),
    ("/", "show only threads with this in name, rule, core"),
    ("", "type or ids"),
    ("s, r", "sort by the next column; the other way round"),
    ("", ""),
    ("p", "change the policy"),
    ("P", "change the profile"),
    ("m", "change the provider of metrics"),
    ("o", "turn a knob"),
    ("", "y confirms a change, every other key drops it"),
    ("", ""),
    ("on, to", "core type it ran on last, and is placed on"),
    ("cpu%", "share of a CPU since the last look"),
    ("SF, EF", "speedup and efficiency factor, with uncertainty"),
    ("slow", "slowdown, as far as core types are to blame"),
    ("work s", "what it has done, in seconds of fast core alone"),
    ("phase", "number of its present phase"),
    ("big%", "share of its CPU time on the fastest core type"),
    ("history", "the same between each two looks, the last on"),
    ("", "the right; a gap where it did not run"),
];

/// A key was pressed.
pub fn key(model: &mut Model, key: KeyEvent) -> Effect {
    if key.kind == KeyEventKind::Release {
        return Effect::None;
    }
    let control = key.modifiers.contains(KeyModifiers::CONTROL);
    if control && key.code == KeyCode::Char('c') {
        return Effect::Quit;
    }
    if control || key.modifiers.contains(KeyModifiers::ALT) {
        return Effect::None;
    }
    model.message = None;
    match std::mem::replace(&mut model.dialog, Dialog::Closed) {
        Dialog::Closed => return table(model, key.code),
        Dialog::Help(from) => {
            let last = HELP.len() - 1;
            model.dialog = match key.code {
                KeyCode::Down | KeyCode::Char('j') => Dialog::Help((from + 1).min(last)),
                KeyCode::Up | KeyCode::Char('k') => Dialog::Help(from.saturating_sub(1)),
                KeyCode::PageDown => Dialog::Help((from + PAGE).min(last)),
                KeyCode::PageUp => Dialog::Help(from.saturating_sub(PAGE)),
                _ => Dialog::Closed,
            };
        }
        Dialog::Details(tid) => {
            model.dialog = match key.code {
                KeyCode::Down | KeyCode::Char('j') => moved(model, 1),
                KeyCode::Up | KeyCode::Char('k') => moved(model, -1),
                KeyCode::Esc | KeyCode::Enter | KeyCode::Char('q') => Dialog::Closed,
                _ => Dialog::Details(tid),
            };
        }
        Dialog::Filter(before) => model.dialog = filter(model, before, key.code),
        Dialog::Choose(list) => model.dialog = choose(model, list, key.code),
        Dialog::Type(field) => model.dialog = type_in(field, key.code),
        Dialog::Confirm(c) => match key.code {
            KeyCode::Char('y' | 'Y') => {
                model.waiting = true;
                return Effect::Ask(c.request);
            }
            _ => model.message = Some(("nothing was changed".into(), true)),
        },
    }
    Effect::None
}

/// Text was pasted: into a field, or else nowhere, for it is not meant as keys.
pub fn paste(model: &mut Model, text: &str) {
    let text = clean(text);
    match &mut model.dialog {
        Dialog::Filter(_) => {
            let mut filter = model.threads.filter().to_owned();
            typed(&mut filter, &text);
            model.threads.set_filter(&filter);
        }
        Dialog::Type(field) => typed(&mut field.text, &text),
        _ => {}
    }
}

fn typed(field: &mut String, text: &str) {
    let room = MOST_TYPED.saturating_sub(field.chars().count());
    field.extend(text.chars().take(room));
}

/// A key over the table.
fn table(model: &mut Model, key: KeyCode) -> Effect {
    let last = model.threads.shown().len();
    match key {
        KeyCode::Char('q') => return Effect::Quit,
        KeyCode::Char('?' | 'h') | KeyCode::F(1) => model.dialog = Dialog::Help(0),
        KeyCode::Char('/') => {
            model.dialog = Dialog::Filter(model.threads.filter().to_owned());
        }
        KeyCode::Char('s') => {
            let sort = model.threads.sort.next();
            model.threads.set_sort(sort, false);
        }
        KeyCode::Char('r') => {
            let (sort, reverse) = (model.threads.sort, model.threads.reverse);
            model.threads.set_sort(sort, !reverse);
        }
        KeyCode::Down | KeyCode::Char('j') => drop(moved(model, 1)),
        KeyCode::Up | KeyCode::Char('k') => drop(moved(model, -1)),
        KeyCode::PageDown => drop(moved(model, PAGE as isize)),
        KeyCode::PageUp => drop(moved(model, -(PAGE as isize))),
        KeyCode::Home => model.threads.select(0),
        KeyCode::End => model.threads.select(last),
        KeyCode::Enter => {
            let at = model.threads.at();
            let row = at.and_then(|at| model.threads.shown().nth(at));
            if let Some(tid) = row.map(|r| r.thread.tid) {
                model.dialog = Dialog::Details(tid);
            }
        }
        KeyCode::Esc => match model.threads.at() {
            Some(_) => model.threads.select_none(),
            None => model.threads.set_filter(""),
        },
        KeyCode::Char('p') => open(model, What::Policy),
        KeyCode::Char('P') => open(model, What::Profile),
        KeyCode::Char('m') => open(model, What::Provider),
        KeyCode::Char('o') => open(model, What::Knob),
        _ => {}
    }
    Effect::None
}

/// Marks the thread so many lines further on; its details, should they be open.
fn moved(model: &mut Model, lines: isize) -> Dialog {
    let at = match (model.threads.at(), lines > 0) {
        (Some(at), _) => at.saturating_add_signed(lines),
        (None, true) => 0,
        (None, false) => usize::MAX,
    };
    model.threads.select(at);
    let at = model.threads.at();
    let row = at.and_then(|at| model.threads.shown().nth(at));
    row.map_or(Dialog::Closed, |r| Dialog::Details(r.thread.tid))
}

fn open(model: &mut Model, what: What) {
    if model.waiting {
        model.message = Some(("the last change is not answered yet".into(), false));
        return;
    }
    let list = Choose::of(what, &model.status);
    if list.all.is_empty() {
        let said = format!("policy {} has no knobs", model.status.policy);
        model.message = Some((said, false));
        return;
    }
    model.dialog = Dialog::Choose(list);
}

fn filter(model: &mut Model, before: String, key: KeyCode) -> Dialog {
    let mut text = model.threads.filter().to_owned();
    match key {
        KeyCode::Enter => return Dialog::Closed,
        KeyCode::Esc => {
            model.threads.set_filter(&before);
            return Dialog::Closed;
        }
        KeyCode::Backspace => drop(text.pop()),
        KeyCode::Char(c) => typed(&mut text, &clean(&c.to_string())),
        _ => {}
    }
    model.threads.set_filter(&text);
    Dialog::Filter(before)
}

fn choose(model: &Model, mut list: Choose, key: KeyCode) -> Dialog {
    let last = list.all.len().saturating_sub(1);
    match key {
        KeyCode::Down | KeyCode::Char('j') => list.at = (list.at + 1).min(last),
        KeyCode::Up | KeyCode::Char('k') => list.at = list.at.saturating_sub(1),
        KeyCode::PageDown => list.at = (list.at + PAGE).min(last),
        KeyCode::PageUp => list.at = list.at.saturating_sub(PAGE),
        KeyCode::Home => list.at = 0,
        KeyCode::End => list.at = last,
        KeyCode::Esc | KeyCode::Char('q') => return Dialog::Closed,
        KeyCode::Enter => return chosen(model, &list),
        _ => {}
    }
    Dialog::Choose(list)
}

fn chosen(model: &Model, list: &Choose) -> Dialog {
    let Some(choice) = list.all.get(list.at) else {
        return Dialog::Closed;
    };
    let name = choice.name.clone();
    if list.what == What::Knob || name == A_FILE {
        return Dialog::Type(Field {
            what: list.what,
            name,
            now: choice.value.clone(),
            text: String::new(),
        });
    }
    let s = &model.status;
    let (request, kind, now) = match list.what {
        What::Policy => (Request::Policy(name.clone()), "policy", &s.policy),
        What::Profile => (Request::Profile(name.clone()), "profile", &s.profile),
        _ => (Request::Provider(name.clone()), "provider", &s.provider),
    };
    let instead = match now.as_str() {
        "" => String::new(),
        now => format!(" instead of {now}"),
    };
    Dialog::Confirm(Confirm {
        request,
        question: format!("Put {kind} {name} to work{instead}?"),
    })
}

fn type_in(mut field: Field, key: KeyCode) -> Dialog {
    match key {
        KeyCode::Esc => return Dialog::Closed,
        KeyCode::Enter if !field.text.trim().is_empty() => return typed_in(&field),
        KeyCode::Backspace => drop(field.text.pop()),
        KeyCode::Char(c) => typed(&mut field.text, &clean(&c.to_string())),
        _ => {}
    }
    Dialog::Type(field)
}

fn typed_in(field: &Field) -> Dialog {
    let text = field.text.trim().to_owned();
    let (request, question) = match field.what {
        What::Knob => (
            Request::Set(vec![format!("{}={text}", field.name)]),
            format!("Set {} to {text} instead of {}?", field.name, field.now),
        ),
        what => {
            let question = format!("Put {text} to work?");
            let request = match what {
                What::Policy => Request::Policy(text),
                What::Profile => Request::Profile(text),
                _ => Request::Provider(text),
            };
            (request, question)
        }
    };
    Dialog::Confirm(Confirm { request, question })
}
