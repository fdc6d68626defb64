//! Lines for standard output from a thread that must not wait for whoever reads them.

use std::io::Write;
use std::sync::mpsc::{sync_channel, SyncSender};

/// Lines that may wait; those above are left out.
const QUEUE: usize = 16;

/// Prints lines from a thread of its own.
#[derive(Debug)]
pub struct Printer {
    lines: Option<SyncSender<String>>,
}

impl Printer {
    /// Prints on standard output.
    pub fn stdout() -> Printer {
        Printer::to(std::io::stdout())
    }

    /// Prints on `out` until it fails. Without a thread nothing is printed.
    pub fn to(mut out: impl Write + Send + 'static) -> Printer {
        let (lines, queue) = sync_channel::<String>(QUEUE);
        let print = move || {
            for line in queue {
                let line = format!("{line}\n");
                let written = out.write_all(line.as_bytes()).and_then(|()| out.flush());
                if written.is_err() {
                    return;
                }
            }
        };
        let thread = std::thread::Builder::new().name("printer".into());
        Printer {
            lines: thread.spawn(print).ok().map(|_| lines),
        }
    }

    /// Has a line printed, unless many wait already or nobody reads any more.
    pub fn say(&self, line: String) {
        if let Some(lines) = &self.lines {
            let _ = lines.try_send(line);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::mpsc::{channel, Receiver, Sender};

    /// Takes its leave of each write.
    struct Slow {
        leave: Receiver<()>,
        written: Sender<Vec<u8>>,
    }

    impl Write for Slow {
        fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
            match self.leave.recv() {
                Ok(()) => self.written.send(bytes.to_vec()).unwrap(),
                Err(_) => return Err(std::io::ErrorKind::BrokenPipe.into()),
            }
            Ok(bytes.len())
        }

        fn flush(&mut self) -> std::io::Result<()> {
            Ok(())
        }
    }

    /// Bug 3 of the review: the scheduler ended with the reader of its lines.
    #[test]
    fn nobody_waits_for_a_reader_that_is_slow_or_gone() {
        let ((go, leave), (written, seen)) = (channel(), channel());
        let printer = Printer::to(Slow { leave, written });
        for n in 0..10 * QUEUE {
            printer.say(n.to_string());
        }
        // leave for more than can have been kept
        for _ in 0..10 * QUEUE {
            go.send(()).unwrap();
        }
        assert_eq!(seen.recv().unwrap(), b"0\n");
        drop(go);
        // what leave is left is used up; the thread ends with the first line that it cannot write
        loop {
            printer.say("more".into());
            if seen.recv().is_err() {
                break;
            }
        }
        for n in 0..10 * QUEUE {
            printer.say(n.to_string());
        }
    }
}
