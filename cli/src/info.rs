//! `narufs info`: what an image is. It reads only, and works while the image is mounted.

use crate::args::Info;
use crate::failure::{Failure, Status};
use crate::output::say;
use crate::size::Size;
use narufs_engine::device::BLOCK_SIZE;
use narufs_engine::format::{
    Access, Features, JournalKind, SLOT_SIZE, STATE_CLEAN, STATE_DAMAGED, Superblock,
};
use narufs_engine::pmem::DurabilityLevel;
use narufs_engine::scratch::is_spill_space;
use std::fs::File;
use std::os::unix::fs::FileTypeExt;
use std::path::Path;

/// What is shown, in the order of showing. The keys of the JSON document stay the same in all versions.
#[derive(Debug, serde::Serialize)]
struct Shown {
    label: String,
    uuid: String,
    state: &'static str,
    size_bytes: u64,
    block_size: usize,
    groups: u64,
    format_version: u32,
    /// What the image uses beyond its version.
    features: ShownFeatures,
    journal: JournalKind,
    /// What survives the loss of power, or of the process alone, once fsync has returned.
    survives: DurabilityLevel,
    journal_bytes: u64,
    journal_slots: u64,
    journal_path: Option<String>,
    double_write_bytes: u64,
    mount_epoch: u64,
    created_unix_s: u64,
}

/// The words of features, and what this build may do with them.
#[derive(Debug, serde::Serialize)]
struct ShownFeatures {
    compat: u64,
    ro_compat: u64,
    incompat: u64,
    /// `write`, `read` or `refused`.
    access: &'static str,
}

/// Prints it.
pub fn run(args: &Info) -> Result<(), Failure> {
    let sb = read(&args.image).map_err(|e| Failure::about(Status::Failed, &args.image, e))?;
    let shown = Shown::of(&sb);
    if args.json {
        let json = serde_json::to_string_pretty(&shown);
        say!("{}", json.map_err(|e| Failure::new(Status::Failed, e.to_string()))?);
    } else {
        shown.print(Features::of(&sb));
    }
    Ok(())
}

/// The superblock of an image, mounted or not; what is wrong in words.
pub fn read(image: &Path) -> Result<Superblock, String> {
    // Looked at before it is opened: a pipe would wait for a writer, and the end of a directory is nowhere.
    let kind = image.metadata().map_err(|e| e.to_string())?.file_type();
    if !kind.is_file() && !kind.is_block_device() {
        return Err("is neither a regular file nor a block device".into());
    }
    let file = File::open(image).map_err(|e| e.to_string())?;
    narufs_engine::superblock::read_beside_mount(&file).map_err(|e| match is_spill_space(image) {
        Ok(true) => "spill space of a scratch file system, no image: narufs stats DIR shows its mount".into(),
        _ => e.to_string(),
    })
}

fn text(bytes: &[u8]) -> String {
    let end = bytes.iter().position(|b| *b == 0).unwrap_or(bytes.len());
    String::from_utf8_lossy(&bytes[..end]).into_owned()
}

impl ShownFeatures {
    fn of(sb: &Superblock) -> ShownFeatures {
        ShownFeatures {
            compat: sb.compat.get(),
            ro_compat: sb.ro_compat.get(),
            incompat: sb.incompat.get(),
            access: match Features::of(sb).access() {
                Access::Write => "write",
                Access::Read => "read",
                Access::Refused => "refused",
            },
        }
    }
}

impl Shown {
    fn of(sb: &Superblock) -> Shown {
        let journal = JournalKind::from_u32(sb.journal_kind.get()).unwrap_or(JournalKind::Ssd);
        Shown {
            label: text(&sb.label),
            uuid: uuid::Uuid::from_bytes(sb.uuid).to_string(),
            state: match sb.state.get() {
                STATE_CLEAN => "clean",
                STATE_DAMAGED => "damaged",
                _ => "unclean",
            },
            size_bytes: sb.blocks.get() * BLOCK_SIZE as u64,
            block_size: BLOCK_SIZE,
            groups: sb.groups.get(),
            format_version: sb.version.get(),
            features: ShownFeatures::of(sb),
            journal,
            survives: match journal {
                JournalKind::Emulated => DurabilityLevel::Process,
                JournalKind::Ssd | JournalKind::Pmem => DurabilityLevel::Power,
            },
            journal_bytes: sb.ring_slots.get() * SLOT_SIZE as u64,
            journal_slots: sb.ring_slots.get(),
            journal_path: Some(text(&sb.journal_path)).filter(|p| !p.is_empty()),
            double_write_bytes: sb.dw_blocks.get() * BLOCK_SIZE as u64,
            mount_epoch: sb.epoch.get(),
            created_unix_s: sb.created.get() / 1_000_000_000,
        }
    }

    fn print(&self, features: Features) {
        let journal = match self.journal {
            JournalKind::Ssd => "ring on the image, staged in shared memory".to_owned(),
            JournalKind::Pmem => {
                format!("persistent memory, {}", self.journal_path.as_deref().unwrap_or("?"))
            }
            JournalKind::Emulated => format!("emulated NVM, {}", self.journal_path.as_deref().unwrap_or("?")),
        };
        let state = match self.state {
            "damaged" => "damaged: run narufs fsck --repair",
            "unclean" => "unclean: mounted, or not unmounted cleanly",
            other => other,
        };
        let survives = match self.survives {
            DurabilityLevel::Process => "the end of the server, not of the machine",
            DurabilityLevel::Power => "a loss of power (with durability=process: the end of the server)",
        };
        let features = match features.access() {
            Access::Write => features.to_string(),
            Access::Read => format!("{features}: this narufs can only read the image"),
            Access::Refused => format!("{features}: this narufs cannot use the image"),
        };
        let rows = [
            ("label", if self.label.is_empty() { "(none)".to_owned() } else { self.label.clone() }),
            ("uuid", self.uuid.clone()),
            ("state", state.to_owned()),
            ("size", Size(self.size_bytes).to_string()),
            ("groups", self.groups.to_string()),
            ("format", self.format_version.to_string()),
            ("features", features),
            ("journal", format!("{}, {journal}", Size(self.journal_bytes))),
            ("fsync survives", survives.to_owned()),
            ("double-write", Size(self.double_write_bytes).to_string()),
            ("mounts", self.mount_epoch.to_string()),
        ];
        for (name, value) in rows {
            say!("{name:<14} {value}");
        }
    }
}
