//! Where a status comes from and where changes go: this machine's socket, or another machine
//! through ssh.
//!
//! Names of threads are chosen by whoever runs them, and everything that comes through ssh by
//! another machine: nothing of it reaches a terminal before [`clean`] has been over it.

use crate::control;
#[cfg(feature = "screen")]
use crate::control::Request;
use crate::status::Status;
use amp_host::bad_input;
use anyhow::{bail, Context, Result};
use serde_json::Value;
use std::io::Read;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::mpsc::channel;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

/// Most bytes of an answer that are read: some 100,000 threads.
const MOST: u64 = 64 << 20;
/// Most bytes of what ssh complains that are read.
const MOST_SAID: u64 = 64 << 10;
/// Most characters of a single text: several screens.
const MOST_TEXT: usize = 4096;
/// Time between two looks whether ssh has ended, once it says nothing more.
const LOOK: Duration = Duration::from_millis(10);
/// How long what ssh complains of is waited for once it has ended.
const LAST_WORDS: Duration = Duration::from_secs(1);

/// Where a status comes from.
#[derive(Clone)]
pub enum Source {
    /// The socket of this machine.
    Here,
    /// `scx_amp ctl` on another machine.
    Ssh(Remote),
}

/// Another machine.
#[derive(Clone)]
pub struct Remote {
    host: String,
    /// The ssh that is at work.
    child: Arc<Mutex<Option<Child>>>,
}

impl Source {
    /// This machine, or the `host`.
    ///
    /// # Errors
    /// [`amp_host::BadInput`] when ssh would take the host for an option.
    pub fn new(host: Option<&str>) -> Result<Source> {
        let Some(host) = host else {
            return Ok(Source::Here);
        };
        if host.is_empty() || host.starts_with('-') || host.chars().any(char::is_control) {
            return Err(bad_input(format!(
                "--ssh {host:?}: want the name of a host, as ssh takes it"
            )));
        }
        Ok(Source::Ssh(Remote {
            host: host.to_owned(),
            child: Arc::default(),
        }))
    }

    /// The other machine's name.
    #[cfg(feature = "screen")]
    pub fn host(&self) -> Option<&str> {
        match self {
            Source::Here => None,
            Source::Ssh(remote) => Some(&remote.host),
        }
    }

    /// The status of the scheduler, fit for a terminal.
    ///
    /// # Errors
    /// When none is running, or the caller may not ask it.
    pub fn ask(&self) -> Result<Status> {
        let mut answer = match self {
            Source::Here => control::ask_json()?,
            Source::Ssh(remote) => {
                let text = remote.run(&["status", "--json", "-"])?;
                serde_json::from_slice(&text).with_context(|| remote.unreadable())?
            }
        };
        clean_json(&mut answer);
        serde_json::from_value(answer).with_context(|| match self {
            Source::Here => control::UNREADABLE.to_owned(),
            Source::Ssh(remote) => remote.unreadable(),
        })
    }

    /// Changes the scheduler; what is different now.
    ///
    /// # Errors
    /// [`amp_host::BadInput`] when the request is not right; failed work when it cannot be done.
    #[cfg(feature = "screen")]
    pub fn change(&self, request: &Request) -> Result<String> {
        let said = match self {
            Source::Here => control::change(&from_here(request)?)?,
            Source::Ssh(remote) => {
                let words = words(request)?;
                let words: Vec<&str> = words.iter().map(String::as_str).collect();
                String::from_utf8_lossy(&remote.run(&words)?).into_owned()
            }
        };
        Ok(clean(said.trim()))
    }

    /// Ends what is waited for, so that nobody waits for it any more.
    #[cfg(feature = "screen")]
    pub fn end(&self) {
        if let Source::Ssh(remote) = self {
            if let Some(child) = remote.child().as_mut() {
                // it may have ended just now
                let _ = child.kill();
            }
        }
    }
}

