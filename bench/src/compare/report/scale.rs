//! Logarithmic scales and figures in few letters.

/// A logarithmic scale.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Log {
    low: f64,
    high: f64,
}

/// The least span, so that at least two of 1, 2, 5, 10, ... lie on every scale.
const SPAN: f64 = 6.0;

impl Log {
    /// A scale on which all of some figures lie, with some room at its ends. Figures that are not above 0 have no
    /// place on it.
    pub fn over(figures: impl Iterator<Item = f64>) -> Log {
        let (mut low, mut high) = (f64::INFINITY, 0.0_f64);
        for figure in figures.filter(|f| f.is_finite() && *f > 0.0) {
            (low, high) = (low.min(figure), high.max(figure));
        }
        if high == 0.0 {
            (low, high) = (1.0, 1.0);
        }
        let (low, high) = (low / 1.15, high * 1.15);
        let wanting = (SPAN / (high / low)).sqrt().max(1.0);
        Log { low: (low / wanting).ln(), high: (high * wanting).ln() }
    }

    /// Where a figure lies: 0 at the low end, 1 at the high one.
    pub fn at(self, figure: f64) -> f64 {
        ((figure.max(f64::MIN_POSITIVE).ln() - self.low) / (self.high - self.low)).clamp(0.0, 1.0)
    }

    /// Round figures on the scale: 1, 2, 5, 10, ..., or the powers of ten alone where those would be many.
    pub fn ticks(self) -> Vec<f64> {
        let wide = self.high - self.low > 2.2 * std::f64::consts::LN_10;
        let (first, last) =
            ((self.low / std::f64::consts::LN_10).floor(), (self.high / std::f64::consts::LN_10).ceil());
        let steps: &[f64] = if wide { &[1.0] } else { &[1.0, 2.0, 5.0] };
        let powers = (first as i32..=last as i32).map(|power| 10_f64.powi(power));
        let all = powers.flat_map(|power| steps.iter().map(move |step| step * power));
        all.filter(|tick| (self.low..=self.high).contains(&tick.ln())).collect()
    }
}

/// A figure in few letters.
pub fn short(value: f64) -> String {
    let scaled =
        |v: f64, unit: &str| if v < 10.0 { format!("{v:.1}{unit}") } else { format!("{v:.0}{unit}") };
    match value {
        v if v >= 999.5e6 => scaled(v / 1e9, "G"),
        v if v >= 999.5e3 => scaled(v / 1e6, "M"),
        v if v >= 999.5 => scaled(v / 1e3, "k"),
        v if v >= 9.95 || v == 0.0 => format!("{v:.0}"),
        v => format!("{v:.1}"),
    }
}

/// A tick of a scale: round already.
pub fn tick(value: f64) -> String {
    match value {
        v if v < 1.0 => format!("{v}"),
        v if v < 1e3 => format!("{v:.0}"),
        v if v < 1e6 => format!("{:.0}k", v / 1e3),
        v if v < 1e9 => format!("{:.0}M", v / 1e6),
        v => format!("{:.0}G", v / 1e9),
    }
}

/// A ratio, with as many digits as it deserves.
pub fn ratio(value: f64) -> String {
    match value {
        v if v >= 9.95 => format!("{v:.0}"),
        v if v >= 1.95 => format!("{v:.1}"),
        v if v >= 0.0095 => format!("{v:.2}"),
        v => format!("{v:.4}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_scale_has_its_figures_and_two_ticks_on_it() {
        for figures in [vec![], vec![0.0], vec![3.3], vec![1.0, 1.01], vec![0.2, 40.0], vec![1.0, 5e6]] {
            let scale = Log::over(figures.iter().copied());
            for figure in figures.iter().filter(|f| **f > 0.0) {
                assert!(scale.at(*figure) > 0.0 && scale.at(*figure) < 1.0, "{figures:?}");
            }
            let ticks = scale.ticks();
            assert!(ticks.len() >= 2 && ticks.len() <= 9, "{figures:?}: {ticks:?}");
        }
        let scale = Log::over([1.0, 100.0].into_iter());
        assert!((scale.at(10.0) - 0.5).abs() < 1e-9, "in the middle");
        assert_eq!(scale.at(0.0), 0.0);
    }

    #[test]
    fn figures_are_short() {
        for (figure, said) in [
            (0.0, "0"),
            (0.53, "0.5"),
            (42.4, "42"),
            (999.0, "999"),
            (999.9, "1.0k"),
            (12_345.0, "12k"),
            (2.5e6, "2.5M"),
        ] {
            assert_eq!(short(figure), said);
        }
        for (figure, said) in
            [(0.001, "0.0010"), (0.306, "0.31"), (1.06, "1.06"), (2.31, "2.3"), (42.4, "42")]
        {
            assert_eq!(ratio(figure), said);
        }
        assert_eq!([0.1, 1.0, 200.0, 5e3, 1e6].map(tick).join(" "), "0.1 1 200 5k 1M");
    }
}
