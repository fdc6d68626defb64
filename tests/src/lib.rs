//! End-to-end tests of scx_amp on the virtual AMP board.
