//! Mean, standard uncertainty and its propagation [MET].
