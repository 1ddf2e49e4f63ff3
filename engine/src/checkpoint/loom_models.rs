//! Models of the claims on what a round writes home.
//!
//! Each rule was broken by hand in turn; what then failed:
//!
//! | broken | fails |
//! | --- | --- |
//! | a claim is a load and a store | both |
//! | that of a helper alone is | both |
//! | who has lost a race takes the lane for empty | `loom_who_is_alone_at_last_finds_everything` |

use super::claims::Claims;
use crate::sync::{Arc, thread};

fn bounded(model: impl Fn() + Sync + Send + 'static) {
    let mut builder = loom::model::Builder::new();
    builder.preemption_bound = Some(3);
    builder.check(model);
}

fn all_of(claims: &Claims, own: usize, most: usize) -> Vec<usize> {
    std::iter::from_fn(|| claims.take(own, most)).flatten().collect()
}

#[test]
fn loom_numbers_are_claimed_once_and_none_is_left() {
    for (count, most) in [(4, 1), (5, 2)] {
        bounded(move || {
            let claims = Arc::new(Claims::new(count, 2));
            let other = thread::spawn({
                let claims = Arc::clone(&claims);
                move || all_of(&claims, 1, most)
            });
            let mut claimed = all_of(&claims, 0, most);
            claimed.extend(other.join().expect("no panic"));
            claimed.sort_unstable();
            assert_eq!(claimed, (0..count).collect::<Vec<_>>());
        });
    }
}

/// A thread that gives up after one claim leaves the rest to the other, whatever raced with what.
#[test]
fn loom_who_is_alone_at_last_finds_everything() {
    bounded(|| {
        let claims = Arc::new(Claims::new(4, 2));
        let other = thread::spawn({
            let claims = Arc::clone(&claims);
            move || claims.take(1, 1)
        });
        let mut claimed = all_of(&claims, 0, 1);
        claimed.extend(other.join().expect("no panic").into_iter().flatten());
        claimed.sort_unstable();
        assert_eq!(claimed, [0, 1, 2, 3]);
    });
}
