//! The mutator of lists of requests (see `narufs_fuse::fuzzing`): most mutations should leave each of them of the right
//! form, and what it names there.

use crate::Numbers;
use libfuzzer_sys::fuzzer_mutate;

/// Operation, inode, flags, length of the body.
const HEAD: usize = 4;
/// In a header's flags: an extension follows, of so many words as the bits from the fourth on say.
const EXTENDED: u8 = 4;

/// What a request has behind its header, a letter for each field.
///
/// Of 32 bits: `w` a small number, `m` a mode, `f` flags of an open file, `0` zero, `z` the length of the data, `r` the length of
/// a reply. Of 64 bits: `h` a handle, `n` an inode, `c` a small number, `o` a place in a file. Then `s`, a name; `x`, that of
/// an attribute; `d`, data.
const FORMS: &[(u8, &str)] = &[
    (1, "s"),
    (2, "c"),
    (3, "w0h"),
    (4, "w0hocccc000m0ww0"),
    (5, ""),
    (6, "ss"),
    (8, "mwm0s"),
    (9, "mms"),
    (10, "s"),
    (11, "s"),
    (12, "nss"),
    (13, "ns"),
    (14, "fw"),
    (15, "horwcf0"),
    (16, "hozwcf0d"),
    (17, ""),
    (18, "hfwc"),
    (20, "hw0"),
    (21, "zww0xd"),
    (22, "r0x"),
    (23, "r0"),
    (24, "x"),
    (25, "h00c"),
    (27, "fw"),
    (28, "horwcf0"),
    (29, "hfwc"),
    (30, "hw0"),
    (31, "hcooww00"),
    (32, "hcoowww0"),
    (33, "hcoowww0"),
    (34, "w0"),
    (35, "fmmws"),
    (36, "c"),
    (38, ""),
    (39, "hwwczrd"),
    (42, "20ncnc"),
    (43, "hoow0"),
    (44, "horwcf0"),
    (45, "nw0ss"),
    (46, "how0"),
    (47, "honhooc"),
    (50, "c"),
    (51, "fmmw"),
    (52, "w0hww"),
    (53, "honhooc"),
];
/// As the first of an input it says what the kernel offers.
const INIT: u8 = 26;
/// Operations that make something may bring the caller's groups, or security attributes.
const MAKERS: [u8; 5] = [6, 8, 9, 35, 51];
/// Those that make files and directories come first, or there is nothing to work on.
const FIRST: [u8; 5] = [35, 9, 35, 16, 21];

const ATTRIBUTES: [&[u8]; 6] = [
    b"user.a",
    b"trusted.b",
    b"security.capability",
    b"system.posix_acl_access",
    b"system.posix_acl_default",
    b"user.",
];
const COMMANDS: [u32; 9] = [
    0x8004_4e01,
    0x4e02,
    0x8004_4e06,
    0x8004_4e07,
    0x4e04,
    0xbfff_4e03,
    0xc200_4e05,
    0xc018_5879,
    0x8008_6601,
];
/// An access list of version 2: the owner, a user, the group, the mask, others.
const LIST: [u8; 44] = [
    2, 0, 0, 0, 1, 0, 7, 0, 255, 255, 255, 255, 2, 0, 5, 0, 7, 0, 0, 0, 4, 0, 5, 0, 255, 255, 255, 255, 16,
    0, 7, 0, 255, 255, 255, 255, 32, 0, 0, 0, 255, 255, 255, 255,
];

impl Numbers {
    fn one_of<T: Copy>(&mut self, all: &[T]) -> T {
        all[self.below(all.len() as u64) as usize]
    }

    fn name(&mut self) -> Vec<u8> {
        match self.below(12) {
            // Long ones, of which few go into a bucket.
            0..3 => vec![b'a' + self.below(20) as u8; self.one_of(&[9, 100, 150, 200])],
            3 => vec![b'.'; 1 + self.below(2) as usize],
            _ => vec![b'a' + self.below(5) as u8],
        }
    }

    fn place(&mut self) -> u64 {
        match self.below(8) {
            0 => self.below(1 << 20),
            1 => u64::MAX >> self.below(64),
            2 => self.below(100),
            _ => self.below(64) << 12,
        }
    }

    fn small(&mut self) -> u64 {
        if self.below(8) == 0 { self.below(1 << 16) } else { self.below(8) }
    }

    fn data(&mut self, room: usize) -> Vec<u8> {
        if self.below(4) == 0 {
            return LIST[..room.min(LIST.len())].to_vec();
        }
        vec![self.below(256) as u8; self.below(room.min(150) as u64 + 1) as usize]
    }

