//! Layout of the state page (stub: to be written).
