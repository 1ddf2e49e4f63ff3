//! What is mounted: `/proc/self/mountinfo`.

use super::options::SUBTYPE;
use std::ffi::OsString;
use std::io;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Path, PathBuf};

/// One mount.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Entry {
    /// Major and minor number of its device.
    pub device: (u32, u32),
    /// Where it is mounted.
    pub point: PathBuf,
    /// Its options, those of the mount and then those of the file system.
    pub options: String,
    /// Its type: `fuse.narufs`.
    pub kind: String,
    /// Its source: the image.
    pub source: OsString,
}

impl Entry {
    /// Whether it is a mount of narufs.
    pub fn is_ours(&self) -> bool {
        self.kind.strip_prefix("fuse.") == Some(SUBTYPE)
    }

    /// User and group that may use a FUSE file system, and all others with `allow_other` alone.
    pub fn owner(&self) -> Option<(u32, u32)> {
        let number = |name: &str| {
            let value = self.options.split(',').find_map(|option| option.strip_prefix(name));
            value.and_then(|value| value.parse().ok())
        };
        Some((number("user_id=")?, number("group_id=")?))
    }

    fn parse(line: &[u8]) -> Option<Entry> {
        let mut fields = line.split(|&byte| byte == b' ');
        let mut text = |skip: usize| fields.nth(skip);
        let device = std::str::from_utf8(text(2)?).ok()?;
        let (major, minor) = device.split_once(':')?;
        let point = unescape(text(1)?);
        let options = String::from_utf8_lossy(text(0)?).into_owned();
        // Optional fields end with a lone hyphen.
        fields.find(|field| *field == b"-")?;
        let kind = String::from_utf8_lossy(fields.next()?).into_owned();
        let source = unescape(fields.next()?);
        let of_file_system = String::from_utf8_lossy(fields.next()?).into_owned();
        Some(Entry {
            device: (major.parse().ok()?, minor.parse().ok()?),
            point: PathBuf::from(point),
            options: format!("{options},{of_file_system}"),
            kind,
            source,
        })
    }
}

/// The kernel writes blank, tab, newline and backslash as three octal digits.
fn unescape(field: &[u8]) -> OsString {
    let mut out = Vec::with_capacity(field.len());
    let mut rest = field;
    while let Some((&byte, tail)) = rest.split_first() {
        if let (b'\\', [a @ b'0'..=b'3', b @ b'0'..=b'7', c @ b'0'..=b'7', after @ ..]) = (byte, tail) {
            out.push(((a - b'0') << 6) | ((b - b'0') << 3) | (c - b'0'));
            rest = after;
        } else {
            out.push(byte);
            rest = tail;
        }
    }
    OsString::from_vec(out)
}

/// All mounts, in the order in which they were made.
pub fn all() -> io::Result<Vec<Entry>> {
    Ok(parse(&std::fs::read("/proc/self/mountinfo")?))
}

/// All mounts that a process sees: it may be in a name space of its own.
pub fn seen_by(pid: u32) -> io::Result<Vec<Entry>> {
    Ok(parse(&std::fs::read(format!("/proc/{pid}/mountinfo"))?))
}

/// The mounts of such a table; a line that is none is passed over.
pub fn parse(bytes: &[u8]) -> Vec<Entry> {
    bytes.split(|&byte| byte == b'\n').filter_map(Entry::parse).collect()
}

/// The topmost mount at exactly this absolute path.
pub fn find(point: &Path) -> io::Result<Option<Entry>> {
    Ok(all()?
        .into_iter()
        .rev()
        .find(|entry| entry.point.as_os_str().as_bytes() == point.as_os_str().as_bytes()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_with_and_without_optional_fields_are_read() {
        let text = b"36 35 98:0 /mnt1 /mnt\\0402 rw,noatime master:1 shared:2 - fuse.narufs /im\\134g rw,user_id=7,group_id=9\n\
            37 35 0:24 / /proc rw - proc proc rw\nnonsense\n38 35 x:1 / / rw - a b c\n";
        let entries = parse(text);
        assert_eq!(entries.len(), 2);
        assert_eq!(entries[0].point, Path::new("/mnt 2"));
        assert_eq!(entries[0].device, (98, 0));
        assert_eq!(entries[0].source, "/im\\g");
        assert_eq!(entries[0].options, "rw,noatime,rw,user_id=7,group_id=9");
        assert_eq!((entries[0].owner(), entries[1].owner()), (Some((7, 9)), None));
        assert!(entries[0].is_ours() && !entries[1].is_ours());
    }

    #[test]
    fn a_backslash_that_is_no_escape_stays() {
        for odd in ["a\\", "a\\4", "a\\999", "\\\\"] {
            assert_eq!(unescape(odd.as_bytes()), odd);
        }
    }

    #[test]
    fn the_root_is_mounted() {
        assert!(find(Path::new("/proc")).expect("mountinfo").is_some());
        assert!(find(Path::new("/proc/self")).expect("mountinfo").is_none());
    }
}
