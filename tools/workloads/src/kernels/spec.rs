//! Which kernel with which parameters, and what is known of each.

use super::arithmetic::{Alu, Fp, Mul};
use super::branch::Branchy;
use super::memory::{Chase, Hash, Stream};
use super::mixed::Sort;
use super::Kernel;
use crate::quantity::parse_size;
use std::fmt;
use std::str::FromStr;

/// A kernel of one thread.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Simple {
    /// Integer additions, rotations and exclusive ors in registers.
    Alu,
    /// Dependent 64-bit multiplications.
    Mul,
    /// Scalar double-precision multiplications and additions.
    Fp,
    /// Sequential walk over an array.
    Stream,
    /// Dependent loads along a random cycle.
    Chase,
    /// Independent updates at random places.
    Hash,
    /// Unpredictable branches.
    Branchy,
    /// Quicksort of small blocks.
    Sort,
}

/// What is known of a kernel.
#[derive(Clone, Copy, Debug)]
pub struct Info {
    /// The kernel.
    pub kernel: Simple,
    /// Its name on the command line.
    pub name: &'static str,
    /// What one unit of work is.
    pub unit: &'static str,
    /// What it stresses.
    pub stresses: &'static str,
    /// Instructions per unit on arm64, as counted on the board (docs/evidence/workloads.md).
    pub instructions_arm64: f64,
    /// Instructions per unit on x86_64: of the compiled loop, averaged over its branches (`sort`:
    /// estimated).
    pub instructions_x86_64: f64,
    /// Bytes of its data unless `--size` says otherwise; 0 for a kernel that takes no size.
    pub default_size: u64,
}

/// Every kernel of one thread.
pub const SIMPLE: [Info; 8] = [
    Info {
        kernel: Simple::Alu,
        name: "alu",
        unit: "one round of six integer operations",
        stresses: "integer units, issue width",
        instructions_arm64: 9.0,
        instructions_x86_64: 10.0,
        default_size: 0,
    },
    Info {
        kernel: Simple::Mul,
        name: "mul",
        unit: "four dependent 64-bit multiplications",
        stresses: "multiplier latency",
        instructions_arm64: 9.0,
        instructions_x86_64: 10.0,
        default_size: 0,
    },
    Info {
        kernel: Simple::Fp,
        name: "fp",
        unit: "one step of four coupled maps, 15 floating-point operations",
        stresses: "scalar floating-point units",
        instructions_arm64: 17.0,
        instructions_x86_64: 22.0,
        default_size: 0,
    },
    Info {
        kernel: Simple::Stream,
        name: "stream",
        unit: "one 64-byte line: four loads, one store",
        stresses: "sequential bandwidth, prefetcher (depends on --size)",
        instructions_arm64: 13.0,
        instructions_x86_64: 9.0,
        default_size: 8 << 20,
    },
    Info {
        kernel: Simple::Chase,
        name: "chase",
        unit: "one dependent load of another line",
        stresses: "load latency of the level that --size fits in",
        instructions_arm64: 3.0,
        instructions_x86_64: 1.25,
        default_size: 8 << 20,
    },
    Info {
        kernel: Simple::Hash,
        name: "hash",
        unit: "one update of a random word",
        stresses: "memory-level parallelism (depends on --size)",
        instructions_arm64: 7.0,
        instructions_x86_64: 6.5,
        default_size: 8 << 20,
    },
    Info {
        kernel: Simple::Branchy,
        name: "branchy",
        unit: "two branches, each taken with --probability",
        stresses: "branch prediction",
        instructions_arm64: 13.4,
        instructions_x86_64: 23.0,
        default_size: 0,
    },
    Info {
        kernel: Simple::Sort,
        name: "sort",
        unit: "1024 random numbers made and sorted",
        stresses: "unpredictable branches, L1 loads and stores",
        instructions_arm64: 111_000.0,
        instructions_x86_64: 120_000.0,
        default_size: 0,
    },
];

impl Simple {
    /// What is known of this kernel.
    pub fn info(self) -> &'static Info {
        // each variant stands at its own place in the table (a unit test holds it there)
        &SIMPLE[self as usize]
    }
}

impl FromStr for Simple {
    type Err = SpecError;
    fn from_str(s: &str) -> Result<Simple, SpecError> {
        SIMPLE
            .iter()
            .find(|i| i.name == s)
            .map(|i| i.kernel)
            .ok_or_else(|| SpecError::Unknown(s.to_string()))
    }
}

/// Why a kernel cannot be had as asked for.
#[derive(Debug, thiserror::Error, PartialEq)]
pub enum SpecError {
    /// No kernel of that name.
    #[error("no kernel `{0}`: one of alu, mul, fp, stream, chase, hash, branchy, sort")]
    Unknown(String),
    /// A parameter that this kernel does not take.
    #[error("kernel `{kernel}` takes no {parameter}")]
    NotTaken {
        /// The kernel.
        kernel: &'static str,
        /// The parameter.
        parameter: &'static str,
    },
    /// A parameter that is out of range.
    #[error("kernel `{kernel}`: {message}")]
    Range {
        /// The kernel.
        kernel: &'static str,
        /// What is wrong and what would be right.
        message: String,
    },
}

