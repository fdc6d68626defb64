//! The guest's console: bytes of the serial line into lines, and who wrote them.

use crate::event::Origin;
use crate::job::{BEGIN, END, MARK};
use std::collections::VecDeque;

/// How many last lines an error shows.
const TAIL: usize = 25;

/// Follows a console.
#[derive(Debug, Default)]
pub struct Console {
    partial: Vec<u8>,
    in_script: bool,
    panic: Option<String>,
    tail: VecDeque<String>,
    text: String,
}

impl Console {
    /// Takes bytes and hands over the lines they complete.
    pub fn feed(&mut self, bytes: &[u8], line: &mut dyn FnMut(String, Origin)) {
        for b in bytes {
            if *b == b'\n' {
                let done = std::mem::take(&mut self.partial);
                self.line(&done, line);
            } else {
                self.partial.push(*b);
            }
        }
    }

    /// The line is closed: what is left is a line.
    pub fn end(&mut self, line: &mut dyn FnMut(String, Origin)) {
        let rest = std::mem::take(&mut self.partial);
        if !rest.is_empty() {
            self.line(&rest, line);
        }
    }

    fn line(&mut self, bytes: &[u8], tell: &mut dyn FnMut(String, Origin)) {
        let text = String::from_utf8_lossy(bytes);
        let text = text.trim_end_matches('\r');
        // What stands before the mark is output whose last line had no end.
        let (text, mark) = match text.split_once(MARK) {
            Some((before, m)) => (before, Some(m)),
            None => (text, None),
        };
        if mark.is_none() || !text.is_empty() {
            let from = if self.in_script {
                Origin::Script
            } else {
                Origin::Kernel
            };
            if let Some(i) = text.find("Kernel panic - not syncing") {
                self.panic.get_or_insert_with(|| text[i..].to_string());
            }
            if self.tail.len() == TAIL {
                self.tail.pop_front();
            }
            self.tail.push_back(text.to_string());
            if from == Origin::Script {
                self.text.push_str(text);
                self.text.push('\n');
            }
            tell(text.to_string(), from);
        }
        match mark {
            Some(m) if m.starts_with(BEGIN) => self.in_script = true,
            Some(m) if m.starts_with(END) => self.in_script = false,
            _ => {}
        }
    }

    /// The panic line, when the kernel panicked.
    pub fn panic(&self) -> Option<&str> {
        self.panic.as_deref()
    }

    /// The last lines.
    pub fn tail(&self) -> Vec<String> {
        self.tail.iter().cloned().collect()
    }

    /// Everything the script printed.
    pub fn into_script_output(self) -> String {
        self.text
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lines(input: &str, chunk: usize) -> (Vec<(String, Origin)>, Console) {
        let (mut c, mut out) = (Console::default(), Vec::new());
        for part in input.as_bytes().chunks(chunk) {
            c.feed(part, &mut |l, o| out.push((l, o)));
        }
        c.end(&mut |l, o| out.push((l, o)));
        (out, c)
    }

    #[test]
    fn kernel_and_script_are_told_apart_whatever_the_chunks() {
        let input = "booting\r\n\u{1e}amp:begin\none\ntwo\u{1e}amp:end 0\nbye";
        for chunk in 1..12 {
            let (out, c) = lines(input, chunk);
            let want = [
                ("booting", Origin::Kernel),
                ("one", Origin::Script),
                ("two", Origin::Script),
                ("bye", Origin::Kernel),
            ];
            assert_eq!(out, want.map(|(l, o)| (l.to_string(), o)));
            assert_eq!(c.into_script_output(), "one\ntwo\n");
        }
    }

    #[test]
    fn panics_are_noticed_and_the_tail_is_bounded() {
        let mut text: String = (0..100).map(|i| format!("line {i}\n")).collect();
        text.push_str("[ 1.0] Kernel panic - not syncing: Attempted to kill init!\n");
        let (_, c) = lines(&text, 7);
        assert_eq!(
            c.panic(),
            Some("Kernel panic - not syncing: Attempted to kill init!")
        );
        assert_eq!(c.tail().len(), TAIL);
    }
}
