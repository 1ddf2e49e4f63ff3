//! Proof of narufs: reference model, crash enumeration, stress and real programs.
