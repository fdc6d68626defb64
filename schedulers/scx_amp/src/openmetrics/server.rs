//! The endpoint: a thread that answers scrapes.

use super::{text, Address};
use crate::control::{self, Answer, Call, Order};
use anyhow::{bail, Context, Result};
use std::io::{Read, Write};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::Arc;
use std::time::{Duration, Instant};

/// For so long a text is served again instead of asking the scheduling thread.
pub const FRESH: Duration = Duration::from_secs(1);
/// Most bytes of a request.
const MOST: usize = 8 << 10;
/// Most headers of a request.
const HEADERS: usize = 64;
/// Longest time for a request to come, and for an answer to be taken.
const PATIENCE: Duration = Duration::from_secs(2);

/// What is served, as what, by the standard.
const TYPE: &str = "application/openmetrics-text; version=1.0.0; charset=utf-8";

/// Begins to listen, which may take rights that serving does not.
///
/// # Errors
/// When the address cannot be listened on.
pub fn listen(address: Address) -> Result<TcpListener> {
    TcpListener::bind(address.0)
        .with_context(|| format!("--metrics {address}: cannot listen there"))
}

/// The endpoint, served until it is dropped.
pub struct Endpoint {
    address: SocketAddr,
    ended: Arc<AtomicBool>,
}

impl Endpoint {
    /// Starts serving; what is asked goes to `submit`, which is false when nobody will ever answer.
    ///
    /// # Errors
    /// When there can be no thread for it.
    pub fn start(
        listener: TcpListener,
        submit: impl Fn(Call) -> bool + Send + 'static,
    ) -> Result<Endpoint> {
        Endpoint::with(listener, FRESH, submit)
    }

    /// The same with a text that is served for `fresh` long.
    fn with(
        listener: TcpListener,
        fresh: Duration,
        submit: impl Fn(Call) -> bool + Send + 'static,
    ) -> Result<Endpoint> {
        let address = listener.local_addr()?;
        let ended = Arc::new(AtomicBool::new(false));
        let end = ended.clone();
        let mut served = Served {
            submit: Box::new(submit),
            fresh,
            last: None,
        };
        std::thread::Builder::new()
            .name("scx_amp-metrics".into())
            .spawn(move || {
                for stream in listener.incoming() {
                    if end.load(Ordering::Acquire) {
                        return;
                    }
                    match stream {
                        // whoever asked badly, or went, has an answer or needs none
                        Ok(stream) => drop(served.serve(stream)),
                        // such as too many open files: without a pause this would spin
                        Err(_) => std::thread::sleep(FRESH),
                    }
                }
            })?;
        Ok(Endpoint { address, ended })
    }

    /// Where it listens.
    pub fn address(&self) -> SocketAddr {
        self.address
    }
}

impl Drop for Endpoint {
    fn drop(&mut self) {
        self.ended.store(true, Ordering::Release);
        let mut own = self.address;
        if own.ip().is_unspecified() {
            own.set_ip(match own {
                SocketAddr::V4(_) => std::net::Ipv4Addr::LOCALHOST.into(),
                SocketAddr::V6(_) => std::net::Ipv6Addr::LOCALHOST.into(),
            });
        }
        // wakes the thread; if it cannot, the process ends it
        let _ = TcpStream::connect_timeout(&own, FRESH);
    }
}

struct Served {
    submit: Box<dyn Fn(Call) -> bool + Send>,
    fresh: Duration,
    last: Option<(Instant, String)>,
}

impl Served {
    fn serve(&mut self, mut stream: TcpStream) -> Result<()> {
        let (status, kind, body, wants_body) = match request(&mut stream) {
            Ok(asked) => match self.answer(&asked) {
                Ok(text) => ("200 OK", TYPE, text, asked.method != "HEAD"),
                Err((status, why)) => (status, "text/plain", why, asked.method != "HEAD"),
            },
            Err(e) => ("400 Bad Request", "text/plain", format!("{e:#}\n"), true),
        };
        let head = format!(
            "HTTP/1.1 {status}\r\nContent-Type: {kind}\r\nContent-Length: {}\r\nConnection: close\r\n\r\n",
            body.len()
        );
        let body = if wants_body { body.as_str() } else { "" };
        send(&mut stream, format!("{head}{body}").as_bytes())?;
        stream.shutdown(Shutdown::Write)?;
        Ok(())
    }

