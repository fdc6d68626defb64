//! `run --metrics ADDR`: the scheduler's figures as OpenMetrics text over HTTP.
//!
//! ```text
//! scrape ──HTTP──► endpoint thread ──Call──► scheduling thread (run)
//!        ◄─ text ─                 ◄─Status─
//! ```
//!
//! The endpoint reads only. It serves one scrape after the other, each within bounds of bytes and
//! time, and asks the scheduling thread at most once per [`server::FRESH`].

mod server;
mod text;

pub use server::{head, listen, Endpoint};

use std::fmt;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::str::FromStr;

/// Where figures are served.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Address(pub SocketAddr);

impl FromStr for Address {
    type Err = String;

    /// `PORT` is a port of this machine alone; any other address has to be given in full.
    fn from_str(text: &str) -> Result<Address, String> {
        let bare = text.parse().ok().filter(|port| *port > 0u16);
        let own = bare.map(|port| SocketAddr::new(IpAddr::V4(Ipv4Addr::LOCALHOST), port));
        let full = || text.parse().ok().filter(|a: &SocketAddr| a.port() > 0);
        own.or_else(full).map(Address).ok_or_else(|| {
            "want PORT, for this machine alone, or IP:PORT such as 127.0.0.1:9464 or [::1]:9464"
                .to_owned()
        })
    }
}

impl fmt::Display for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

impl Address {
    /// What is to be said of an address that other machines can reach; nothing of one that they
    /// cannot.
    pub fn warning(&self) -> Option<String> {
        (!self.0.ip().is_loopback()).then(|| {
            format!(
                "--metrics {self}: whoever reaches this address reads the names of programs and what they do, \
                 without a password"
            )
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_beyond_this_machine_is_given_in_full_and_warned_of() {
        let of = |text: &str| text.parse::<Address>().map(|a| a.to_string());
        assert_eq!(of("9464").unwrap(), "127.0.0.1:9464");
        assert_eq!(of("127.0.0.1:9464").unwrap(), "127.0.0.1:9464");
        assert_eq!(of("[::1]:9464").unwrap(), "[::1]:9464");
        assert_eq!(of("0.0.0.0:9464").unwrap(), "0.0.0.0:9464");
        for bad in [
            "",
            "0",
            ":9464",
            "65536",
            "127.0.0.1",
            "127.0.0.1:0",
            "localhost:9464",
            "x",
        ] {
            assert!(of(bad).unwrap_err().contains("IP:PORT"), "{bad}");
        }
        let warned = |text: &str| text.parse::<Address>().unwrap().warning().is_some();
        assert!(warned("0.0.0.0:1") && warned("192.0.2.1:1") && warned("[::]:1"));
        assert!(!warned("1") && !warned("127.1.2.3:1") && !warned("[::1]:1"));
    }
}
