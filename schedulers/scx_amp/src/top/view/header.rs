//! The first lines: who schedules, how, and whether all is well.

use super::text::{cut, flow, wrap};
use super::Theme;
use crate::top::model::Model;
use ratatui::text::{Line, Span};

/// Silence that is worth telling, in seconds.
const SILENT: f64 = 3.0;

/// The lines, `most` at most; what is wrong comes before figures.
pub fn lines(model: &Model, theme: &Theme, width: usize, most: usize) -> Vec<Line<'static>> {
    let s = &model.status;
    let mut lines = title(model, theme, width);
    for trouble in troubles(model) {
        let wrapped = wrap(&trouble, width).into_iter();
        lines.extend(wrapped.take(2).map(|l| Line::styled(l, theme.bad())));
    }
    let mut figures = vec![
        figure(
            "threads",
            format!("{} ({} active)", s.threads, s.active),
            theme,
        ),
        figure("swaps", swaps(model), theme),
    ];
    if s.swap_latency_p50_us > 0.0 {
        let latency = format!("{:.0} us", s.swap_latency_p50_us);
        figures.push(figure("latency", latency, theme));
    }
    for (name, n) in [
        ("probes", s.probes),
        ("fallbacks", s.fallbacks),
        ("unread", s.unread),
    ] {
        if n > 0 {
            figures.push(figure(name, n.to_string(), theme));
        }
    }
    if s.untracked > 0 {
        figures.push(figure("untracked", s.untracked.to_string(), theme));
    }
    if s.interval_ms > 0 {
        figures.push(figure("every", format!("{} ms", s.interval_ms), theme));
    }
    if !s.rules.is_empty() {
        figures.push(figure("rules", s.rules.clone(), theme));
    }
    if let Some(file) = s.recording.get("file") {
        let bytes = s.recording.get("bytes").map_or("?", String::as_str);
        figures.push(figure("records", format!("{file} ({bytes} bytes)"), theme));
    }
    let knobs = s.knobs.iter().map(|(k, v)| figure(k, v.clone(), theme));
    // those of single CPUs are in `ctl status`
    let of_types = s.virtual_counters.keys().any(|k| !is_of_a_cpu(k));
    let shown = s.virtual_counters.iter();
    let shown = shown.filter(|(k, _)| !of_types || !is_of_a_cpu(k));
    let energies = shown.map(|(k, v)| figure(k, format!("{v:.4}"), theme));
    for items in [figures, knobs.collect(), energies.collect()] {
        let items: Vec<_> = items.into_iter().map(|i| narrow(i, width, theme)).collect();
        let room = most.saturating_sub(lines.len());
        let (more, out) = flow(items, width, room.min(3));
        lines.extend(more);
        if let (Some(last), true) = (lines.last_mut(), out > 0 && room > 0) {
            last.push_span(Span::styled(format!(" {}", theme.more()), theme.faint()));
        }
    }
    lines.truncate(most);
    lines
}

/// Whether a virtual counter, `NAME_UNIT WHERE`, is that of a single CPU.
fn is_of_a_cpu(name: &str) -> bool {
    let (_, place) = name.rsplit_once(' ').unwrap_or_default();
    let number = place.strip_prefix("cpu").unwrap_or_default();
    !number.is_empty() && number.bytes().all(|b| b.is_ascii_digit())
}

fn title(model: &Model, theme: &Theme, width: usize) -> Vec<Line<'static>> {
    let s = &model.status;
    let host = model.host.as_deref().map(|h| format!(" on {h}"));
    let profile = match s.profile.as_str() {
        "" => String::new(),
        name => format!("  profile {name}"),
    };
    let health = if s.provider_failed.is_empty() {
        ""
    } else {
        " (failed)"
    };
    let text = format!(
        "scx_amp{}{profile}  policy {}  provider {}{health}  up {}",
        host.unwrap_or_default(),
        s.policy,
        s.provider,
        duration(s.uptime_s)
    );
    let text = super::text::fit(&text, width, false, theme);
    vec![Line::styled(text, theme.title())]
}

/// What is wrong, the worst first.
fn troubles(model: &Model) -> Vec<String> {
    let s = &model.status;
    let mut all = Vec::new();
    let silent = model.silence().as_secs_f64();
    if let Some(why) = &model.lost {
        all.push(format!("nothing new for {}: {why}", duration(silent)));
    } else if silent >= SILENT {
        all.push(format!("no answer for {}", duration(silent)));
    }
    if !s.provider_failed.is_empty() {
        all.push(format!("provider {}: {}", s.provider, s.provider_failed));
    }
    if !s.uncounted.is_empty() {
        all.push(s.uncounted.clone());
    }
    if !s.rules_failed.is_empty() {
        all.push(format!("{}: the rules before hold on", s.rules_failed));
    }
    if let Some(why) = s.recording.get("ended") {
        all.push(format!("recording ended: {why}"));
    }
    all
}

fn swaps(model: &Model) -> String {
    let total = model.status.swaps;
    match model.swaps_per_s {
        Some(rate) => format!("{total} ({rate:.1}/s)"),
        None => total.to_string(),
    }
}

fn figure(name: &str, value: String, theme: &Theme) -> Vec<Span<'static>> {
    vec![
        Span::styled(format!("{name} "), theme.faint()),
        Span::raw(value),
    ]
}

/// An item that fits into a line.
fn narrow(item: Vec<Span<'static>>, width: usize, theme: &Theme) -> Vec<Span<'static>> {
    let mut left = width;
    let spans = item.into_iter().map(|span| {
        let text = cut(&span.content, left, theme);
        left = left.saturating_sub(super::text::width(&text));
        Span::styled(text, span.style)
    });
    spans.collect()
}

/// Seconds as people say them.
pub fn duration(seconds: f64) -> String {
    // a negative or absurd figure of another machine is 0 or the largest
    let s = seconds as u64;
    match (s / 86400, s / 3600 % 24, s / 60 % 60, s % 60) {
        (0, 0, 0, s) => format!("{s} s"),
        (0, 0, m, s) => format!("{m}:{s:02}"),
        (0, h, m, s) => format!("{h}:{m:02}:{s:02}"),
        (d, h, m, _) => format!("{d} d {h}:{m:02}"),
    }
}