    fn answer(&mut self, asked: &Asked) -> Result<String, (&'static str, String)> {
        if !["GET", "HEAD"].contains(&asked.method.as_str()) {
            let why = "only GET and HEAD are answered\n".to_owned();
            return Err(("405 Method Not Allowed", why));
        }
        if asked.path.split('?').next() != Some("/metrics") {
            return Err(("404 Not Found", "the figures are at /metrics\n".to_owned()));
        }
        if let Some((when, text)) = &self.last {
            if when.elapsed() < self.fresh {
                return Ok(text.clone());
            }
        }
        let text = match control::call(&self.submit, Order::Status) {
            Ok(Answer::Status(status)) => text::of(&status),
            Ok(other) => Err(control::unexpected(&other)),
            Err(e) => Err(e),
        };
        let text = text.map_err(|e| ("503 Service Unavailable", format!("{e:#}\n")))?;
        self.last = Some((Instant::now(), text.clone()));
        Ok(text)
    }
}

/// What is asked for.
pub struct Asked {
    method: String,
    path: String,
}

/// Writes all of it, or as much as is taken in time.
fn send(stream: &mut TcpStream, mut bytes: &[u8]) -> Result<()> {
    let until = Instant::now() + PATIENCE;
    while !bytes.is_empty() {
        let left = until.saturating_duration_since(Instant::now());
        if left.is_zero() {
            bail!("the answer is not taken");
        }
        stream.set_write_timeout(Some(left))?;
        let n = stream.write(bytes)?;
        bytes = &bytes[n..];
    }
    Ok(())
}

/// Reads the head of a request; a body is not waited for.
fn request(stream: &mut TcpStream) -> Result<Asked> {
    let until = Instant::now() + PATIENCE;
    let mut bytes = Vec::new();
    let mut part = [0; 1024];
    loop {
        let left = until.saturating_duration_since(Instant::now());
        if left.is_zero() {
            bail!("the request does not come to its end");
        }
        stream.set_read_timeout(Some(left))?;
        let n = stream.read(&mut part)?;
        bytes.extend_from_slice(&part[..n]);
        if let Some(asked) = head(&bytes)? {
            return Ok(asked);
        }
        if n == 0 || bytes.len() > MOST {
            bail!("no request of at most {MOST} bytes");
        }
    }
}

