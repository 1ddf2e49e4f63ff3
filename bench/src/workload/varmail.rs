//! varmail: the loop of a mail server, as Filebench has it.
//!
//! All files are in one directory. Each thread has its share of them to itself, which is what Filebench's marks
//! of busy files come to: two threads never use the same file at the same time. So the calls of a thread follow
//! from the seed alone.

use super::*;
use crate::content::{generator, mixed};
use crate::params::share;
use rand::Rng;
use rand_chacha::ChaCha8Rng;
use rand_distr::{Distribution, Gamma};
use std::fmt::Write;

/// Files, and those of the paper.
const FILES: u64 = 1000;
const PAPER: u64 = 100_000;
/// Bytes of a file on average, of a gamma distribution with this shape, as Filebench's default has it.
const MEAN: f64 = 16384.0;
const SHAPE: f64 = 1.5;
/// The longest append; all lengths are equally likely.
const APPEND: usize = 32 << 10;
/// The longest file that is made beforehand.
const LARGEST: u64 = 1 << 20;
/// Bytes that are read at once.
const READ: usize = 1 << 20;
const DIR: &str = "mail";

/// Calls of one loop.
const CALLS: [Call; 13] = {
    use Call::*;
    [Delete, Create, Append, Fsync, Close, Open, Read, Append, Fsync, Close, Open, Read, Close]
};

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Call {
    Delete,
    Create,
    Open,
    Read,
    Append,
    Fsync,
    Close,
}

/// See the module.
#[derive(Debug)]
pub struct Varmail {
    env: Env,
    files: u64,
}

/// A file that must be there.
#[derive(Debug, Serialize, Deserialize)]
pub struct Kept {
    number: u64,
    mail: Mail,
}

/// What a file is.
#[derive(Debug, Clone, Copy, Default, Serialize, Deserialize)]
struct Mail {
    /// Times that it was made; its content depends on it.
    made: u64,
    size: u64,
}

fn path(number: u64) -> String {
    format!("{DIR}/{number:08}")
}

/// A length of a file that is made beforehand.
pub fn initial_size(random: &mut impl Rng) -> u64 {
    let sizes = Gamma::new(SHAPE, MEAN / SHAPE).expect("both are above zero");
    (sizes.sample(random).round() as u64).clamp(1, LARGEST)
}

/// A length of an append.
pub fn append_size(random: &mut impl Rng) -> usize {
    random.random_range(1..=APPEND)
}

fn content_number(number: u64, made: u64) -> u64 {
    mixed(number, made)
}

impl Varmail {
    pub(super) fn new(env: Env) -> Varmail {
        Varmail { files: env.params.files_or(FILES, PAPER).max(env.threads as u64), env }
    }
}

impl<S: Session> Workload<S> for Varmail {
    type Worker = VarmailWorker<S::File>;
    /// The thread's files that are there.
    type Left = Vec<Kept>;

    fn needs(&self) -> Needs {
        // Files are on average as long as one that was made and appended to once.
        Needs { bytes: self.files * 3 * MEAN as u64, files: self.files + 1 }
    }

    fn prepare(&self, session: &mut S) -> Result<()> {
        session.mkdir(DIR).map(drop)
    }

    fn worker(&self, thread: usize, session: &mut S) -> Result<Self::Worker> {
        let (first, count) = share(self.files, self.env.threads, thread);
        let mut random = generator(self.env.params.seed, thread as u64);
        let mut mails = Vec::with_capacity(count as usize);
        for number in first..first + count {
            self.env.stop.check()?;
            let mail = Mail { made: 1, size: initial_size(&mut random) };
            let file = session.create(&path(number), How::Write)?;
            let filled = fill(session, &file, &self.env, content_number(number, mail.made), mail.size);
            session.close(file)?;
            filled?;
            mails.push(mail);
        }
        Ok(VarmailWorker {
            content: self.env.content.clone(),
            random,
            first,
            mails,
            present: (0..count).collect(),
            absent: Vec::new(),
            next: 0,
            current: 0,
            file: None,
            path: String::new(),
            buffer: vec![0; READ],
        })
    }

    fn check(&self, left: &[Vec<Kept>], session: &mut S) -> Result<Seen> {
        let mut seen = Seen::default();
        compare_names(session, DIR, left.iter().flatten().map(|kept| format!("{:08}", kept.number)))?;
        for Kept { number, mail } in left.iter().flatten() {
            let content = content_number(*number, mail.made);
            compare(session, &path(*number), &self.env.content, content, mail.size)?;
            seen.files += 1;
            seen.bytes += mail.size;
        }
        Ok(seen)
    }
}

