//! Median and spread of repeated runs.

/// The middle of some figures; of an even number of them the mean of the two in the middle. None of none.
pub fn median(figures: &[f64]) -> Option<f64> {
    let mut sorted = figures.to_vec();
    sorted.sort_by(f64::total_cmp);
    let middle = sorted.len() / 2;
    match sorted.len() {
        0 => None,
        n if n % 2 == 1 => Some(sorted[middle]),
        _ => Some(f64::midpoint(sorted[middle - 1], sorted[middle])),
    }
}

/// The least and the greatest of some figures.
pub fn range(figures: &[f64]) -> Option<(f64, f64)> {
    let least = figures.iter().copied().min_by(f64::total_cmp)?;
    let greatest = figures.iter().copied().max_by(f64::total_cmp)?;
    Some((least, greatest))
}

/// How far the figures lie apart: the range as a part of the median. None of none, or where the median is 0.
pub fn spread(figures: &[f64]) -> Option<f64> {
    let (least, greatest) = range(figures)?;
    let median = median(figures).filter(|m| *m != 0.0)?;
    Some((greatest - least) / median)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_median_is_in_the_middle_whatever_the_order() {
        assert_eq!(median(&[]), None);
        assert_eq!(median(&[7.0]), Some(7.0));
        assert_eq!(median(&[9.0, 1.0, 5.0]), Some(5.0));
        assert_eq!(median(&[4.0, 1.0, 3.0, 2.0]), Some(2.5));
        assert_eq!(median(&[1.0, 1.0, 1000.0]), Some(1.0));
    }

    #[test]
    fn the_spread_is_relative_to_the_median() {
        assert_eq!(range(&[3.0, 1.0, 2.0]), Some((1.0, 3.0)));
        assert_eq!(spread(&[90.0, 100.0, 120.0]), Some(0.3));
        assert_eq!(spread(&[5.0]), Some(0.0));
        assert_eq!(spread(&[]), None);
        assert_eq!(spread(&[0.0, 0.0]), None);
    }
}