impl Remote {
    fn child(&self) -> std::sync::MutexGuard<'_, Option<Child>> {
        self.child.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn unreadable(&self) -> String {
        format!(
            "--ssh {}: the answer cannot be read (another version?)",
            self.host
        )
    }

    /// What `scx_amp ctl` with these words prints on the host.
    fn run(&self, ctl: &[&str]) -> Result<Vec<u8>> {
        let mut child = Command::new("ssh")
            .args(["-T", "-o", "BatchMode=yes", "-o", "ConnectTimeout=10"])
            // a host that is gone is noticed within 15 s
            .args(["-o", "ServerAliveInterval=5", "--"])
            .args([&self.host, "scx_amp", "ctl"])
            .args(ctl)
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .context("cannot run ssh")?;
        let (out, err) = (child.stdout.take(), child.stderr.take());
        *self.child() = Some(child);
        let (tell, complaints) = channel();
        std::thread::spawn(move || {
            let mut said = Vec::new();
            // what cannot be read is not told, and nobody may be listening any more
            let _ = err.map(|e| e.take(MOST_SAID).read_to_end(&mut said));
            let _ = tell.send(String::from_utf8_lossy(&said).into_owned());
        });
        let mut text = Vec::new();
        let read = out.map(|o| o.take(MOST + 1).read_to_end(&mut text));
        if text.len() as u64 > MOST {
            // it is waited for below
            if let Some(child) = self.child().as_mut() {
                let _ = child.kill();
            }
        }
        let status = self.ended()?;
        if text.len() as u64 > MOST {
            bail!("--ssh {}: the answer has over {MOST} bytes", self.host);
        }
        read.transpose()
            .with_context(|| format!("--ssh {}", self.host))?;
        if status.success() {
            return Ok(text);
        }
        // a child of ssh that goes on (ControlPersist) keeps the pipe open
        let said = complaints.recv_timeout(LAST_WORDS).unwrap_or_default();
        let said = match said.trim() {
            "" => format!("ssh ended ({status})"),
            said => clean(said),
        };
        let said = format!("--ssh {}: {said}", self.host);
        match status.code() {
            // as `scx_amp ctl` ends on bad input
            Some(2) => Err(bad_input(said)),
            _ => bail!(said),
        }
    }

    /// How ssh ended, once it has; the lock is open meanwhile, so that it can be killed.
    fn ended(&self) -> Result<ExitStatus> {
        loop {
            let mut child = self.child();
            let running = child.as_mut().context("ssh has ended")?;
            if let Some(status) = running.try_wait()? {
                *child = None;
                return Ok(status);
            }
            drop(child);
            std::thread::sleep(LOOK);
        }
    }
}

/// The request with files by their absolute paths.
#[cfg(feature = "screen")]
fn from_here(request: &Request) -> Result<Request> {
    Ok(match request.clone() {
        Request::Profile(name) => Request::Profile(crate::absolute_file(name)?),
        Request::Provider(name) => Request::Provider(crate::absolute_file(name)?),
        other => other,
    })
}

/// The words of `scx_amp ctl` that make this request. ssh hands them to a shell over there: no word
/// has anything in it that any shell reads as more than a word.
#[cfg(feature = "screen")]
fn words(request: &Request) -> Result<Vec<String>> {
    let (command, args) = match request {
        Request::Status => ("status", &[][..]),
        Request::Policy(name) => ("policy", std::slice::from_ref(name)),
        Request::Profile(name) => ("profile", std::slice::from_ref(name)),
        Request::Provider(name) => ("provider", std::slice::from_ref(name)),
        Request::Set(settings) => ("set", settings.as_slice()),
        Request::Memory => ("memory", &[][..]),
        // no key of `top` does
        Request::Forget(_) => return Err(bad_input("`scx_amp ctl memory forget` forgets")),
    };
    let plain = |c: char| c.is_ascii_alphanumeric() || "._/=,:+-".contains(c);
    let begins = |c: char| c.is_ascii_alphanumeric() || "./".contains(c);
    for word in args {
        if !word.starts_with(begins) || !word.chars().all(plain) {
            return Err(bad_input(format!(
                "`{}`: through ssh only letters, digits and ._/=,:+- can be said",
                clean(word)
            )));
        }
    }
    Ok(std::iter::once(command.to_owned())
        .chain(args.iter().cloned())
        .collect())
}