/// One thread of it.
#[derive(Debug)]
pub struct VarmailWorker<F> {
    content: Content,
    random: ChaCha8Rng,
    /// The number of the share's first file.
    first: u64,
    mails: Vec<Mail>,
    /// Which files of the share are there, and which are not.
    present: Vec<u64>,
    absent: Vec<u64>,
    /// The next call of the loop.
    next: usize,
    /// The file that the calls are about.
    current: u64,
    file: Option<F>,
    path: String,
    buffer: Vec<u8>,
}

impl<F> VarmailWorker<F> {
    /// Turns to a file.
    fn choose(&mut self, index: u64) {
        self.current = index;
        self.path.clear();
        write!(self.path, "{DIR}/{:08}", self.first + index).expect("a string takes it");
    }

    fn choose_present(&mut self) {
        let at = self.random.random_range(0..self.present.len());
        self.choose(self.present[at]);
    }
}

/// Why the loop has a file where it uses one.
const OPEN: &str = "the loop opens before it uses";

impl<S: Session> Worker<S> for VarmailWorker<S::File> {
    type Left = Vec<Kept>;

    fn step(&mut self, session: &mut S) -> Result<Step> {
        let mut bytes = 0;
        match CALLS[self.next] {
            Call::Delete => {
                let at = self.random.random_range(0..self.present.len());
                let index = self.present.swap_remove(at);
                self.choose(index);
                self.absent.push(index);
                session.unlink(&self.path)?;
            }
            Call::Create => {
                let at = self.random.random_range(0..self.absent.len());
                let index = self.absent.swap_remove(at);
                self.choose(index);
                self.file = Some(session.create(&self.path, How::Append)?);
                self.present.push(index);
                let mail = &mut self.mails[index as usize];
                *mail = Mail { made: mail.made + 1, size: 0 };
            }
            Call::Open => {
                self.choose_present();
                self.file = Some(session.open(&self.path, How::Append)?);
            }
            Call::Read => {
                let file = self.file.as_ref().expect(OPEN);
                loop {
                    let got = session.read_at(file, bytes, &mut self.buffer)?;
                    bytes += got as u64;
                    if got < self.buffer.len() {
                        break;
                    }
                }
            }
            Call::Append => {
                let len = append_size(&mut self.random);
                let mail = &mut self.mails[self.current as usize];
                let number = content_number(self.first + self.current, mail.made);
                let data = self.content.bytes(number, mail.size, len);
                session.append(self.file.as_ref().expect(OPEN), data)?;
                mail.size += len as u64;
                bytes = len as u64;
            }
            Call::Fsync => session.fsync(self.file.as_ref().expect(OPEN))?,
            Call::Close => session.close(self.file.take().expect(OPEN))?,
        }
        self.next = (self.next + 1) % CALLS.len();
        Ok(Step::Done(bytes))
    }

    fn end(&mut self, session: &mut S) -> Result<()> {
        self.file.take().map_or(Ok(()), |file| session.close(file))
    }

    fn left(self) -> Vec<Kept> {
        let kept = |index: &u64| Kept { number: self.first + index, mail: self.mails[*index as usize] };
        self.present.iter().map(kept).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_loop_is_filebenchs() {
        let count = |call| CALLS.iter().filter(|c| **c == call).count();
        let of = [Call::Delete, Call::Create, Call::Open, Call::Read, Call::Append, Call::Fsync, Call::Close];
        assert_eq!(of.map(count), [1, 1, 2, 2, 2, 2, 3]);
    }

    #[test]
    fn sizes_are_as_promised() {
        let mut random = generator(3, 0);
        let count = 100_000;
        let sizes: Vec<u64> = (0..count).map(|_| initial_size(&mut random)).collect();
        let mean = sizes.iter().sum::<u64>() as f64 / f64::from(count);
        assert!((mean / MEAN - 1.0).abs() < 0.02, "files of {mean} bytes on average");
        // Of a gamma distribution with shape 1.5 just under a tenth is above 2.08 times the mean.
        let long = sizes.iter().filter(|s| **s as f64 > 2.0838 * MEAN).count() as f64 / f64::from(count);
        assert!((long - 0.1).abs() < 0.01, "{long} are long");
        let appends: Vec<usize> = (0..count).map(|_| append_size(&mut random)).collect();
        assert!(appends.iter().all(|len| (1..=APPEND).contains(len)));
        for eighth in 0..8 {
            let within = appends.iter().filter(|len| (**len - 1) * 8 / APPEND == eighth).count() as f64;
            assert!((within / f64::from(count) - 0.125).abs() < 0.01, "eighth {eighth}: {within}");
        }
    }
}