/// A kernel and its parameters.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Spec {
    /// The kernel.
    pub kernel: Simple,
    /// Bytes of data; 0 for a kernel that has none.
    pub size: u64,
    /// Probability of a branch, 0..=1 (only `branchy`).
    pub probability: f64,
}

/// Largest data size: the board has 2 GiB, and a chase holds 20 bytes more per line while it is set
/// up.
const MAX_SIZE: u64 = 1 << 30;

impl Spec {
    /// `kernel` with these parameters, or its defaults (probability 0.5).
    ///
    /// # Errors
    /// When a parameter is given that the kernel does not take, or is out of range.
    pub fn new(
        kernel: Simple,
        size: Option<u64>,
        probability: Option<f64>,
    ) -> Result<Spec, SpecError> {
        let info = kernel.info();
        let range = |message: String| SpecError::Range {
            kernel: info.name,
            message,
        };
        if size.is_some() && info.default_size == 0 {
            return Err(SpecError::NotTaken {
                kernel: info.name,
                parameter: "size",
            });
        }
        if probability.is_some() && kernel != Simple::Branchy {
            return Err(SpecError::NotTaken {
                kernel: info.name,
                parameter: "probability",
            });
        }
        let size = size.unwrap_or(info.default_size);
        if info.default_size != 0 && !(64..=MAX_SIZE).contains(&size) {
            return Err(range(format!("size {size}: from 64 bytes to 1G")));
        }
        let probability = probability.unwrap_or(0.5);
        if !(0.0..=1.0).contains(&probability) {
            return Err(range(format!("probability {probability}: from 0 to 1")));
        }
        Ok(Spec {
            kernel,
            size,
            probability,
        })
    }

    /// Allocates and fills the kernel's data. The same seed gives the same data.
    pub fn prepare(&self, seed: u64) -> Box<dyn Kernel> {
        match self.kernel {
            Simple::Alu => Box::new(Alu::new(seed)),
            Simple::Mul => Box::new(Mul::new(seed)),
            Simple::Fp => Box::new(Fp::new(seed)),
            Simple::Stream => Box::new(Stream::new(self.size, seed)),
            Simple::Chase => Box::new(Chase::new(self.size, seed)),
            Simple::Hash => Box::new(Hash::new(self.size, seed)),
            Simple::Branchy => Box::new(Branchy::new(self.probability, seed)),
            Simple::Sort => Box::new(Sort::new(seed)),
        }
    }
}

/// `alu`, `chase@512K`, `branchy@0.1`: a name, and after `@` the size or the probability.
impl FromStr for Spec {
    type Err = SpecError;
    fn from_str(s: &str) -> Result<Spec, SpecError> {
        let (name, parameter) = match s.split_once('@') {
            Some((n, p)) => (n, Some(p)),
            None => (s, None),
        };
        let kernel: Simple = name.parse()?;
        let bad = |message: String| SpecError::Range {
            kernel: kernel.info().name,
            message,
        };
        match (kernel, parameter) {
            (_, None) => Spec::new(kernel, None, None),
            (Simple::Branchy, Some(p)) => {
                let p = p
                    .parse()
                    .map_err(|_| bad(format!("`{p}` is not a probability")))?;
                Spec::new(kernel, None, Some(p))
            }
            (_, Some(p)) => Spec::new(kernel, Some(parse_size(p).map_err(bad)?), None),
        }
    }
}

impl fmt::Display for Spec {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let info = self.kernel.info();
        match self.kernel {
            Simple::Branchy => write!(f, "{}@{}", info.name, self.probability),
            _ if info.default_size == 0 => write!(f, "{}", info.name),
            _ if self.size.is_multiple_of(1 << 20) => {
                write!(f, "{}@{}M", info.name, self.size >> 20)
            }
            _ if self.size.is_multiple_of(1 << 10) => {
                write!(f, "{}@{}K", info.name, self.size >> 10)
            }
            _ => write!(f, "{}@{}", info.name, self.size),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_table_is_in_the_order_of_the_variants() {
        for i in &SIMPLE {
            assert_eq!(i.kernel.info().name, i.name);
            assert_eq!(i.name.parse(), Ok(i.kernel));
        }
    }

    #[test]
    fn text_and_back() {
        for s in ["alu", "chase@512K", "chase@8M", "branchy@0.1", "stream@100"] {
            assert_eq!(s.parse::<Spec>().map(|x| x.to_string()), Ok(s.to_string()));
        }
    }

    #[test]
    fn errors_name_the_kernel_and_the_parameter() {
        let e = |s: &str| s.parse::<Spec>().unwrap_err().to_string();
        assert!(e("aluu").contains("`aluu`"));
        assert!(e("alu@8K").contains("`alu` takes no size"));
        assert!(e("branchy@2").contains("probability 2"));
        assert!(e("chase@1").contains("size 1"));
        assert!(e("chase@8X").contains("`8X`"));
        assert!(Spec::new(Simple::Fp, None, Some(0.5)).is_err());
    }
}