/// The text without anything that a terminal would obey, or that would change the direction of
/// what is written: a space for a line's end or a tab, `?` for the rest. What is very long is cut.
pub fn clean(text: &str) -> String {
    let shown = |c: char| match c {
        '\n' | '\t' => ' ',
        '\u{61c}'
        | '\u{200b}'..='\u{200f}'
        | '\u{2028}'..='\u{202e}'
        | '\u{2060}'..='\u{206f}'
        | '\u{feff}'
        | '\u{fff9}'..='\u{fffb}'
        | '\u{e0000}'..='\u{e007f}' => '?',
        c if c.is_control() => '?',
        c => c,
    };
    text.chars().take(MOST_TEXT).map(shown).collect()
}

/// [`clean`] over every text and key.
fn clean_json(value: &mut Value) {
    match value {
        Value::String(text) => *text = clean(text),
        Value::Array(all) => all.iter_mut().for_each(clean_json),
        Value::Object(all) => {
            let old = std::mem::take(all);
            all.extend(old.into_iter().map(|(key, mut value)| {
                clean_json(&mut value);
                (clean(&key), value)
            }));
        }
        Value::Null | Value::Bool(_) | Value::Number(_) => {}
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use amp_host::BadInput;

    #[test]
    fn nothing_that_a_terminal_obeys_comes_through() {
        for (text, wants) in [
            ("a\x1b[2Jb", "a?[2Jb"),
            ("\u{9b}31m", "?31m"),
            ("x\r\ny\tz", "x? y z"),
            ("\u{202e}evil\u{2066}", "?evil?"),
            ("grüße 火 e\u{301}", "grüße 火 e\u{301}"),
        ] {
            assert_eq!(clean(text), wants);
        }
        let mut value = serde_json::json!({"\x07k": [{"a": "\x1b]0;x\x07"}, 1, null]});
        clean_json(&mut value);
        assert_eq!(value, serde_json::json!({"?k": [{"a": "?]0;x?"}, 1, null]}));
    }

    #[test]
    fn a_host_that_ssh_takes_for_an_option_is_refused() {
        for host in ["-oProxyCommand=true", "", "a\x1b[2J"] {
            let e = Source::new(Some(host)).err().unwrap();
            assert!(e.is::<BadInput>() && e.to_string().contains("--ssh"), "{e}");
            assert!(!e.to_string().contains('\x1b'));
        }
        assert!(matches!(
            Source::new(Some("me@board")).unwrap(),
            Source::Ssh(remote) if remote.host == "me@board"
        ));
        assert!(matches!(Source::new(None).unwrap(), Source::Here));
    }

    #[cfg(feature = "screen")]
    #[test]
    fn no_word_means_more_to_a_shell_than_itself() {
        let set = Request::Set(vec!["acfs.uf=1.5".into(), "utility=camp".into()]);
        assert_eq!(words(&set).unwrap(), ["set", "acfs.uf=1.5", "utility=camp"]);
        let file = Request::Provider("/etc/my-model.toml".into());
        assert_eq!(words(&file).unwrap(), ["provider", "/etc/my-model.toml"]);
        for bad in [
            "", "-x", "a b", "a;b", "$(x)", "`x`", "~/x", "a*", "=ls", "a\nb", "a'", "{a,b}", "ä",
        ] {
            for request in [
                Request::Policy(bad.into()),
                Request::Profile(bad.into()),
                Request::Provider(bad.into()),
                Request::Set(vec!["a=1".into(), bad.into()]),
            ] {
                assert!(words(&request).unwrap_err().is::<BadInput>(), "{bad:?}");
            }
        }
    }
}
