//! `-o baseline=NAME[+NAME...]`: what the mount does in the old way, in a build that has that.

use super::OptionList;
#[cfg(feature = "baselines")]
use narufs_engine::journal::Durability;

#[cfg(feature = "baselines")]
impl OptionList {
    /// Adds to what was chosen.
    pub(super) fn choose_baselines(&mut self, names: &str) -> Result<(), String> {
        let more = names.parse().map_err(|e| format!("baseline={e}"))?;
        let both = self.baselines.and(more);
        self.baselines =
            both.ok_or_else(|| format!("baseline={names}: another was chosen for that part before"))?;
        if self.baselines.journal.keeps_in_memory() {
            // No server could go on with the mount.
            self.supervise.get_or_insert(false);
        }
        Ok(())
    }

    /// Says which of them the mount would not look at.
    pub(super) fn check_baselines(&self) -> Result<(), String> {
        use narufs_engine::baseline::{JournalBaseline, SpillBaseline};
        if self.scratch && self.baselines.journal != JournalBaseline::Ours {
            return Err(format!("baseline={}: scratch space has no journal", self.baselines));
        }
        if self.baselines.journal != JournalBaseline::Ours && self.durability != Durability::Power {
            return Err(format!(
                "baseline={}: its fsync waits for commits: say durability=power",
                self.baselines
            ));
        }
        if self.spill.is_none() && self.baselines.spill != SpillBaseline::default() {
            return Err(format!("baseline={}: it goes with scratch and spill=PATH", self.baselines));
        }
        Ok(())
    }
}

#[cfg(not(feature = "baselines"))]
impl OptionList {
    pub(super) fn choose_baselines(&mut self, _names: &str) -> Result<(), String> {
        Err("option baseline: this narufs is built without baselines: cargo build --features baselines"
            .into())
    }

    pub(super) fn check_baselines(&self) -> Result<(), String> {
        Ok(())
    }
}

#[cfg(all(test, feature = "baselines"))]
mod tests {
    use super::*;

    fn parse(list: &str) -> Result<OptionList, String> {
        let options = OptionList::parse(&[list.to_string()])?;
        options.check().map(|()| options)
    }

    #[test]
    fn baselines_are_chosen_by_name() {
        let chosen = |list| parse(list).map(|options| options.baselines.to_string());
        assert_eq!(chosen(""), Ok("ours".into()));
        assert_eq!(chosen("baseline=ids-scan+lock-tree"), Ok("lock-tree+ids-scan".into()));
        assert_eq!(chosen("baseline=ids-scan,baseline=lock-tree"), Ok("lock-tree+ids-scan".into()));
        let spilling = "scratch,spill=/tmp,baseline=spill-clean-lost";
        assert_eq!(chosen(spilling), Ok("spill-clean-lost".into()));
        let lagging = "durability=process,baseline=journal-jbd2";
        assert!(chosen(lagging).unwrap_err().contains("say durability=power"));
        for (list, supervise) in [("baseline=journal-fine", Some(false)), ("baseline=journal-paper", None)] {
            assert_eq!(parse(list).map(|options| options.supervise), Ok(supervise), "{list}");
        }
        assert!(chosen("baseline=lock-tree,baseline=lock-inode").unwrap_err().contains("before"));
        assert!(chosen("baseline=slow").unwrap_err().contains("lock-inode"));
        assert!(chosen("baseline=spill-clean-lost").unwrap_err().contains("goes with scratch"));
        assert!(chosen("scratch,baseline=journal-jbd2").unwrap_err().contains("no journal"));
    }
}

#[cfg(all(test, not(feature = "baselines")))]
mod tests {
    use super::*;

    #[test]
    fn a_build_without_baselines_says_so() {
        let said = OptionList::parse(&["baseline=lock-inode".to_string()]).unwrap_err();
        assert!(said.contains("built without baselines: cargo build --features baselines"), "{said}");
    }
}
