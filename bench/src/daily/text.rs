//! Bytes of files: prose that compresses as sources do, or noise that does not, cut from two pools of a seed.

use crate::content::mixed;
use rand::{Rng, SeedableRng};
use rand_chacha::ChaCha8Rng;

/// Bytes of each pool.
const POOL: usize = 2 << 20;
/// The longest piece of a pool that a file has in one.
const PIECE: u64 = 32 << 10;
/// No prose has this in it: its syllables have no such letters.
pub(super) const ABSENT: &str = "qwxyzzy-qwx";

const SYLLABLES: [&str; 24] = [
    "an", "be", "con", "de", "er", "fi", "ge", "hal", "in", "jo", "ka", "le", "mo", "nu", "or", "pre", "re",
    "st", "ti", "un", "vi", "ta", "so", "lo",
];

/// See the module.
#[derive(Debug)]
pub(super) struct Text {
    prose: Vec<u8>,
    noise: Vec<u8>,
}

/// What a file's bytes follow from.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Bytes {
    /// The file's number: no two files have the same bytes.
    pub number: u64,
    /// How many.
    pub size: u64,
    /// Whether they compress.
    pub prose: bool,
}

impl Text {
    /// Text whose words follow from `seed`.
    pub fn new(seed: u64) -> Text {
        let mut rng = ChaCha8Rng::seed_from_u64(seed);
        let word = |rng: &mut ChaCha8Rng| -> String {
            (0..rng.random_range(1..=3)).map(|_| SYLLABLES[rng.random_range(0..SYLLABLES.len())]).collect()
        };
        let words: Vec<String> = (0..2000).map(|_| word(&mut rng)).collect();
        let mut prose = Vec::with_capacity(POOL + 128);
        while prose.len() < POOL {
            prose.extend(std::iter::repeat_n(b' ', 4 * rng.random_range(0..4)));
            for _ in 0..rng.random_range(1..9) {
                // Few words are said often.
                let rank = rng.random::<f64>().powi(3) * words.len() as f64;
                prose.extend_from_slice(words[rank as usize].as_bytes());
                prose.push(b' ');
            }
            prose.push(b'\n');
        }
        let mut noise = vec![0; POOL];
        rng.fill(&mut noise[..]);
        Text { prose, noise }
    }

    /// Gives a file's bytes piece by piece, as far as `each` takes them.
    pub fn pieces<E>(&self, of: Bytes, mut each: impl FnMut(&[u8]) -> Result<(), E>) -> Result<(), E> {
        let pool = if of.prose { &self.prose } else { &self.noise };
        let head = format!("/* {:08x} */\n", of.number);
        let mut left = of.size;
        let first = (head.len() as u64).min(left);
        each(&head.as_bytes()[..first as usize])?;
        left -= first;
        let mut turn = 0;
        while left > 0 {
            let random = mixed(of.number, turn);
            let len = (1024 + random % (PIECE - 1024)).min(left);
            let at = mixed(random, 1) % (pool.len() as u64 - PIECE);
            each(&pool[at as usize..][..len as usize])?;
            (left, turn) = (left - len, turn + 1);
        }
        Ok(())
    }

    /// The checksum of a file's bytes.
    pub fn crc(&self, of: Bytes) -> u32 {
        let mut crc = 0;
        let Ok(()) = self.pieces(of, |piece| {
            crc = crc32c::crc32c_append(crc, piece);
            Ok::<(), std::convert::Infallible>(())
        });
        crc
    }
}