/// The head of a request, once all of it is there.
///
/// # Errors
/// When the bytes begin no request.
pub fn head(bytes: &[u8]) -> Result<Option<Asked>> {
    let mut headers = [httparse::EMPTY_HEADER; HEADERS];
    let mut head = httparse::Request::new(&mut headers);
    Ok(head.parse(bytes)?.is_complete().then(|| Asked {
        method: head.method.unwrap_or_default().to_owned(),
        path: head.path.unwrap_or_default().to_owned(),
    }))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::status::Status;
    use std::sync::atomic::AtomicUsize;

    fn said(address: SocketAddr, request: &str) -> String {
        let mut stream = TcpStream::connect(address).unwrap();
        stream.write_all(request.as_bytes()).unwrap();
        let mut answer = String::new();
        stream.read_to_string(&mut answer).unwrap();
        answer
    }

    /// An endpoint on a free port, and how often the scheduling thread was asked.
    fn endpoint(fresh: Duration) -> (Endpoint, Arc<AtomicUsize>) {
        let asked = Arc::new(AtomicUsize::new(0));
        let count = asked.clone();
        let address = Address("127.0.0.1:0".parse().unwrap());
        let endpoint = Endpoint::with(listen(address).unwrap(), fresh, move |call| {
            count.fetch_add(1, Ordering::SeqCst);
            assert!(matches!(call.order, Order::Status));
            let status = Status {
                policy: "hsp".into(),
                ..Status::default()
            };
            call.answer.send(Answer::Status(Box::new(status))).is_ok()
        });
        (endpoint.unwrap(), asked)
    }

    #[test]
    fn a_scrape_is_answered_and_others_are_told_why_not() {
        let (endpoint, _) = endpoint(FRESH);
        let at = endpoint.address();
        let answer = said(at, "GET /metrics HTTP/1.1\r\nHost: x\r\n\r\n");
        let (head, body) = answer.split_once("\r\n\r\n").unwrap();
        assert!(
            head.starts_with("HTTP/1.1 200 OK\r\n") && head.contains(TYPE),
            "{head}"
        );
        assert!(
            head.contains(&format!("Content-Length: {}\r\n", body.len())),
            "{head}"
        );
        assert!(
            body.contains("policy=\"hsp\"") && body.ends_with("# EOF\n"),
            "{body}"
        );
        let head = said(at, "HEAD /metrics HTTP/1.1\r\n\r\n");
        assert!(
            head.starts_with("HTTP/1.1 200") && head.ends_with("\r\n\r\n"),
            "{head}"
        );
        for (request, wants) in [
            ("GET / HTTP/1.1\r\n\r\n", "404 Not Found"),
            ("POST /metrics HTTP/1.1\r\n\r\n", "405 Method"),
            ("nonsense\r\n\r\n", "400 Bad Request"),
        ] {
            let answer = said(at, request);
            assert!(answer.contains(wants), "{request}: {answer}");
        }
        let long = format!("GET /{} HTTP/1.1\r\n", "x".repeat(2 * MOST));
        let mut stream = TcpStream::connect(at).unwrap();
        // it may be closed before all of it is written
        let _ = stream.write_all(long.as_bytes());
        let mut answer = Vec::new();
        let _ = stream.read_to_end(&mut answer);
        assert!(!answer.starts_with(b"HTTP/1.1 200"));
        // and whoever is silent keeps nobody from asking
        let silent = TcpStream::connect(at).unwrap();
        let answer = said(at, "GET /metrics HTTP/1.1\r\n\r\n");
        assert!(answer.starts_with("HTTP/1.1 200"), "{answer}");
        drop(silent);
    }

    #[test]
    fn the_scheduling_thread_is_left_alone_while_a_text_is_fresh() {
        for (fresh, times) in [(Duration::MAX, 1), (Duration::ZERO, 5)] {
            let (endpoint, asked) = endpoint(fresh);
            for _ in 0..5 {
                let answer = said(endpoint.address(), "GET /metrics HTTP/1.1\r\n\r\n");
                assert!(answer.starts_with("HTTP/1.1 200"), "{answer}");
            }
            assert_eq!(asked.load(Ordering::SeqCst), times);
        }
    }

    #[test]
    fn the_address_is_free_again_when_it_ends() {
        let (endpoint, _) = endpoint(FRESH);
        let at = endpoint.address();
        drop(endpoint);
        let until = Instant::now() + Duration::from_secs(60);
        while TcpStream::connect(at).is_ok() && Instant::now() < until {
            std::thread::sleep(Duration::from_millis(5));
        }
        assert!(TcpStream::connect(at).is_err());
    }

    #[test]
    fn a_scheduler_that_ends_is_told() {
        let address = Address("127.0.0.1:0".parse().unwrap());
        let endpoint = Endpoint::start(listen(address).unwrap(), |_| false).unwrap();
        let answer = said(endpoint.address(), "GET /metrics HTTP/1.1\r\n\r\n");
        assert!(
            answer.contains("503 Service") && answer.contains("is ending"),
            "{answer}"
        );
    }

    #[test]
    fn an_address_that_is_taken_is_told() {
        let taken = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = Address(taken.local_addr().unwrap());
        let e = listen(address).err().unwrap();
        assert!(
            e.to_string().contains(&format!("--metrics {address}")),
            "{e}"
        );
    }
}
