//! The one place that chooses between the real synchronisation primitives and those of a model checker.
