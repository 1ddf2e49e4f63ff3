//! How a contender looks: one hue for a family, a dash and a mark for each of its variants. The hues (after Okabe
//! and Ito, whom the colour-blind can tell apart) are in page.css, one for a light and one for a dark page.

/// How a contender is drawn.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Look {
    /// The class of the family in page.css.
    pub family: &'static str,
    /// Dashes of its line; nothing for a line without gaps.
    pub dash: &'static str,
    mark: Mark,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Mark {
    Circle,
    Square,
    Triangle,
    Diamond,
    Hanging,
}

/// Families by the beginning of a name; the first that fits.
const FAMILIES: [(&str, &str); 9] = [
    ("narufs-lib", "lib"),
    ("narufs", "naru"),
    ("ext4", "ext4"),
    ("xfs", "xfs"),
    ("btrfs", "btrfs"),
    ("f2fs", "f2fs"),
    ("tmpfs", "tmpfs"),
    ("ntfs-3g", "ntfs"),
    ("fuse2fs", "fuse2fs"),
];

/// Variants by the end of a name; the first that fits.
const VARIANTS: [(&str, &str, Mark); 6] = [
    ("-journal-ram", "2 3", Mark::Triangle),
    ("-ram", "8 3 2 3", Mark::Diamond),
    ("-nvm", "2 3", Mark::Triangle),
    ("-no-journal", "1 5", Mark::Hanging),
    ("-process", "7 3", Mark::Square),
    ("-delayed", "1 3", Mark::Diamond),
];

/// The look of a contender, by its name alone, so that it is the same in every report.
pub(super) fn look(contender: &str) -> Look {
    let family = FAMILIES.iter().find(|(start, _)| contender.starts_with(start));
    let family = family.map_or("other", |(_, class)| class);
    let variant = VARIANTS.iter().find(|(end, _, _)| contender.ends_with(end));
    let (dash, mark) = match variant {
        Some((_, dash, mark)) => (*dash, *mark),
        None if contender.ends_with("-fast-commit") => ("7 3", Mark::Square),
        None => ("", Mark::Circle),
    };
    Look { family, dash, mark }
}

impl Look {
    /// The outline of its mark around a point.
    pub(super) fn mark(self, x: f64, y: f64) -> String {
        match self.mark {
            Mark::Circle => format!("M{:.1} {y:.1}a3.4 3.4 0 1 0 6.8 0a3.4 3.4 0 1 0-6.8 0z", x - 3.4),
            Mark::Square => format!("M{:.1} {:.1}h6v6h-6z", x - 3.0, y - 3.0),
            Mark::Triangle => format!("M{x:.1} {:.1}l4 7h-8z", y - 4.2),
            Mark::Diamond => diamond(x, y),
            Mark::Hanging => format!("M{x:.1} {:.1}l4-7h-8z", y + 4.2),
        }
    }
}

/// The outline of a diamond around a point.
pub(super) fn diamond(x: f64, y: f64) -> String {
    format!("M{x:.1} {:.1}l4.4 4.4l-4.4 4.4l-4.4-4.4z", y - 4.4)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::compare::contender::ALL;

    #[test]
    fn every_contender_has_a_family_and_looks_like_no_other_of_its_class() {
        for (at, one) in ALL.iter().enumerate() {
            assert_ne!(look(one.name).family, "other", "{}", one.name);
            for other in &ALL[..at] {
                let same = one.survives == other.survives && look(one.name) == look(other.name);
                assert!(!same, "{} looks like {}", one.name, other.name);
            }
        }
        assert_eq!(look("zfs").family, "other");
    }
}
