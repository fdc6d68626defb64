//! What in this crate reads text that somebody else wrote: for `amp-fuzz`, which looks whether any
//! of it panics or hangs. A file that a text names is looked for, and read if it is there.

use crate::control::Request;
use crate::memory::Pattern;
use crate::openmetrics::{self, Address};
use crate::rules::RuleFile;
use crate::run::config::Configuration;
use crate::{profile, provider};
use amp_sched::policy::Settings;
use std::path::Path;

/// A parser.
#[derive(Clone, Copy, Debug)]
pub struct Parser {
    /// Its name.
    pub name: &'static str,
    /// Texts that it accepts.
    pub seeds: &'static [&'static str],
    /// Whether it accepts a text.
    pub accepts: fn(&str) -> bool,
}

/// Every parser of this crate.
pub const ALL: &[Parser] = &[
    Parser {
        name: "configuration",
        seeds: &[
            "profile = \"fair\"\ninterval = 50\nset = [\"acfs.uf=1.5\", \"engine.probes=0\"]\n",
            "policy = \"hsp\"\nprovider = \"auto\"\nbig-cpus = \"0-3,8\"\nmetrics = \"127.0.0.1:9464\"\nstats = 2\n",
        ],
        accepts: |text| Configuration::parse(Path::new("mutant.toml"), text).is_ok(),
    },
    Parser {
        name: "profile",
        seeds: &[
            "about = \"x\"\npolicy = \"acfs\"\nprovider = \"auto\"\nset = [\"acfs.uf=1.2\"]\ninterval = 50\n",
        ],
        accepts: |text| profile::parse("mutant", Path::new("mutant.toml"), text).is_ok(),
    },
    Parser {
        name: "rules",
        seeds: &[
            "[[rule]]\ncomm = \"cc1*\"\ncgroup = \"/user.slice/**\"\nprefer = \"slow\"\n\n\
             [[rule]]\nexe = \"/usr/games/*\"\nprefer = \"fast\"\nweight = 300\n\n\
             [[rule]]\ncomm = \"[a-f]{x,y}?\"\nnever = \"fast\"\n\n[[rule]]\ncomm = \"z\"\nplace = false\n",
        ],
        accepts: |text| RuleFile::parse(Path::new("mutant.toml"), text).is_ok(),
    },
    Parser {
        name: "request",
        seeds: &[
            "\"status\"",
            "{\"policy\":\"hsp\"}",
            "{\"profile\":\"fair\"}",
            "{\"provider\":\"fused\"}",
            "{\"set\":[\"acfs.uf=1.5\",\"acfs.t_swap=100\"]}",
            "{\"forget\":\"/usr/lib/**\"}",
            "{\"forget\":null}",
        ],
        accepts: |text| match serde_json::from_str(text) {
            Ok(Request::Set(settings)) => {
                let settings: Vec<&str> = settings.iter().map(String::as_str).collect();
                Settings::new(&settings, &["acfs".to_owned()]).is_ok()
            }
            Ok(Request::Forget(Some(text))) => Pattern::parse(&text).is_ok(),
            Ok(Request::Provider(name)) => provider::check_name(&name).is_ok(),
            other => other.is_ok(),
        },
    },
    Parser {
        name: "scrape",
        seeds: &[
            "GET /metrics HTTP/1.1\r\nHost: localhost:9464\r\nAccept: text/plain\r\n\r\n",
            "HEAD /metrics?x=1 HTTP/1.0\r\n\r\n",
        ],
        accepts: |text| openmetrics::head(text.as_bytes()).is_ok_and(|asked| asked.is_some()),
    },
    Parser {
        name: "address",
        seeds: &["9464", "127.0.0.1:9464", "[::1]:9464"],
        accepts: |text| text.parse::<Address>().is_ok(),
    },
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_seed_is_accepted() {
        for parser in ALL {
            for seed in parser.seeds {
                assert!((parser.accepts)(seed), "{}: {seed}", parser.name);
            }
        }
    }
}
