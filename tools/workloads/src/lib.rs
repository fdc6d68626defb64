//! Workload programs whose behaviour is known.