    /// A request with its header.
    fn request(&mut self, opcode: u8, form: &str) -> Vec<u8> {
        let mut body = Vec::new();
        let (mut structure, mut length_at, mut command_at) = (None, None, None);
        for (nth, letter) in form.char_indices() {
            let word: u32 = match letter {
                'w' if opcode == 39 && nth == 2 => {
                    command_at = Some(body.len());
                    0
                }
                'w' if self.below(4) == 0 => 1 << self.below(16),
                'w' => self.small() as u32,
                'm' => self.one_of(&[0o100644, 0o040755, 0o010600, 0o020600, 0o106777, 0o22, 0]),
                'f' => self.one_of(&[0, 1, 2, 0o2002, 0o1002, 0o40002, 0o4010002, 0o302]),
                '2' => 2,
                'r' => self.one_of(&[0, 16, 200, 4096, 16384, 16383]),
                'z' => {
                    length_at = Some(body.len());
                    0
                }
                's' | 'x' => {
                    structure.get_or_insert(body.len());
                    let attribute =
                        if letter == 'x' { self.one_of(&ATTRIBUTES).to_vec() } else { self.name() };
                    body.extend(attribute);
                    body.push(0);
                    continue;
                }
                'd' => {
                    structure.get_or_insert(body.len());
                    let data = self.data(255_usize.saturating_sub(body.len()));
                    if let Some(at) = length_at {
                        body[at..at + 4].copy_from_slice(&(data.len() as u32).to_le_bytes());
                    }
                    body.extend(data);
                    continue;
                }
                'h' | 'n' | 'c' | 'o' => {
                    let long = match letter {
                        'h' | 'n' => self.below(10),
                        'o' => self.place(),
                        _ => self.small(),
                    };
                    body.extend(long.to_le_bytes());
                    continue;
                }
                _ => 0,
            };
            body.extend(word.to_le_bytes());
        }
        if let Some(at) = command_at {
            body[at..at + 4].copy_from_slice(&self.one_of(&COMMANDS).to_le_bytes());
        }
        let mut flags = if self.below(3) == 0 { self.below(4) as u8 } else { 0 };
        let words = structure.unwrap_or(body.len()) / 8;
        if MAKERS.contains(&opcode) && self.below(4) == 0 {
            let extension = self.extension();
            flags |= EXTENDED | ((extension.len() / 8) as u8) << 3;
            body.extend(extension);
        } else if self.below(4) == 0 {
            // In parts, as it comes through io_uring.
            flags |= (words as u8) << 3;
        }
        body.truncate(255);
        let node = if self.below(16) == 0 { self.below(256) } else { 1 + self.below(6) } as u8;
        [&[opcode, node, flags, body.len() as u8][..], &body].concat()
    }

    fn extension(&mut self) -> Vec<u8> {
        let groups = || [[16u32, 32, 1, 8].map(u32::to_le_bytes).concat()].concat();
        let context =
            || [&[32u32, 1, 2, 0].map(u32::to_le_bytes).concat()[..], b"security.x\0ab\0\0\0"].concat();
        match self.below(3) {
            0 => groups(),
            1 => context(),
            _ => [context(), groups()].concat(),
        }
    }

    /// What a kernel offers: most of the version and flags that are known.
    fn offer(&mut self) -> Vec<u8> {
        let mut flags = || (self.below(1 << 32) | self.below(1 << 32)) as u32;
        let (most, more) = (flags() | 1 << 30, flags());
        let words = [7, 27 + self.below(24) as u32, 1 << self.below(22), most, more];
        let body = [words.map(u32::to_le_bytes).concat(), vec![0; 44]].concat();
        [&[INIT, 0, 0, body.len() as u8][..], &body].concat()
    }

    fn any_request(&mut self) -> Vec<u8> {
        let wanted = if self.below(4) == 0 { Some(self.one_of(&FIRST)) } else { None };
        let (opcode, form) = match wanted {
            Some(opcode) => FORMS.iter().copied().find(|(one, _)| *one == opcode).unwrap_or(FORMS[0]),
            None => self.one_of(FORMS),
        };
        self.request(opcode, form)
    }
}

/// Where each request begins, and the end.
fn starts(data: &[u8]) -> Vec<usize> {
    let mut all = vec![1];
    let mut at = 1;
    while at + HEAD <= data.len() {
        at = (at + HEAD + usize::from(data[at + 3])).min(data.len());
        all.push(at);
    }
    all
}

/// Requests, behind a byte that chooses how they are served.
pub fn mutate(data: &mut [u8], size: usize, max_size: usize, seed: u32) -> usize {
    let mut numbers = Numbers(u64::from(seed));
    if size == 0 || numbers.below(16) == 0 {
        data[0] = numbers.below(256) as u8;
        // Most callers take their answers.
        data[0] &= if numbers.below(3) > 0 { 15 } else { 255 };
        return size.max(1);
    }
    let starts = starts(&data[..size]);
    let count = starts.len() as u64 - 1;
    let (from, to) = match count {
        0 => (size, size),
        _ => {
            let nth = numbers.below(count) as usize;
            (starts[nth], starts[nth + 1])
        }
    };
    let is_offered = data.get(1) == Some(&INIT);
    // What takes the place of these bytes.
    let (from, to, new) = match numbers.below(10) {
        0..3 => {
            let end = starts.last().copied().unwrap_or(size);
            (end, size, numbers.any_request())
        }
        3 if numbers.below(8) == 0 => (1, if is_offered { starts[1] } else { 1 }, numbers.offer()),
        3..5 => (from, from, numbers.any_request()),
        5 => (from, to, numbers.any_request()),
        6 => (from, to, Vec::new()),
        7 => {
            let copy = data[from..to].to_vec();
            let nth = numbers.below(count + 1) as usize;
            (starts[nth], starts[nth], copy)
        }
        8 if to > from + HEAD => {
            // The same operation on something else, or with another field.
            let mut copy = data[from..to].to_vec();
            let at = numbers.below(copy.len() as u64) as usize;
            match at {
                1 => copy[1] = numbers.below(12) as u8,
                HEAD.. => copy[at] = numbers.below(256) as u8,
                _ => copy[2] ^= 1 << numbers.below(8),
            }
            (from, to, copy)
        }
        _ => return fuzzer_mutate(data, size, max_size),
    };
    let behind = data[to..size].to_vec();
    let grown = from + new.len() + behind.len();
    if grown > max_size {
        return fuzzer_mutate(data, size, max_size);
    }
    data[from..from + new.len()].copy_from_slice(&new);
    data[from + new.len()..grown].copy_from_slice(&behind);
    grown
}
