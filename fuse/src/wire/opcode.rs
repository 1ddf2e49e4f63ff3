//! The operations that the kernel may ask for.

macro_rules! opcodes {
    ($($(#[$doc:meta])* $name:ident = $value:literal,)*) => {
        /// What the kernel asks for.
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
        #[repr(u32)]
        pub enum Opcode {
            $($(#[$doc])* $name = $value,)*
        }

        impl Opcode {
            /// The operation of this number, if the protocol knows it.
            pub fn from_number(number: u32) -> Option<Opcode> {
                match number {
                    $($value => Some(Opcode::$name),)*
                    _ => None,
                }
            }

            /// Every operation.
            pub const ALL: &'static [Opcode] = &[$(Opcode::$name,)*];

            /// Its name in one word.
            const fn word(self) -> &'static str {
                match self {
                    $(Opcode::$name => stringify!($name),)*
                }
            }
        }
    };
}

opcodes! {
    /// Finds a name in a directory.
    Lookup = 1,
    /// Drops lookup counts; has no reply.
    Forget = 2,
    /// Reads attributes.
    Getattr = 3,
    /// Changes attributes.
    Setattr = 4,
    /// Reads a symbolic link.
    Readlink = 5,
    /// Makes a symbolic link.
    Symlink = 6,
    /// Makes a file, a FIFO, a socket or a device node.
    Mknod = 8,
    /// Makes a directory.
    Mkdir = 9,
    /// Removes a name that is not a directory.
    Unlink = 10,
    /// Removes an empty directory.
    Rmdir = 11,
    /// Moves a name, without flags.
    Rename = 12,
    /// Adds a name to an inode.
    Link = 13,
    /// Opens a file.
    Open = 14,
    /// Reads data.
    Read = 15,
    /// Writes data.
    Write = 16,
    /// Tells sizes of the file system.
    Statfs = 17,
    /// Ends an open file; its errors reach nobody.
    Release = 18,
    /// Makes a file durable.
    Fsync = 20,
    /// Sets an extended attribute.
    Setxattr = 21,
    /// Reads an extended attribute.
    Getxattr = 22,
    /// Lists extended attributes.
    Listxattr = 23,
    /// Removes an extended attribute.
    Removexattr = 24,
    /// One descriptor of an open file was closed.
    Flush = 25,
    /// Opens the conversation.
    Init = 26,
    /// Opens a directory.
    Opendir = 27,
    /// Reads names.
    Readdir = 28,
    /// Ends an open directory.
    Releasedir = 29,
    /// Makes a directory durable.
    Fsyncdir = 30,
    /// Tells who holds a lock.
    Getlk = 31,
    /// Takes or drops a lock without waiting.
    Setlk = 32,
    /// Takes a lock, waiting for it.
    Setlkw = 33,
    /// Checks access.
    Access = 34,
    /// Makes and opens a file.
    Create = 35,
    /// Asks to end another request early; has no reply.
    Interrupt = 36,
    /// Maps a file's block to the device's.
    Bmap = 37,
    /// Ends the conversation (block-device mounts).
    Destroy = 38,
    /// A device control call.
    Ioctl = 39,
    /// Asks for readiness.
    Poll = 40,
    /// Answers a retrieve notification; has no reply.
    NotifyReply = 41,
    /// Many FORGETs in one; has no reply.
    BatchForget = 42,
    /// Reserves, punches, shifts.
    Fallocate = 43,
    /// Reads names with their attributes, and looks them up.
    Readdirplus = 44,
    /// Moves or exchanges names, with flags.
    Rename2 = 45,
    /// Finds data or a hole.
    Lseek = 46,
    /// Copies between files.
    CopyFileRange = 47,
    /// Maps for direct access (virtio only).
    Setupmapping = 48,
    /// Unmaps from direct access (virtio only).
    Removemapping = 49,
    /// Makes the whole file system durable.
    Syncfs = 50,
    /// Makes and opens a file without a name.
    Tmpfile = 51,
    /// Reads extended attributes of an inode as statx(2) names them.
    Statx = 52,
    /// Copies between files, with a 64-bit result.
    CopyFileRange64 = 53,
}

impl Opcode {
    /// The kernel's name for it, without FUSE_: `COPY_FILE_RANGE_64`.
    pub fn name(self) -> String {
        let mut name = String::new();
        for letter in self.word().chars() {
            // Of the digits a bit width alone stands apart.
            if !name.is_empty() && (letter.is_ascii_uppercase() || letter == '6') {
                name.push('_');
            }
            name.push(letter.to_ascii_uppercase());
        }
        name
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_the_kernel_s() {
        let names = |opcodes: &[Opcode]| opcodes.iter().map(|opcode| opcode.name()).collect::<Vec<_>>();
        let several = [Opcode::Lookup, Opcode::BatchForget, Opcode::Rename2, Opcode::CopyFileRange64];
        assert_eq!(names(&several), ["LOOKUP", "BATCH_FORGET", "RENAME2", "COPY_FILE_RANGE_64"]);
        let mut all = names(Opcode::ALL);
        all.sort();
        all.dedup();
        assert_eq!(all.len(), Opcode::ALL.len());
    }

    #[test]
    fn numbers_round_trip_and_unknown_ones_are_none() {
        for &opcode in Opcode::ALL {
            assert_eq!(Opcode::from_number(opcode as u32), Some(opcode));
        }
        for number in [0, 7, 19, 54, 4096, u32::MAX] {
            assert_eq!(Opcode::from_number(number), None);
        }
    }
}
