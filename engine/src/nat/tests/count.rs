//! How many inodes there are and can be.

use super::*;

impl Fixture {
    /// In use, and still possible.
    fn count(&self) -> (u64, u64) {
        let count = self.nat.count();
        (count.used, count.possible(self.alloc.statfs_available()))
    }
}

#[test]
fn each_inode_is_one_less_until_there_can_be_no_more() {
    for f in fixtures(260) {
        let (used, mut possible) = f.count();
        let all = used + possible;
        assert!(used == 0 && (2000..4000).contains(&all), "{all}");
        let lanes = lane::count().min(3);
        let mut made = Vec::new();
        // Ids and slots of all lanes are used up by each of them.
        while let Ok(inode) = {
            lane::pin(Some(made.len() / 5 % lanes));
            f.create()
        } {
            made.push(inode);
            assert_eq!(f.count(), (made.len() as u64, possible - 1));
            possible -= 1;
        }
        assert_eq!((possible, made.len() as u64), (0, all));
        lane::pin(Some(0));
        for (n, inode) in (1..=100).zip(&made) {
            f.delete(inode).expect("in use");
            assert_eq!(f.count(), (all - n, n));
        }
        lane::pin(None);
    }
}

/// After a crash the index does not say how full new blocks are; after an unmount it does.
#[test]
fn inodes_are_counted_across_mounts() {
    for hinted in [false, true] {
        let f = fixture(2000);
        let made: Vec<_> = (0..600).map(|_| f.create().expect("room")).collect();
        for inode in &made[..300] {
            f.delete(inode).expect("in use");
        }
        f.nat.durable(u64::MAX);
        assert_eq!(f.count().0, 300);
        if hinted {
            f.nat.save_hints().expect("a good table");
        }
        let f = Fixture { nat: f.remount(), ..f };
        // Before it is asked, and after.
        f.create().expect("room");
        assert_eq!(f.count().0, 301, "{hinted}");
        let before = f.count();
        f.create().expect("room");
        assert_eq!(f.count(), (302, before.1 - 1), "{hinted}");
        f.delete(&made[400]).expect("in use");
        assert_eq!(f.count().0, 301, "{hinted}");
    }
}

#[test]
fn no_more_are_possible_than_the_table_has_ids_for() {
    let f = fixture(2000);
    let most = f.nat.shared.capacity() * NAT_PER_BLOCK - 1;
    assert_eq!(f.nat.count().possible(u64::MAX), most);
    f.create().expect("room");
    assert_eq!(f.nat.count().possible(u64::MAX), most - 1);
}
