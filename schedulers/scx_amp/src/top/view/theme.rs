//! Colours and signs, as far as the terminal has them.

use ratatui::style::{Color, Modifier, Style};

/// Colours and signs.
#[derive(Clone, Copy, Debug)]
pub struct Theme {
    /// Whether there are colours; bold, faint and reversed there are anyway.
    pub colour: bool,
    /// Whether there are signs beyond ASCII.
    pub unicode: bool,
}

impl Theme {
    /// As the environment says: `NO_COLOR`, and the character set of the locale.
    pub fn of_environment() -> Theme {
        let set = |name: &str| std::env::var(name).ok().filter(|v| !v.is_empty());
        Theme::of(set)
    }

    /// The same from variables that are set and not empty.
    pub fn of(set: impl Fn(&str) -> Option<String>) -> Theme {
        // the first of them that is set holds
        let locale = ["LC_ALL", "LC_CTYPE", "LANG"].into_iter().find_map(&set);
        let locale = locale.unwrap_or_default().to_ascii_lowercase();
        Theme {
            colour: set("NO_COLOR").is_none(),
            unicode: locale.contains("utf-8") || locale.contains("utf8"),
        }
    }

    fn coloured(self, style: Style, colour: Color) -> Style {
        if self.colour {
            style.fg(colour)
        } else {
            style
        }
    }

    /// What matters.
    pub fn strong(&self) -> Style {
        Style::new().add_modifier(Modifier::BOLD)
    }

    /// What is there to be overlooked.
    pub fn faint(&self) -> Style {
        Style::new().add_modifier(Modifier::DIM)
    }

    /// What is wrong.
    pub fn bad(&self) -> Style {
        self.coloured(self.strong(), Color::Red)
    }

    /// A line of titles.
    pub fn title(&self) -> Style {
        Style::new().add_modifier(Modifier::REVERSED)
    }

    /// What is marked.
    pub fn marked(&self) -> Style {
        self.title()
    }

    /// Core type number `index` of `types`: the fastest one is strong without colours, too.
    pub fn core_type(&self, index: usize, types: usize) -> Style {
        match index {
            0 => self.coloured(self.strong(), Color::Yellow),
            i if i + 1 == types => self.coloured(Style::new(), Color::Cyan),
            _ => self.coloured(Style::new(), Color::Green),
        }
    }

    /// Plus or minus.
    pub fn plus_minus(&self) -> &'static str {
        if self.unicode {
            "±"
        } else {
            "+-"
        }
    }

    /// Something was left out.
    pub fn more(&self) -> &'static str {
        if self.unicode {
            "…"
        } else {
            "~"
        }
    }

    /// A share from 0 to 1 as one cell.
    pub fn level(&self, share: f64) -> char {
        const BLOCKS: [char; 8] = ['▁', '▂', '▃', '▄', '▅', '▆', '▇', '█'];
        const ASCII: [char; 8] = ['_', '.', ':', '-', '=', '+', '*', '#'];
        let levels = if self.unicode { BLOCKS } else { ASCII };
        // what is no number is 0
        levels[((share * 7.0).round() as usize).min(7)]
    }
}
